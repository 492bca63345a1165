"""The paper's protocol as data: sets, clients, grids, seeds, time limits, and the estimator of every method.

The appendix "Implementation and protocol details" says most of it; where it leaves a choice, the choice is stated here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from koncord.aggregate.afcl import AFCL
from koncord.aggregate.base import Aggregator
from koncord.aggregate.fedkmeans import FedKMeans
from koncord.aggregate.ffcm import FFCM
from koncord.aggregate.kfed import KFed
from koncord.aggregate.spahm import SPAHM
from koncord.estimate import asm, dpgmm
from koncord.estimate.asm import ASM
from koncord.estimate.known import KnownCounts
from koncord.estimate.search import LabelFreeSearch
from koncord_reproduction.process import SharedDPGMM
from koncord_reproduction.pyclustered import PyGMeans, PyXMeans
from koncord_reproduction.readings import READING_METHODS, ReadASM, base_of, reading_of

EVALUATION_SEEDS = tuple(range(42, 52))
TUNING_SEEDS = (1000, 1001)
# Seconds a run may take. The paper limits each run that tunes upsilon and each evaluation run.
TUNING_LIMIT, EVALUATION_LIMIT = 150.0, 3600.0
# Merge factors that the paper chooses from for MNIST.
MNIST_MERGE_FACTORS = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.2)
# Rows among which the configuration of the pooled runs is chosen, at most.
POOLED_TUNING_ROWS = 30_000
# Seeds of further hold-outs, by which it is seen how far the choice of a configuration is one of chance.
DRAW_SEEDS = tuple(range(1000, 1020))
# Share and seed of the fixed random part of each image set.
QUARTER, QUARTER_SEED = 0.25, 25
# Merge factors of the merge ablation; 0 is "no merge".
SWEEP = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How one data set is used."""

    n_clients: int
    upsilons: tuple[float, ...]  # of FedGEM: one is fixed, several are chosen from without labels
    test_share: float = 0.3
    is_standardised: bool = False
    merge_factors: tuple[float, ...] = asm.ASM_GRID["merge_factor"]

    @property
    def upsilon(self) -> float | None:
        """The fixed value, or None where it is chosen."""
        return self.upsilons[0] if len(self.upsilons) == 1 else None


FROG_UPSILONS = (1e4, 1e5, 1e6)
SETS: Mapping[str, Setting] = {
    "waveform": Setting(n_clients=5, upsilons=(1, 5, 10), is_standardised=True),
    "abalone": Setting(n_clients=5, upsilons=(5000, 7000, 9000), is_standardised=True),
    "frog_species": Setting(n_clients=5, upsilons=FROG_UPSILONS, is_standardised=True),
    "frog_genus": Setting(n_clients=5, upsilons=FROG_UPSILONS, is_standardised=True),
    "mnist": Setting(n_clients=100, upsilons=(2,), merge_factors=MNIST_MERGE_FACTORS),
    "fmnist": Setting(n_clients=100, upsilons=(300,)),
    "emnist": Setting(n_clients=25, upsilons=(2,), test_share=0.5),
    "cifar10": Setting(n_clients=100, upsilons=(10,)),
}
TABULAR = tuple(name for name, setting in SETS.items() if setting.is_standardised)
IMAGES = tuple(name for name, setting in SETS.items() if not setting.is_standardised)

PHASE_1 = ("asm-s", "asm-i", "dpgmm", "xmeans", "gmeans", "oracle")
POOLED = ("asm-s", "dpgmm", "xmeans", "gmeans", "kmeans")
POOLED_TUNED = ("asm-s", "dpgmm")
# Methods whose phase 1 is timed, and the clients it is timed on, at most.
TIMED, TIMED_CLIENTS = ("asm-s", "dpgmm", "xmeans", "gmeans"), 2
AGGREGATORS = ("kfed", "fedkmeans", "ffcm-avg1", "ffcm-avg2", "spahm", "afcl")
RELEASED = ("released", "released-10")
METHODS = tuple(dict.fromkeys((*PHASE_1, *POOLED, *RELEASED, *AGGREGATORS, *READING_METHODS)))

# Most rounds after the first in the released program; its script for FMNIST has a longer run of its own.
RELEASED_ROUNDS, RELEASED_ROUNDS_FMNIST = 10, 20


def phase_1(method: str, dataset: str, true_counts: Sequence[int], seed: int) -> Any:
    """The estimator that every client runs; only the oracle is given the counts.

    X-means and G-means have the seed of the run at every client: pooled, that gives the paper's figures to the digit.
    """
    if method == "oracle":
        return counts_alone(true_counts)
    if method in ("asm-s", "asm-i"):
        covariance = "spherical" if method == "asm-s" else "identity"
        # The masses are named so that the smallest clients get the paper's grid and no more.
        masses = asm.ASM_GRID["min_mass"]
        return ASM(covariance=covariance, min_mass=masses, merge_factor=SETS[dataset].merge_factors)
    if method in READING_METHODS:
        return ReadASM(reading_of(method), merge_factor=SETS[dataset].merge_factors, seed=seed)
    if method == "dpgmm":
        return LabelFreeSearch(SharedDPGMM(), dpgmm.DPGMM_GRID)
    if method == "xmeans":
        return PyXMeans(random_state=seed)
    if method == "gmeans":
        return PyGMeans(random_state=seed)
    raise ValueError(f"'method' must be one of {', '.join(PHASE_1)}; got {method!r}.")


def counts_alone(true_counts: Sequence[int]) -> KnownCounts:
    """The oracle for an aggregator that takes the counts alone: one clustering of each client is enough."""
    return KnownCounts(true_counts, n_init=1)


def pooled_grid(method: str, dataset: str) -> Mapping[str, tuple[float, ...]]:
    """What the pooled configuration is chosen from, in the paper's order."""
    return (
        {**asm.ASM_GRID, "merge_factor": SETS[dataset].merge_factors}
        if base_of(method) == "asm-s"
        else dpgmm.DPGMM_GRID
    )


def released_rounds(method: str, dataset: str) -> int:
    return RELEASED_ROUNDS_FMNIST if dataset == "fmnist" and method == "released" else RELEASED_ROUNDS


def aggregator(method: str, n_clusters: int, true_counts: Sequence[int]) -> tuple[Any, Aggregator, str]:
    """Phase 1 and aggregator of a comparison method, and what it is handed that the paper's pipeline is not."""
    counts, nothing = counts_alone(true_counts), KnownCounts(1)
    return {
        "kfed": (counts, KFed(n_clusters), "K and true K_g"),
        "fedkmeans": (nothing, FedKMeans(n_clusters, first_iters=1), "K"),
        "ffcm-avg1": (nothing, FFCM(n_clusters, "avg1"), "K"),
        "ffcm-avg2": (nothing, FFCM(n_clusters, "avg2"), "K"),
        "spahm": (KnownCounts(true_counts), SPAHM(), "true K_g"),
        "afcl": (nothing, AFCL(2 * n_clusters, allow_disclosure=True), "2 K seeds, rows disclosed"),
    }[method]
