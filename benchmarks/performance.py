"""What koncord's speed is compared with, both sides in one run: rows for `docs/performance.md`, and for its history.

    python benchmarks/performance.py --out docs/performance/rows.jsonl        # all of it: some minutes
    python benchmarks/performance.py --old SRC                                # beside an older version: its src folder
    python benchmarks/performance.py --history docs/performance/history.jsonl # paths against what they took before

Times are CPU seconds of one thread, the least of several calls; the sides of a comparison are called in turn, so that a
busy machine slows all of them alike. ``--history`` adds a row: every path in units of a reference work that is called
between its calls (a Gram matrix, sums in Python, a sort), so that rows of different days and machines can be compared;
it ends with 1 if a path takes over 20 % more of these units than the median of the rows before, twice in a row.
"""

import os

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil, log, log2
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.exceptions import ConvergenceWarning

sys.path.insert(0, str(Path(__file__).parent))
from phase1 import HEAVIEST, MIDDLE, reference_asm, tables
from reading import read_rows

import koncord
from koncord import ASM
from koncord.aggregate.consensus.streaming import summed_micro_clusters
from koncord.data import batches
from koncord.data.batches import batched_table
from koncord.kernels import cutting, gaussians, labeling, scaling, splitting
from koncord.kernels.centered import CenteredRows
from koncord.kernels.cutting import cut_tree
from koncord.model import globalmodel
from koncord.model.globalmodel import GlobalModel
from koncord.protocol import partition
from koncord.runs import assignments
from koncord.runs.assignments import assign, csv_bytes, write_labels

Call = Callable[[], object]
SLOWER = 1.2
PARTS = ("small", "rows", "all", "predict")
OLD = """
import json, sys
from time import process_time
import numpy as np
from koncord import ASM
X, config, n = np.load(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
times = []
for _ in range(n + 1):
    began = process_time()
    ASM(**config).fit(X)
    times.append(process_time() - began)
print(min(times[1:] or times))
"""


def least(calls: Mapping[str, Call], repeats: int) -> dict[str, float]:
    """The least CPU seconds of each call, called in turn after one call that warms up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, call in calls.items():
            began = process_time()
            call()
            if turn or not repeats:
                times[name].append(process_time() - began)
    return {name: min(own) for name, own in times.items()}


def in_numpy(call: Call) -> object:
    """The call with the split test in NumPy."""
    before, splitting.ROWS = splitting.ROWS, CenteredRows
    try:
        return call()
    finally:
        splitting.ROWS = before


def rounds(n_rows: int, d: int) -> np.ndarray:
    """Rows of eight round clusters."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(8, d))[rng.integers(8, size=n_rows)] * 4 + rng.normal(size=(n_rows, d))


def old_seconds(source: Path, X: np.ndarray, config: Mapping[str, Any], repeats: int) -> float:
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file, X)
        file.flush()
        command = [sys.executable, "-W", "ignore", "-c", OLD, file.name, json.dumps(config), str(repeats)]
        environment = {**os.environ, "PYTHONPATH": str(source)}
        return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def phase1_row(name: str, X: np.ndarray, what: str, config: Mapping[str, Any], args: argparse.Namespace) -> dict:
    """One estimate beside the others' and beside its floor."""
    n, d = X.shape
    fitted = ASM(**config).fit(X)
    k, levels = fitted.n_components_, max(ceil(log2(max(fitted.n_split_components_, 2))), 1)
    is_small, is_large = n < 10_000, n >= 1_000_000
    calls: dict[str, Call] = {
        "koncord": lambda: ASM(**config).fit(X),
        "gram": lambda: [X.T @ X for _ in range(levels)],
        "read": lambda: [X.sum() for _ in range(levels)],
    }
    if not is_large:
        calls["numpy"] = lambda: in_numpy(lambda: ASM(**config).fit(X))
        calls["kmeans"] = lambda: KMeans(k, n_init=1, random_state=0).fit(X)
    if is_small:
        calls["hdbscan"] = lambda: HDBSCAN(min_cluster_size=20, copy=True).fit(X)
    seconds = least(calls, 5 if is_small else 1)
    if is_small and "split_factor" in config:
        seconds["sklearn"] = least({"": lambda: reference_asm(X, **config)}, 0)[""]
    if args.old is not None and not is_large:
        seconds["old"] = old_seconds(args.old, X, config, 5 if is_small else 1)
    return {
        "kind": "phase1", "table": name, "rows": n, "columns": d, "what": what, "k": k,
        "split": fitted.n_split_components_, "levels": levels, "seconds": seconds,
    }  # fmt: skip


