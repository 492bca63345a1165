"""Files to clusters in one call."""

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import numpy as np

from koncord._bar import progress as shown_progress
from koncord._progress import part, report
from koncord._words import joined
from koncord.clustering import FederatedClustering
from koncord.data.batches import batched_table
from koncord.data.files import Table, read_table
from koncord.data.units import converted

PathLike = str | os.PathLike[str]


def fit(
    sites: str | Sequence[Any] | Mapping[str, Any],
    *,
    columns: Sequence[str] | None = None,
    drop: Collection[str] = (),
    decimal: str | None = None,
    na: Sequence[str] = (),
    convert: Mapping[str, Mapping[str, str]] | None = None,
    standardize: bool | None = None,
    progress: bool = True,
    **parameters: Any,
) -> FederatedClustering:
    """Clusters of several sites, one file or table each: `FederatedClustering` with its defaults, in one call.

    Parameters
    ----------
    sites : str, sequence, or mapping of str
        One file (CSV, TSV, Parquet, Excel, NPY, NPZ), folder of Parquet or CSV files, which is read batch by batch, or
        table (array, frame of pandas, polars or Arrow) a site: a sequence of them, a mapping of site name to one, or a
        pattern such as ``"sites/*.csv"``. Without a name, the site of a file is called as the file without folder and
        extension.
    columns : sequence of str or None, default None
        The columns of files to use, in this order; None uses all.
    drop : collection of str, default ()
        Columns of files to leave out; a file need not have them.
    decimal : str or None, default None
        What stands before the decimals in files, a point or a comma; None looks at the numbers.
    na : sequence of str, default ()
        What stands for a missing value in files, as "-999", beside an empty cell, NA, N/A, NaN and null.
    convert : mapping of str to mapping of str, default None
        Columns of files that are in another unit: of each site, the conversion of each column, as
        ``{"north": {"temperature": "F"}}``.
    standardize : bool or None, default None
        Bring all columns to mean 0 and variance 1 over all sites, from counts and sums alone. None does so unless there
        is a privacy budget, as the command ``koncord fit`` does.
    progress : bool, default True
        Show how far it is, on a terminal or in a notebook, when it takes longer than a second.
    **parameters
        Of `FederatedClustering`: ``random_state``, ``aggregator``, ``min_report``, ``categories``, ``missing``, ...

    Returns
    -------
    FederatedClustering
        Fitted: ``n_clusters_``, ``labels_``, ``report("page.html")``, ``model_.save("model.koncord")``.

    See Also
    --------
    FederatedClustering : The estimator behind it.

    Examples
    --------
    >>> import koncord
    >>> found = koncord.fit(koncord.data.penguins().tables, random_state=0)
    >>> found.sites_
    ['Biscoe', 'Dream', 'Torgersen']
    """
    if standardize is None:
        standardize = parameters.get("privacy") is None
    clustering = FederatedClustering(standardize=standardize, **parameters)
    named = named_sites(sites)
    conversions = {} if convert is None else convert
    unknown = [site for site in conversions if site not in named or not is_file(named[site])]
    if unknown:
        raise ValueError(f"'convert' of fit names {joined(unknown)}, which is no site with a file.")
    with shown_progress() if progress else nullcontext():
        tables = {}
        for at, (name, given) in enumerate(named.items()):
            report(0.05 * at / len(named), f"reading {name}")
            if is_file(given) and Path(given).is_dir():
                if name in conversions or decimal is not None:
                    raise ValueError(f"'convert' and 'decimal' of fit do not go with a folder, as of site {name!r}.")
                given = batched_table(given, name=name, columns=columns, drop=drop, may_lack=True, na=na)
            elif is_file(given):
                table = read_table(
                    given,
                    columns=columns,
                    drop=drop,
                    may_lack=True,
                    decimal=decimal,
                    na=na,
                    categories=tuple(clustering.categories),
                    may_miss=clustering.privacy is None,
                )
                given = arrow_table(converted(table, conversions.get(name, {})))
            tables[name] = given
        with part(0.05, 1.0, "fitting"):
            return clustering.fit(tables)


def is_file(given: Any) -> bool:
    return isinstance(given, str | os.PathLike)


def named_sites(sites: str | Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """The file or table of each site, by name."""
    if isinstance(sites, Mapping):
        return {str(name): given for name, given in sites.items()}
    if is_file(sites):
        sites = matching(str(sites))
    if not isinstance(sites, Sequence):
        raise TypeError(
            "'sites' of fit must be a list of files or tables, one a site, a mapping of site name to one, or a pattern "
            f"such as 'sites/*.csv'; got {type(sites).__name__}. To cut one table into sites: "
            "koncord.fit({name: rows.drop(columns='site') for name, rows in frame.groupby('site')})."
        )
    named: dict[str, Any] = {}
    width = len(str(len(sites)))
    for at, given in enumerate(sites, start=1):
        name = Path(given).stem if is_file(given) else f"site-{at:0{width}}"
        if name in named:
            raise ValueError(
                f"'sites' of fit has two sites called {name!r}, the name of a file without folder and extension; give "
                "a mapping of site name to file."
            )
        named[name] = given
    return named


def matching(pattern: str) -> list[str]:
    """The files of a pattern, in the order of their names."""
    found = sorted(glob(pattern)) if has_magic(pattern) else [pattern]  # noqa: PTH207, as a shell has them
    if not found:
        raise ValueError(f"'sites' of fit is the pattern {pattern!r}, which no file in '{Path.cwd()}' matches.")
    return found


def arrow_table(table: Table) -> Any:
    """A table as Arrow's, which carries the names of its columns and the levels of its categories."""
    import pyarrow as pa

    columns: dict[str, Any] = dict(zip(table.columns, table.X.T, strict=True))
    for name, levels in table.levels.items():
        columns[name] = [None if np.isnan(at) else levels[int(at)] for at in columns[name]]
    return pa.table(columns)
