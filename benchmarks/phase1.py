"""Phase 1 against the paper's way of doing it, both sides in one run, one thread, medians.

    make bench-phase1            # or: .venv/bin/python benchmarks/phase1.py [--quick] [--json FILE]

(a) one ASM configuration against the same algorithm with a scikit-learn GaussianMixture fitted for each split test;
(b) the whole choice among 120 configurations with its refit, against ONE run of that reference;
(c) one ASM configuration against single runs of DPGMM, XMeans and GMeans;
(d) growth of time and memory with the rows, beside the floor of one Gram matrix for each level of the tree.
"""

import os

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse
import json
import resource
import subprocess
import sys
import warnings
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from koncord import ASM
from koncord.estimate.merging import merge
from koncord.types import Components, SphericalMixture
from koncord_reproduction import partition

# The configuration of the grid with most work, and the one in its middle.
HEAVIEST = {"split_factor": 1.0, "min_mass": 20, "merge_factor": 1.0}
MIDDLE = {"split_factor": 0.7, "min_mass": 80, "merge_factor": 1.0}


def peers():
    """Single runs, by koncord's defaults and as the paper ran them; imported here, not where memory is measured."""
    from koncord.estimate import dpgmm, gmeans, xmeans

    return {
        "DPGMM": dpgmm.DPGMM(random_state=0),
        "XMeans": xmeans.XMeans(random_state=0),
        "XMeans as paper": xmeans.XMeans(**xmeans.XMEANS_PAPER, random_state=0),
        "GMeans": gmeans.GMeans(random_state=0),
        "GMeans as paper": gmeans.GMeans(**gmeans.GMEANS_PAPER, random_state=0),
    }


def reference_asm(X, split_factor, min_mass, merge_factor):
    """Algorithm 1 with scikit-learn's GaussianMixture in every split test; the number of components.

    GaussianMixture is given weights, means and precisions to start from, so that it skips its own k-means start and
    runs as fast as it can. Fourteen iterations, its responsibilities (the 15th E-step) and the M-step from them make
    the fifteen of the paper, and the same tree as koncord's.
    """
    components = [(X, X.mean(axis=0), X.var(axis=0).mean())]
    while True:
        after = []
        for component in components:
            after.extend(reference_split(component[0], split_factor, min_mass) or [component])
        if len(after) == len(components):
            break
        components = after
    rows = Components(
        counts=np.array([len(rows) for rows, _, _ in components]),
        means=np.array([rows.mean(axis=0) for rows, _, _ in components]),
        scatters=np.array([rows.var(axis=0).sum() * len(rows) for rows, _, _ in components]),
    )
    means, variances = (np.array([component[at] for component in components]) for at in (1, 2))
    return len(merge(SphericalMixture(means=means, variances=variances, rows=rows), merge_factor)[0])


def reference_split(X, split_factor, min_mass):
    from sklearn.mixture import GaussianMixture  # not where memory is measured

    n, d = X.shape
    if n < 2:
        return None
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
    means = share.T @ X / masses[:, None]
    squared = ((X[:, None] - means) ** 2).sum(axis=2)
    variances = (share * squared).sum(axis=0) / (masses * d)
    likelihood = (share * (-0.5 * (d * np.log(2 * np.pi * variances) + squared / variances))).sum()
    alone = -0.5 * (n * d * np.log(2 * np.pi * variance) + ((X - mean) ** 2).sum() / variance)
    is_first = share[:, 0] >= 0.5
    if likelihood - alone <= (d + 2) / 2 * np.log(n) or masses.min() < min_mass or is_first.all() or not is_first.any():
        return None
    return [(X[is_first], means[0], variances[0]), (X[~is_first], means[1], variances[1])]


def seconds(call, repeats):
    """Median time of a call after one that warms up, and what the call returned."""
    result = call()
    times = []
    for _ in range(repeats):
        began = perf_counter()
        call()
        times.append(perf_counter() - began)
    return median(times), result


def tables():
    """A client of 490 x 10 and a table of 3500 x 21: the paper's data where KONCORD_DATA holds it, else stand-ins."""
    folder = Path(os.environ.get("KONCORD_DATA", "."))
    rng = np.random.default_rng(0)

    def blobs(k, n, d):
        return rng.normal(size=(k, d))[rng.integers(k, size=n)] * 2 + rng.normal(size=(n, d))

    if not (folder / "mnist_vae10.npz").exists() or not (folder / "waveform.npz").exists():
        return [("synthetic 490 x 10", blobs(6, 490, 10)), ("synthetic 3500 x 21", blobs(3, 3500, 21))]
    with np.load(folder / "mnist_vae10.npz") as stored:
        X, y = stored["X"].astype(float), stored["y"]
    client = next(rows for rows in partition(y, 100, "A", 42) if len(rows) >= 490)  # six of the ten digits or so
    mnist = X[rng.permutation(client)[:490]]
    with np.load(folder / "waveform.npz") as stored:
        waveform = stored["X"].astype(float)[rng.permutation(5000)[:3500]]
    return [("MNIST client 490 x 10", mnist), ("Waveform 3500 x 21", waveform / waveform.std(axis=0))]


