"""Numbers as text, as the pages and figures write them."""

from collections.abc import Sequence
from math import floor, log10

# Numbers that differ by less or by more than this are written with an exponent where they need one.
LEAST_SPREAD, MOST_SPREAD = 1e-5, 1e7


def number(value: float) -> str:
    """Four significant digits, with a true minus sign and no exponent where none is needed.

    >>> number(1234567.0), number(1000.0), number(1234.5), number(0.00012345), number(3.0)
    ('1,234,567', '1,000', '1,234', '0.0001234', '3')
    """
    return with_minus(f"{value:,.0f}" if 1000 <= abs(value) < 1e12 else f"{value:.4g}")


def aligned(values: Sequence[float]) -> list[str]:
    """Numbers that stand together: all with as many decimals as tell them apart.

    >>> aligned([0.4567, 12.3, -0.001])
    ['0.5', '12.3', '0.0']
    >>> aligned([1e9, 2.5])
    ['1,000,000,000', '2.5']
    """
    spread = max(values) - min(values) or max(map(abs, values))
    if not LEAST_SPREAD <= spread <= MOST_SPREAD:
        return [number(value) for value in values]
    n_decimals = max(2 - floor(log10(spread)), 0)
    return [with_minus(f"{value:z,.{n_decimals}f}") for value in values]


def fixed(value: float, n_decimals: int) -> str:
    return with_minus(f"{value:z.{n_decimals}f}")


def with_minus(shown: str) -> str:
    return shown.replace("-", "\N{MINUS SIGN}")


def size_of(n_bytes: int) -> str:
    """Bytes in the unit that suits their number.

    >>> size_of(812), size_of(20480), size_of(3_400_000)
    ('812 B', '20.5 kB', '3.4 MB')
    """
    if n_bytes < 1000:
        return f"{n_bytes} B"
    return f"{n_bytes / 1e3:,.1f} kB" if n_bytes < 1e6 else f"{n_bytes / 1e6:,.1f} MB"
