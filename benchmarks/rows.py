"""Tables larger than memory: `koncord fit` and `koncord predict` over folders of Parquet files, and what they hold.

Sites hold rows of twelve round clusters in 16 columns. Each command runs in a process of its own, whose CPU time and
peak memory are read when it ends; K and the ARI with the clusters that were put in are printed beside them.

    python benchmarks/rows.py --folder /tmp/rows                       # 10^6 and 10^7 rows
    python benchmarks/rows.py --folder /tmp/rows --rows 100000000 --float32      # 6.4 GB on disk
    python benchmarks/rows.py --folder /tmp/rows --float32 --steps predict read  # of models that are there

"read" is one read of the same files by pyarrow and NumPy alone: how many of them the others take is printed.
"""

import os

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

import argparse
import json
import resource
import subprocess
import sys
from math import log
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
from sklearn.metrics import adjusted_rand_score

N_FEATURES, N_CLUSTERS, PART = 16, 12, 500_000


def make_site(folder: Path, n_rows: int, dtype: type[np.floating]) -> None:
    """A folder of Parquet files, and the cluster of every row beside it."""
    if folder.with_suffix(".npy").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    centers, spreads = 4 * rng.normal(size=(N_CLUSTERS, N_FEATURES)), rng.uniform(0.6, 1.6, N_CLUSTERS)
    shares = rng.dirichlet(np.full(N_CLUSTERS, 4.0))
    truth = []
    for number, start in enumerate(range(0, n_rows, PART)):
        n = min(PART, n_rows - start)
        labels = rng.choice(N_CLUSTERS, n, p=shares)
        X = centers[labels] + rng.normal(size=(n, N_FEATURES)) * spreads[labels, None]
        table = pa.table({f"c{at}": X[:, at].astype(dtype) for at in range(N_FEATURES)})
        pq.write_table(table, folder / f"{number:05}.parquet", compression="none", use_dictionary=False)
        truth.append(labels.astype(np.int8))
    np.save(folder.with_suffix(".npy"), np.concatenate(truth))


def run(*command: str) -> dict[str, float]:
    """Seconds and peak memory of one command, which may have workers of its own."""
    program = (
        "import json, resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))\n"
    )
    began = perf_counter()
    found = subprocess.run([sys.executable, "-c", program, *command], check=True, capture_output=True, text=True)
    cpu, peak = json.loads(found.stdout)
    return {"wall": perf_counter() - began, "cpu": cpu, "peak_mb": peak}


def labels_in(path: Path) -> np.ndarray:
    chosen = arrow_csv.ConvertOptions(include_columns=["cluster"])
    return arrow_csv.read_csv(path, convert_options=chosen).column(0).to_numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where tables and runs go")
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7])
    parser.add_argument("--float32", action="store_true", help="store tables as float32; sums are float64 all the same")
    parser.add_argument("--steps", choices=("fit", "predict", "read"), nargs="+", default=["fit", "predict", "read"])
    parser.add_argument("--jobs", default=str(os.cpu_count()), help="cores of koncord (default: all)")
    args = parser.parse_args()
    koncord = str(Path(sys.executable).parent / "koncord")
    print(
        f"{'rows':>12} {'step':>8} {'wall s':>8} {'CPU s':>8} {'peak MB':>8} {'table MB':>9} {'K':>3} {'ARI':>8}",
        flush=True,
    )
    before: tuple[int, float] | None = None
    for n_rows in args.rows:
        site = args.folder / f"rows{n_rows}"
        make_site(site, n_rows, np.float32 if args.float32 else np.float64)
        truth, out = np.load(site.with_suffix(".npy")), args.folder / f"run{n_rows}"
        again, reading = str(out / "again.csv"), str(Path(__file__).parent / "reading.py")
        commands = {
            "fit": (koncord, "fit", str(site), "--out", str(out), "--force", "--jobs", args.jobs),
            "predict": (koncord, "predict", str(out), str(site), "--out", again, "--jobs", args.jobs),
            "read": (sys.executable, reading, str(site)),
        }
        steps = {step: run(*commands[step]) for step in args.steps}
        found = labels_in(out / "labels" / f"{site.name}.csv")
        ari, size = adjusted_rand_score(truth, found), n_rows * N_FEATURES * 8 / 2**20
        for step, used in steps.items():
            print(
                f"{n_rows:>12,} {step:>8} {used['wall']:>8.1f} {used['cpu']:>8.1f} {used['peak_mb']:>8.0f} "
                f"{size:>9,.0f} {found.max() + 1:>3} {ari:>8.5f}",
                flush=True,
            )
        for step in [each for each in steps if "read" in steps and each != "read"]:
            reads = [steps[step][of] / steps["read"][of] for of in ("wall", "cpu")]
            print(f"{step}: {reads[0]:.2f} reads of wall time, {reads[1]:.2f} of CPU")
        if "fit" not in steps:
            continue
        if before is not None:
            exponent = log(steps["fit"]["cpu"] / before[1]) / log(n_rows / before[0])
            print(f"growth of fit from {before[0]:,} rows: exponent {exponent:.2f}", flush=True)
        before = n_rows, steps["fit"]["cpu"]
    print(f"this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
