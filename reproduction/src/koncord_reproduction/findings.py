"""From stored rows to numbers that bear the same four names as the paper's: table, data set, method, quantity.

What no run was made for has no number; a run that failed or timed out is counted beside the number, never in it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, nan
from typing import Any

import numpy as np

from koncord.types import FloatArray
from koncord_reproduction import statistics, theory
from koncord_reproduction.paper import METHODS, N_CLUSTERS, SETS, Key
from koncord_reproduction.rows import TIMED_OUT, Row
from koncord_reproduction.statistics import Interval, moments, seed_bootstrap, summed, t_interval

PHASE_1 = tuple(method for method in METHODS if method != "kmeans")
POOLED = ("asm-s", "dpgmm", "xmeans", "gmeans", "kmeans")
AGGREGATORS = ("kfed", "fedkmeans", "ffcm-avg1", "ffcm-avg2", "spahm", "afcl")
REGIMES = ("a", "b")
GAUSSIANS = {"gauss-8": 8, "gauss-16": 16, "gauss-64": 64}
N_ANISOTROPIES = 12
# Of the synthetic split tests.
MIN_MASS = 5
# The partitions count as equivalent within a fifth of the true number of clusters.
MARGIN = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number of ours. The ends are NaN where it has no interval, and equal to it where nothing is random."""

    value: float
    low: float
    high: float
    n: int  # seeds, or what else was drawn
    is_random: bool = True  # whether another seed would give another number

    @property
    def has_interval(self) -> bool:
        return isfinite(self.low) and isfinite(self.high)


