"""One run -> its values. Pure apart from loading the data, which a process does once.

The seed of a run decides its split, its partition and, by name, every stream drawn after them; the method decides
nothing but its own numbers.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from time import perf_counter, process_time
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from koncord._random import seeded
from koncord._threads import one_thread
from koncord.aggregate.base import Aggregator, Outcome, Server
from koncord.aggregate.diagnostics import Diagnostics
from koncord.aggregate.fedgem import FedGEM, centers_of
from koncord.clustering import FederatedClustering
from koncord.errors import KoncordError
from koncord.estimate.asm import ASM, ASM_GRID, score_grid
from koncord.estimate.dpgmm import searched_dpgmm
from koncord.estimate.search import GridResult, combinations
from koncord.kernels.assign import nearest
from koncord.kernels.silhouette import HeldOut
from koncord.kernels.splitting import SplitForest, mixture_of
from koncord.theory import anisotropy
from koncord.types import FloatArray, IntArray
from koncord_reproduction import synthetic
from koncord_reproduction.datasets import load
from koncord_reproduction.dealing import dealt_rows
from koncord_reproduction.paper import CLASS_SIZES, N_CLUSTERS
from koncord_reproduction.partitions import partition
from koncord_reproduction.process import SeededDPGMM
from koncord_reproduction.protocol import (
    POOLED_TUNED,
    POOLED_TUNING_ROWS,
    QUARTER,
    QUARTER_SEED,
    SETS,
    SWEEP,
    TIMED_CLIENTS,
    Setting,
    aggregator,
    phase_1,
    pooled_grid,
    released_rounds,
)
from koncord_reproduction.pyclustered import PyGMeans, PyXMeans
from koncord_reproduction.readings import (
    PAPER_MASSES,
    READING_METHODS,
    ReadASM,
    base_of,
    leaves_of,
    merged,
    pooled_hold_out,
    reading_of,
    score_readings,
)
from koncord_reproduction.rows import Row, Run

Values = dict[str, Any]
# Classes of rows, number of clients, regime and seed -> rows of each client.
Dealer = Callable[[IntArray, int, str, int], list[IntArray]]


def values_of(run: Run, needed: Sequence[Row]) -> Values:
    """The values of one run, as its row will hold them; `needed` are the rows of the runs it needs."""
    with one_thread():
        return RUNNERS[run.experiment](run, needed)


# --- data ---


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """A data set as the paper uses it."""

    X: FloatArray  # (n_samples, n_features)
    y: IntArray  # (n_samples,)

    @property
    def n_classes(self) -> int:
        return len(np.unique(self.y))


@cache
def table(dataset: str) -> Table:
    return table_for(dataset, SETS[dataset])


def table_for(dataset: str, setting: Setting) -> Table:
    data = load(dataset)
    X = StandardScaler().fit_transform(data.X) if setting.is_standardised else data.X
    return Table(X=X, y=data.y)


@cache
def whole(dataset: str) -> Table:
    """As `table`; of a set with fewer rows than the paper's, the classes of all of them, without columns."""
    if dataset not in CLASS_SIZES:
        return table(dataset)
    y = np.repeat(np.arange(N_CLUSTERS[dataset]), CLASS_SIZES[dataset])
    return Table(X=np.empty((len(y), 0)), y=y)


@cache
def quarter(dataset: str) -> Table:
    """The fixed random part of a set; every seed draws its split from the same part."""
    whole = table(dataset)
    n = round(QUARTER * len(whole.y))
    rows = np.sort(np.random.default_rng(QUARTER_SEED).permutation(len(whole.y))[:n])
    return Table(X=whole.X[rows], y=whole.y[rows])


def split(data: Table, dataset: str, seed: int) -> tuple[IntArray, IntArray]:
    """Training and test rows, stratified by class."""
    return split_for(data, SETS[dataset], seed)


def split_for(data: Table, setting: Setting, seed: int) -> tuple[IntArray, IntArray]:
    rows = np.arange(len(data.y))
    train, test = train_test_split(rows, test_size=setting.test_share, stratify=data.y, random_state=seed)
    return train, test


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dealt:
    """A data set dealt out to clients."""

    data: Table
    test: IntArray  # rows of the pooled test set
    parts: list[IntArray]  # rows of each client

    @property
    def true_counts(self) -> list[int]:
        return [len(np.unique(self.data.y[part])) for part in self.parts]

    @property
    def sizes(self) -> list[int]:
        return [len(part) for part in self.parts]


