"""What a person may ask of the preparation.

Nothing heavy is imported here: the command line reads the defaults for its help.
"""

from dataclasses import dataclass
from typing import Literal, get_args

Fill = Literal["neighbors", "gaussian", "mean"]  # what stands in for a missing value
Missing = Literal["neighbors", "gaussian", "mean", "drop"]
FILLS: tuple[Fill, ...] = get_args(Fill)
MISSING: tuple[Missing, ...] = get_args(Missing)


@dataclass(frozen=True, kw_only=True)  # without slots, the class has its defaults as attributes
class Preparation:
    """What is done with the columns of all sites before phase 1.

    Parameters
    ----------
    standardize : bool, default True
        Bring every column to mean 0 and variance 1 over all sites.
    log : bool, default True
        Take the logarithm of columns of positive numbers that are skewed and that it makes less so.
    logged : tuple of str, default ()
        Columns whose logarithm is taken in any case.
    fence : bool, default True
        Move values beyond 8 robust standard deviations from the quartiles of their column to there.
    missing : {"neighbors", "gaussian", "mean", "drop"}, default "neighbors"
        What stands in for a missing value: the mean of the five rows of its site that are nearest in the other columns,
        what a Gaussian of all sites lets expect from the other columns of its row, or the mean of its column;
        or rows with gaps take no part: they are left out before the run, and labeled by what they have.
    """

    standardize: bool = True
    log: bool = True
    logged: tuple[str, ...] = ()
    fence: bool = True
    missing: Missing = "neighbors"

    @property
    def fill(self) -> Fill:
        """What stands in for a missing value of a row that takes part, or is labeled."""
        return "mean" if self.missing == "drop" else self.missing

    def __post_init__(self) -> None:
        if self.missing not in MISSING:
            raise ValueError(
                f"'missing' must be {', '.join(map(repr, MISSING[:-1]))} or {MISSING[-1]!r}; got {self.missing!r}."
            )
