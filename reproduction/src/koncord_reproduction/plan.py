"""Names of tables and figures -> the runs they are made from, and what a run has to wait for."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from koncord_reproduction import synthetic
from koncord_reproduction.protocol import (
    AGGREGATORS,
    DRAW_SEEDS,
    EVALUATION_LIMIT,
    EVALUATION_SEEDS,
    IMAGES,
    METHODS,
    PHASE_1,
    POOLED,
    POOLED_TUNED,
    RELEASED,
    SETS,
    TABULAR,
    TIMED,
    TUNING_LIMIT,
    TUNING_SEEDS,
)
from koncord_reproduction.readings import BASE, CHOSEN, READING_METHODS, base_of
from koncord_reproduction.rows import Run

ALL = tuple(SETS)
GAUSSIANS = tuple(f"gauss-{d}" for d in synthetic.DIMENSIONS)
ONCE = (synthetic.SEED,)
# Sets on which other readings of ASM are tried, pooled and dealt out to clients, and on which hold-outs are drawn anew.
READ_POOLED, READ_FEDERATED = (*TABULAR, "mnist"), TABULAR
DRAWN = ("waveform", "abalone", "frog_species")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One kind of run, over sets, methods and seeds."""

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = EVALUATION_SEEDS
    seconds: float = EVALUATION_LIMIT  # a run may take


