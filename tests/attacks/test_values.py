"""What numbers tell besides: who was in a table, rare values of 0/1 columns, and the largest values."""

import numpy as np
import pytest
from malicious import FLOOR, Malicious, state_folder
from sklearn.metrics import roc_auc_score

from koncord.aggregate import consensus
from koncord.protocol.dominance import PERCENT
from koncord.protocol.wire import unpack
from koncord_reproduction.waveform import waveform


def reported(folder, X, **options):
    """Moments and micro-clusters of a site with this table, as it sends them."""
    folder.mkdir(exist_ok=True)
    coordinator = Malicious(state_folder(folder, X, **options), X)
    moments = coordinator.moments()
    assert coordinator.prepare()
    return moments, unpack(coordinator.ask(consensus.Report(min_report=1))[0], (consensus.MicroClusters,))[0]


def nearness(micro, X):
    """How near rows are to the micro-clusters, in units of their deviation: members should be nearer."""
    gaps = ((X[:, None] - micro.means) ** 2).sum(axis=2)
    return -(gaps / np.maximum(micro.variances, 1e-12)).min(axis=1)


# --- membership ---


def test_membership_from_micro_clusters_is_hardly_better_than_a_guess(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    aucs = []
    for draw in range(3):
        monkeypatch.setenv("KONCORD_TABLES", str(tmp_path / f"tables-{draw}"))  # of an owner of its own
        rows = waveform()[0][rng.permutation(5000)[:3000]]
        members, others, reference = np.split(rows, 3)
        _, micro = reported(tmp_path / f"own-{draw}", members)
        _, usual = reported(tmp_path / f"usual-{draw}", reference)
        asked = np.concatenate([members, others])
        scores = nearness(micro, asked) - nearness(usual, asked)  # calibrated by a table of the same kind
        aucs.append(roc_auc_score(np.repeat([1, 0], 1000), scores))
    with capsys.disabled():
        print(f"\n  membership, Waveform, floor {FLOOR}: AUC {np.mean(aucs):.3f}", end=" ")
    assert np.mean(aucs) < 0.7


# --- rare values ---


@pytest.mark.parametrize("share", [0.002, 0.05, 0.2])
def test_no_count_of_one_or_two_positives_is_sent(share, tmp_path, capsys, recovered):
    rng = np.random.default_rng(1)
    X = np.c_[waveform()[0][:1000, :6], rng.random(1000) < share]
    moments, micro = reported(tmp_path, X)
    positives = np.append(micro.counts * micro.means[:, 6], moments.count * moments.means[6])
    n_small = int(((positives > 0.5) & (positives < 2.5)).sum())
    n_all = int((micro.counts == np.rint(positives[:-1])).sum())
    with capsys.disabled():
        print(
            f"\n  positives, {share:.1%}: {n_small} of {len(positives)} counts are 1 or 2, {n_all} cells all", end=" "
        )
    recovered(values=n_small)


# --- large values ---


def heavy(kind, rng, n):
    if kind == "Pareto 1":
        return rng.pareto(1, size=n) + 1
    return np.exp({"log-normal 2": 2.0, "log-normal 3": 3.0}[kind] * rng.normal(size=n))


@pytest.mark.parametrize("kind", ["log-normal 2", "log-normal 3", "Pareto 1"])
def test_the_largest_value_of_a_heavy_tail_is_guessed_no_better_than_that_of_another_site(kind, tmp_path, capsys):
    rng = np.random.default_rng(2)
    guesses, largest = [], []
    for draw in range(30):
        X = np.c_[heavy(kind, rng, 300), rng.normal(size=(300, 2))]
        moments, micro = reported(tmp_path / f"{draw}", X)
        top = micro.means[:, 0].argmax()
        largest.append(X[:, 0].max())
        guesses.append(
            [
                moments.means[0] + np.sqrt(moments.scatters[0]),  # one row makes up all of the spread
                moments.means[0] + np.sqrt(PERCENT * moments.scatters[0]),  # or as much as is let through
                micro.means[top, 0] + np.sqrt(micro.scatters[top]),
                micro.means[top, 0] * micro.counts[top],  # or all of the sum
            ]
        )
    is_near = np.abs(np.array(guesses) / np.array(largest)[:, None, None] - 1) < 0.1  # largest of, guesses at
    n_found, by_chance = is_near[np.arange(30), np.arange(30)].sum(axis=0), 30 * is_near.mean(axis=(0, 1))
    with capsys.disabled():
        figures = ", ".join(f"{n} ({chance:.1f} by chance)" for n, chance in zip(n_found, by_chance, strict=True))
        print(f"\n  the largest value, {kind}, to within 10 %, by four guesses: {figures} of 30 sites", end=" ")
    assert (n_found <= by_chance + 3 * np.sqrt(by_chance) + 1).all()


def test_a_row_far_from_a_tight_cluster_is_not_found_by_taking_the_cluster_off_a_micro_cluster(
    tmp_path, capsys, recovered
):
    rng = np.random.default_rng(3)
    n_found = 0
    for draw in range(20):
        lone = np.array([[5.0, -7.0, 6.0]]) + rng.normal(size=(1, 3))
        X = np.concatenate([rng.normal(0, 0.01, (400, 3)), rng.normal(60, 15, (200, 3)), lone])
        _, micro = reported(tmp_path / f"{draw}", rng.permutation(X))
        tight = micro.means[np.linalg.norm(micro.means, axis=1) < 0.5].mean(axis=0)
        guesses = micro.counts[:, None] * micro.means - (micro.counts - 1)[:, None] * tight
        n_found += (np.abs(guesses - lone).max(axis=1) < 0.5).any()
    with capsys.disabled():
        print(f"\n  lone rows beside a tight cluster: {n_found} of 20 found to within 10 %", end=" ")
    recovered(values=n_found)