Found = Iterator[tuple[Key, Estimate]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The runs of one experiment, set and method."""

    done: Mapping[int, Mapping[str, Any]]  # seed -> values
    n_failed: int
    n_timed_out: int
    versions: tuple[str, ...]

    @property
    def n(self) -> int:
        return len(self.done) + self.n_failed + self.n_timed_out

    def numbers(self, name: str) -> FloatArray:
        """One value of every run that has it, by seed."""
        return np.array([values[name] for values in self.done.values() if values.get(name) is not None], dtype=float)


NO_RUNS = Runs(done={}, n_failed=0, n_timed_out=0, versions=())


class Findings:
    """Everything the rows say, computed when it is asked for.

    Parameters
    ----------
    rows : iterable of Row
        In any order; where a run has several rows the last one counts.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self._runs = runs_by_name(rows)
        self._parts: Sequence[Callable[[Findings], Found]] = PARTS

    def with_method_read_as(self, method: str, other: str, *, is_whole: bool = True) -> "Findings":
        """What the rows would say if the runs of `other` were those of `method`, wherever there are any.

        The runs that they take the place of are those of ``method@koncord`` then. If it is not whole, it has the
        numbers of the tables of K and ARI alone, which is quicker.
        """
        read = Findings([])
        read._parts = PARTS if is_whole else (pooled, mechanisms, merge_sweep, federated)
        others = {(name[0], name[1], method): runs for name, runs in self._runs.items() if name[2] == other}
        own = {(name[0], name[1], f"{method}@koncord"): self._runs[name] for name in others if name in self._runs}
        read._runs = {**self._runs, **own, **others}
        return read

    def runs(self, experiment: str, dataset: str, method: str) -> Runs:
        return self._runs.get((experiment, dataset, method), NO_RUNS)

    @cached_property
    def estimates(self) -> Mapping[Key, Estimate]:
        found: dict[Key, Estimate] = {}
        for part in self._parts:
            found.update(part(self))
        return found

    def value(self, table: str, dataset: str, method: str, quantity: str) -> float:
        """A number of ours, NaN where there is none."""
        estimate = self.estimates.get(Key(table, dataset, method, quantity))
        return estimate.value if estimate else nan

    def interval(self, table: str, dataset: str, method: str, quantity: str) -> tuple[float, float]:
        estimate = self.estimates.get(Key(table, dataset, method, quantity))
        return (estimate.low, estimate.high) if estimate else (nan, nan)

    @property
    def all_runs(self) -> Mapping[tuple[str, str, str], Runs]:
        return self._runs


def runs_by_name(rows: Iterable[Row]) -> dict[tuple[str, str, str], Runs]:
    latest = {row.run: row for row in rows}
    grouped: dict[tuple[str, str, str], list[Row]] = {}
    for run in sorted(latest):
        grouped.setdefault((run.experiment, run.dataset, run.method), []).append(latest[run])
    return {name: runs_of(group) for name, group in grouped.items()}


def runs_of(rows: Sequence[Row]) -> Runs:
    done = [row for row in rows if row.is_done]
    n_timed_out = sum(row.status == TIMED_OUT for row in rows)
    return Runs(
        done={row.seed: row.values for row in done},
        n_failed=len(rows) - len(done) - n_timed_out,
        n_timed_out=n_timed_out,
        versions=tuple(dict.fromkeys(row.versions for row in done)),
    )


def estimate_of(interval: Interval, n: int) -> Estimate:
    return Estimate(value=interval.value, low=interval.low, high=interval.high, n=n)


def exactly(value: float, n: int = 1) -> Estimate:
    return Estimate(value=value, low=value, high=value, n=n, is_random=False)


def over_seeds(key: Key, values: FloatArray) -> Found:
    """Mean with the t interval, if there is a run at all."""
    if len(values):
        yield key, estimate_of(t_interval(values), len(values))


# --- pooled runs ---


def pooled(found: Findings) -> Found:
    for dataset in SETS:
        for method in POOLED:
            runs = found.runs("pooled", dataset, method)
            for quantity in ("ari", "k"):
                yield from over_seeds(Key("pooled", dataset, method, quantity), runs.numbers(quantity))


def mechanisms(found: Findings) -> Found:
    for dataset in SETS:
        key = Key("mechanisms", dataset, "", "")
        for values in found.runs("classes", dataset, "classes").done.values():
            r_med = float(np.median(values["anisotropies"]))
            yield key._replace(quantity="r_med"), exactly(r_med)
            yield key._replace(quantity="onset"), exactly(float(theory.merge_onset(r_med)))
            yield key._replace(quantity="d"), exactly(values["d"])
            yield key._replace(quantity="n"), exactly(values["n"])
        alphas, counts = sweep_counts(found, dataset)
        if len(counts):
            low, high = halving(alphas, counts.mean(axis=0))
            yield key._replace(quantity="alpha_half"), Estimate(value=nan, low=low, high=high, n=len(counts))
        for method in ("asm-s", "kmeans"):
            for quantity in ("ari", "k"):
                key = Key("mechanisms", dataset, method, quantity)
                yield from over_seeds(key, found.runs("pooled", dataset, method).numbers(quantity))
                quarter = found.runs("quarter", dataset, method).numbers(quantity)
                yield from over_seeds(key._replace(quantity=f"{quantity}_quarter"), quarter)


def sweep_counts(found: Findings, dataset: str) -> tuple[FloatArray, FloatArray]:
    """The merge factors, and the number of components by seed and factor."""
    runs = found.runs("merge-sweep", dataset, "asm-s")
    alphas: list[float] = next((values["alphas"] for values in runs.done.values()), [])
    return np.array(alphas, dtype=float), np.array([values["k"] for values in runs.done.values()], dtype=float)


def halving(alphas: FloatArray, counts: FloatArray) -> tuple[float, float]:
    """The neighbouring merge factors between which the count first falls to half of that without merging.

    >>> halving(np.array([0.0, 0.5, 1.0]), np.array([8.0, 7.0, 4.0]))
    (0.5, 1.0)
    >>> halving(np.array([0.0, 0.5, 1.0]), np.array([8.0, 7.0, 6.0]))
    (1.0, inf)
    """
    halved = np.flatnonzero(counts <= counts[0] / 2)
    if len(halved) == 0:
        return float(alphas[-1]), float("inf")
    return float(alphas[halved[0] - 1]), float(alphas[halved[0]])


def merge_sweep(found: Findings) -> Found:
    for dataset in SETS:
        done = found.runs("merge-sweep", dataset, "asm-s").done.values()
        if not done:
            continue
        alphas, _ = sweep_counts(found, dataset)
        scores, counts = (np.array([values[name] for values in done], dtype=float) for name in ("ari", "k"))
        for at, alpha in enumerate(alphas):
            key = Key("merge-sweep", dataset, f"{alpha:g}", "ari")
            yield from over_seeds(key, scores[:, at])
            yield from over_seeds(key._replace(quantity="k"), counts[:, at])
            if alpha:
                yield key._replace(quantity="mark"), exactly(mark(scores[:, at] - scores[:, 0]), len(scores))
        selected = {float(values["selected"]["merge_factor"]) for values in done}
        if len(selected) == 1:
            yield Key("merge-sweep", dataset, "selected", "alpha"), exactly(selected.pop())
        for quantity in ("ari", "k"):
            values = np.array([each[f"selected_{quantity}"] for each in done], dtype=float)
            yield from over_seeds(Key("merge-sweep", dataset, "selected", quantity), values)


def mark(differences: FloatArray) -> int:
    """1 if the difference is significantly above zero, -1 if below, else 0."""
    return int(np.sign(differences.mean())) if statistics.wilcoxon_p(differences) < 0.05 else 0


# --- federated runs ---


def federated(found: Findings) -> Found:
    for regime in REGIMES:
        table = f"federated-{regime}"
        for dataset in SETS:
            for method in PHASE_1:
                runs = found.runs(table, dataset, method)
                key = Key(table, dataset, method, "ari")
                yield from over_seeds(key, runs.numbers("ari"))
                yield from over_seeds(key._replace(quantity="k"), runs.numbers("k"))
                errors = np.abs(runs.numbers("k") - N_CLUSTERS[dataset])
                yield from over_seeds(key._replace(quantity="k_error"), errors)
    for method in PHASE_1:
        for quantity in ("ari", "k_error"):
            key = Key("federated-a", "mean", method, quantity)
            yield from mean_over_sets(key, [mean_at_seeds(found, dataset, method, quantity) for dataset in SETS])


def mean_at_seeds(found: Findings, dataset: str, method: str, quantity: str) -> dict[int, float]:
    done = found.runs("federated-a", dataset, method).done
    if quantity == "ari":
        return {seed: values["ari"] for seed, values in done.items()}
    return {seed: abs(values["k"] - N_CLUSTERS[dataset]) for seed, values in done.items()}


def mean_over_sets(key: Key, by_set: Sequence[Mapping[int, float]]) -> Found:
    """The unweighted mean over all sets, if none is missing, with the interval over the seeds they share."""
    seeds = sorted(set.intersection(*(set(values) for values in by_set)))
    if seeds:
        yield from over_seeds(key, np.array([[values[seed] for seed in seeds] for values in by_set]).mean(axis=0))


def true_counts(found: Findings) -> Found:
    for dataset in SETS:
        oracle = found.runs("federated-a", dataset, "oracle")
        key = Key("true-counts", dataset, "oracle", "personalised_ari")
        yield from over_seeds(key, oracle.numbers("personalised_ari"))
        yield from over_seeds(key._replace(quantity="k"), oracle.numbers("k"))
        yield from over_seeds(key._replace(quantity="ari"), oracle.numbers("ari"))
        for method in ("released", "released-10"):
            runs = found.runs("released", dataset, method)
            for quantity in ("personalised_ari", "k", "ari"):
                yield from over_seeds(Key("true-counts", dataset, method, quantity), runs.numbers(quantity))


def runtime(found: Findings) -> Found:
    for method in PHASE_1:
        by_set = []
        for dataset in SETS:
            spent = found.runs("times", dataset, method).numbers("phase1_ms")
            yield from over_seeds(Key("runtime", dataset, method, "ms"), spent)
            by_set += [spent.mean()] if len(spent) else []
        if len(by_set) == len(SETS):
            yield Key("runtime", "mean", method, "ms"), exactly(float(np.mean(by_set)), len(SETS))


def aggregators(found: Findings) -> Found:
    for dataset in SETS:
        for method in AGGREGATORS:
            runs = found.runs("aggregators-a", dataset, method)
            for quantity in ("ari", "k"):
                yield from over_seeds(Key("aggregators", dataset, method, quantity), runs.numbers(quantity))


# --- partitions ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The clients of one set and regime: for every seed their sizes and their numbers of classes."""

    sizes: Mapping[int, FloatArray]
    counts: Mapping[int, FloatArray]

    @property
    def seeds(self) -> list[int]:
        return list(self.sizes)

    @property
    def points(self) -> dict[int, FloatArray]:
        """Points per cluster, by seed."""
        return {seed: self.sizes[seed] / self.counts[seed] for seed in self.sizes}


def partition_of(found: Findings, regime: str, dataset: str) -> Partition:
    done = found.runs(f"partition-{regime}", dataset, "partition").done
    return Partition(
        sizes={seed: np.array(values["sizes"], dtype=float) for seed, values in done.items()},
        counts={seed: np.array(values["counts"], dtype=float) for seed, values in done.items()},
    )


def dealt_otherwise(found: Findings, regime: str, dataset: str, method: str) -> bool:
    """Whether the federated runs of a method had other clients than those whose points per cluster are shown."""
    sizes = partition_of(found, regime, dataset).sizes
    done = found.runs(f"federated-{regime}", dataset, method).done
    return any(seed in sizes and values["sizes"] != sizes[seed].tolist() for seed, values in done.items())


def points_per_cluster(found: Findings) -> Found:
    for dataset in SETS:
        for regime in REGIMES:
            part = partition_of(found, regime, dataset)
            if part.seeds:
                yield from described(dataset, regime, part)
    yield from points_tests(found)


def described(dataset: str, regime: str, part: Partition) -> Found:
    key, n = Key("points-per-cluster", dataset, regime, ""), len(part.seeds)
    sums = summed([moments(points) for points in part.points.values()])
    for quantity, statistic in (
        ("mean", statistics.mean_of),
        ("sd", statistics.deviation_of),
        ("cv", statistics.variation_of),
    ):
        yield key._replace(quantity=quantity), estimate_of(seed_bootstrap(sums, statistic), n)
    # Ranks are taken once, over the clients of all seeds, so that a draw of seeds is a sum like the others.
    yield key._replace(quantity="rho"), estimate_of(seed_bootstrap(summed(ranked(part)), statistics.pearson_of), n)
    logs = [moments(np.log(part.counts[seed]), np.log(part.sizes[seed])) for seed in part.seeds]
    elasticity = seed_bootstrap(summed(logs), statistics.slope_of)
    yield Key("points-per-cluster-tests", dataset, regime, "b"), estimate_of(elasticity, n)
    medians = [statistics.coefficient_of_variation(points) for points in part.points.values()]
    interval = statistics.median_bootstrap(medians)
    yield Key("points-per-cluster-tests", dataset, regime, "cv_median"), estimate_of(interval, n)
    if regime == "a":
        counts = summed([moments(part.counts[seed]) for seed in part.seeds])
        yield Key("datasets", dataset, "", "mean_k_g"), estimate_of(seed_bootstrap(counts, statistics.mean_of), n)
        yield Key("datasets", dataset, "", "clients"), exactly(len(part.sizes[part.seeds[0]]))
        n_cases = sum(map(len, part.sizes.values()))
        yield Key("points-per-cluster", dataset, "", "cases"), exactly(n_cases)


def ranked(part: Partition) -> list[FloatArray]:
    ends = np.cumsum([len(part.sizes[seed]) for seed in part.seeds])[:-1]
    sizes, counts = (
        statistics.ranks(np.concatenate([values[seed] for seed in part.seeds])) for values in (part.sizes, part.counts)
    )
    return np.split(moments(sizes, counts), ends)


def points_tests(found: Findings) -> Found:
    """CV of both regimes, paired by seed."""
    p_values = {}
    for dataset in SETS:
        a, b = (partition_of(found, regime, dataset).points for regime in REGIMES)
        seeds = sorted(set(a) & set(b))
        if not seeds:
            continue
        cv_a, cv_b = (
            np.array([statistics.coefficient_of_variation(points[seed]) for seed in seeds]) for points in (a, b)
        )
        key = Key("points-per-cluster-tests", dataset, "", "seeds_higher")
        n_higher = int((cv_b > cv_a).sum())
        share = statistics.share_interval(n_higher, len(seeds))
        scaled = Interval(*(len(seeds) * end for end in share))
        yield key, estimate_of(scaled, len(seeds))
        sums = np.hstack([summed([moments(points[seed]) for seed in seeds]) for points in (a, b)])
        ratio = seed_bootstrap(sums, statistics.variation_ratio_of)
        yield key._replace(quantity="cv_ratio"), estimate_of(ratio, len(seeds))
        p_values[dataset] = (statistics.wilcoxon_p(cv_b - cv_a, "greater"), len(seeds))
    corrected = statistics.holm([p for p, _ in p_values.values()])
    for (dataset, (_, n)), p in zip(p_values.items(), corrected, strict=True):
        yield Key("points-per-cluster-tests", dataset, "", "p"), exactly(float(p), n)


# --- both regimes ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Robustness:
    """How a method's count changes from regime A to B, over some sets, paired by seed."""

    differences: Mapping[str, FloatArray]  # set -> relative error of the count under B minus under A, by seed
    p: Mapping[str, float]  # set -> two-sided, corrected over the sets
    equivalent: Mapping[str, bool]

    @property
    def pooled(self) -> FloatArray:
        return np.concatenate([*self.differences.values(), np.empty(0)])

    @property
    def mean(self) -> Interval:
        """Mean difference over all sets and seeds with its 90 % interval."""
        return t_interval(self.pooled, level=0.9)

    @property
    def is_equivalent(self) -> bool:
        return statistics.is_equivalent(self.pooled, MARGIN)

    @property
    def changed(self) -> list[str]:
        return [dataset for dataset, p in self.p.items() if p < 0.05]


def robustness(found: Findings, method: str, datasets: Sequence[str] = SETS) -> Robustness:
    differences = {}
    for dataset in datasets:
        a, b = (found.runs(f"federated-{regime}", dataset, method).done for regime in REGIMES)
        seeds = [seed for seed in a if seed in b]
        if seeds:
            truth = N_CLUSTERS[dataset]
            differences[dataset] = np.array([(abs(b[s]["k"] - truth) - abs(a[s]["k"] - truth)) / truth for s in seeds])
    p = statistics.holm([statistics.wilcoxon_p(values) for values in differences.values()])
    return Robustness(
        differences=differences,
        p=dict(zip(differences, p.tolist(), strict=True)),
        equivalent={name: statistics.is_equivalent(values, MARGIN) for name, values in differences.items()},
    )


def partition_robustness(found: Findings) -> Found:
    for method in PHASE_1:
        seen = robustness(found, method)
        if not len(seen.pooled):
            continue
        key, n = Key("partition-robustness", "all", method, "D"), len(seen.pooled)
        yield key, estimate_of(seen.mean, n)
        yield key._replace(quantity="equivalent"), exactly(float(seen.is_equivalent), n)
        yield key._replace(quantity="different_sets"), exactly(len(seen.changed), len(seen.p))
        yield key._replace(quantity="equivalent_sets"), exactly(sum(seen.equivalent.values()), len(seen.equivalent))
        if method == "oracle":
            continue
        for regime in REGIMES:
            for quantity in LOCAL:
                by_set = [local_mean(found, regime, dataset, method, quantity) for dataset in SETS]
                known = [value for value in by_set if isfinite(value)]
                if known:
                    name = f"{quantity}_{regime}"
                    yield key._replace(quantity=name), exactly(float(np.mean(known)), len(known))


def relative_error(values: Mapping[str, Any]) -> float:
    """Mean over clients of the relative error of the local count."""
    truth = np.array(values["true_counts"], dtype=float)
    return float(np.mean(np.abs(values["local_counts"] - truth) / truth))


# Of the clients of one seed.
LOCAL: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "local_error": relative_error,
    "rho_true": lambda values: statistics.spearman(values["local_counts"], values["true_counts"]),
    "rho_size": lambda values: statistics.spearman(values["local_counts"], values["sizes"]),
}