def compare(repeats):
    rows = []
    for name, X in tables():
        choice, _ = seconds(lambda X=X: ASM(random_state=0).fit(X), 2 * repeats)
        ours = {}
        for label, config in (("heaviest", HEAVIEST), ("middle", MIDDLE)):
            ours[label], fitted = seconds(lambda X=X, c=config: ASM(**c).fit(X), 5 * repeats)
            theirs, n_reference = seconds(lambda X=X, c=config: reference_asm(X, **c), repeats)
            print(
                f"{name}, {label}: reference and koncord agree: {fitted.n_components_ == n_reference}", file=sys.stderr
            )
            rows.append((f"(a) {name}: the {label} configuration", ours[label], theirs, "reference", 20.0))
            rows.append((f"(b) {name}: all 120 and the refit", choice, theirs, f"one reference, {label}", 1.0))
        for who, peer in peers().items():
            theirs, fitted = seconds(lambda X=X, p=peer: p.fit(X), repeats)
            who = f"{who}, K = {fitted.n_components_}"
            rows.extend((f"(c) {name}: the {label} configuration", ours[label], theirs, who, 1.0) for label in ours)
    return rows


def growth(sizes):
    """(d): each size in a process of its own, so that its peak memory is its own."""
    rows = []
    for n in sizes:
        output = subprocess.run(
            [sys.executable, __file__, "--rows", str(n)], check=True, capture_output=True, text=True
        ).stdout
        rows.append(json.loads(output))
    return rows


def one_size(n):
    X = np.random.default_rng(0).normal(size=(n, 16))
    X[: n // 2] += 3
    base = peak_bytes()
    began = perf_counter()
    fitted = ASM(**HEAVIEST).fit(X)
    elapsed = perf_counter() - began
    peak = peak_bytes()
    n_levels = int(np.ceil(np.log2(fitted.n_split_components_)))
    began = perf_counter()
    for _ in range(n_levels):
        X.T @ X
    floor = perf_counter() - began
    print(
        json.dumps(
            {
                "rows": n,
                "seconds": elapsed,
                "floor": floor,
                "levels": n_levels,
                "k": fitted.n_split_components_,
                "input": X.nbytes,
                "peak": peak,
                "above": peak - base,
            }
        )
    )


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, up to 100,000 rows")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if args.rows:
        one_size(args.rows)
        return
    rows = compare(2 if args.quick else 5)
    print(f"{'what':54} {'koncord':>10} {'other':>10}  {'other is':24} {'ratio':>8}  target")
    for label, ours, other, who, target in rows:
        met = "met" if other / ours >= target else "NOT MET"
        print(
            f"{label:54} {1e3 * ours:8.1f}ms {1e3 * other:8.1f}ms  {who:24} {other / ours:7.1f}x  >= {target:g}x {met}"
        )
    sizes = (10_000, 100_000) if args.quick else (10_000, 100_000, 1_000_000)
    grown = growth(sizes)
    print(
        f"\n(d) d = 16, the heaviest configuration\n{'rows':>9} {'seconds':>8} {'floor':>8} {'k':>4} {'peak/input':>11}"
    )
    for row in grown:
        ratio = row["peak"] / row["input"]
        print(f"{row['rows']:9,} {row['seconds']:8.2f} {row['floor']:8.3f} {row['k']:4} {ratio:10.2f}x")
    exponent = np.polyfit(np.log([r["rows"] for r in grown]), np.log([r["seconds"] for r in grown]), 1)[0]
    print(f"time grows with the rows to the power {exponent:.2f} (target at most 1.15)")
    last = grown[-1]
    print(
        f"peak memory of the whole process at {last['rows']:,} rows: {last['peak'] / last['input']:.2f} times the "
        f"input (target under 3); the fit itself adds {last['above'] / last['input']:.2f} times"
    )
    if args.json:
        args.json.write_text(json.dumps({"compare": rows, "growth": grown, "exponent": exponent}, indent=1))


if __name__ == "__main__":
    main()
