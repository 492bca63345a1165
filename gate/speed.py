"""Speed as ratios of CPU seconds, both sides in one run, each in a process of its own on one thread of linear algebra.

`koncord fit` of three Parquet files is compared with reading them into arrays by pyarrow and with scikit-learn's
MiniBatchKMeans given K; one configuration of ASM with the same algorithm on scikit-learn's GaussianMixture.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gate.lines import LOWER, Line
from gate.size import KONCORD

N_FILES, N_COLUMNS, N_CLUSTERS = 3, 16, 6
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}
ASM_CONFIG = {"split_factor": 0.7, "min_mass": 80, "merge_factor": 1.0}


def speed(is_full: bool, say: Callable[[str], None]) -> list[Line]:
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(Path(folder), 1_000_000 if is_full else 100_000)
        out = Path(folder) / "run"
        fit = [*KONCORD, "fit", *files, "--out", str(out)]
        seconds = {
            "fit": spent(fit),
            "reading": spent([sys.executable, "-m", "gate.speed", "reading", *files]),
            "MiniBatchKMeans": spent([sys.executable, "-m", "gate.speed", "kmeans", *files]),
            "asm": spent([sys.executable, "-m", "gate.speed", "asm"]),
        }
    for name, (wall, cpu, own) in seconds.items():
        say(f"{name}: {wall:.2f} s, {cpu:.2f} CPU s{f', {own}' if own else ''}")
    fit_cpu, reading = seconds["fit"][1], seconds["reading"][2]["cpu"]
    kmeans, asm = seconds["MiniBatchKMeans"][2]["cpu"], seconds["asm"][2]
    return [
        Line(name="fit / reading, CPU", value=fit_cpu / reading, better=LOWER, tolerance=0.25, is_share=True),
        Line(name="fit / MiniBatchKMeans, CPU", value=fit_cpu / kmeans, better=LOWER, tolerance=0.25, is_share=True),
        Line(name="fit, seconds", value=seconds["fit"][0]),
        Line(name="ASM / scikit-learn's way, CPU", value=asm["ratio"], better=LOWER, tolerance=0.25, is_share=True),
    ]


def write_files(folder: Path, n_rows: int) -> list[str]:
    rng = np.random.default_rng(0)
    centers = 3 * rng.standard_normal((N_CLUSTERS, N_COLUMNS))
    paths = []
    for at in range(N_FILES):
        n = n_rows // N_FILES
        X = centers[rng.integers(0, N_CLUSTERS, n)] + rng.standard_normal((n, N_COLUMNS))
        paths.append(str(folder / f"site{at}.parquet"))
        pq.write_table(pa.table({f"x{column}": X[:, column] for column in range(N_COLUMNS)}), paths[-1])
    return paths


def spent(command: Sequence[str]) -> tuple[float, float, dict[str, Any]]:
    """Wall and CPU seconds of a command and its children, and the object of JSON that it printed last, if any."""
    before, start = os.times(), perf_counter()
    done = subprocess.run(command, env=os.environ | ONE_THREAD, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} failed: {done.stderr[-500:]}")
    wall, after = perf_counter() - start, os.times()
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    last = done.stdout.strip().splitlines()[-1:] or [""]
    return wall, cpu, json.loads(last[0]) if last[0].startswith("{") else {}


# --- the other sides, each in a process of its own ---


def read(paths: Sequence[str]) -> Any:
    tables = [pq.read_table(path, use_threads=False) for path in paths]
    return np.concatenate([np.column_stack([column.to_numpy() for column in table.columns]) for table in tables])


def reading(paths: Sequence[str]) -> dict[str, float]:
    start = process_time()
    n_rows = len(read(paths))
    return {"cpu": process_time() - start, "rows": n_rows}


def kmeans(paths: Sequence[str]) -> dict[str, float]:
    from sklearn.cluster import MiniBatchKMeans

    X = read(paths)
    start = process_time()
    MiniBatchKMeans(N_CLUSTERS, n_init=3, random_state=0).fit(X)
    return {"cpu": process_time() - start}


def asm(paths: Sequence[str]) -> dict[str, float]:
    """CPU seconds of one configuration of ASM over those of the reference, which finds the same components."""
    from koncord import ASM

    rng = np.random.default_rng(0)
    X = 2 * rng.standard_normal((6, 10))[rng.integers(0, 6, 3500)] + rng.standard_normal((3500, 10))
    start = process_time()
    for _ in range(5):
        ours = ASM(**ASM_CONFIG).fit(X).n_split_components_
    middle = process_time()
    theirs = len(reference_components(X, ASM_CONFIG["split_factor"], int(ASM_CONFIG["min_mass"])))
    end = process_time()
    if ours != theirs:
        raise RuntimeError(f"ASM found {ours} components, the reference {theirs}.")
    return {"ratio": (middle - start) / 5 / (end - middle), "components": ours}


def reference_components(X: Any, split_factor: float, min_mass: int) -> list[Any]:
    """Algorithm 1 of the paper up to merging, with a GaussianMixture for each test of a split."""
    components = [X]
    while True:
        after = [half for rows in components for half in (reference_split(rows, split_factor, min_mass) or [rows])]
        if len(after) == len(components):
            return components
        components = after


def reference_split(X: Any, split_factor: float, min_mass: int) -> list[Any] | None:
    """The two halves of a component, if two spherical Gaussians are better by BIC.

    GaussianMixture is given weights, means and precisions to start from, so that it skips its own start by k-means.
    """
    from sklearn.mixture import GaussianMixture

    n, d = X.shape
    one = GaussianMixture(1, covariance_type="spherical", max_iter=15, reg_covar=0).fit(X)
    mean, variance = one.means_[0], one.covariances_[0]
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
    step = split_factor * np.sqrt(values[-1]) * vectors[:, -1] * np.sign(vectors[np.abs(vectors[:, -1]).argmax(), -1])
    two = GaussianMixture(
        2,
        covariance_type="spherical",
        max_iter=14,
        tol=0,
        reg_covar=1e-6 * variance,
        weights_init=[0.5, 0.5],
        means_init=[mean + step, mean - step],
        precisions_init=[1 / variance, 1 / variance],
    ).fit(X)
    share = two.predict_proba(X)
    masses = share.sum(axis=0)
    squared = ((X[:, None] - share.T @ X / masses[:, None]) ** 2).sum(axis=2)
    variances = (share * squared).sum(axis=0) / (masses * d)
    likelihood = (share * (-0.5 * (d * np.log(2 * np.pi * variances) + squared / variances))).sum()
    alone = -0.5 * (n * d * np.log(2 * np.pi * variance) + ((X - mean) ** 2).sum() / variance)
    is_first = share[:, 0] >= 0.5
    if likelihood - alone <= (d + 2) / 2 * np.log(n) or masses.min() < min_mass or is_first.all() or not is_first.any():
        return None
    return [X[is_first], X[~is_first]]


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    other = {"reading": reading, "kmeans": kmeans, "asm": asm}[sys.argv[1]]
    print(json.dumps(other(sys.argv[2:])))
