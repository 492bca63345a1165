"""Consensus against ASM-S + FedGEM and against the oracle + FedGEM: accuracy, K, what is sent, time.

    .venv/bin/python benchmarks/accuracy.py [--out DIR] [--seeds 42-51] [--sets waveform digits] [--regimes A B]
    .venv/bin/python benchmarks/accuracy.py synthetic [--out DIR] [--draws 10]
    .venv/bin/python benchmarks/accuracy.py ablation [--out DIR] [--seeds 42-46]
    .venv/bin/python benchmarks/accuracy.py floor [--out DIR] [--seeds 42-46]
    .venv/bin/python benchmarks/accuracy.py tables [--out DIR]

Every seed draws a stratified split and a partition of the training rows as in the paper; the ARI is that of the global
model on the held-out rows, pooled. Rows go to DIR as those of `koncord reproduce` do, so a run that was stopped goes on
where it was. Consensus was developed on seeds 42-46 of eight sets: seeds 47-51 and `digits` are told apart.
"""

import os

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from sklearn.metrics import adjusted_rand_score

from koncord import ASM, Consensus, FederatedClustering, FedGEM, KnownCounts
from koncord.aggregate.consensus import Refine, Report, refine
from koncord.aggregate.consensus.choosing import Choice
from koncord.aggregate.consensus.hierarchies import WARD, grid, judged, labelings, put_together
from koncord.aggregate.consensus.microclusters import MicroClusters, axes_of, stacked
from koncord.aggregate.consensus.nullmodel import ONE_CLUSTER, Candidate
from koncord.estimate.asm import ASM_GRID, MNIST_MERGE_FACTORS
from koncord.kernels.assign import means_by_label, nearest
from koncord_reproduction import protocol
from koncord_reproduction.execute import versions
from koncord_reproduction.protocol import Setting
from koncord_reproduction.rows import DONE, Row, Run
from koncord_reproduction.runner import Table, deal_for, table_for
from koncord_reproduction.store import Store

# The paper's sets as `koncord reproduce` uses them, and one of our own.
SETS: Mapping[str, Setting] = {**protocol.SETS, "digits": Setting(n_clients=10, upsilons=())}
# Of the several upsilons of the paper, one; on digits it is chosen without labels.
UPSILON = {"waveform": 10.0, "abalone": 5000.0, "frog_species": 1e5, "frog_genus": 1e5}
HELD_BACK_SETS, HELD_BACK_SEEDS = ("digits",), range(47, 52)
METHODS = ("consensus", "asm-s", "oracle")
FLOORS = (5, 10, 20, 40, 80, 160)
N_SITES, N_EACH, APART, STRETCH = 20, 60, 8.0, 3.0
SYNTHETIC_K, SYNTHETIC_D, SHAPES = (1, 2, 6, 15, 30), (2, 8, 16), ("round", "stretched")


# --- federations ---


@cache
def table(name: str) -> Table:
    return table_for(name, SETS[name])


def dealt(name: str, regime: str, seed: int) -> tuple[list[Any], list[Any], Any, Any]:
    """Tables and classes of the clients, and those of the held-out rows."""
    made = deal_for(table(name), SETS[name], regime, seed)
    X, y = made.data.X, made.data.y
    return [X[part] for part in made.parts], [y[part] for part in made.parts], X[made.test], y[made.test]


def synthetic(k: int, d: int, shape: str, draw: int) -> tuple[list[Any], list[Any]]:
    """20 sites with 3-8 of k clusters each (all if there are fewer than 3), 60 rows a cluster; every cluster is held.

    The centers lie at least 8 apart. A round cluster has unit variance; a stretched one is three times as long in one
    direction of its own.
    """
    rng = np.random.default_rng([k, d, SHAPES.index(shape), draw])
    centers: list[Any] = []
    box = 10.0 * k ** (1 / d)
    while len(centers) < k:
        center = rng.uniform(-box, box, d)
        if all(np.linalg.norm(center - other) >= APART for other in centers):
            centers.append(center)
        box *= 1.005  # until there is room for all
    roots = [np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(k)]
    lengths = np.concatenate([[STRETCH if shape == "stretched" else 1.0], np.ones(d - 1)])
    tables, classes = [], []
    for site in range(N_SITES):
        must = np.arange(site, k, N_SITES)
        n_held = k if k < 3 else int(rng.integers(3, min(8, k) + 1))
        others = np.setdiff1d(rng.permutation(k), must, assume_unique=True)
        held = np.concatenate([must, rng.permutation(others)])[:n_held]
        tables.append(np.concatenate([centers[c] + (rng.normal(size=(N_EACH, d)) * lengths) @ roots[c] for c in held]))
        classes.append(np.repeat(held, N_EACH))
    return tables, classes