def phase1_rows(args: argparse.Namespace) -> list[dict]:
    select: dict[str, Any] = {"random_state": 0}
    rows = []
    for name, X in tables() if "small" in args.parts else ():
        for what, config in (("heaviest", HEAVIEST), ("middle", MIDDLE), ("all 120", select)):
            rows.append(phase1_row(name, X, what, config, args))
            print(shown(rows[-1]), flush=True)
    for n in args.sizes if "rows" in args.parts else ():
        rows.append(phase1_row("eight round clusters", rounds(n, 16), "heaviest", HEAVIEST, args))
        print(shown(rows[-1]), flush=True)
    if "all" in args.parts:
        rows.append(phase1_row("eight round clusters", rounds(args.sizes[-1], 16), "all 120", select, args))
        print(shown(rows[-1]), flush=True)
    return rows


def predict_row(n_rows: int) -> dict:
    """Labels of rows of a Parquet file, as lines of CSV, beside one read of the file by NumPy, and by koncord."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        schema = pa.schema([(f"c{at}", pa.float32()) for at in range(16)])
        with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
            for start in range(0, n_rows, 1_000_000):
                X = rounds(min(1_000_000, n_rows - start), 16).astype(np.float32)
                file.write_table(pa.table(dict(zip(schema.names, X.T, strict=True)), schema=schema))
        fitted = koncord.FederatedClustering(random_state=0).fit({"a": X[:20_000], "b": X[20_000:40_000]})
        model: GlobalModel = fitted.model_
        table = batched_table(path)

        def labels() -> None:
            with (Path(folder) / "labels.csv").open("w+b") as out:
                write_labels(out, model, table_named(table, model))

        calls: dict[str, Call] = {
            "read": lambda: read_rows(path),
            "own read": lambda: sum(len(batch) for batch in table.batches()),
            "koncord": labels,
            "numpy": lambda: labeled_in_numpy(labels),
        }
        seconds = least(calls, 2)
    return {"kind": "predict", "rows": n_rows, "columns": 16, "k": model.n_clusters, "seconds": seconds}


def labeled_in_numpy(labels: Call) -> None:
    """Labels without what is in C."""
    users = (assignments, batches, cutting, gaussians, globalmodel, labeling, scaling)
    kept = gaussians._labeling
    try:
        for user in users:
            user._labeling = None
        labels()
    finally:
        for user in users:
            user._labeling = kept


def table_named(table: Any, model: GlobalModel) -> Any:
    """The table with the columns by the names of the model, which was fitted to arrays."""
    from dataclasses import replace

    opened = table.open
    names = dict(zip(model.plan.columns, table.columns, strict=True))

    def renamed(columns: Any) -> Any:
        for batch in opened([names[each] for each in columns]):
            yield batch.rename_columns(list(columns))

    return replace(table, columns=model.plan.columns, open=renamed)


def shown(row: Mapping[str, Any]) -> str:
    """A row as a line: what took how long, and how many times as long the others took."""
    seconds = row["seconds"]
    others = "  ".join(f"{name} {own / seconds['koncord']:.3g}" for name, own in seconds.items() if name != "koncord")
    what = f"{row.get('what', row['kind'])}, {row['rows']:,} x {row['columns']}, K {row['k']}"
    return f"{what:40} {1e3 * seconds['koncord']:10.1f} ms   others, times that: {others}"


OTHERS = {
    "sklearn": "scikit-learn way", "numpy": "NumPy path", "old": "c7834ae", "kmeans": "KMeans given K",
    "hdbscan": "HDBSCAN", "gram": "one Gram matrix a level", "read": "one read a level",
}  # fmt: skip


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of phase 1 as a table of Markdown: CPU of koncord, and how many times that the others take."""
    lines = [
        f"| what | koncord, CPU s | {' | '.join(OTHERS.values())} |",
        f"|---|---:|{'---:|' * len(OTHERS)}",
    ]
    for row in rows:
        if row["kind"] == "phase1":
            own = row["seconds"]
            cells = [f"{own[name] / own['koncord']:.3g}" if name in own else "" for name in OTHERS]
            what = f"{row['what']}, {row['rows']:,} x {row['columns']}"
            lines.append(f"| {what} | {own['koncord']:.3g} | {' | '.join(cells)} |")
    return "\n".join(lines)


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# --- history ---


