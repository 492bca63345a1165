"""Rows as runs leave them, made up: at random, or so that they say what the paper says."""

import numpy as np

from koncord.estimate.search import combinations
from koncord_reproduction import synthetic
from koncord_reproduction.paper import N_CLUSTERS, find
from koncord_reproduction.plan import plan
from koncord_reproduction.protocol import SETS, SWEEP, TIMED, pooled_grid
from koncord_reproduction.rows import DONE, Row, Run

SEEDS = tuple(range(42, 52))
VERSIONS = "koncord 1 numpy 2"


def row(experiment, dataset, method, seed=42, status=DONE, reason="", **values):
    run = Run(experiment, dataset, method, seed)
    return Row(run=run, status=status, reason=reason, seconds=1.5, versions=VERSIONS, values=values)


def any_rows(seeds=SEEDS, n_clients=6):
    """One row for every run of the plan, with numbers at random; few clients keep it quick."""
    return [made_up(run, n_clients) for run in plan(seeds=seeds)]


def made_up(run, n_clients):
    rng = np.random.default_rng([run.seed, *run.key.encode()])
    values = MAKERS[run.experiment](run, rng, n_clients)
    return Row(run=run, status=DONE, seconds=float(rng.uniform(1, 9)), versions=VERSIONS, values=values)


def clients(run, rng, n_clients):
    truth = rng.integers(2, N_CLUSTERS[run.dataset], size=n_clients) if run.dataset != "waveform" else [2] * n_clients
    sizes = 80 * np.asarray(truth) + rng.integers(0, 40, size=n_clients)
    return [int(k) for k in truth], [int(n) for n in sizes]


def federated(run, rng, n_clients):
    truth, sizes = clients(run, rng, n_clients)
    guessed = (
        truth if run.method == "oracle" else [int(k) for k in rng.integers(1, 2 * N_CLUSTERS[run.dataset], n_clients)]
    )
    return {
        "ari": float(rng.uniform(0, 0.6)),
        "personalised_ari": float(rng.uniform(0, 0.6)),
        "k": int(rng.integers(1, 60)),
        "upsilon": 5.0,
        "local_counts": guessed,
        "true_counts": truth,
        "sizes": sizes,
        "phase1_ms": float(rng.uniform(5, 900)),
        "phase2_seconds": 0.5,
    }


def partition(run, rng, n_clients):
    truth, sizes = clients(run, rng, n_clients)
    return {"sizes": sizes, "counts": truth}


def pooled(run, rng, n_clients):
    return {"ari": float(rng.uniform(0, 0.6)), "k": int(rng.integers(1, 200)), "config": {}}


def released(run, rng, n_clients):
    return {**pooled(run, rng, n_clients), "personalised_ari": float(rng.uniform(0, 0.6)), "upsilon": 5.0}


def sweep(run, rng, n_clients):
    return {
        "alphas": list(SWEEP),
        "ari": [float(ari) for ari in rng.uniform(0, 0.6, len(SWEEP))],
        "k": sorted((int(k) for k in rng.integers(1, 200, len(SWEEP))), reverse=True),
        "selected": {"split_factor": 0.5, "min_mass": 50, "merge_factor": 2.0},
        "selected_ari": float(rng.uniform(0, 0.6)),
        "selected_k": 5,
    }


def sweep_at_mass(run, rng, n_clients):
    return {
        "alphas": list(SWEEP),
        "split_factors": [0.3, 1.0],
        "ari": rng.uniform(0, 0.6, (2, len(SWEEP))).tolist(),
        "k": rng.integers(1, 200, (2, len(SWEEP))).tolist(),
    }


def draw(run, rng, n_clients):
    n = len(combinations(pooled_grid(run.method, run.dataset)))
    return {"scores": rng.uniform(0, 0.6, n).tolist(), "counts": rng.integers(1, 9, n).tolist()}


def classes(run, rng, n_clients):
    return {"n": 5000, "d": 21, "k": N_CLUSTERS[run.dataset], "anisotropies": [2.0, 6.0, 9.0]}


def onset(run, rng, n_clients):
    d, at = int(run.dataset.removeprefix("gauss-")), int(run.method.removeprefix("r")) - 1
    shares = [float(share) for share in np.linspace(0, 1, len(synthetic.SIZES))]
    names = ("accepted", "ideal_accepted", "agree_sample", "agree_population", "accepted_half_factor")
    return {
        "d": d,
        "r": float(synthetic.anisotropies(d)[at]),
        "sizes": [int(n) for n in synthetic.SIZES],
        **dict.fromkeys((*names, "accepted_double_factor"), shares),
    }


