"""The owner's record of tables: state folders over the same rows answer by one joint partition, or do not."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from koncord.data.batches import batched_table
from koncord.errors import NotAllowed
from koncord.network.places import Invitation
from koncord.network.shared import other_states
from koncord.network.sitefolder import SiteFolder, answer
from koncord.network.tables import Marking, Sample, TableRecord, record_folder, share_rows
from koncord.privacy.budget import Budget
from koncord.protocol import setup
from koncord.protocol.wire import pack, unpack
from koncord.session.policy import SitePolicy
from koncord.session.streamedfile import StreamedSource
from koncord.session.versions import (
    ASKED,
    NEXT,
    PARTITION,
    VERSION,
    joint_folder,
    read_version,
    stored,
    version_digest,
    write_cells,
)

FLOOR = 20
METHOD = json.dumps({"aggregator": "consensus", "estimator": {"name": "xmeans"}})


def rows(n=100, seed=0, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def columns_of(X):
    return tuple("abcdefgh"[: X.shape[1]])


def joined(folder, X, *, floor=FLOOR, columns=None, budget=None, max_runs=None, **options):
    invitation = Invitation(site="north", address="localhost:1", authority="", key="")
    policy = SitePolicy(min_report=floor, budget=budget, max_runs=max_runs)
    return SiteFolder.create(folder, invitation, X, columns or columns_of(X), policy, **options)


def asked(place, run="run-1"):
    """How many rows a site describes in a new run."""
    replies = answer(place.folder, run, 1, METHOD, [pack(setup.Describe())]).replies
    return unpack(replies[0], (setup.Moments,))[0].count


# --- which tables share rows ---


def marked(X, columns=None, levels=None, key=b"key"):
    marking = Marking(key, columns or columns_of(X), levels)
    marking.add(X)
    return marking.marks


def test_tables_share_rows_from_half_the_floor_on():
    X, others = rows(200), rows(200, seed=1)
    for n_common, is_shared in ((0, False), (FLOOR // 2, False), (FLOOR // 2 + 1, True), (200, True)):
        mixed = np.concatenate([X[:n_common], others[n_common:]])
        assert share_rows(marked(X), marked(mixed), FLOOR) is is_shared


def test_neither_order_of_rows_nor_of_columns_hides_a_table():
    X = rows()
    assert share_rows(marked(X), marked(X[::-1, ::-1], columns_of(X)[::-1]), FLOOR)
    assert not share_rows(marked(X), marked(X, key=b"another"), FLOOR)


def test_a_table_with_a_column_fewer_or_in_other_units_is_known_by_the_others():
    X = rows(300, d=4)
    assert share_rows(marked(X), marked(X[:, 1:], ("b", "c", "d")), FLOOR)
    assert share_rows(marked(X), marked(np.c_[X[:, 0] * 1.8 + 32, X[:, 1:]]), FLOOR)
    assert not share_rows(marked(X), marked(np.c_[X[:, 0], rows(300, seed=2)]), FLOOR)  # as a column of dates


def test_equal_rows_of_few_values_are_no_sign_of_the_same_people_unless_they_are_most():
    rng = np.random.default_rng(0)
    one, other = (np.c_[rng.integers(0, 30, (200, 2)), rng.integers(0, 2, 200)].astype(float) for _ in range(2))
    assert not share_rows(marked(one), marked(other), FLOOR)
    assert share_rows(marked(one), marked(one[5:]), FLOOR)


def test_levels_are_known_by_their_names():
    X, again = np.c_[rows(60, d=1), np.arange(60) % 2], np.c_[rows(60, d=1), np.arange(60) % 2 + 1]
    assert share_rows(marked(X, levels={"b": ("x", "y")}), marked(again, levels={"b": ("new", "x", "y")}), FLOOR)
    hashes = [
        Marking(b"k", ("a", "b"), {"b": levels}).hashed(table)
        for table, levels in ((X, ("x", "y")), (again, ("new", "x", "y")))
    ]
    np.testing.assert_array_equal(*hashes)


def test_a_sample_of_hashes_counts_as_all_of_them_do():
    rng = np.random.default_rng(0)
    whole = rng.integers(0, 2**64, 5000, dtype=np.uint64)
    twice = np.concatenate([whole, whole[:1000]])
    sample = Sample(most=500)
    for part in np.array_split(twice, 7):
        sample = sample.with_more(part)
    hashes, counts = np.unique(twice, return_counts=True)
    np.testing.assert_array_equal(sample.hashes, hashes[:500])
    np.testing.assert_array_equal(sample.counts, counts[:500])
    assert sample.n_single == pytest.approx(4000, rel=0.15)
    other = Sample(most=800).with_more(whole[2500:])
    assert sample.shared_with(other)[0] == pytest.approx(2500, rel=0.2)
    both = sample.with_others(other)
    assert not both.is_whole
    assert set(both.hashes.tolist()) == {
        each for each in sample.hashes.tolist() if each <= min(sample.hashes[-1], other.hashes[-1])
    } | {each for each in other.hashes.tolist() if each <= sample.hashes[-1]}


@pytest.mark.parametrize("n_common", [FLOOR // 2, FLOOR // 2 + 1])
def test_cells_of_tables_that_share_half_the_floor_stand_for_enough_rows_in_all_combinations(n_common):
    """By rank: without any fewer than N rows, the answers over both tables still determine the same combinations."""
    rng, n_open = np.random.default_rng(0), 0
    for _ in range(50):
        n_each = 3 * FLOOR
        a_of = np.repeat(np.arange(3), FLOOR)
        b_of = rng.permutation(a_of)
        shared = rng.permutation(n_each)[:n_common]
        if rng.random() < 0.5:  # as many as can be in one cell of both
            shared = np.arange(n_common)
            b_of[shared] = 0
            b_of[n_common:] = np.concatenate([np.zeros(FLOOR - n_common), np.ones(FLOOR), np.full(FLOOR, 2)])
        at_b = np.full(n_each, -1)
        at_b[:n_common] = shared
        at_b[n_common:] = n_each + np.arange(n_each - n_common)
        n_rows = 2 * n_each - n_common
        answers = np.zeros((6, n_rows))
        answers[a_of, np.arange(n_each)] = 1
        answers[3 + b_of, at_b] = 1
        for one in answers[:3]:
            for other in answers[3:]:
                left_out = np.flatnonzero(one != other)
                if len(left_out) < FLOOR:
                    kept = np.delete(answers, left_out, axis=1)
                    n_open += np.linalg.matrix_rank(kept) < np.linalg.matrix_rank(answers)
    assert bool(n_open) is (n_common > FLOOR // 2)


# --- state folders ---


def test_the_record_is_where_the_variable_says_and_else_where_the_platform_keeps_state(monkeypatch, tmp_path):
    monkeypatch.setenv("KONCORD_TABLES", str(tmp_path / "record"))
    assert record_folder() == tmp_path / "record"
    monkeypatch.delenv("KONCORD_TABLES")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert record_folder() == tmp_path / "koncord" / "tables"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert record_folder() == Path.home() / ".local" / "state" / "koncord" / "tables"


def test_a_table_of_which_nothing_was_answered_is_in_no_record(tmp_path):
    joined(tmp_path / "one", rows())
    assert list(TableRecord().tables()) == []
    joined(tmp_path / "other", rows()[:60])


def test_no_value_of_a_row_is_in_the_record(tmp_path):
    X = rows()
    asked(joined(tmp_path / "one", X))
    files = [path for path in record_folder().rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"known", PARTITION, ASKED, "key"}
    for path in files:
        content = path.read_bytes()
        assert not any(value.tobytes() in content for value in X.ravel())
        assert path.stat().st_mode & 0o077 == 0 or "lock" in path.name


def test_a_second_state_folder_answers_by_the_cells_of_the_first(tmp_path):
    X = rows()
    one = joined(tmp_path / "one", X)
    asked(one)
    other = joined(tmp_path / "other", X[::-1])
    assert joint_folder(other.folder) == joint_folder(one.folder)
    assert other_states(other) == [str(one.folder)]
    assert asked(other) == 100
    assert read_version(other.folder).digest == read_version(one.folder).digest
    np.testing.assert_array_equal(np.load(other.folder / "table.npy"), X[::-1])  # whose labels it writes


def test_two_folders_that_joined_before_anything_was_answered_answer_by_the_same_cells_or_join_again(tmp_path):
    X = rows()
    places = [joined(tmp_path / "one", X), joined(tmp_path / "same", X), joined(tmp_path / "less", X[:60])]
    assert asked(places[0]) == asked(places[1]) == 100
    with pytest.raises(NotAllowed, match="--apart"):
        asked(places[2])
    assert len(list(TableRecord().tables())) == 1


def test_the_first_folder_may_go_and_what_was_answered_stays(tmp_path):
    X = rows()
    asked(joined(tmp_path / "one", X))
    shutil.rmtree(tmp_path / "one")
    again = joined(tmp_path / "one", X)
    assert asked(again, "run-2") == 100
    assert len(list(TableRecord().tables())) == 1


def test_runs_are_counted_by_table_whatever_state_folder_took_part_and_also_if_it_is_gone(tmp_path):
    X = rows()
    one, two = (joined(tmp_path / name, X, max_runs=3) for name in ("one", "two"))
    asked(one, "run-1")
    asked(two, "run-1")  # of another coordinator
    shutil.rmtree(tmp_path / "one")
    again = joined(tmp_path / "one", X, max_runs=3)
    asked(again, "run-2")
    for place in (again, two):
        with pytest.raises(
            NotAllowed, match="has taken part in 3 runs; its owner allows no more than 3 over this table"
        ):
            asked(place, "run-9")
    assert asked(again, "run-2") == 100
    assert asked(joined(tmp_path / "three", rows(seed=5), max_runs=3), "run-1") == 100  # another table


def test_after_a_version_was_moved_the_folder_that_has_it_is_needed(tmp_path):
    X = rows(160)
    one = joined(tmp_path / "one", X[:100])
    asked(one)
    two = joined(tmp_path / "two", X[:100])
    joined(tmp_path / "one", X)
    assert asked(one, "run-2") == 160
    with pytest.raises(NotAllowed, match="join with it again"):
        asked(two, "run-3")
    two = joined(tmp_path / "two", X)
    assert asked(two, "run-3") == 160
    three = joined(tmp_path / "three", X)
    assert asked(three, "run-4") == 160
    for name in ("one", "two", "three"):
        shutil.rmtree(tmp_path / name)
    with pytest.raises(NotAllowed, match="Put it back from a backup"):
        joined(tmp_path / "four", X)


def test_a_new_folder_moves_no_version_and_an_old_one_does(tmp_path):
    X = rows(160)
    asked(joined(tmp_path / "one", X[:100]))
    for other in (X, X[:60], X[:, :2]):
        with pytest.raises(NotAllowed, match=r"one'.*--apart"):
            joined(tmp_path / "two", other)
    joined(tmp_path / "two", X[:99])  # which changes nothing
    joined(tmp_path / "apart", rows(100, seed=5))


def test_rows_of_others_that_are_equal_by_chance_are_answered_about_apart(tmp_path):
    X = rows()
    asked(joined(tmp_path / "one", X))
    other = joined(tmp_path / "other", X[:60], is_apart=True)
    assert asked(other) == 60
    assert joint_folder(other.folder) != joint_folder(tmp_path / "one")
    assert asked(joined(tmp_path / "other", X[:60]), "run-2") == 60  # the owner's word is kept


def test_a_lower_floor_over_the_same_rows_must_be_said(tmp_path):
    X = rows()
    asked(joined(tmp_path / "one", X))
    for floor in (1, 5):
        with pytest.raises(NotAllowed, match=r"floor of 20.*--weaken"):
            joined(tmp_path / f"floor-{floor}", X, floor=floor, may_weaken=False)
    assert asked(joined(tmp_path / "five", X, floor=5), "run-2") == 100
    joined(tmp_path / "with-noise", X, budget=Budget(epsilon=1.0, delta=1e-6, bound=5.0), may_weaken=False)


def test_a_folder_whose_record_is_gone_does_not_answer(tmp_path):
    place = joined(tmp_path / "one", rows())
    asked(place)
    shutil.rmtree(joint_folder(place.folder))
    with pytest.raises(NotAllowed, match="which is gone"):
        asked(place, "run-2")
    with pytest.raises(NotAllowed, match="which is gone"):
        joined(place.folder, rows())


def test_a_folder_that_has_answered_with_a_budget_alone_begins_anew_without_one(tmp_path):
    budget = Budget(epsilon=1.0, delta=1e-6, bound=5.0)
    asked(joined(tmp_path / "one", rows(), budget=budget))
    assert list(TableRecord().tables()) == []
    place = joined(tmp_path / "one", rows())
    assert asked(place, "run-2") == 100
    assert len(list(TableRecord().tables())) == 1


def test_a_move_that_ends_half_way_is_finished_or_was_none(tmp_path):
    X = rows(160)
    place = joined(tmp_path / "one", X[:100])
    asked(place)
    joint, before = joint_folder(place.folder), read_version(place.folder)
    content = stored(replace(before.version, X=X[:100] + 1), place.columns, is_answered=True)
    from koncord.session.checkpoint import write_blobs

    write_blobs(place.folder / NEXT, *content)
    assert read_version(place.folder).digest == before.digest  # ended before the cells were written
    write_cells(joint, version_digest(*content), before.version.cells)
    assert read_version(place.folder).digest == version_digest(*content)  # ended after that
    assert not (place.folder / NEXT).exists()
    assert (place.folder / VERSION).exists()


# --- tables that are read batch by batch ---


def streamed(folder, X, name="table"):
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table({column: X[:, at] for at, column in enumerate(columns_of(X))}), path)
    return StreamedSource.read(path, (), batched_table(path), 50)


def test_state_folders_over_a_table_that_is_read_batch_by_batch_answer_by_the_same_cells(tmp_path):
    X = rows(300)
    source = streamed(tmp_path, X)
    places = [joined(tmp_path / name, source, columns=columns_of(X)) for name in ("one", "two")]
    assert [asked(place) for place in places] == [300, 300]
    assert joint_folder(places[0].folder) == joint_folder(places[1].folder)
    (tmp_path / "more").mkdir()
    other = streamed(tmp_path / "more", np.concatenate([X, rows(30, seed=3)]))
    for table in (other, X):
        with pytest.raises(NotAllowed, match="could tell single rows"):
            joined(tmp_path / "three", table, columns=columns_of(X))