def local_by_seed(found: Findings, regime: str, dataset: str, method: str, quantity: str) -> dict[int, float]:
    done = found.runs(f"federated-{regime}", dataset, method).done
    return {seed: LOCAL[quantity](values) for seed, values in done.items()}


def local_mean(found: Findings, regime: str, dataset: str, method: str, quantity: str) -> float:
    """Mean over the seeds for which it is defined."""
    values = local_by_seed(found, regime, dataset, method, quantity).values()
    known = [value for value in values if isfinite(value)]
    return float(np.mean(known)) if known else nan


# --- synthetic runs ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Onset:
    """When one Gaussian cluster of some anisotropy begins to be split."""

    r: float
    size: float  # by the test of ASM
    ideal_size: float  # by the hard cut
    smallest: float  # size that was tried


def onsets(found: Findings, dataset: str) -> list[Onset]:
    seen = []
    for at in range(N_ANISOTROPIES):
        for values in found.runs("synthetic-onset", dataset, f"r{at + 1}").done.values():
            sizes = values["sizes"]
            seen.append(
                Onset(
                    r=values["r"],
                    size=theory.observed_onset(sizes, values["accepted"]),
                    ideal_size=theory.observed_onset(sizes, values["ideal_accepted"]),
                    smallest=sizes[0],
                )
            )
    return seen


