"""HDBSCAN on micro-clusters: clients send prototypes, the server finds the dense parts among them, in one round.

Reference: R. J. G. B. Campello, D. Moulavi, J. Sander, "Density-based clustering based on hierarchical density
estimates", PAKDD 2013, as scikit-learn has it. Each prototype is one point, whatever its rows; micro-clusters hold
between their least number of rows and twice as many, so they lie as dense as the rows do.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.cluster import HDBSCAN

from koncord._threads import one_thread
from koncord._validation import check_count
from koncord.aggregate.base import Aggregator, ClientStep, Server
from koncord.protocol.floor import DEFAULT_MIN_REPORT
from koncord.types import FloatArray, IntArray
from koncord_reproduction.prototypes import SendPrototypes, gathered, outcome_of, send_prototypes


class FedHDBSCAN(Aggregator):
    """HDBSCAN on the micro-clusters of all clients: one round, finds the global number of clusters.

    A prototype that HDBSCAN calls noise is in no cluster; its rows go to the most likely one. Where it finds noise
    alone, everything is one cluster.

    Parameters
    ----------
    min_cluster_size : int, default 4
        Prototypes, of whatever clients, that a cluster has at least.
    min_samples : int or None, default None
        Prototypes, with itself, within the core distance of one; None is `min_cluster_size`.
    allow_single_cluster : bool, default False
        Whether one cluster may be found where there are several less stable ones.
    min_rows : int, default 20
        Rows of a micro-cluster at least, or the floor of its site where that is larger.

    Examples
    --------
    >>> import numpy as np, koncord, koncord_reproduction
    >>> rng = np.random.default_rng(0)
    >>> held = (0, 9), (9, 18), (0, 18)
    >>> sites = [np.concatenate([rng.normal(m, 1, (200, 2)) for m in each]) for each in held]
    >>> clustering = koncord.FederatedClustering(aggregator=koncord_reproduction.FedHDBSCAN(), random_state=0)
    >>> np.sort(clustering.fit(sites).cluster_centers_[:, 0]).round().astype(int)
    array([ 0,  9, 18])
    """

    name = "hdbscan"
    client_steps: ClassVar[Mapping[type[Any], ClientStep]] = {SendPrototypes: send_prototypes}

    def __init__(
        self,
        *,
        min_cluster_size: int = 4,
        min_samples: int | None = None,
        allow_single_cluster: bool = False,
        min_rows: int = DEFAULT_MIN_REPORT,
    ) -> None:
        self.min_cluster_size = min_cluster_size
        self.min_samples = min_samples
        self.allow_single_cluster = allow_single_cluster
        self.min_rows = min_rows

    def server(self, clients: tuple[str, ...], n_features: int, rng: np.random.Generator) -> Server:
        size = check_count("min_cluster_size", self.min_cluster_size, owner=self, least=2)
        samples = size if self.min_samples is None else check_count("min_samples", self.min_samples, owner=self)
        down = SendPrototypes(min_rows=check_count("min_rows", self.min_rows, owner=self))
        return self._one_round(down, n_features, size, samples)

    def _one_round(self, down: SendPrototypes, n_features: int, size: int, samples: int) -> Server:
        sent = yield down
        prototypes = gathered(sent, n_features, min_rows=down.min_rows)
        labels = dense_parts(
            prototypes.means,
            min_cluster_size=size,
            min_samples=samples,
            allow_single_cluster=bool(self.allow_single_cluster),
        )
        only_noise = not (labels >= 0).any()
        extra = {"prototypes_received": len(prototypes), "noise": int((labels < 0).sum())}
        notes = ["HDBSCAN found no dense part among the micro-clusters: one cluster holds all."] if only_noise else []
        labels = np.zeros_like(labels) if only_noise else labels
        return outcome_of(sent, prototypes, labels, extra=extra, notes=notes)


def dense_parts(means: FloatArray, *, min_cluster_size: int, min_samples: int, allow_single_cluster: bool) -> IntArray:
    """Dense part of each prototype, in order of appearance, or -1; fewer prototypes than HDBSCAN needs are noise."""
    if len(means) <= max(min_cluster_size, min_samples):
        return np.full(len(means), -1, dtype=np.int64)
    clusterer = HDBSCAN(
        min_cluster_size=min_cluster_size,
        min_samples=min_samples,
        allow_single_cluster=allow_single_cluster,
        copy=True,
    )
    with one_thread():
        found = clusterer.fit_predict(means)
    _, first, part = np.unique(found[found >= 0], return_index=True, return_inverse=True)
    labels = np.full(len(means), -1, dtype=np.int64)
    labels[found >= 0] = np.argsort(np.argsort(first))[part]
    return labels