@lru_cache(maxsize=64)
def deal(dataset: str, regime: str, seed: int) -> Dealt:
    """The clients of one seed, the same for every method."""
    return deal_for(table(dataset), SETS[dataset], regime, seed, dealt_by=dealt_rows)


def deal_for(data: Table, setting: Setting, regime: str, seed: int, *, dealt_by: Dealer = partition) -> Dealt:
    train, test = split_for(data, setting, seed)
    parts = [train[part] for part in dealt_by(data.y[train], setting.n_clients, regime, seed)]
    return Dealt(data=data, test=test, parts=parts)


def by_training_rows(run: Run, data: Table, train: IntArray) -> Table:
    """The table standardised by its training rows, under the reading that does so; else as it is."""
    if reading_of(run.method).scaled_by == "all" or not SETS[run.dataset].is_standardised:
        return data
    return replace(data, X=StandardScaler().fit(data.X[train]).transform(data.X))


# --- federated runs ---


def dealt_for(run: Run, regime: str) -> Dealt:
    dealt = deal(run.dataset, regime, run.seed)
    return replace(dealt, data=by_training_rows(run, dealt.data, np.concatenate(dealt.parts)))


def federated(regime: str, run: Run, needed: Sequence[Row]) -> Values:
    dealt = dealt_for(run, regime)
    upsilon = upsilon_for(run, needed)
    estimator = phase_1(run.method, run.dataset, dealt.true_counts, run.seed)
    began = perf_counter()
    fitted = fit_federation(dealt, estimator, FedGEM(upsilon=upsilon), run.seed)
    seconds = perf_counter() - began
    spent = {name: [d.seconds for d in fitted.departures_ if d.message == name] for name in SETUP_REPLIES}
    return {
        **agreement(dealt, fitted),
        "personalised_ari": personalised_ari(dealt, fitted),
        "upsilon": upsilon,
        "local_counts": fitted.local_counts_,
        "true_counts": dealt.true_counts,
        "sizes": dealt.sizes,
        "phase1_ms": round(1000 * float(np.mean(spent["Prepared"])), 3),
        "phase2_seconds": round(seconds - sum(map(sum, spent.values())), 3),
    }


def times(run: Run, needed: Sequence[Row]) -> Values:
    """CPU time of phase 1 for one client, on the first clients of regime A, with the choice of hyperparameters.

    Wall-clock times of a shared machine say little. DP-GMM is scikit-learn's, as the paper ran it.
    """
    dealt = deal(run.dataset, "A", run.seed)
    estimator = phase_1(run.method, run.dataset, dealt.true_counts, run.seed)
    if run.method == "dpgmm":
        estimator = searched_dpgmm()
    parts = dealt.parts[:TIMED_CLIENTS]
    spent = []
    for at, part in enumerate(parts):
        fresh = seeded(clone(estimator), run.seed + at)
        began = process_time()
        fresh.fit(dealt.data.X[part])
        spent.append(process_time() - began)
    return {"phase1_ms": round(1000 * float(np.mean(spent)), 3), "clients": len(parts)}


# Before and after the rounds of FedGEM; what is left of a fit is phase 2.
SETUP_REPLIES = ("Moments", "Prepared", "Holdings")


def fit_federation(dealt: Dealt, estimator: Any, server: Aggregator, seed: int) -> FederatedClustering:
    clustering = FederatedClustering(
        estimator, server, standardize=False, random_state=seed, min_report=1
    )  # the paper has no floor, and its own scale
    return clustering.fit([dealt.data.X[part] for part in dealt.parts])


def agreement(dealt: Dealt, fitted: FederatedClustering) -> Values:
    """ARI of the global model on the pooled test set, and its number of clusters."""
    labels = nearest(dealt.data.X[dealt.test], fitted.model_.centers)
    return {"ari": ari(dealt.data.y[dealt.test], labels), "k": fitted.n_clusters_}


def personalised_ari(dealt: Dealt, fitted: FederatedClustering) -> float:
    """Mean over clients of the ARI of their own rows, each at the nearest of the client's own final components."""
    scores = []
    for site, part in zip(fitted.sites_, dealt.parts, strict=True):
        labels = nearest(dealt.data.X[part], fitted.model_.components[site])
        scores.append(ari(dealt.data.y[part], labels))
    return float(np.mean(scores))


