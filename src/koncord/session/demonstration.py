"""A demonstration from end to end: a run on penguins of known species, and how well its clusters agree with them.

The classes enter after the run, here alone.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from koncord._progress import part
from koncord.aggregate.consensus import Consensus
from koncord.data.islands import Classes, Penguins
from koncord.estimate.asm import ASM
from koncord.model.globalmodel import GlobalModel
from koncord.prepare.settings import Preparation
from koncord.runs.record import Crossing, Truth
from koncord.session.federation import RunResult, run
from koncord.session.inprocess import in_process
from koncord.session.policy import SitePolicy
from koncord.types import IntArray

SEED = 0
N_POOLED_STARTS = 10  # of k-means with all rows in one place


def demonstrate(shown: Penguins, files: Mapping[str, str]) -> RunResult:
    """A run with all defaults on the tables of the islands; its record holds what is known of the classes.

    Parameters
    ----------
    shown : Penguins
        The tables, and the classes of their rows.
    files : mapping of str to str
        Where each site's table will be.

    Returns
    -------
    RunResult
        Its record has a `Truth`.
    """
    estimator, aggregator = ASM(), Consensus()
    rows = {site: (table, shown.columns) for site, table in shown.tables.items()}
    with part(0.0, 0.95, "federation"):
        result = run(
            in_process(rows, estimator=estimator, aggregator=aggregator),
            aggregator,
            estimator=estimator,
            seed=SEED,
            standardize=True,
            preparation=Preparation(),
            site_policy=SitePolicy(),
            local_counts=True,
            estimator_name="asm",
            files=files,
        )
    with part(0.95, 1.0, "all rows in one place"):
        truth = truth_of(shown, result.model)
    return RunResult(model=result.model, record=replace(result.record, truth=truth))


def truth_of(shown: Penguins, model: GlobalModel) -> Truth:
    """How well a model agrees with the known classes."""
    crossings = tuple(crossing_of(shown, kind, model) for kind in shown.classes)
    n_true = len(shown.classes[0].names)
    nested, finer = nested_model(model, n_true), nested_model(model, model.n_clusters + 1)
    return Truth(
        n_clusters=n_true,
        ari=crossings[0].ari,
        local_counts=shown.true_counts,
        crossings=crossings,
        ari_at_k=None if nested is None else crossing_of(shown, shown.classes[0], nested).ari,
        pooled_ari=pooled_ari(shown),
        nested=None if finer is None else crossing_of(shown, shown.classes[-1], finer),
    )


def crossing_of(shown: Penguins, kind: Classes, model: GlobalModel) -> Crossing:
    """Rows by cluster and class, over all sites; rows whose class is not known are left out."""
    classes = np.concatenate([kind.of_rows[site] for site in shown.tables])
    clusters = model.predict(shown.pooled)
    is_known = classes >= 0
    counts = np.zeros((model.n_clusters, len(kind.names)), dtype=np.int64)
    np.add.at(counts, (clusters[is_known], classes[is_known]), 1)
    return Crossing(
        what=kind.what,
        classes=kind.names,
        counts=tuple(map(tuple, counts.tolist())),
        ari=adjusted_rand(classes[is_known], clusters[is_known]),
    )


def nested_model(model: GlobalModel, k: int) -> GlobalModel | None:
    """The answer of k clusters that a model has beside its own, where it has one."""
    found: Any = model
    return found.at(k) if k in getattr(model, "available", ()) else None


def pooled_ari(shown: Penguins) -> float:
    """What k-means reaches that is given the number of classes and has all rows in one place, standardized."""
    from sklearn.cluster import KMeans
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    n_true = len(shown.classes[0].names)
    pooled = make_pipeline(StandardScaler(), KMeans(n_true, n_init=N_POOLED_STARTS, random_state=SEED))
    pooled.fit(shown.pooled)
    classes = np.concatenate([shown.classes[0].of_rows[site] for site in shown.tables])
    return adjusted_rand(classes, pooled.predict(shown.pooled))


def adjusted_rand(classes: IntArray, clusters: IntArray) -> float:
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(classes, clusters))
