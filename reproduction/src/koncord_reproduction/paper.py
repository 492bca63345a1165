"""The paper's numbers, as printed, and how the data here differ from the paper's.

``paper.csv`` holds every number of the paper's result tables, and those of its text on the synthetic experiments. A
number is found by four names: table, data set, method and quantity. The value is kept as it is printed, so that its
last digit is known.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from koncord_reproduction.datasets import STORED

TITLES: Mapping[str, str] = {
    "waveform": "Waveform",
    "abalone": "Abalone",
    "frog_species": "FrogA",
    "frog_genus": "FrogB",
    "mnist": "MNIST",
    "fmnist": "FMNIST",
    "emnist": "EMNIST",
    "cifar10": "CIFAR-10",
}
SETS = tuple(TITLES)
TABULAR, IMAGES = SETS[:4], SETS[4:]
N_CLUSTERS: Mapping[str, int] = dict(zip(SETS, (3, 8, 10, 8, 10, 10, 47, 10), strict=True))
METHODS: Mapping[str, str] = {
    "asm-s": "ASM-S",
    "asm-i": "ASM-I",
    "dpgmm": "DP-GMM",
    "xmeans": "X-means",
    "gmeans": "G-means",
    "oracle": "oracle",
    "kmeans": "k-means, K known",
}
LABEL_FREE = ("asm-s", "dpgmm", "xmeans", "gmeans")

# How a set that is not the paper's differs from it: printed under every table that uses it.
DIFFERENCES: Mapping[str, str] = {name: STORED[name].differs for name in SETS if STORED[name].differs}
COMPARABLE = tuple(name for name in SETS if name not in DIFFERENCES)
# Rows of each class of the paper's set, where the set here has fewer: all classes are of one size.
CLASS_SIZES: Mapping[str, int] = {"emnist": 2800, "cifar10": 6000}


class Key(NamedTuple):
    """What a number is called, in the paper and here."""

    table: str
    dataset: str
    method: str
    quantity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number of the paper. `text` is empty where it gives only an interval."""

    key: Key
    text: str
    low: float | None  # of its interval, where it gives one
    high: float | None  # None where the interval has no upper end
    note: str

    @property
    def value(self) -> float | None:
        return float(self.text) if self.text else None

    @property
    def has_interval(self) -> bool:
        return self.low is not None

    @property
    def rounding(self) -> float:
        """Half a unit of the last printed digit: how far the number may be from what was computed."""
        return 0.5 * 10.0 ** -len(self.text.partition(".")[2])


@cache
def numbers() -> Mapping[Key, Number]:
    text = (files("koncord_reproduction") / "paper.csv").read_text(encoding="utf-8")
    return {number.key: number for number in map(number_of, csv.DictReader(text.splitlines()))}


def number_of(line: Mapping[str, str]) -> Number:
    low, high = (float(line[end]) if line[end] else None for end in ("low", "high"))
    if line["half"]:
        low, high = (float(line["value"]) + sign * float(line["half"]) for sign in (-1, 1))
    key = Key(line["table"], line["dataset"], line["method"], line["quantity"])
    return Number(key=key, text=line["value"], low=low, high=high, note=line["note"])


def find(table: str, dataset: str, method: str, quantity: str) -> Number | None:
    return numbers().get(Key(table, dataset, method, quantity))


def value_of(table: str, dataset: str, method: str, quantity: str) -> float:
    """A number that the paper is known to give."""
    value = numbers()[Key(table, dataset, method, quantity)].value
    assert value is not None
    return value