def ari(classes: IntArray, labels: IntArray) -> float:
    return float(adjusted_rand_score(classes, labels))


def upsilon_for(run: Run, needed: Sequence[Row]) -> float:
    """The fixed upsilon of the set, or the one with the largest mean score of the tuning runs, the smaller on ties."""
    fixed = SETS[run.dataset].upsilon
    if fixed is not None:
        return fixed
    tuned = tuning_rows(needed, "upsilon")
    scores = np.mean([row.values["scores"] for row in tuned], axis=0)
    return float(tuned[0].values["upsilons"][int(np.argmax(scores))])


def tuning_rows(needed: Sequence[Row], what: str) -> list[Row]:
    """Those of the tuning runs that came to an end: a run that did not is left out of the mean."""
    done = [row for row in needed if row.is_done]
    if not done:
        reasons = "; ".join(f"{row.run.key}: {row.reason or row.status}" for row in needed)
        raise KoncordError(f"no {what} could be chosen, as no tuning run came to an end ({reasons})")
    return done


def tune_federated(run: Run, needed: Sequence[Row]) -> Values:
    """Score the values of upsilon in regime A without labels.

    As `FedGEM(upsilon=None)` does it: phase 1 on all rows of a client; phase 2 on 80 % of them; the other 20 % are
    labelled by the global model of each candidate, and the mean silhouette over clients is its score (0 for a client
    whose rows get one label).
    """
    dealt = dealt_for(run, "A")
    estimator = phase_1(run.method, run.dataset, dealt.true_counts, run.seed)
    fitted = fit_federation(dealt, estimator, JudgedFedGEM(SETS[run.dataset].upsilons), run.seed)
    return dict(fitted.model_.info["judged"])


class JudgedFedGEM(FedGEM):
    """FedGEM that stops when the clients have judged each of some values of upsilon.

    Parameters
    ----------
    upsilons : sequence of float, default ()
        The values, in order.
    """

    def __init__(self, upsilons: Sequence[float] = ()) -> None:
        super().__init__()
        self.upsilons = upsilons

    def server(self, clients: tuple[str, ...], n_features: int, rng: np.random.Generator) -> Server:
        return self._score(clients, n_features)

    def _score(self, clients: tuple[str, ...], n_features: int) -> Generator[Any, Any, Outcome]:
        trained = yield from self._train(clients, n_features, holds_out=True)
        sizes, judgements = yield from self._judgements(trained, self.upsilons)
        judged = {"upsilons": list(self.upsilons), "scores": judgements.mean(axis=0).tolist(), "k": sizes.tolist()}
        means, groups, _ = self._conclude(trained.balls, self.upsilons[0])
        return Outcome(centers=centers_of(means, groups), groups={}, diagnostics=Diagnostics(extra={"judged": judged}))


def released(run: Run, needed: Sequence[Row]) -> Values:
    """The released program's behaviour with the true counts, at the upsilon of the oracle."""
    dealt = deal(run.dataset, "A", run.seed)
    upsilon = upsilon_for(run, needed)
    server = FedGEM(upsilon=upsilon, variant="released", n_rounds=released_rounds(run.method, run.dataset))
    fitted = fit_federation(dealt, phase_1("oracle", run.dataset, dealt.true_counts, run.seed), server, run.seed)
    return {**agreement(dealt, fitted), "personalised_ari": personalised_ari(dealt, fitted), "upsilon": upsilon}


def aggregated(run: Run, needed: Sequence[Row]) -> Values:
    dealt = deal(run.dataset, "A", run.seed)
    estimator, server, given = aggregator(run.method, dealt.data.n_classes, dealt.true_counts)
    return {**agreement(dealt, fit_federation(dealt, estimator, server, run.seed)), "given": given}


# --- pooled runs ---


def tune_pooled(source: Callable[[str], Table], run: Run, needed: Sequence[Row]) -> Values:
    """Silhouette and count of every configuration, in grid order, on a random part of the set split 80/20."""
    data, grid = source(run.dataset), pooled_grid(run.method, run.dataset)
    X = data.X
    reading = reading_of(run.method)
    fit_rows, held_rows = pooled_hold_out(reading, len(X), run.seed, most=POOLED_TUNING_ROWS)
    if run.method == "dpgmm":
        candidates = score_dpgmm(X, fit_rows, HeldOut(X, held_rows), grid, run.seed)
    elif run.method == "asm-s":
        candidates = score_asm(X, fit_rows, HeldOut(X, held_rows), grid, run.seed)
    else:
        X = by_training_rows(run, data, fit_rows).X
        candidates = score_readings(reading, X, fit_rows, held_rows, grid, run.seed)
    return {"scores": [c.score for c in candidates], "counts": [c.n_components for c in candidates]}