def component_counts(found: Findings, dataset: str) -> dict[int, FloatArray]:
    """Components before merging of every draw, by the size of the cluster."""
    names = [name for experiment, of, name in found.all_runs if (experiment, of) == ("synthetic-components", dataset)]
    counts = {}
    for name in names:
        for values in found.runs("synthetic-components", dataset, name).done.values():
            counts[int(values["n"])] = np.array(values["components"], dtype=float)
    return dict(sorted(counts.items()))


def synthetic(found: Findings) -> Found:
    for dataset, d in GAUSSIANS.items():
        seen = onsets(found, dataset)
        for onset in seen[:1]:
            if onset.r == 1:
                yield Key("synthetic", dataset, "round", "onset"), exactly(onset.size)
                yield Key("synthetic", dataset, "round", "ideal_onset"), exactly(onset.ideal_size)
        if len(seen) == N_ANISOTROPIES:
            near = min(seen, key=lambda onset: abs(onset.r - 9))
            yield Key("synthetic", dataset, "r9", "onset"), exactly(near.size)
            yield from agreement(found, dataset)
        yield Key("synthetic", dataset, "round", "population_onset"), exactly(float(theory.critical_size(d, 1)))
        yield Key("synthetic", dataset, "round", "sample_onset"), exactly(float(theory.sample_critical_size(d)))
        yield from components(dataset, component_counts(found, dataset))


