"""The paper's numbers beside ours, one claim each, with a verdict.

- agrees: the two 95 % intervals overlap. A printed number stands for every number that rounds to it, so the paper's
  interval is half a unit of the last digit wider on both sides. Where the paper gives no interval, as for K, ours must
  hold its number; where nothing is random, ours must round to it; "about" allows a tenth.
- differs: it does not.
- too few runs: fewer than five seeds. Such an interval is so wide that almost any number agrees with it.
- not comparable: other data, another embedding or another machine. Both numbers are shown all the same.
- not run: no run gives the number.

Nothing here is tuned to make a verdict.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from math import inf, isfinite, nan
from typing import Any

from koncord_reproduction.findings import Estimate, Findings, Runs
from koncord_reproduction.paper import DIFFERENCES, METHODS, SETS, TITLES, Key, Number, find, numbers

AGREES, DIFFERS, TOO_FEW, NOT_COMPARABLE, NOT_RUN = VERDICTS = (
    "agrees",
    "differs",
    "too few runs",
    "not comparable",
    "not run",
)
# Seeds from which on an interval means something: with three the t quantile is 4.3.
LEAST_SEEDS = 5
ABOUT = 0.1
SCATTER = "the paper gives no interval; if its number scatters as ours does, the two intervals overlap"
# Shares of thousands of draws are compared to a point of a hundred.
POINT = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One number or sentence of the paper, what is found here, and the verdict."""

    name: str
    table: str
    cell: str  # which cell, or the sentence
    paper: float | str | None
    paper_low: float | None = None
    paper_high: float | None = None
    ours: float | str | None = None
    ours_low: float | None = None
    ours_high: float | None = None
    n: int = 0  # seeds, or what else ours is a mean of
    verdict: str
    reason: str = ""

    @property
    def paper_half(self) -> float | None:
        return half_width(self.paper_low, self.paper_high)

    @property
    def ours_half(self) -> float | None:
        return half_width(self.ours_low, self.ours_high)

    @property
    def is_sentence(self) -> bool:
        return self.name.startswith("text/")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def half_width(low: float | None, high: float | None) -> float | None:
    return None if low is None or high is None else (high - low) / 2


# --- the cells of the tables ---

# Quantities that are claims, by table. The others of a table are given, or stand in another table as well.
CLAIMED: Mapping[str, tuple[str, ...]] = {
    "pooled": ("ari", "k"),
    "mechanisms": ("r_med", "onset", "alpha_half", "k_quarter", "ari_quarter"),
    "merge-sweep": ("ari", "k", "alpha"),
    "federated-a": ("ari", "k", "k_error"),
    "runtime": ("ms",),
    "synthetic": ("onset", "ideal_onset", "sample_onset", "population_onset", "components", "agree_sample",
                  "agree_population"),
    "true-counts": ("personalised_ari", "k"),
    "federated-b": ("ari", "k", "k_error"),
    "datasets": ("mean_k_g",),
    "points-per-cluster": ("mean", "sd", "cv", "rho"),
    "points-per-cluster-tests": ("cv_median", "seeds_higher", "p", "cv_ratio", "b"),
    "partition-robustness": ("D", "local_error_a", "local_error_b", "rho_true_a", "rho_true_b", "rho_size_a",
                             "rho_size_b"),
}  # fmt: skip
QUANTITIES: Mapping[str, str] = {
    "ari": "ARI",
    "k": "K",
    "k_error": "|ΔK|",
    "personalised_ari": "personalised ARI",
    "r_med": "median class anisotropy",
    "onset": "onset",
    "ideal_onset": "onset of the idealised split",
    "sample_onset": "onset predicted with the sample anisotropy",
    "population_onset": "onset predicted with the population anisotropy",
    "alpha_half": "α½",
    "k_quarter": "K on 25 %",
    "ari_quarter": "ARI on 25 %",
    "alpha": "selected α",
    "ms": "phase 1, ms a client",
    "components": "components before merging",
    "agree_sample": "share foreseen with the sample anisotropy",
    "agree_population": "share foreseen with the population anisotropy",
    "mean_k_g": "mean true K_g",
    "mean": "mean of N_g / K_g",
    "sd": "SD of N_g / K_g",
    "cv": "CV of N_g / K_g",
    "rho": "Spearman of N_g and K_g",
    "cv_median": "median CV of a seed",
    "seeds_higher": "seeds with the higher CV in B",
    "p": "p, Holm",
    "cv_ratio": "CV ratio",
    "b": "elasticity b",
    "D": "D",
    "local_error_a": "local relative error, A",
    "local_error_b": "local relative error, B",
    "rho_true_a": "Spearman of estimate and K_g, A",
    "rho_true_b": "Spearman of estimate and K_g, B",
    "rho_size_a": "Spearman of estimate and N_g, A",
    "rho_size_b": "Spearman of estimate and N_g, B",
}
METHOD_TITLES: Mapping[str, str] = {
    **METHODS,
    "released": "released program",
    "released-10": "released program, T = 10",
    "a": "regime A",
    "b": "regime B",
    "round": "round cluster",
    "r9": "r ≈ 9",
    "n500": "n = 500",
    "n5000": "n = 5000",
}
DATASET_TITLES: Mapping[str, str] = {
    **TITLES,
    "mean": "mean of the eight sets",
    "all": "all sets",
    "gauss-8": "d = 8",
    "gauss-16": "d = 16",
    "gauss-64": "d = 64",
}