EXPERIMENTS: Mapping[str, Experiment] = {
    "classes": Experiment(datasets=ALL, methods=("classes",), seeds=ONCE),
    "partition-a": Experiment(datasets=ALL, methods=("partition",)),
    "partition-b": Experiment(datasets=ALL, methods=("partition",)),
    "tune-federated": Experiment(datasets=TABULAR, methods=PHASE_1, seeds=TUNING_SEEDS, seconds=TUNING_LIMIT),
    "federated-a": Experiment(datasets=ALL, methods=PHASE_1),
    "federated-b": Experiment(datasets=ALL, methods=PHASE_1),
    "times": Experiment(datasets=ALL, methods=TIMED, seeds=EVALUATION_SEEDS[:1]),
    "released": Experiment(datasets=ALL, methods=RELEASED),
    "aggregators-a": Experiment(datasets=ALL, methods=AGGREGATORS),
    "tune-pooled": Experiment(datasets=ALL, methods=POOLED_TUNED, seeds=TUNING_SEEDS),
    "pooled": Experiment(datasets=ALL, methods=POOLED),
    "tune-quarter": Experiment(datasets=IMAGES, methods=("asm-s",), seeds=TUNING_SEEDS),
    "quarter": Experiment(datasets=IMAGES, methods=("asm-s", "kmeans")),
    "merge-sweep": Experiment(datasets=ALL, methods=("asm-s",)),
    "draws": Experiment(datasets=DRAWN, methods=("asm-s",), seeds=DRAW_SEEDS),
    "sweep-at-mass": Experiment(datasets=TABULAR, methods=("asm-s", f"{BASE}@{CHOSEN}")),
    "synthetic-onset": Experiment(
        datasets=GAUSSIANS, methods=tuple(f"r{at + 1}" for at in range(synthetic.N_ANISOTROPIES)), seeds=ONCE
    ),
    "synthetic-levels": Experiment(datasets=GAUSSIANS[:1], methods=("levels",), seeds=ONCE),
    "meeting-points": Experiment(datasets=GAUSSIANS[:1], methods=("balls",), seeds=ONCE),
    "synthetic-components": Experiment(datasets=GAUSSIANS, methods=tuple(f"n{n}" for n in synthetic.SIZES), seeds=ONCE),
}
DATASETS = (*ALL, *GAUSSIANS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a table or figure takes from one experiment."""

    experiment: str
    methods: tuple[str, ...] | None = None  # None: all
    datasets: tuple[str, ...] = DATASETS


def part(experiment: str, *methods: str, datasets: tuple[str, ...] = DATASETS) -> Part:
    return Part(experiment=experiment, methods=methods or None, datasets=datasets)


# The tables and figures, in the paper's order, and the runs each is made from.
OUTPUTS: Mapping[str, tuple[Part, ...]] = {
    "pooled": (part("pooled"),),
    "mechanisms": (
        part("classes"),
        part("pooled", "asm-s", "kmeans"),
        part("merge-sweep"),
        part("quarter"),
    ),
    "merge-sweep": (part("merge-sweep"),),
    "federated-a": (part("federated-a"),),
    "runtime": (part("times"),),
    "synthetic": (part("synthetic-onset"), part("synthetic-components"), part("synthetic-levels")),
    "true-counts": (part("federated-a", "oracle"), part("released"), part("meeting-points")),
    "federated-b": (part("federated-b"),),
    "local-counts": (part("federated-a"), part("federated-b")),
    "points-per-cluster": (part("classes"), part("partition-a"), part("partition-b")),
    "partition-robustness": (part("federated-a"), part("federated-b")),
    "aggregators": (part("aggregators-a"),),
    "readings": (
        part("pooled", *READING_METHODS, datasets=READ_POOLED),
        part("merge-sweep", *READING_METHODS, datasets=READ_POOLED),
        part("federated-a", *READING_METHODS, datasets=READ_FEDERATED),
        part("federated-b", *READING_METHODS, datasets=READ_FEDERATED),
        part("quarter", f"{BASE}@{CHOSEN}", datasets=("mnist",)),
        part("draws"),
        part("sweep-at-mass"),
    ),
}


def plan(
    names: Iterable[str] = tuple(OUTPUTS),
    *,
    datasets: Collection[str] = DATASETS,
    methods: Collection[str] = METHODS,
    seeds: Sequence[int] = EVALUATION_SEEDS,
    experiments: Collection[str] = tuple(EXPERIMENTS),
) -> list[Run]:
    """All runs that `names` are made from and those they need, each after what it needs, the quick ones first.

    `methods` and `seeds` choose among what has several: an experiment that compares no methods is made whole. Of
    `experiments` that are chosen the tuning runs they need come along; a tuning experiment can be chosen alone.
    """
    served = {run for name in names for each in OUTPUTS[name] for run in runs_of(each, datasets, methods, seeds)}
    wanted = {run for run in with_needs(served) if run.experiment in experiments}
    return in_order(with_needs(wanted))


def with_needs(runs: Collection[Run]) -> set[Run]:
    return {*runs, *(need for run in runs for need in needs(run))}


def runs_of(each: Part, datasets: Collection[str], methods: Collection[str], seeds: Sequence[int]) -> list[Run]:
    experiment = EXPERIMENTS[each.experiment]
    chosen = [method for method in (each.methods or experiment.methods) if (method in methods or method not in METHODS)]
    over = seeds if experiment.seeds == EVALUATION_SEEDS else experiment.seeds
    runs = [
        Run(each.experiment, dataset, method, seed)
        for dataset, method, seed in product(experiment.datasets, chosen, over)
        if dataset in datasets and dataset in each.datasets
    ]
    return [run for run in runs if run.method != "released-10" or run.dataset == "fmnist"]


def needs(run: Run) -> tuple[Run, ...]:
    """The tuning runs whose rows a run is given."""
    experiment, method = run.experiment, run.method
    if experiment in ("federated-a", "federated-b", "released") and run.dataset in TABULAR:
        tuning, method = "tune-federated", "oracle" if experiment == "released" else method
    elif experiment in ("pooled", "merge-sweep") and base_of(method) in POOLED_TUNED:
        tuning = "tune-pooled"
    elif experiment == "quarter" and base_of(method) in POOLED_TUNED:
        tuning = "tune-quarter"
    else:
        return ()
    return tuple(Run(tuning, run.dataset, method, seed) for seed in TUNING_SEEDS)


def in_order(runs: Iterable[Run]) -> list[Run]:
    """Runs by the time they and what they need take; so what is needed comes before what needs it."""

    def rank(run: Run) -> tuple[float, bool, Run]:
        return rough_seconds(run) + sum(map(rough_seconds, needs(run))), bool(needs(run)), run

    return sorted(runs, key=rank)


def time_limit(run: Run) -> float:
    return EXPERIMENTS[run.experiment].seconds


# Seconds of a run on one idle core, in the order of SETS. They put quick runs first and tell roughly how long it
# will take; no number of a run depends on them.
ROUGH_SECONDS: Mapping[tuple[str, str], tuple[float, ...]] = {
    ("federated", "asm-s"): (0.5, 0.4, 0.5, 0.5, 8, 9, 3, 5),
    ("federated", "asm-i"): (0.4, 0.3, 0.5, 0.5, 6, 6, 3, 2),
    ("federated", "dpgmm"): (1.5, 3.5, 4, 4, 34, 72, 10, 60),
    ("federated", "xmeans"): (0.2, 0.3, 0.4, 0.4, 2, 9, 1, 2),
    ("federated", "gmeans"): (0.8, 0.6, 4, 4, 4, 13, 8, 3),
    ("federated", "oracle"): (0.2, 0.2, 0.2, 0.2, 3, 4, 2, 2),
    ("released", "released"): (0.2, 0.2, 0.3, 0.3, 20, 40, 10, 30),
    ("released", "released-10"): (0, 0, 0, 0, 0, 20, 0, 0),
    ("aggregators-a", "kfed"): (0.3, 0.5, 0.8, 0.8, 6, 8, 4, 6),
    ("aggregators-a", "fedkmeans"): (0.1, 0.1, 0.1, 0.1, 2, 2, 2, 2),
    ("aggregators-a", "ffcm-avg1"): (0.2, 0.4, 0.4, 0.4, 2, 6, 2, 2),
    ("aggregators-a", "ffcm-avg2"): (0.2, 0.4, 30, 30, 3, 18, 2, 2),
    ("aggregators-a", "spahm"): (0.2, 0.5, 0.3, 0.3, 14, 19, 7, 12),
    ("aggregators-a", "afcl"): (1.5, 4, 2, 2, 12, 20, 18, 12),
    ("tune-pooled", "asm-s"): (0.5, 0.3, 1, 1, 3, 4, 3, 2),
    ("tune-pooled", "dpgmm"): (10, 10, 20, 20, 44, 136, 40, 68),
    ("pooled", "asm-s"): (0.1, 0.1, 0.2, 0.2, 0.4, 1, 0.4, 0.5),
    ("pooled", "dpgmm"): (2, 2, 3, 3, 14, 44, 6, 12),
    ("pooled", "xmeans"): (0.1, 0.2, 0.5, 0.5, 0.3, 10, 0.3, 5),
    ("pooled", "gmeans"): (0.3, 0.5, 1, 1, 12, 12, 4, 4),
    ("pooled", "kmeans"): (0.1, 0.1, 0.2, 0.2, 1.5, 4, 2, 3),
    ("merge-sweep", "asm-s"): (0.2, 0.2, 0.2, 0.2, 0.5, 2, 0.5, 0.5),
}
LIKE = {
    "federated-a": "federated",
    "federated-b": "federated",
    "tune-federated": "federated",
    "times": "federated",
    "draws": "tune-pooled",
    "sweep-at-mass": "merge-sweep",
    "quarter": "pooled",
    "tune-quarter": "tune-pooled",
}
QUICK = (0.1,) * len(SETS)
SYNTHETIC_SECONDS = {
    "synthetic-onset": 3.0,
    "synthetic-components": 1.0,
    "synthetic-levels": 3.0,
    "meeting-points": 2.0,
}


def rough_seconds(run: Run) -> float:
    if run.experiment in SYNTHETIC_SECONDS:
        return SYNTHETIC_SECONDS[run.experiment]
    by_set = ROUGH_SECONDS.get((LIKE.get(run.experiment, run.experiment), base_of(run.method)), QUICK)
    return by_set[ALL.index(run.dataset)]
