"""One pass over a table in an engine: sums by cell from its Arrow batches, and the same sums made by the engine itself.

    python benchmarks/engines.py --rows 10000000 --groups 200 --folder DIR

DuckDB gets the cuts of the cells as one CASE, and groups by it; Dask calls koncord's own loops for each partition. CPU
and wall seconds of one thread, and whether the counts are the same.
"""

import os

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse
import resource
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import dask
import dask.dataframe
import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import parquet

from koncord.data.batches import batched_table
from koncord.kernels.assign import sums_by_label
from koncord.kernels.cutting import CutTree, cut_tree

D, SAMPLE, LEAST, BLOCK = 16, 100_000, 20, 1_000_000
COLUMNS = [f"c{at}" for at in range(D)]


class Sums(NamedTuple):
    """Counts, sums and sums of squares by cell, and sums of products of all rows."""

    counts: np.ndarray
    sums: np.ndarray
    squares: np.ndarray
    products: np.ndarray


def write_table(path: Path, n_rows: int) -> np.ndarray:
    """Rows of twelve round clusters, float32, and some of them."""
    rng = np.random.default_rng(0)
    centers = rng.normal(0, 4, (12, D))
    writer = None
    for start in range(0, n_rows, BLOCK):
        n = min(BLOCK, n_rows - start)
        X = (centers[rng.integers(0, 12, n)] + rng.standard_normal((n, D))).astype(np.float32)
        table = pa.table({name: X[:, at] for at, name in enumerate(COLUMNS)})
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()
    return X[:SAMPLE].astype(float)


def sums_of(X: np.ndarray, tree: CutTree) -> Sums:
    labels, k = tree.assign(X), tree.n_groups
    return Sums(np.bincount(labels, minlength=k), sums_by_label(X, labels, k), sums_by_label(X**2, labels, k), X.T @ X)


def summed(parts: Iterable[Sums]) -> Sums:
    total = None
    for part in parts:
        total = part if total is None else Sums(*map(np.add, total, part))
    return total


def by_batches(source: Any, tree: CutTree) -> Sums:
    return summed(sums_of(X, tree) for X in batched_table(source, name="table").batches())


def case_of(tree: CutTree, cut: int = 0) -> str:
    """The cell of a row in SQL."""
    if cut < 0:
        return str(-1 - cut)
    place = " + ".join(f"({a!r}) * {name}::double" for name, a in zip(COLUMNS, tree.axes[cut].tolist(), strict=True))
    low, high = (case_of(tree, side) for side in tree.sides[cut].tolist())
    return f"CASE WHEN {place} > {float(tree.offsets[cut])!r} THEN {high} ELSE {low} END"


def by_sql(connection: Any, path: Path, tree: CutTree, *, paired: bool) -> Sums:
    sums = [f"sum({one}::double) s{at}, sum({one}::double * {one}) q{at}" for at, one in enumerate(COLUMNS)]
    if paired:
        sums += [f"sum({one}::double * {two}) {one}_{two}" for at, one in enumerate(COLUMNS) for two in COLUMNS[:at]]
    query = f"select {case_of(tree)} as cell, count(*) n, {', '.join(sums)} from '{path}' group by cell order by cell"
    found = connection.sql(query).fetchnumpy()
    columns = [np.column_stack([found[f"{what}{at}"] for at in range(D)]) for what in "sq"]
    return Sums(found["n"], *columns, np.zeros((D, D)))


def by_partitions(frame: Any, tree: CutTree, scheduler: str) -> Sums:
    parts = [dask.delayed(lambda part: sums_of(part.to_numpy(dtype=float), tree))(part) for part in frame.to_delayed()]
    return summed(dask.compute(*parts, scheduler=scheduler))


def measured(what: str, call: Callable[[], Sums], known: Sums | None = None) -> Sums:
    began, used = perf_counter(), cpu()
    found = call()
    seconds, used = perf_counter() - began, cpu() - used
    same = "" if known is None else f"  counts the same: {np.array_equal(found.counts, known.counts[known.counts > 0])}"
    print(f"{what:<44} {used:>7.2f} s CPU {seconds:>7.2f} s wall  load {os.getloadavg()[0]:.1f}{same}", flush=True)
    return found


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--groups", type=int, default=200, help="cells at most")
    parser.add_argument("--folder", type=Path, required=True, help="where the table is written")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    path = args.folder / "table.parquet"
    tree = cut_tree(write_table(path, args.rows), LEAST, args.groups)
    connection = duckdb.connect()
    connection.execute("SET threads=1")
    known = measured("DuckDB, Arrow batches", lambda: by_batches(connection.read_parquet(str(path)), tree))
    measured("DuckDB, SQL", lambda: by_sql(connection, path, tree, paired=True), known)
    measured("DuckDB, SQL without products", lambda: by_sql(connection, path, tree, paired=False), known)
    frame = dask.dataframe.read_parquet(path, split_row_groups=True)
    measured("Dask, Arrow batches", lambda: by_batches(frame, tree), known)
    measured("Dask, by partition in this thread", lambda: by_partitions(frame, tree, "synchronous"), known)
    measured("Dask, by partition in threads", lambda: by_partitions(frame, tree, "threads"), known)


if __name__ == "__main__":
    main()