def agreement(found: Findings, dataset: str) -> Found:
    """Share of draws in which the closed form foresees the idealised split, over the sizes that may be split.

    A cluster below twice the minimum mass is split by no test of ASM.
    """
    for quantity in ("agree_sample", "agree_population"):
        shares = [
            np.mean([share for n, share in zip(values["sizes"], values[quantity], strict=True) if n >= 2 * MIN_MASS])
            for at in range(N_ANISOTROPIES)
            for values in found.runs("synthetic-onset", dataset, f"r{at + 1}").done.values()
        ]
        yield Key("synthetic", dataset, "", quantity), exactly(float(np.mean(shares)), len(shares))


def components(dataset: str, counts: Mapping[int, FloatArray]) -> Found:
    """Median count at 500 and 5,000 rows, interpolated between the sizes that were tried."""
    for n in (500, 5000):
        below = max((size for size in counts if size <= n), default=0)
        above = min((size for size in counts if size >= n), default=0)
        if 0 < above <= 2 * below:  # neighbours of the grid, not what is left of it
            medians = [float(np.median(counts[size])) for size in (below, above)]
            at = float(np.exp(np.interp(np.log(n), np.log([below, above]), np.log(medians))))
            yield Key("synthetic", dataset, f"n{n}", "components"), exactly(at, len(counts[below]))


PARTS: tuple[Callable[[Findings], Found], ...] = (
    pooled,
    mechanisms,
    merge_sweep,
    federated,
    true_counts,
    runtime,
    aggregators,
    points_per_cluster,
    partition_robustness,
    synthetic,
)