def cell_claims(found: Findings) -> dict[Key, Claim]:
    """A claim for every number of the paper's tables that is a result; the marks of the merge sweep are one a set."""
    claims = {key: cell_claim(found, number) for key, number in numbers().items() if is_claimed(number)}
    for dataset in SETS:
        claims[Key("merge-sweep", dataset, "", "marks")] = marks_claim(found, dataset)
    return claims


def is_claimed(number: Number) -> bool:
    key = number.key
    if key.quantity not in CLAIMED[key.table] or number.note == "given" or key.method == "published":
        return False
    if key.table == "true-counts" and key.method == "oracle":
        return key.quantity == "personalised_ari"  # the rest is in the table of regime A
    return key.method != "selected" or key.quantity == "alpha"


def cell_claim(found: Findings, number: Number) -> Claim:
    key, estimate = number.key, found.estimates.get(number.key)
    verdict, reason = verdict_of(number, estimate)
    return Claim(
        name="/".join(filter(None, key)),
        table=key.table,
        cell=title_of(key),
        paper=number.value,
        paper_low=number.low,
        paper_high=number.high,
        ours=finite(estimate.value) if estimate else None,
        ours_low=finite(estimate.low) if estimate else None,
        ours_high=finite(estimate.high) if estimate else None,
        n=estimate.n if estimate else 0,
        verdict=verdict,
        reason="; ".join(filter(None, (reason, shortfall(runs_behind(found, key))))),
    )


def title_of(key: Key) -> str:
    method = METHOD_TITLES.get(key.method, key.method)
    if key.table == "merge-sweep":
        method = {"0": "no merge", "selected": ""}.get(key.method, f"α = {key.method}")
    return ", ".join(filter(None, (DATASET_TITLES[key.dataset], method, QUANTITIES[key.quantity])))


def finite(value: float) -> float | None:
    return value if isfinite(value) else None


def verdict_of(number: Number, estimate: Estimate | None) -> tuple[str, str]:
    """The verdict and, where it is not "agrees", why."""
    if estimate is None:
        return NOT_RUN, ""
    obstacle = why_not_comparable(number.key)
    if obstacle:
        return NOT_COMPARABLE, obstacle
    agrees = RULES.get((number.key.table, number.key.quantity), RULES.get(("", number.key.quantity), intervals_overlap))
    if agrees is intervals_overlap and not isfinite(estimate.value):
        return NOT_RUN, "it is not defined here"
    if agrees is intervals_overlap and estimate.is_random and estimate.n < LEAST_SEEDS:
        return TOO_FEW, ""
    return (AGREES, "") if agrees(number, estimate) else (DIFFERS, why_it_may_differ(number, estimate))


def why_not_comparable(key: Key) -> str:
    if key.table == "runtime":
        return "another machine and other implementations"
    if key.dataset in ("mean", "all"):
        return "over all eight sets, three of which are not the paper's"
    if key.table in PARTITION_TABLES:
        return ""
    return DIFFERENCES.get(key.dataset, "")


# Made from the classes alone, and from all rows of the paper's sets: the embedding does not matter, and the classes of
# EMNIST and CIFAR-10, of which there are fewer rows here, are known to be equal.
PARTITION_TABLES = ("datasets", "points-per-cluster", "points-per-cluster-tests")


def why_it_may_differ(number: Number, estimate: Estimate) -> str:
    if number.value is None or number.has_interval or not estimate.high > estimate.low:
        return ""
    half = (estimate.high - estimate.low) / 2
    if abs(estimate.value - number.value) <= 2 * half + number.rounding:
        return SCATTER
    return ""


# --- rules ---