def components(run, rng, n_clients):
    n = int(run.method.removeprefix("n"))
    return {"d": 8, "n": n, "components": [max(1, n // 10)] * 3}


MAKERS = {
    "federated-a": federated,
    "federated-b": federated,
    "tune-federated": lambda run, rng, n_clients: {"upsilons": [1], "scores": [0.1], "k": [3]},
    "tune-pooled": lambda run, rng, n_clients: {"scores": [0.1], "counts": [3]},
    "tune-quarter": lambda run, rng, n_clients: {"scores": [0.1], "counts": [3]},
    "released": released,
    "aggregators-a": lambda run, rng, n_clients: {**pooled(run, rng, n_clients), "given": "K"},
    "pooled": pooled,
    "quarter": pooled,
    "merge-sweep": sweep,
    "draws": draw,
    "sweep-at-mass": sweep_at_mass,
    "times": lambda run, rng, n_clients: {"phase1_ms": float(rng.uniform(5, 900)), "clients": 5},
    "classes": classes,
    "partition-a": partition,
    "partition-b": partition,
    "synthetic-onset": onset,
    "synthetic-components": components,
    "synthetic-levels": lambda run, rng, n_clients: {"d": 8, "n": 5000, "medians": np.linspace(1.06, 2.7, 12).tolist()},
    "meeting-points": lambda run, rng, n_clients: {"pairs": 20_000, "corrected": 1.0, "published": 0.059},
}


def papers_rows():
    """Rows that give the paper's own numbers: pooled, merge sweep and federated."""
    rows = []
    for dataset in SETS:
        for at, seed in enumerate(SEEDS):
            for method in ("asm-s", "dpgmm", "xmeans", "gmeans", "kmeans"):
                ari, k = (printed("pooled", dataset, method, quantity) for quantity in ("ari", "k"))
                rows.append(row("pooled", dataset, method, seed, ari=ari, k=k))
            rows.append(papers_sweep(dataset, seed))
            for regime in "ab":
                for method in ("asm-s", "dpgmm", "xmeans", "gmeans", "oracle"):
                    rows.append(papers_federated(f"federated-{regime}", dataset, method, seed, at))
            if dataset != "cifar10":
                names = ("personalised_ari", "k")
                values = {name: printed("true-counts", dataset, "released", name) for name in names}
                rows.append(row("released", dataset, "released", seed, **values, ari=0.0))
            if find("mechanisms", dataset, "asm-s", "k_quarter"):
                values = {name: printed("mechanisms", dataset, "asm-s", f"{name}_quarter") for name in ("ari", "k")}
                rows.append(row("quarter", dataset, "asm-s", seed, **values))
                known = printed("mechanisms", dataset, "kmeans", "ari_quarter")
                rows.append(row("quarter", dataset, "kmeans", seed, ari=known, k=N_CLUSTERS[dataset]))
        for method in TIMED:
            rows.append(row("times", dataset, method, phase1_ms=printed("runtime", dataset, method, "ms")))
        r_med, d = (printed("mechanisms", dataset, "", name) for name in ("r_med", "d"))
        rows.append(row("classes", dataset, "classes", 0, n=1000, d=int(d), k=3, anisotropies=[r_med]))
    return rows


def printed(*names):
    return find(*names).value


def papers_sweep(dataset, seed):
    alphas = [f"{alpha:g}" for alpha in SWEEP]
    chosen = find("merge-sweep", dataset, "selected", "alpha")
    return row(
        "merge-sweep",
        dataset,
        "asm-s",
        seed,
        alphas=list(SWEEP),
        ari=[printed("merge-sweep", dataset, alpha, "ari") for alpha in alphas],
        k=[printed("merge-sweep", dataset, alpha, "k") for alpha in alphas],
        selected={"merge_factor": chosen.value if chosen else 0.25},
        selected_ari=printed("pooled", dataset, "asm-s", "ari"),
        selected_k=printed("pooled", dataset, "asm-s", "k"),
    )


def papers_federated(table, dataset, method, seed, at):
    """K above and below the truth in turn, so that both its mean and its mean error are the paper's."""
    k, error = (printed(table, dataset, method, quantity) for quantity in ("k", "k_error"))
    above = k - N_CLUSTERS[dataset]
    values = {
        "ari": printed(table, dataset, method, "ari"),
        "k": N_CLUSTERS[dataset] + (above + error if at % 2 else above - error),
        "local_counts": [3, 2],
        "true_counts": [2, 3],
        "sizes": [100, 120],
    }
    if method == "oracle":
        values["personalised_ari"] = printed("true-counts", dataset, "oracle", "personalised_ari")
    return row(table, dataset, method, seed, **values)