# --- one run ---


def fitted(estimator: Any, aggregator: Any, tables: Sequence[Any], seed: int) -> tuple[Any, dict[str, Any]]:
    """A fit, and what it cost: numbers a client sent in phase 2 (mean), exchanges, seconds of both phases."""
    began = perf_counter()
    model = FederatedClustering(estimator, aggregator, random_state=seed, min_report=1, standardize=False).fit(
        list(tables)
    )
    seconds = perf_counter() - began
    setup = ("Moments", "Prepared", "Holdings")
    phase_1 = sum(each.seconds for each in model.departures_ if each.message == "Prepared")
    numbers = sum(each.numbers for each in model.departures_ if each.message not in setup)
    cost = {
        "floats": numbers / len(tables),
        "exchanges": model.model_.info["exchanges"],
        "phase1_seconds": round(phase_1, 3),
        "phase2_seconds": round(seconds - phase_1, 3),
    }
    return model, cost


def run_real(run: Run) -> dict[str, Any]:
    """One set, regime, method and seed."""
    tables, classes, X, y = dealt(run.dataset, run.experiment[-1].upper(), run.seed)
    if run.method == "oracle":
        estimator: Any = KnownCounts([len(np.unique(each)) for each in classes])
    elif run.method == "asm-s":
        merge_factors = MNIST_MERGE_FACTORS if run.dataset == "mnist" else None
        estimator = ASM(
            min_mass=ASM_GRID["min_mass"], merge_factor=merge_factors
        )  # the paper's grid for small sites too
    elif run.method == "consensus/no-report":
        estimator = ASM(min_mass=ASM_GRID["min_mass"])
    else:
        estimator = KnownCounts(1)  # Consensus does not use phase 1
    upsilon = UPSILON.get(run.dataset, SETS[run.dataset].upsilon)
    aggregator = VARIANTS[run.method]() if run.method.startswith("consensus") else FedGEM(upsilon=upsilon)
    model, cost = fitted(estimator, aggregator, tables, run.seed)
    ari = float(adjusted_rand_score(y, model.predict(X)))
    return {"ari": ari, "k": model.n_clusters_, "true_k": len(np.unique(y)), **cost}


def run_synthetic(run: Run) -> dict[str, Any]:
    shape, k, d = run.dataset.split("-")
    tables, classes = synthetic(int(k[1:]), int(d[1:]), shape, run.seed)
    model, cost = fitted(KnownCounts(1), Consensus(), tables, run.seed)
    ari = float(adjusted_rand_score(np.concatenate(classes), np.concatenate(model.labels_)))
    return {"ari": ari, "k": model.n_clusters_, "true_k": int(k[1:]), **cost}


# --- variants: one part of Consensus switched off ---


def report_components(local: Any, state: None, down: Report) -> tuple[None, MicroClusters]:
    """Instead of micro-clusters, the components that phase 1 found, as far as they have enough rows."""
    labels = nearest(local.X, local.estimate.means)
    counts = np.bincount(labels)
    kept = np.flatnonzero(counts >= down.min_report)
    means = means_by_label(local.X, labels, otherwise=local.estimate.means)
    inside = local.X - means[labels]
    scatters = np.bincount(labels, np.vecdot(inside, inside))
    told = MicroClusters(
        counts=counts[kept],
        means=means[kept],
        scatters=scatters[kept],
        spread=(inside**2).sum(axis=0),
        axes=axes_of(inside),
    )
    return None, told if len(kept) else stacked([], local.X.shape[1])


class NoReport(Consensus):
    """Clients send the components of phase 1 instead of micro-clusters."""

    client_steps: ClassVar[Mapping[type[Any], Any]] = {Report: report_components, Refine: refine}


class NoChoice(Consensus):
    """The largest silhouette of the micro-clusters decides, over Ward's clusterings; never one cluster."""

    def _choose(self, micro: MicroClusters, rows: Any, rng: Any) -> Choice:
        coarse, belongs = put_together(micro, rng)
        found = labelings(coarse, grid(min(self.max_clusters, len(coarse)), every=30, step=1.05), [WARD])
        values = judged(coarse, found)
        best = max(values, key=lambda key: values[key].silhouette)
        chosen = Candidate(
            hierarchy=WARD, n_clusters=best[1], silhouette=values[best].silhouette, separation=0.0, gap=0.0
        )
        return Choice(
            labels=found[best][belongs],
            chosen=chosen,
            runner_up=None,
            candidates=(ONE_CLUSTER, chosen),
            separation_by_chance=0.0,
            gap_by_chance=0.0,
            scales=np.ones(micro.means.shape[1]),
        )