def score_asm(
    X: FloatArray, fit_rows: IntArray, held_out: HeldOut, grid: Mapping[str, Sequence[float]], seed: int
) -> list[GridResult]:
    default = ASM()
    grow = partial(SplitForest, X, is_spherical=True, n_em_iter=default.max_em_iter)
    return score_grid(grow, fit_rows, held_out, grid, default.max_components)


def score_dpgmm(
    X: FloatArray, fit_rows: IntArray, held_out: HeldOut, grid: Mapping[str, Sequence[float]], seed: int
) -> list[GridResult]:
    configs = combinations(grid)
    fits = SeededDPGMM(random_state=seed).fit_each(X[fit_rows], configs)
    return [
        GridResult(params=config, n_components=fit.n_components_, score=held_out.score_nearest(fit.means_))
        for config, fit in zip(configs, fits, strict=True)
    ]


def chosen_config(run: Run, needed: Sequence[Row]) -> dict[str, float]:
    """The configuration with the largest mean silhouette; ties to the smaller mean count, then to grid order.

    One that has no silhouette on some tuning seed loses to any that has one on all.
    """
    tuned = tuning_rows(needed, "configuration")
    scores = np.array([row.values["scores"] for row in tuned], dtype=float).mean(axis=0)
    counts = np.mean([row.values["counts"] for row in tuned], axis=0)
    order = np.lexsort((np.arange(len(scores)), counts, -scores))  # NaN sorts last
    chosen: dict[str, float] = combinations(pooled_grid(tuned[0].method, run.dataset))[order[0]]
    return chosen


def pooled(source: Callable[[str], Table], run: Run, needed: Sequence[Row]) -> Values:
    data = source(run.dataset)
    train, test = split(data, run.dataset, run.seed)
    data = by_training_rows(run, data, train)
    config: Mapping[str, Any]
    if run.method == "kmeans":
        config = {"n_clusters": data.n_classes}
        means = KMeans(**config, n_init=10, random_state=run.seed).fit(data.X[train]).cluster_centers_
    else:
        config = chosen_config(run, needed) if base_of(run.method) in POOLED_TUNED else {}
        means = pooled_estimator(run, config).fit(data.X[train]).means_
    return {"ari": ari(data.y[test], nearest(data.X[test], means)), "k": len(means), "config": dict(config)}


def pooled_estimator(run: Run, config: Mapping[str, Any]) -> Any:
    if run.method in READING_METHODS:
        return ReadASM(reading_of(run.method), **config, seed=run.seed)
    kind: Any = {"asm-s": ASM, "dpgmm": SeededDPGMM, "xmeans": PyXMeans, "gmeans": PyGMeans}[run.method]
    return kind(**config, random_state=run.seed)


def merge_sweep(run: Run, needed: Sequence[Row]) -> Values:
    """Held-out ARI and count for every merge factor, on the splits of the chosen configuration."""
    data = table(run.dataset)
    train, test = split(data, run.dataset, run.seed)
    data = by_training_rows(run, data, train)
    config, reading = chosen_config(run, needed), reading_of(run.method)
    leaves = leaves_of(reading, data.X, train, config, run.seed)
    scores, counts = [], []
    for merge_factor in (*SWEEP, config["merge_factor"]):
        mixture = merged(reading, mixture_of(leaves), merge_factor)
        scores.append(ari(data.y[test], nearest(data.X[test], mixture.means)))
        counts.append(len(mixture))
    *scores, selected_ari = scores
    *counts, selected_k = counts
    return {
        "alphas": list(SWEEP),
        "ari": scores,
        "k": counts,
        "selected": config,
        "selected_ari": selected_ari,
        "selected_k": selected_k,
    }


