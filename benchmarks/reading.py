"""One read of Parquet files into rows of float64, by pyarrow and NumPy alone: what labels are compared with.

python benchmarks/reading.py FILE_OR_FOLDER
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq


def read_rows(path: Path, batch_size: int = 1 << 16) -> int:
    """Read a Parquet file, or those of a folder, batch by batch on one thread; how many rows these are."""
    n_rows = 0
    for each in sorted(path.glob("*.parquet")) if path.is_dir() else [path]:
        with pq.ParquetFile(each, buffer_size=1 << 20, pre_buffer=False) as file:
            for batch in file.iter_batches(batch_size=batch_size, use_threads=False):
                X = np.empty((len(batch), batch.num_columns))
                for at, column in enumerate(batch.columns):
                    X[:, at] = column.to_numpy()
                n_rows += len(X)
    return n_rows


def main() -> None:
    print(f"{read_rows(Path(sys.argv[1])):,} rows")


if __name__ == "__main__":
    main()