VARIANTS: Mapping[str, Callable[[], Consensus]] = {
    "consensus": Consensus,
    "consensus/no-report": NoReport,
    "consensus/no-choice": NoChoice,
    "consensus/no-refinement": partial(Consensus, n_rounds=0),
    "consensus/to-the-end": partial(Consensus, n_rounds=30, tol=1e-3),
    **{f"consensus/floor-{floor}": partial(Consensus, min_report=floor) for floor in FLOORS},
}
ABLATION = tuple(name for name in VARIANTS if "floor" not in name)


# --- tables ---


def mean(rows: Sequence[Row], value: Callable[[Row], float]) -> float:
    return float(np.mean([value(row) for row in rows])) if rows else float("nan")


def error_of(row: Row) -> float:
    return float(abs(row.values["k"] - row.values["true_k"]))


def table_of(rows: Sequence[Row], methods: Sequence[str], title: str) -> None:
    """ARI, K, its error, numbers sent and seconds by set and method, and the means over sets."""
    print(f"\n{title}")
    heads = "".join(f" | {method.removeprefix('consensus/'):>14} ARI     K |dK|" for method in methods)
    print(f"{'set':13}{heads}")
    sets = [name for name in SETS if any(row.dataset == name for row in rows)]
    means: dict[str, list[tuple[float, float]]] = {method: [] for method in methods}
    for name in sets:
        cells = []
        for method in methods:
            own = [row for row in rows if row.dataset == name and row.method == method]
            ari, error = mean(own, lambda row: row.values["ari"]), mean(own, error_of)
            means[method].append((ari, error))
            cells.append(f" | {ari:18.3f} {mean(own, lambda row: row.values['k']):5.1f} {error:4.1f}")
        print(f"{name:13}{''.join(cells)}")
    if len(sets) > 1:
        cells = [
            f" | {np.mean([m[0] for m in means[at]]):18.3f}       {np.mean([m[1] for m in means[at]]):4.1f}"
            for at in methods
        ]
        print(f"{'mean':13}{''.join(cells)}")


def costs_of(rows: Sequence[Row]) -> None:
    """Numbers a client sends in phase 2, exchanges and seconds; phase 1 is that of ASM-S for Consensus too."""
    print(f"\n{'set':13} {'numbers sent: consensus':>24} {'asm-s':>7} {'oracle':>7} | exchanges | seconds, both phases")
    for name in (name for name in SETS if any(row.dataset == name for row in rows)):
        own = {method: [row for row in rows if row.dataset == name and row.method == method] for method in METHODS}
        floats = [mean(own[method], lambda row: row.values["floats"]) for method in METHODS]
        exchanges = [mean(own[method], lambda row: row.values["exchanges"]) for method in METHODS[:2]]
        phase_1 = mean(own["asm-s"], lambda row: row.values["phase1_seconds"])
        seconds = [phase_1 + mean(own[method], lambda row: row.values["phase2_seconds"]) for method in METHODS[:2]]
        print(
            f"{name:13} {floats[0]:24.0f} {floats[1]:7.0f} {floats[2]:7.0f} | {exchanges[0]:.1f} {exchanges[1]:.1f} | "
            f"consensus {seconds[0]:6.2f}, fedgem {seconds[1]:6.2f}, ratio {seconds[0] / seconds[1]:.2f}"
        )


def verdicts(rows: Sequence[Row]) -> None:
    """What Consensus must show, over the sets that are not held back."""
    sets = [name for name in SETS if name not in HELD_BACK_SETS and any(row.dataset == name for row in rows)]

    def by_set(method: str, value: Callable[[Row], float]) -> Any:
        return np.array(
            [mean([row for row in rows if (row.dataset, row.method) == (name, method)], value) for name in sets]
        )

    ari = {method: by_set(method, lambda row: row.values["ari"]) for method in METHODS}
    error = {method: by_set(method, error_of) for method in METHODS}
    above = float((ari["consensus"] - ari["oracle"]).mean())
    below = ari["consensus"] - ari["asm-s"]
    worst = int(below.argmin())
    print(f"  mean ARI above the oracle's by {above:+.3f} (at least 0.08): {told(above >= 0.08)}")
    print(
        f"  least against ASM-S + FedGEM: {below[worst]:+.3f} on {sets[worst]} (-0.02 or more): "
        f"{told(below[worst] >= -0.02)}"
    )
    print(
        f"  mean |K - K*| {error['consensus'].mean():.2f}, ASM-S + FedGEM {error['asm-s'].mean():.2f}: "
        f"{told(error['consensus'].mean() <= error['asm-s'].mean())}; largest of a set {error['consensus'].max():.1f} "
        f"(at most 21): {told(error['consensus'].max() <= 21)}"
    )