def intervals_overlap(number: Number, estimate: Estimate) -> bool:
    """Also where one of the two has no interval and is a point."""
    value = number.value if number.value is not None else nan
    low = (number.low if number.low is not None else value) - number.rounding
    high = (number.high if number.high is not None else value) + number.rounding
    slack = 1e-9 * max(1.0, abs(value))
    return bool(low - slack <= estimate.high and estimate.low <= high + slack)


def is_about(number: Number, estimate: Estimate) -> bool:
    """Within a tenth of the paper's number, or inside the range it gives."""
    if number.value is None:
        return is_within_range(number, estimate)
    return abs(estimate.value - number.value) <= ABOUT * abs(number.value) + 0.5


def is_within_range(number: Number, estimate: Estimate) -> bool:
    low, high = -inf if number.low is None else number.low, inf if number.high is None else number.high
    return low - 0.5 <= estimate.value <= high + 0.5


def is_within_a_point(number: Number, estimate: Estimate) -> bool:
    return number.value is not None and abs(estimate.value - number.value) <= POINT + number.rounding


def is_same_interval(number: Number, estimate: Estimate) -> bool:
    return (number.low, inf if number.high is None else number.high) == (estimate.low, estimate.high)


def is_same_significance(number: Number, estimate: Estimate) -> bool:
    return number.value is not None and (number.value < 0.05) == (estimate.value < 0.05)


Rule = Callable[[Number, Estimate], bool]
RULES: Mapping[tuple[str, str], Rule] = {
    ("", "alpha_half"): is_same_interval,
    ("", "p"): is_same_significance,
    ("", "components"): is_about,
    ("synthetic", "onset"): is_about,
    ("synthetic", "ideal_onset"): is_about,
    ("synthetic", "sample_onset"): is_about,
    ("", "agree_sample"): is_within_a_point,
    ("", "agree_population"): is_within_a_point,
}


# --- the marks of the merge sweep ---

MARKS = {1: "↑", 0: "·", -1: "↓"}


def marks_claim(found: Findings, dataset: str) -> Claim:
    """Where merging changes the ARI significantly, and in which direction."""
    alphas = [key.method for key in numbers() if key[:2] == ("merge-sweep", dataset) and key.quantity == "mark"]
    theirs = [MARKS[int(number.text)] for alpha in alphas if (number := find("merge-sweep", dataset, alpha, "mark"))]
    estimates = [found.estimates.get(Key("merge-sweep", dataset, alpha, "mark")) for alpha in alphas]
    known = [estimate for estimate in estimates if estimate]
    ours = [MARKS[int(estimate.value)] for estimate in known]
    verdict, reason = NOT_RUN, ""
    if len(known) == len(alphas):
        other = [f"α = {alpha}" for alpha, a, b in zip(alphas, theirs, ours, strict=True) if a != b]
        verdict, reason = (DIFFERS, "at " + ", ".join(other)) if other else (AGREES, "")
        if dataset in DIFFERENCES:
            verdict, reason = NOT_COMPARABLE, DIFFERENCES[dataset]
    return Claim(
        name=f"merge-sweep/{dataset}/marks",
        table="merge-sweep",
        cell=f"{TITLES[dataset]}, ARI against no merge at α = {', '.join(alphas)}",
        paper=" ".join(theirs),
        ours=" ".join(ours) if verdict != NOT_RUN else None,
        n=known[0].n if known else 0,
        verdict=verdict,
        reason=reason,
    )


# --- runs behind a number ---


def runs_behind(found: Findings, key: Key) -> Runs:
    """The runs whose failures belong beside a number; those of another experiment where a table only repeats it."""
    table, method = key.table, key.method
    if table == "merge-sweep":
        method = "asm-s"
    if table == "true-counts":
        table = "federated-a" if method == "oracle" else "released"
    if table == "runtime":
        table = "times"
    if table == "mechanisms":
        table = "quarter" if key.quantity.endswith("quarter") else "pooled"
    if table == "aggregators":
        table = "aggregators-a"
    return found.runs(table, key.dataset, method)


def shortfall(runs: Runs) -> str:
    """What did not come to an end, in words; empty if all did."""
    parts = [
        f"{count} of {runs.n} {what}"
        for count, what in ((runs.n_timed_out, "timed out"), (runs.n_failed, "failed"))
        if count
    ]
    return ", ".join(parts)


# --- explanations ---


@cache
def explanations() -> Mapping[str, str]:
    """What is known of why a claim differs, by its name or by a pattern of names; written by people."""
    text = (files("koncord_reproduction") / "explanations.txt").read_text(encoding="utf-8")
    pairs = (line.partition(": ") for line in text.splitlines() if line and not line.startswith("#"))
    return {pattern: sentence for pattern, _, sentence in pairs}
