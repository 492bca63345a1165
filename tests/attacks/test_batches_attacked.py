"""Sites that read their tables batch by batch: the attacks on those that hold them, on all rows and on the sample."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from malicious import (
    EXACT,
    FLOOR,
    N_ROWS,
    Malicious,
    columns_of,
    n_rows_reported,
    n_told_between,
    streamed_folder,
    table,
)
from test_cells_alone import Ask, Asking, Naive, Told
from test_differencing import bisected, combed
from test_preparation import measure_of, micro_clusters, opened, plan_of
from test_shaping import said

import koncord
from koncord.data.batches import batched_table, sampled_table
from koncord.kernels.assign import nearest, sums_by_label
from koncord.protocol import setup
from koncord.session.streamedsite import StreamedSite
from koncord.session.versions import joint_folder


def coordinator_of(folder, X):
    return Malicious(streamed_folder(folder / "site", X), X)


def summed_step(local, state: None, down: Ask) -> tuple[None, Told]:
    """Count and sum of all rows nearest to each center, batch by batch."""
    k = len(down.centers)
    counts, sums = np.zeros(k, dtype=np.int64), np.zeros(down.centers.shape)
    for X, labels in local.grouped(lambda rows: nearest(rows, down.centers), k).batches():
        counts += np.bincount(labels, minlength=k)
        sums += sums_by_label(X, labels, k)
    return None, Told(counts=counts, sums=sums)


class ByBatches(Naive):
    """A method of another package that takes sums of whatever it is given."""

    name: ClassVar[str] = "by-batches"
    streamed_steps: ClassVar[Mapping[type, object]] = {Ask: summed_step}


def test_questions_by_nearest_center_tell_no_row(capsys, recovered):
    X = table()[:, :8]
    whole = pa.table({name: X[:, at] for at, name in enumerate(columns_of(X))})
    sampled = sampled_table(batched_table(whole, name="s"), 150)
    coordinator = Asking(StreamedSite("s", sampled, estimator=koncord.KnownCounts(3), aggregator=ByBatches()))
    moments = coordinator.moments
    found = [row for column in (0, 1) for row in bisected(coordinator, moments, column, 40 * (column + 1))]
    rng = np.random.default_rng(3)
    for _ in range(2):
        direction = rng.normal(size=X.shape[1])
        direction /= np.linalg.norm(direction)
        found += combed(coordinator, direction, moments, n_slabs=20, n_shifts=30, shift=0.02, a_time=1)
    n_rows, n_wrong = n_rows_reported(found, X)
    said(capsys, f"batches: {coordinator.n_asked} questions: {n_rows} of {N_ROWS} rows, {n_wrong} wrong guesses")
    recovered(rows=n_rows)


def test_twenty_runs_on_scales_of_their_own_tell_no_row(tmp_path, capsys, recovered):
    X = table()[:, :8]
    coordinator = coordinator_of(tmp_path, X)
    rng, seen = np.random.default_rng(0), []
    for _ in range(20):
        moments = coordinator.moments()
        seen.append((np.array([moments.count]), (moments.count * moments.means)[None]))
        scales = np.exp(rng.normal(size=X.shape[1]))
        assert coordinator.prepare(scales=scales), coordinator.seen
        micro = micro_clusters(coordinator)
        seen.append((micro.counts, micro.counts[:, None] * micro.means * scales))
        coordinator.new_run()
    n_rows, n_wrong = n_told_between(seen, X)
    said(capsys, f"batches: 20 runs on scales of their own: {n_rows} rows, {n_wrong} wrong guesses")
    assert min(each[0].min() for each in seen) >= FLOOR
    recovered(rows=n_rows)


@pytest.mark.parametrize("share", [0.002, 0.05, 0.2])
def test_no_count_of_one_or_two_positives_is_sent(share, tmp_path, capsys, recovered):
    rng = np.random.default_rng(1)
    X = np.c_[table()[:, :5], rng.random(N_ROWS) < share].astype(float)
    coordinator = coordinator_of(tmp_path, X)
    moments = coordinator.moments()
    coordinator.prepare()
    micro = micro_clusters(coordinator)
    positives = np.append(micro.counts * micro.means[:, 5], moments.count * moments.means[5])
    n_small = int(((positives > 0.5) & (positives < 2.5)).sum())
    said(capsys, f"batches: counts of 1 or 2 of {X[:, 5].sum():.0f} positives: {n_small} of {len(positives)}")
    recovered(values=n_small)
    np.testing.assert_allclose(positives[:-1] / 3, np.rint(positives[:-1] / 3), atol=1e-6)


@pytest.mark.parametrize("share", [0.05, 0.6, 0.97])
def test_a_fence_is_no_window(share, tmp_path, capsys, recovered):
    X = table()[:, :8]
    coordinator = coordinator_of(tmp_path, X)
    low, high = np.quantile(X, [(1 - share) / 2, (1 + share) / 2], axis=0)
    measure = replace(measure_of(X), low=low, high=high)
    opened(coordinator, measure)
    opened(coordinator, plan_of(measure))
    micro = micro_clusters(coordinator)
    rests = (micro.counts[:, None] * (micro.means - low)) % (high - low)
    is_inside = (rests > EXACT) & (rests < high - low - EXACT)
    gaps = np.abs((low + rests)[:, :, None] - X.T).min(axis=2)
    n_told = int((gaps[is_inside] < EXACT).sum())
    said(capsys, f"batches: fences around {share:.0%}: {n_told} values of {int(is_inside.sum())} guesses")
    recovered(values=n_told)


def test_the_largest_value_does_not_follow_from_sums(tmp_path, capsys):
    rng = np.random.default_rng(2)
    largest, guesses = [], []
    for draw in range(10):
        X = np.c_[np.exp(2 * rng.normal(size=400)), rng.normal(size=(400, 2))]
        (tmp_path / f"{draw}").mkdir()
        coordinator = coordinator_of(tmp_path / f"{draw}", X)
        moments = coordinator.moments()
        coordinator.prepare()
        micro = micro_clusters(coordinator)
        top = micro.means[:, 0].argmax()
        largest.append(X[:, 0].max())
        spread = np.sqrt(moments.scatters[0])
        guesses.append(
            [
                moments.means[0] + spread,
                moments.means[0] + np.sqrt(0.1) * spread,
                micro.counts[top] * micro.means[top, 0],
            ]
        )
    is_near = np.abs(np.array(guesses) / np.array(largest)[:, None, None] - 1) < 0.1
    n_found, by_chance = is_near[np.arange(10), np.arange(10)].sum(axis=0), 10 * is_near.mean(axis=(0, 1))
    said(
        capsys, f"batches: largest values to within 10 %: {n_found.tolist()} of 10 ({np.round(by_chance, 1)} by chance)"
    )
    assert (n_found <= by_chance + 3 * np.sqrt(by_chance) + 1).all()


def test_a_sketch_of_the_sample_is_of_blocks_of_enough_rows_and_the_same_in_every_run(tmp_path, capsys):
    """The sample is 150 rows of 1,000: a block of it is the mean of 20 rows, and no other sample is ever drawn."""
    X = table()[:, :3]
    coordinator = coordinator_of(tmp_path, X)
    sketches = []
    for _ in range(3):
        sketches.append(opened(coordinator, setup.Survey()))
        coordinator.new_run()
    blocks = np.concatenate([each.blocks.ravel() for each in sketches])
    blocks = blocks[~np.isnan(blocks)]
    n_told = int((np.abs(blocks[:, None] - X.ravel()).min(axis=1) < EXACT).sum())
    said(capsys, f"batches: blocks of the sample that are values of rows: {n_told} of {len(blocks)}")
    assert all(np.array_equal(sketches[0].blocks, each.blocks, equal_nan=True) for each in sketches)
    assert len(sketches[0].blocks) <= 150 // FLOOR


def test_what_was_answered_of_batches_is_in_the_record_of_the_owner(tmp_path):
    X = table()[:, :3]
    coordinator = coordinator_of(tmp_path, X)
    coordinator.moments()
    joint = joint_folder(coordinator.place.folder)
    for path in joint.iterdir():
        content = path.read_bytes()
        assert not any(value.tobytes() in content for value in X.ravel()), path.name
