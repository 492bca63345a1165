"""One run -> its values, each kind against the same thing written out plainly."""

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import koncord
from koncord.aggregate.fedgem import UPSILONS
from koncord.errors import KoncordError
from koncord.estimate.asm import ASM_GRID
from koncord.estimate.search import combinations
from koncord_reproduction import load, runner, synthetic
from koncord_reproduction.dealing import dealt_rows
from koncord_reproduction.process import SeededDPGMM
from koncord_reproduction.protocol import QUARTER_SEED, SETS
from koncord_reproduction.pyclustered import PyGMeans, PyXMeans
from koncord_reproduction.rows import Row, Run
from koncord_reproduction.runner import chosen_config, deal, table, upsilon_for, values_of

FIGURES = Path(__file__).parents[1] / "docs" / "figures"


def row(run, status="done", **values):
    return Row(run=run, status=status, reason="" if status == "done" else "why", seconds=1, versions="", values=values)


def tuned_upsilon(*scores, status="done", dataset="waveform"):
    run = Run("tune-federated", dataset, "oracle", 1000)
    return row(run, status, upsilons=[1, 5, 10], scores=list(scores))


def tuned_config(scores, counts, method="asm-s"):
    return row(Run("tune-pooled", "waveform", method, 1000), scores=scores, counts=counts)


def standardised(name):
    data = load(name)
    return StandardScaler().fit_transform(data.X), data.y


def dealt_plainly(regime, seed):
    X, y = standardised("waveform")
    train, test = train_test_split(np.arange(len(y)), test_size=0.3, stratify=y, random_state=seed)
    return X, y, [train[part] for part in dealt_rows(y[train], 5, regime, seed)], test


# --- federated ---


