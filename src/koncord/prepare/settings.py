"""What a person may ask of the preparation.

Nothing heavy is imported here: the command line reads the defaults for its help.
"""

from dataclasses import dataclass
from typing import Literal, get_args

Missing = Literal["gaussian", "mean", "drop"]  # what stands in for a missing value
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
    missing : {"gaussian", "mean", "drop"}, default "gaussian"
        What stands in for a missing value: what the other columns of its row let expect, or the mean of its column;
        or rows with gaps take no part.
    """

    standardize: bool = True
    log: bool = True
    logged: tuple[str, ...] = ()
    fence: bool = True
    missing: Missing = "gaussian"

    def __post_init__(self) -> None:
        if self.missing not in MISSING:
            raise ValueError(
                f"'missing' must be {', '.join(map(repr, MISSING[:-1]))} or {MISSING[-1]!r}; got {self.missing!r}."
            )
