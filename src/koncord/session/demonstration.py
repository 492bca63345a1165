"""A demonstration from end to end: a run on tables whose classes are known, and how well its clusters agree with them.

The classes enter after the run, here alone.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from koncord._progress import part
from koncord.aggregate.consensus import Consensus
from koncord.data.demonstrations import Classes, Demonstration
from koncord.estimate.asm import ASM
from koncord.model.globalmodel import GlobalModel
from koncord.prepare.settings import Preparation
from koncord.runs.record import Crossing, Truth
from koncord.session.federation import RunResult, run
from koncord.session.inprocess import in_process
from koncord.session.policy import SitePolicy
from koncord.types import IntArray

N_POOLED_STARTS = 10  # of k-means with all rows in one place


def demonstrate(shown: Demonstration, files: Mapping[str, str]) -> RunResult:
    """A run with all defaults on the tables of a demonstration; its record holds what is known of the classes.

    Parameters
    ----------
    shown : Demonstration
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
            seed=shown.seed,
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


def truth_of(shown: Demonstration, model: GlobalModel) -> Truth:
    """How well a model agrees with the known classes."""
    crossings = tuple(crossing_of(shown, kind, model) for kind in shown.classes)
    n_true = len(shown.classes[0].names)
    nested, finer = nested_model(model, n_true), nested_model(model, model.n_clusters + 1)
    is_held_out = shown.held_out is not None
    return Truth(
        n_clusters=n_true,
        ari=held_out_ari(shown, model) if is_held_out else crossings[0].ari,
        rows=crossings[0].rows if shown.held_out is None else len(shown.held_out),
        local_counts=shown.true_counts,
        is_held_out=is_held_out,
        crossings=crossings,
        ari_at_k=None if nested is None else agreement(shown, nested),
        pooled_ari=pooled_ari(shown),
        nested=None if finer is None else crossing_of(shown, shown.classes[-1], finer),
    )


def crossing_of(shown: Demonstration, kind: Classes, model: GlobalModel) -> Crossing:
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


def agreement(shown: Demonstration, model: GlobalModel) -> float:
    """Adjusted Rand index against the first classes: of the rows that took no part, or of all where all did."""
    return crossing_of(shown, shown.classes[0], model).ari if shown.held_out is None else held_out_ari(shown, model)


def held_out_ari(shown: Demonstration, model: GlobalModel) -> float:
    assert shown.held_out is not None
    assert shown.held_out_classes is not None
    return adjusted_rand(shown.held_out_classes, model.predict(shown.held_out))


def pooled_ari(shown: Demonstration) -> float:
    """What k-means reaches that is given the number of classes and has all rows in one place, standardized."""
    from sklearn.cluster import KMeans
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    n_true = len(shown.classes[0].names)
    pooled = make_pipeline(StandardScaler(), KMeans(n_true, n_init=N_POOLED_STARTS, random_state=shown.seed))
    pooled.fit(shown.pooled)
    if shown.held_out is not None:
        assert shown.held_out_classes is not None
        return adjusted_rand(shown.held_out_classes, pooled.predict(shown.held_out))
    classes = np.concatenate([shown.classes[0].of_rows[site] for site in shown.tables])
    return adjusted_rand(classes, pooled.predict(shown.pooled))


def adjusted_rand(classes: IntArray, clusters: IntArray) -> float:
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(classes, clusters))