@pytest.mark.parametrize("regime", ["A", "B"])
def test_a_federated_run_is_the_papers_protocol(regime):
    values = values_of(Run(f"federated-{regime.lower()}", "waveform", "oracle", 43), [tuned_upsilon(0.1, 0.3, 0.2)])
    X, y, parts, test = dealt_plainly(regime, 43)
    counts = [len(set(y[part].tolist())) for part in parts]
    fitted = koncord.FederatedClustering(
        koncord.KnownCounts(counts), koncord.FedGEM(upsilon=5), random_state=43, min_report=1, standardize=False
    )
    fitted.fit([X[part] for part in parts])
    assert values["ari"] == adjusted_rand_score(y[test], fitted.predict(X[test]))
    assert values["k"] == fitted.n_clusters_
    assert values["upsilon"] == 5
    assert values["local_counts"] == values["true_counts"] == counts
    assert values["sizes"] == [len(part) for part in parts]
    own = []
    for site, part in zip(fitted.sites_, parts, strict=True):
        means = fitted.model_.components[site]
        labels = ((X[part][:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
        own.append(adjusted_rand_score(y[part], labels))
    assert values["personalised_ari"] == pytest.approx(np.mean(own), abs=1e-12)
    assert 0 < values["phase1_ms"] < 60_000
    assert 0 < values["phase2_seconds"] < 60


def test_other_runs_before_it_change_nothing_in_a_run():
    run, tuned = Run("federated-a", "waveform", "xmeans", 42), [tuned_upsilon(0.1, 0.3, 0.2)]
    alone = values_of(run, tuned)
    values_of(Run("federated-a", "waveform", "oracle", 42), tuned)
    values_of(Run("federated-b", "waveform", "xmeans", 42), tuned)
    again = values_of(run, tuned)
    for name in ("ari", "k", "personalised_ari", "local_counts", "sizes"):
        assert again[name] == alone[name]


def test_tuning_scores_upsilon_as_fedgem_does_when_it_is_left_open():
    values = values_of(Run("tune-federated", "waveform", "oracle", 1000), [])
    X, y, parts, _ = dealt_plainly("A", 1000)
    counts = [len(set(y[part].tolist())) for part in parts]
    fitted = koncord.FederatedClustering(
        koncord.KnownCounts(counts), koncord.FedGEM(), random_state=1000, min_report=1, standardize=False
    )
    choice = fitted.fit([X[part] for part in parts]).model_.diagnostics.choice
    candidates = {each.upsilon: each for each in choice.candidates}
    assert values["upsilons"] == [1, 5, 10]
    assert set(values["upsilons"]) <= set(UPSILONS)
    assert values["k"] == [candidates[upsilon].n_clusters for upsilon in (1, 5, 10)]
    sums = [candidates[upsilon].score for upsilon in (1, 5, 10)]  # over the five clients
    assert values["scores"] == pytest.approx(np.array(sums) / 5)


@pytest.mark.parametrize(
    ("tuned", "upsilon"),
    [
        ([tuned_upsilon(0.1, 0.4, 0.2), tuned_upsilon(0.1, 0.1, 0.2)], 5),
        ([tuned_upsilon(0.1, 0.4, 0.2), tuned_upsilon(0.1, 0.1, 0.9)], 10),
        ([tuned_upsilon(0.1, 0.2, 0.2), tuned_upsilon(0.1, 0.2, 0.2)], 5),  # a tie goes to the smaller
        ([tuned_upsilon(status="timed out"), tuned_upsilon(0.3, 0.1, 0.2)], 1),
    ],
)
def test_the_upsilon_with_the_largest_mean_score_is_used(tuned, upsilon):
    assert upsilon_for(Run("federated-b", "waveform", "oracle", 42), tuned) == upsilon


def test_a_run_whose_tuning_never_ended_says_so():
    tuned = [tuned_upsilon(status="failed"), tuned_upsilon(status="timed out")]
    with pytest.raises(KoncordError, match=r"no upsilon could be chosen.*tune-federated/waveform/oracle/1000: why"):
        values_of(Run("federated-a", "waveform", "oracle", 42), tuned)


def test_image_sets_have_their_upsilon_without_tuning():
    assert upsilon_for(Run("federated-a", "fmnist", "asm-s", 42), []) == 300


def test_the_released_program_is_run_on_the_same_clients():
    values = values_of(Run("released", "waveform", "released", 42), [tuned_upsilon(0, 0, 1)])
    X, y, parts, test = dealt_plainly("A", 42)
    counts = [len(set(y[part].tolist())) for part in parts]
    server = koncord.FedGEM(upsilon=10, variant="released", n_rounds=10)
    fitted = koncord.FederatedClustering(
        koncord.KnownCounts(counts), server, random_state=42, min_report=1, standardize=False
    )
    fitted.fit([X[part] for part in parts])
    assert values["ari"] == adjusted_rand_score(y[test], fitted.predict(X[test]))
    assert (values["k"], values["upsilon"]) == (fitted.n_clusters_, 10)
    assert -1 <= values["personalised_ari"] <= 1


def test_an_aggregator_that_is_given_k_finds_k():
    values = values_of(Run("aggregators-a", "waveform", "fedkmeans", 42), [])
    assert (values["k"], values["given"]) == (3, "K")
    assert 0.2 < values["ari"] < 0.4


# --- pooled ---


@pytest.fixture(scope="module")
def pooled_tuning():
    runs = [Run("tune-pooled", "waveform", "asm-s", seed) for seed in (1000, 1001)]
    return [row(run, **values_of(run, [])) for run in runs]


def test_pooled_tuning_scores_the_whole_grid(pooled_tuning):
    for tuned in pooled_tuning:
        assert len(tuned.values["scores"]) == len(tuned.values["counts"]) == 120
        best = int(np.nanargmax(tuned.values["scores"]))
        assert 2 <= tuned.values["counts"][best] <= 4  # three classes


def test_pooled_tuning_is_a_fit_on_80_percent_scored_on_the_rest(pooled_tuning):
    X, _ = standardised("waveform")
    held, fit = np.split(np.random.RandomState(1000).permutation(len(X)), [len(X) // 5])
    config = {"min_mass": 200, "split_factor": 1.0, "merge_factor": 2.0}
    asm = koncord.ASM(**config).fit(X[fit])
    at = combinations(ASM_GRID).index(config)
    assert pooled_tuning[0].values["counts"][at] == asm.n_components_
    silhouette = runner.HeldOut(X, held).score(asm.predict(X[held]))
    assert pooled_tuning[0].values["scores"][at] == pytest.approx(silhouette)


def test_a_pooled_run_fits_the_chosen_configuration_to_the_training_part(pooled_tuning):
    run = Run("pooled", "waveform", "asm-s", 42)
    values = values_of(run, pooled_tuning)
    X, y = standardised("waveform")
    train, test = train_test_split(np.arange(len(y)), test_size=0.3, stratify=y, random_state=42)
    assert values["config"] == chosen_config(run, pooled_tuning)
    asm = koncord.ASM(**values["config"]).fit(X[train])
    assert values["k"] == asm.n_components_
    assert values["ari"] == adjusted_rand_score(y[test], asm.predict(X[test]))


def test_the_merge_sweep_meets_the_pooled_run_and_the_split_stage(pooled_tuning):
    swept = values_of(Run("merge-sweep", "waveform", "asm-s", 42), pooled_tuning)
    pooled = values_of(Run("pooled", "waveform", "asm-s", 42), pooled_tuning)
    assert swept["selected"] == pooled["config"]
    assert (swept["selected_ari"], swept["selected_k"]) == (pooled["ari"], pooled["k"])
    X, y = standardised("waveform")
    train, test = train_test_split(np.arange(len(y)), test_size=0.3, stratify=y, random_state=42)
    for merge_factor in (0.0, 1.25):
        asm = koncord.ASM(**{**pooled["config"], "merge_factor": merge_factor}).fit(X[train])
        at = swept["alphas"].index(merge_factor)
        assert swept["k"][at] == asm.n_components_
        assert swept["ari"][at] == adjusted_rand_score(y[test], asm.predict(X[test]))


def test_kmeans_is_given_the_number_of_classes():
    values = values_of(Run("pooled", "waveform", "kmeans", 42), [])
    X, y = standardised("waveform")
    train, test = train_test_split(np.arange(len(y)), test_size=0.3, stratify=y, random_state=42)
    labels = KMeans(3, n_init=10, random_state=42).fit(X[train]).predict(X[test])
    assert values == {"ari": adjusted_rand_score(y[test], labels), "k": 3, "config": {"n_clusters": 3}}


@pytest.mark.parametrize(
    ("method", "estimator"),
    [
        ("xmeans", PyXMeans(random_state=42)),
        ("gmeans", PyGMeans(random_state=42)),
    ],
)
def test_xmeans_and_gmeans_are_what_pyclustering_does_with_nothing_to_choose(method, estimator):
    values = values_of(Run("pooled", "waveform", method, 42), [])
    X, y = standardised("waveform")
    train, test = train_test_split(np.arange(len(y)), test_size=0.3, stratify=y, random_state=42)
    estimator.fit(X[train])
    assert values["k"] == estimator.n_components_
    assert values["ari"] == adjusted_rand_score(y[test], estimator.predict(X[test]))


def plainly_chosen(scores, counts):
    """The rule as the paper words it, one configuration after the other."""
    best = None
    for at in range(len(scores[0])):
        mean = sum(each[at] for each in scores) / len(scores) if all(each[at] is not None for each in scores) else None
        count = sum(each[at] for each in counts) / len(counts)
        if best is None or beats((mean, count), best[0]):
            best = (mean, count), at
    return best[1]


def beats(one, other):
    if one[0] is None or other[0] is None:
        return one[0] is not None or (other[0] is None and one[1] < other[1])
    return one[0] > other[0] or (one[0] == other[0] and one[1] < other[1])


SCORES = st.lists(st.sampled_from([None, 0.125, 0.25, 0.5]), min_size=120, max_size=120)
COUNTS = st.lists(st.integers(1, 3), min_size=120, max_size=120)


@settings(max_examples=30)
@given(st.tuples(SCORES, SCORES), st.tuples(COUNTS, COUNTS))
def test_the_largest_mean_silhouette_wins_then_the_smaller_count_then_the_order(scores, counts):
    tuned = [tuned_config(*each) for each in zip(scores, counts, strict=True)]
    chosen = chosen_config(Run("pooled", "waveform", "asm-s", 42), tuned)
    assert chosen == combinations(ASM_GRID)[plainly_chosen(scores, counts)]


def test_dpgmm_is_scored_like_any_other_on_its_own_grid():
    X, _ = standardised("waveform")
    held, fit = np.split(np.random.default_rng(0).permutation(500), [100])
    grid = {"concentration": (0.01, 1), "weight_threshold": (0.01, 0.1)}
    scored = runner.score_dpgmm(X, fit, runner.HeldOut(X, held), grid, 1000)
    assert [each.params for each in scored] == combinations(grid)
    for each in scored:
        dpgmm = SeededDPGMM(**each.params, random_state=1000).fit(X[fit])
        assert each.n_components == dpgmm.n_components_
        assert each.score == pytest.approx(runner.HeldOut(X, held).score(dpgmm.predict(X[held])), nan_ok=True)


def test_the_quarter_is_a_fixed_quarter():
    part, whole = runner.quarter("waveform"), table("waveform")
    kept = np.sort(np.random.default_rng(QUARTER_SEED).permutation(5000)[:1250])
    np.testing.assert_array_equal(part.X, whole.X[kept])
    np.testing.assert_array_equal(part.y, whole.y[kept])


# --- what the data are ---


def test_classes_have_the_anisotropy_of_their_covariance():
    values = values_of(Run("classes", "waveform", "classes", 0), [])
    X, y = standardised("waveform")
    plain = []
    for label in range(3):
        eigenvalues = np.linalg.eigvalsh(np.cov(X[y == label].T))
        plain.append(eigenvalues[-1] / eigenvalues.mean())
    assert values["anisotropies"] == pytest.approx(plain)
    assert (values["n"], values["d"], values["k"]) == (5000, 21, 3)
    assert values["data"] == load("waveform").note


@pytest.mark.parametrize("regime", ["A", "B"])
def test_a_partition_row_counts_rows_and_classes_of_each_client(regime):
    values = values_of(Run(f"partition-{regime.lower()}", "waveform", "partition", 44), [])
    _, y, parts, _ = dealt_plainly(regime, 44)
    assert values == {"sizes": [len(part) for part in parts], "counts": [len(set(y[part])) for part in parts]}


def test_tables_are_standardised_and_embeddings_are_not():
    assert table("waveform").X.std(axis=0) == pytest.approx(np.ones(21))
    try:
        stored = load("cifar10").X
    except KoncordError as error:
        pytest.skip(str(error))
    np.testing.assert_array_equal(table("cifar10").X, stored)


def test_half_of_emnist_is_held_out():
    try:
        dealt = deal("emnist", "A", 42)
    except KoncordError as error:
        pytest.skip(str(error))
    assert len(dealt.test) == pytest.approx(len(dealt.data.y) / 2, abs=1)
    assert len(dealt.parts) == SETS["emnist"].n_clients == 25
    assert Counter(np.concatenate([*dealt.parts, dealt.test]).tolist()).most_common(1)[0][1] == 1


# --- synthetic ---


def stored_figures(name, **at):
    with (FIGURES / f"{name}.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if all(float(row[key]) == value for key, value in at.items())]


def test_the_synthetic_onset_is_the_one_of_the_theory_page(monkeypatch):
    monkeypatch.setattr(synthetic, "SIZES", synthetic.SIZES[:8])
    values = values_of(Run("synthetic-onset", "gauss-8", "r3", 0), [])
    assert values["d"] == 8
    assert values["r"] == pytest.approx(synthetic.anisotropies(8)[2])
    stored = stored_figures("split_acceptance", d=8, r=round(values["r"], 4))[:8]
    assert values["sizes"] == [int(each["n"]) for each in stored]
    for name, column in {
        "accepted": "asm_1",
        "accepted_half_factor": "asm_0.5",
        "accepted_double_factor": "asm_2",
        "ideal_accepted": "hard",
        "agree_sample": "sample_r_foresees_hard",
        "agree_population": "population_r_foresees_hard",
    }.items():
        assert values[name] == pytest.approx([float(each[column]) for each in stored], abs=0.021)  # one draw of fifty


def test_the_components_before_merging_are_those_of_the_theory_page():
    values = values_of(Run("synthetic-components", "gauss-16", "n142", 0), [])
    (stored,) = stored_figures("components_before_merging", d=16, n=142)
    assert (values["d"], values["n"], len(values["components"])) == (16, 142, 20)
    assert np.median(values["components"]) == pytest.approx(float(stored["median"]), abs=1)
    assert np.mean(values["components"]) == pytest.approx(float(stored["mean"]), abs=0.5)