def reference() -> float:
    """CPU seconds of some work that does not change: calls of Python, arithmetic, memory."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200_000, 16))
    began = process_time()
    for _ in range(4):
        X.T @ X
    total = 0
    for at in range(300_000):
        total += at % 7
    np.sort(X.ravel())
    return process_time() - began


def history_paths() -> dict[str, Call]:
    (a, small), (b, table) = tables()  # by name, as others stand in for the paper's where those are not there
    large = rounds(100_000, 16)
    rng = np.random.default_rng(0)
    sites = {f"s{at}": rounds(400, 16)[rng.permutation(400)] for at in range(20)}
    tree = cut_tree(large[:20_000], 20)
    near = np.zeros((tree.n_groups, 16))
    labeling = koncord.FederatedClustering(random_state=0).fit({"a": large[:4000], "b": large[4000:8000]}).model_
    return {
        f"one configuration, {a}": lambda: ASM(**HEAVIEST).fit(small),
        f"one configuration, {b}": lambda: ASM(**HEAVIEST).fit(table),
        "one configuration, 100,000 x 16": lambda: ASM(**HEAVIEST).fit(large),
        f"one configuration in NumPy, {b}": lambda: in_numpy(lambda: ASM(**HEAVIEST).fit(table)),
        f"all 120 configurations, {a}": lambda: ASM(random_state=0).fit(small),
        "consensus, 20 sites x 400 x 16": lambda: koncord.FederatedClustering(random_state=0).fit(sites),
        "lines of 100,000 labels by eight Gaussians": lambda: csv_bytes(assign(labeling, large)),
        "sums of 100,000 rows by micro-cluster": lambda: summed_micro_clusters([(large, tree.assign(large))], near),
        "cells of 20,000 x 16": lambda: cells_of(large[:20_000]),
    }


def cells_of(X: np.ndarray) -> None:
    """What a site does once: rows as its answers see them, and its cells."""
    partition.JointPartition(partition.rows_of(X, 20), 20).cut(X)


def measured_paths(paths: Mapping[str, Call], repeats: int) -> dict[str, float]:
    """Each path in units of the reference, which is called between its calls."""
    found = {}
    for name, call in paths.items():
        seconds = least({"path": call, "reference": partial(reference_call)}, repeats)
        found[name] = seconds["path"] / seconds["reference"]
    return found


def reference_call() -> None:
    reference()


def add_to_history(path: Path, repeats: int) -> list[str]:
    """Measure all paths, add a row, and give the paths that became slower."""
    before = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    paths = history_paths()
    units = measured_paths(paths, repeats)
    usual = {
        name: median(own) for name in paths if (own := [row["units"][name] for row in before if name in row["units"]])
    }
    slow = [name for name in usual if units[name] > SLOWER * usual[name]]
    again = measured_paths({name: paths[name] for name in slow}, repeats)
    units |= {name: min(units[name], own) for name, own in again.items()}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True)
    row = {"commit": commit.stdout.strip(), "has_c": splitting.ROWS is not CenteredRows, "units": units}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
    for name, own in units.items():
        beside = f"{own / usual[name]:6.2f} times the median of {len(before)} rows" if name in usual else "first row"
        print(f"{name:42} {own:9.4f} units   {beside}", flush=True)
    return [name for name in usual if units[name] > SLOWER * usual[name]]


def exponent(rows: list[dict]) -> float | None:
    """Growth of the heaviest configuration with the rows of the table, from the least table to the largest."""
    own = [row for row in rows if row["kind"] == "phase1" and row["columns"] == 16 and row["what"] == "heaviest"]
    if len(own) < 2:
        return None
    first, last = own[0], own[-1]
    return log(last["seconds"]["koncord"] / first["seconds"]["koncord"]) / log(last["rows"] / first["rows"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="add the rows here, as JSON lines")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="which of them")
    parser.add_argument("--old", type=Path, metavar="SRC", help="src folder of an older version, such as c7834ae")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--predict-rows", type=int, default=1_000_000)
    parser.add_argument("--history", type=Path, metavar="FILE", help="add a row to this history and compare with it")
    parser.add_argument("--repeats", type=int, default=7, help="of --history")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if args.history is not None:
        slower = add_to_history(args.history, args.repeats)
        for name in slower:
            print(f"SLOWER by more than {SLOWER - 1:.0%}: {name}")
        sys.exit(1 if slower else 0)
    rows = phase1_rows(args)
    if "predict" in args.parts:
        rows.append(predict_row(args.predict_rows))
        print(shown(rows[-1]), flush=True)
    grown = exponent(rows)
    if grown is not None:
        print(f"the heaviest configuration grows with the rows to the power {grown:.2f}")
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with args.out.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
