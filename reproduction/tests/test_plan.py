"""From names of tables to runs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koncord_reproduction import synthetic
from koncord_reproduction.plan import DATASETS, EXPERIMENTS, OUTPUTS, needs, plan, rough_seconds, time_limit
from koncord_reproduction.protocol import METHODS, PHASE_1, SETS
from koncord_reproduction.rows import Run
from koncord_reproduction.runner import RUNNERS
from koncord_reproduction.tables import OUTPUTS as SHOWN


def some(values):
    return st.lists(st.sampled_from(sorted(values)), min_size=1, unique=True)


CHOICES = {"datasets": some(DATASETS), "methods": some(METHODS), "seeds": some(range(42, 47))}


def test_every_experiment_can_be_run_and_serves_a_table_or_a_run_that_does():
    served = {each.experiment for parts in OUTPUTS.values() for each in parts}
    needed = {need.experiment for run in plan() for need in needs(run)}
    assert set(RUNNERS) == set(EXPERIMENTS) == served | needed


def test_what_is_planned_for_a_name_is_what_its_tables_and_figures_are_made_from():
    assert set(OUTPUTS) == set(SHOWN)
    for name in OUTPUTS:
        assert {run.experiment for run in plan([name])} == set(SHOWN[name].experiments)


def test_regime_a_is_six_methods_on_eight_sets_with_ten_seeds_and_the_tuning_of_the_four_tabular_ones():
    runs = plan(["federated-a"])
    assert sum(run.experiment == "federated-a" for run in runs) == 8 * 6 * 10
    assert sum(run.experiment == "tune-federated" for run in runs) == 4 * 6 * 2
    assert len(runs) == 480 + 48


def test_the_released_program_runs_ten_rounds_beside_its_twenty_on_fmnist_alone():
    runs = plan(["true-counts"])
    assert {run.dataset for run in runs if run.method == "released-10"} == {"fmnist"}
    assert {run.dataset for run in runs if run.method == "released"} == set(SETS)


def test_the_synthetic_runs_cover_the_grid_of_the_paper():
    runs = plan(["synthetic"])
    assert sum(run.experiment == "synthetic-onset" for run in runs) == 3 * 12
    assert sum(run.experiment == "synthetic-components" for run in runs) == 3 * len(synthetic.SIZES)


@settings(max_examples=20)
@given(names=some(OUTPUTS), **CHOICES)
def test_a_plan_is_the_same_whatever_the_order_it_is_asked_in(names, datasets, methods, seeds):
    asked = plan(names, datasets=datasets, methods=methods, seeds=seeds)
    again = plan(names[::-1], datasets=datasets[::-1], methods=set(methods), seeds=seeds[::-1])
    assert asked == again
    assert len(set(asked)) == len(asked)


@settings(max_examples=20)
@given(names=some(OUTPUTS), **CHOICES)
def test_what_a_run_needs_is_in_the_plan_and_comes_before_it(names, datasets, methods, seeds):
    runs = plan(names, datasets=datasets, methods=methods, seeds=seeds)
    place = {run: at for at, run in enumerate(runs)}
    for run in runs:
        assert all(place[need] < place[run] for need in needs(run))


@settings(max_examples=20)
@given(names=some(OUTPUTS), **CHOICES)
def test_choosing_less_leaves_out_runs_and_changes_none(names, datasets, methods, seeds):
    whole = plan(names)
    chosen = set(plan(names, datasets=datasets, methods=methods, seeds=seeds))
    assert [run for run in whole if run in chosen] == plan(names, datasets=datasets, methods=methods, seeds=seeds)


@settings(max_examples=20)
@given(names=some(OUTPUTS), experiments=some(EXPERIMENTS))
def test_chosen_experiments_are_planned_with_what_they_need_and_no_others(names, experiments):
    whole = plan(names)
    chosen = [run for run in whole if run.experiment in experiments]
    needed = {need for run in chosen for need in needs(run)}
    assert plan(names, experiments=experiments) == [run for run in whole if run in {*chosen, *needed}]


def test_a_tuning_experiment_can_be_planned_alone():
    runs = plan(["pooled"], experiments=["tune-pooled"], datasets=["fmnist"], methods=["dpgmm"])
    assert [run.key for run in runs] == ["tune-pooled/fmnist/dpgmm/1000", "tune-pooled/fmnist/dpgmm/1001"]


def test_a_new_method_adds_runs_and_changes_none():
    before = plan(["federated-a"], methods=["asm-s", "oracle"])
    after = plan(["federated-a"], methods=["asm-s", "oracle", "xmeans"])
    assert [run for run in after if run.method != "xmeans"] == before
    assert len(after) > len(before)


def test_seeds_are_those_of_the_evaluation_and_leave_the_tuning_alone():
    runs = plan(["federated-b"], datasets=["waveform"], methods=["oracle"], seeds=[42, 99])
    assert sorted(run.key for run in runs) == [
        "federated-b/waveform/oracle/42",
        "federated-b/waveform/oracle/99",
        "tune-federated/waveform/oracle/1000",
        "tune-federated/waveform/oracle/1001",
    ]


@pytest.mark.parametrize("method", PHASE_1)
def test_both_regimes_need_the_same_tuning_of_their_own_method(method):
    tuning = tuple(Run("tune-federated", "abalone", method, seed) for seed in (1000, 1001))
    assert (
        needs(Run("federated-a", "abalone", method, 42)) == needs(Run("federated-b", "abalone", method, 42)) == tuning
    )
    assert needs(Run("federated-a", "mnist", method, 42)) == ()


def test_experiments_that_compare_no_methods_stay_whole():
    runs = plan(["points-per-cluster"], datasets=["waveform"], methods=["oracle"], seeds=[42])
    assert {run.experiment for run in runs} == {"classes", "partition-a", "partition-b"}


def test_quick_runs_come_first():
    runs = plan()
    seconds = [rough_seconds(run) for run in runs if not needs(run)]
    assert seconds == sorted(seconds)
    of_mnist = [run for run in runs if run.dataset == "mnist" and run.experiment == "federated-a"]
    assert of_mnist[-1].method == "dpgmm"


def test_time_limits_are_those_of_the_paper():
    assert time_limit(Run("tune-federated", "abalone", "asm-s", 1000)) == 150
    assert time_limit(Run("federated-a", "abalone", "asm-s", 42)) == 3600


def test_every_run_has_a_rough_time():
    assert all(0 < rough_seconds(run) < 3600 for run in plan())