def told(is_met: bool) -> str:
    return "met" if is_met else "NOT MET"


def show_real(store: Store) -> None:
    for regime in "AB":
        rows = [row for row in store.rows.values() if row.experiment == f"accuracy-{regime.lower()}" and row.is_done]
        rows = [row for row in rows if row.method in METHODS]
        if not rows:
            continue
        known = [row for row in rows if row.dataset not in HELD_BACK_SETS]
        table_of(known, METHODS, f"Regime {regime}, all seeds")
        if all(any(row.method == method for row in known) for method in METHODS):
            verdicts(known)
        table_of([row for row in known if row.seed in HELD_BACK_SEEDS], METHODS, f"Regime {regime}, seeds 47-51 only")
        table_of([row for row in rows if row.dataset in HELD_BACK_SETS], METHODS, f"Regime {regime}, held-back set")
        costs_of(rows)


def show_variants(store: Store, methods: Sequence[str], title: str) -> None:
    for regime in "AB":
        rows = [row for row in store.rows.values() if row.experiment == f"accuracy-{regime.lower()}" and row.is_done]
        seeds = set.intersection(*({row.seed for row in rows if row.method == method} for method in methods))
        shown = [row for row in rows if row.seed in seeds and row.method in methods]
        if shown:
            table_of(shown, methods, f"{title}, regime {regime}, seeds {min(seeds)}-{max(seeds)}")


def show_synthetic(store: Store) -> None:
    rows = [row for row in store.rows.values() if row.experiment == "accuracy-synthetic" and row.is_done]
    print(f"\n{'synthetic':20} {'K exact':>8} {'mean ARI':>9}  K found")
    for name in synthetic_sets():
        own = sorted((row for row in rows if row.dataset == name), key=lambda row: row.seed)
        exact = sum(row.values["k"] == row.values["true_k"] for row in own)
        found = " ".join(str(row.values["k"]) for row in own)
        must = name.startswith("round") or "-k1-" in name
        verdict = told(exact >= 0.9 * len(own)) if must and own else ""
        print(f"{name:20} {exact:4}/{len(own):<3} {mean(own, lambda row: row.values['ari']):9.3f}  {found} {verdict}")


# --- doing it ---


def synthetic_sets() -> list[str]:
    return [f"{shape}-k{k}-d{d}" for shape in SHAPES for k in SYNTHETIC_K for d in SYNTHETIC_D]


def carry_out(store: Store, runs: Iterable[Run], values_of: Callable[[Run], dict[str, Any]]) -> None:
    for run in runs:
        if run in store.rows and store.rows[run].is_done:
            continue
        began = perf_counter()
        values = values_of(run)
        seconds = perf_counter() - began
        store.add(Row(run=run, status=DONE, seconds=seconds, versions=versions(), values=values))
        print(f"{run.key}: ARI {values['ari']:.3f}, K {values['k']}, {seconds:.1f} s", flush=True)


def real_runs(args: argparse.Namespace, methods: Sequence[str]) -> list[Run]:
    first, last = (int(seed) for seed in args.seeds.split("-"))
    return [
        Run(f"accuracy-{regime.lower()}", name, method, seed)
        for name in args.sets
        for seed in range(first, last + 1)
        for regime in args.regimes
        for method in methods
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="real", choices=["real", "synthetic", "ablation", "floor", "tables"])
    parser.add_argument("--out", type=Path, default=Path("accuracy"))
    parser.add_argument("--seeds", default="42-51")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--regimes", nargs="+", default=["A", "B"], choices=["A", "B"])
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--draws", type=int, default=10)
    args = parser.parse_args()
    floors = [f"consensus/floor-{floor}" for floor in FLOORS]
    with Store(args.out) as store:
        if args.what == "synthetic":
            runs = [
                Run("accuracy-synthetic", name, "consensus", draw)
                for name in synthetic_sets()
                for draw in range(args.draws)
            ]
            carry_out(store, runs, run_synthetic)
        elif args.what != "tables":
            methods = {"real": args.methods, "ablation": ABLATION, "floor": floors}[args.what]
            carry_out(store, real_runs(args, methods), run_real)
        if args.what in ("real", "tables"):
            show_real(store)
        if args.what in ("ablation", "tables"):
            show_variants(store, ABLATION, "Consensus with one part switched off")
        if args.what in ("floor", "tables"):
            show_variants(store, floors, "Consensus by disclosure floor")
        if args.what in ("synthetic", "tables"):
            show_synthetic(store)


if __name__ == "__main__":
    main()