def sweep_at_mass(run: Run, needed: Sequence[Row]) -> Values:
    """As `merge_sweep`, at the minimum mass whose split stage is the paper's, for every split factor."""
    data, reading = table(run.dataset), reading_of(run.method)
    train, test = split(data, run.dataset, run.seed)
    split_factors = ASM_GRID["split_factor"]
    scores, counts = [], []
    for split_factor in split_factors:
        config = {"min_mass": PAPER_MASSES[run.dataset], "split_factor": split_factor}
        leaves = leaves_of(reading, data.X, train, config, run.seed)
        mixtures = [merged(reading, mixture_of(leaves), merge_factor) for merge_factor in SWEEP]
        scores.append([ari(data.y[test], nearest(data.X[test], mixture.means)) for mixture in mixtures])
        counts.append([len(mixture) for mixture in mixtures])
    return {"alphas": list(SWEEP), "split_factors": list(split_factors), "ari": scores, "k": counts}


# --- what the data are ---


def classes(run: Run, needed: Sequence[Row]) -> Values:
    """What the set is, of every class the largest over the mean eigenvalue of its covariance, and its training rows."""
    data = table(run.dataset)
    n, d = data.X.shape
    found = [float(anisotropy(data.X[data.y == label])) for label in np.unique(data.y)]
    train, _ = split(data, run.dataset, run.seed)
    return {
        "n": n,
        "d": d,
        "k": data.n_classes,
        "anisotropies": found,
        "train_sizes": np.bincount(data.y[train]).tolist(),
        "data": load(run.dataset).note,
    }


def dealt_out(regime: str, run: Run, needed: Sequence[Row]) -> Values:
    """Sizes and true counts of the clients. They depend on the classes alone, of which all rows are known."""
    dealt = deal_for(whole(run.dataset), SETS[run.dataset], regime, run.seed, dealt_by=dealt_rows)
    return {"sizes": dealt.sizes, "counts": dealt.true_counts}


# --- synthetic runs ---


def dimension_of(run: Run) -> int:
    return int(run.dataset.removeprefix("gauss-"))


def synthetic_onset(run: Run, needed: Sequence[Row]) -> Values:
    d = dimension_of(run)
    r = float(synthetic.anisotropies(d)[int(run.method.removeprefix("r")) - 1])
    shares = synthetic.split_shares(run.seed, "split", synthetic.DRAWS, d, r, synthetic.SIZES)
    columns = {
        "sizes": "n",
        "accepted": "asm_1",
        "ideal_accepted": "hard",
        "agree_sample": "sample_r_foresees_hard",
        "agree_population": "population_r_foresees_hard",
        "accepted_half_factor": "asm_0.5",
        "accepted_double_factor": "asm_2",
        "factors_agree": "factors_agree",
    }
    return {"d": d, "r": r, **{name: [row[column] for row in shares] for name, column in columns.items()}}


def synthetic_components(run: Run, needed: Sequence[Row]) -> Values:
    d, n = dimension_of(run), int(run.method.removeprefix("n"))
    return {"d": d, "n": n, "components": synthetic.component_counts(run.seed, synthetic.COUNT_DRAWS, d, n)}


def synthetic_levels(run: Run, needed: Sequence[Row]) -> Values:
    d, n = dimension_of(run), int(synthetic.SIZES[-1])
    levels = synthetic.anisotropy_by_level(run.seed, d, n)
    return {"d": d, "n": n, "medians": [level["median_sample_r"] for level in levels]}


def meeting_points(run: Run, needed: Sequence[Row]) -> Values:
    return {"pairs": synthetic.N_PAIRS, **synthetic.meeting_points(run.seed, synthetic.N_PAIRS)}


RUNNERS: Mapping[str, Callable[[Run, Sequence[Row]], Values]] = {
    "federated-a": partial(federated, "A"),
    "federated-b": partial(federated, "B"),
    "tune-federated": tune_federated,
    "times": times,
    "released": released,
    "aggregators-a": aggregated,
    "tune-pooled": partial(tune_pooled, table),
    "pooled": partial(pooled, table),
    "tune-quarter": partial(tune_pooled, quarter),
    "quarter": partial(pooled, quarter),
    "merge-sweep": merge_sweep,
    "draws": partial(tune_pooled, table),
    "sweep-at-mass": sweep_at_mass,
    "classes": classes,
    "partition-a": partial(dealt_out, "A"),
    "partition-b": partial(dealt_out, "B"),
    "synthetic-onset": synthetic_onset,
    "synthetic-components": synthetic_components,
    "synthetic-levels": synthetic_levels,
    "meeting-points": meeting_points,
}
