"""The server's side of the preparation: from what the sites tell of their columns to one plan for all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from koncord.kernels.cutting import evidence_of_peaks
from koncord.prepare.columns import MOST_PAIRED, Columns, Measures
from koncord.prepare.plan import NO_FENCE, OTHER, Plan, as_covariance
from koncord.prepare.settings import Preparation
from koncord.prepare.sketch import ColumnSketch, Distribution
from koncord.types import FloatArray

# A column is logged if its low quantile is positive, the octile skewness of its largest peak exceeds SKEWED, and the
# logarithm leaves less than HALVED of it. Values below a share of the low quantile are raised to it.
LOW, SKEWED, HALVED, RAISED = 0.02, 0.15, 0.5, 1 / 20
DECILES = (0.1, 0.25, 0.5, 0.75, 0.9)  # and quartiles, of which skewness is known
N_RANKS, LEAST_RANKS = 400, 200  # even ranks at which a column is looked at for peaks; and those of a peak
DECILE = 0.1  # larger ends of a sketch hide what the rule reads, and clusters that a fence would move
# The fence stands so many robust standard deviations beyond the quartiles, but never nearer than MARGIN of them beyond
# the outermost block of any site: what holds more rows than the end of a sketch is a cluster, not a wrong reading.
FENCE, MARGIN = 8.0, 3.0
IQR_OF_NORMAL = 1.349
MOST_MISSING = 0.5  # share of a column's rows, over all sites or at one of them, beyond which it is not used
PLAN_ROUNDING = 16 * float(np.finfo(float).eps)
MOST_CATEGORY_LEVELS = 100  # of one category: more would be names


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draft:
    """What the sites are asked to measure by, and what is known before they do."""

    plan: Plan  # its means and scales are medians and robust deviations: only to compute with
    is_paired: bool  # whether the sites tell sums of products
    has_gaps: bool
    too_gappy: Mapping[str, tuple[str, ...]]  # columns that are not used as too many values are missing, and where


def draft_plan(
    sent: Mapping[str, Columns], numbers: Sequence[str], categories: Sequence[str], asked: Preparation
) -> Draft:
    """The shape of every column, from the sketches of all sites.

    Parameters
    ----------
    sent : mapping of str to Columns
        What each site sent.
    numbers, categories : sequence of str
        The columns that all sites have.
    asked : Preparation
        What was asked for.
    """
    unknown = [name for name in asked.logged if name not in numbers]
    if unknown:
        raise ValueError(f"--log names {', '.join(unknown)}; the columns of numbers are {', '.join(numbers)}.")
    gappy = {name: sites for name in (*numbers, *categories) if (sites := too_gappy(sent, name))}
    used = [name for name in numbers if name not in gappy]
    kept = [name for name in categories if name not in gappy]
    found = [column_shape(name, [site.sketches[name] for site in sent.values()], asked) for name in used]
    has_gaps = any(site.available[name] < site.count for site in sent.values() for name in (*used, *kept))
    plan = Plan(
        columns=tuple(used),
        means=np.array([shape.center for shape in found]),
        scales=np.array([shape.spread for shape in found]),
        logged=np.array([shape.is_logged for shape in found], dtype=np.int64),
        least=np.array([shape.least for shape in found]),
        low=np.array([shape.low for shape in found]),
        high=np.array([shape.high for shape in found]),
        missing=asked.fill,
    )
    plan = replace(plan, **agreed_levels(sent, kept))
    is_paired = has_gaps and asked.fill == "gaussian" and 1 < len(used) <= MOST_PAIRED
    return Draft(plan=plan, is_paired=is_paired, has_gaps=has_gaps, too_gappy=gappy)


def too_gappy(sent: Mapping[str, Columns], name: str) -> tuple[str, ...]:
    """The sites for which a column is not used: those where too many values are missing, or all with the column."""
    known = {site: each for site, each in sent.items() if each.count}
    there, rows = sum(each.available[name] for each in known.values()), sum(each.count for each in known.values())
    bad = tuple(site for site, each in known.items() if each.available[name] < MOST_MISSING * each.count)
    return bad or (tuple(known) if there < MOST_MISSING * rows else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is done with one column before it is scaled."""

    is_logged: bool = False
    least: float = 0.0
    low: float = -NO_FENCE
    high: float = NO_FENCE
    center: float = 0.0
    spread: float = 1.0


def column_shape(name: str, sketches: Sequence[ColumnSketch], asked: Preparation) -> Shape:
    """Logarithm and fence of one column; neither by rule where columns keep their units."""
    column = Distribution(sketches)
    is_asked = name in asked.logged
    if not column.is_known:
        return Shape(is_logged=is_asked)
    low, q25, median, q75 = column.quantiles(LOW, 0.25, 0.5, 0.75)
    if is_asked and not low > 0:
        raise ValueError(
            f"--log names {name}, of which at least {LOW:.0%} of the values are not positive: they have no logarithm."
        )
    bottom, top = column.values[0], column.values[-1]
    by_rule = asked.standardize and asked.log and column.end_share <= DECILE
    is_logged = is_asked or (by_rule and low > 0 and log_by_rule(column))
    least = max(low * RAISED, 0.0) if is_logged else 0.0
    if is_logged:
        tiny = least or float(np.finfo(float).tiny)
        bottom, q25, median, q75, top = (float(np.log(max(value, tiny))) for value in (bottom, q25, median, q75, top))
    spread = (q75 - q25) / IQR_OF_NORMAL
    if not spread > PLAN_ROUNDING * abs(median):  # half of the values are the same: there is no scale to fence by
        return Shape(is_logged=is_logged, least=least, center=float(median))
    is_fenced = asked.standardize and asked.fence and column.end_share <= DECILE
    return Shape(
        is_logged=is_logged,
        least=least,
        low=max(min(q25 - FENCE * spread, bottom - MARGIN * spread), -NO_FENCE) if is_fenced else -NO_FENCE,
        high=min(max(q75 + FENCE * spread, top + MARGIN * spread), NO_FENCE) if is_fenced else NO_FENCE,
        center=float(median),
        spread=float(spread),
    )


def log_by_rule(column: Distribution) -> bool:
    """Whether a positive column is logged: its largest peak is for it, or all values are and that peak is not against.

    A frequent cluster at one side of the others looks like skewness, or hides that of the others.
    """
    of_all = column.quantiles(*DECILES)
    # Ends, of which sites tell the number only, would be a peak.
    values = column.quantiles(*np.linspace(max(column.end_share, LOW), 1 - column.end_share, N_RANKS))
    peak = largest_peak(values)
    if len(peak) == N_RANKS:
        return wants_log(of_all)
    of_peak = np.quantile(peak, DECILES)
    deciles = of_peak[[0, 2, 4]]
    is_against = abs(skewness(*np.log(deciles))) > abs(skewness(*deciles))
    return wants_log(of_peak) or (wants_log(of_all) and not is_against)


def largest_peak(values: FloatArray) -> FloatArray:
    """Those of rising, positive values that are of the largest peak: of the values, or of their logarithms.

    It holds half of the values or more: of peaks that share them, none says what the column is like.
    """
    rest = values
    while (peak := larger_peak(rest) or larger_peak(np.log(rest))) and len(rest[peak]) >= LEAST_RANKS:
        rest = rest[peak]
    return rest


def larger_peak(values: FloatArray) -> slice | None:
    """Which of the rising values are of the larger of two peaks; None where there is a single one."""
    n = len(values)
    sizes = np.arange(1, n)
    evidence = evidence_of_peaks(values - values.mean(), sizes)
    if not evidence.any():
        return None
    at = int(sizes[evidence.argmax()])
    return slice(0, at) if 2 * at >= n else slice(at, n)


def wants_log(quantiles: FloatArray) -> bool:
    """Whether positive values with these `DECILES` are skewed, and at most half as skewed as a logarithm.

    A cluster far below the others that holds a tenth of the rows moves the lower decile of the logarithms, but not
    their quartiles: where the logarithms are skewed to the other side, the quartiles decide.
    """
    deciles, quartiles = quantiles[[0, 2, 4]], quantiles[[1, 2, 3]]
    if not skewness(*deciles) > SKEWED:
        return False
    logged = skewness(*np.log(deciles))
    return is_halved(deciles) or (logged < 0 and skewness(*quartiles) > SKEWED and is_halved(quartiles))


def is_halved(quantiles: FloatArray) -> bool:
    """Whether the logarithms are less than half as skewed."""
    return abs(skewness(*np.log(quantiles))) < HALVED * skewness(*quantiles)


def skewness(below: float, median: float, above: float) -> float:
    """How much farther the quantile above lies from the median than that below, from -1 to 1."""
    return (above + below - 2 * median) / (above - below) if above > below else 0.0


def agreed_levels(sent: Mapping[str, Columns], categories: Sequence[str]) -> dict[str, Any]:
    """Levels of each category over all sites and their shares; those that no site tells are one, called other."""
    levels, shares = [], []
    for name in categories:
        counts: dict[str, int] = {}
        for site in sent.values():
            for level, n in site.levels[name].items():
                counts[level] = counts.get(level, 0) + n
        rows = sum(site.available[name] for site in sent.values())
        largest = sorted(sorted(counts), key=lambda level: -counts[level])[:MOST_CATEGORY_LEVELS]
        kept = {level: counts[level] for level in sorted(largest, key=level_place)}
        rest = rows - sum(kept.values())
        if OTHER not in kept and rest > 0:
            kept[OTHER] = rest
        total = max(sum(kept.values()), 1)
        levels.append(tuple(kept))
        shares.append(np.array([n / total for n in kept.values()]))
    is_used = [len(own) > 1 for own in levels]  # one level tells nothing
    return {
        "categories": tuple(name for name, used in zip(categories, is_used, strict=True) if used),
        "levels": tuple(own for own, used in zip(levels, is_used, strict=True) if used),
        "shares": tuple(own for own, used in zip(shares, is_used, strict=True) if used),
    }


def level_place(level: str) -> tuple[bool, float, str]:
    """Numbers first, by size, then text."""
    try:
        return False, float(level), level
    except ValueError:
        return True, 0.0, level


def final_plan(draft: Draft, measured: Mapping[str, Measures], asked: Preparation) -> Plan:
    """The plan with the scale of the shaped values of all sites and, where there are gaps, what fills them."""
    plan = draft.plan
    means, deviations = pooled_scale(list(measured.values()))
    fill = covariances = None
    correlations = pooled_correlations(list(measured.values()), means, deviations) if draft.is_paired else None
    is_varied = deviations * plan.scales > PLAN_ROUNDING * np.abs(plan.means + means * plan.scales)
    if asked.standardize:
        final = replace(
            plan,
            means=plan.means + plan.scales * means,
            scales=np.where(is_varied, plan.scales * deviations, 1.0),
        )
        spread = np.where(is_varied, 1.0, 0.0)
    else:
        final = replace(plan, means=np.zeros(len(means)), scales=np.ones(len(means)))
        fill, spread = plan.means + plan.scales * means, np.where(is_varied, plan.scales * deviations, 0.0)
    if correlations is not None:
        covariances = as_covariance(correlations, np.where(spread > 0, spread, 1e-6))
    return simplified(replace(final, fill=fill if draft.has_gaps else None, covariances=covariances))


def simplified(plan: Plan) -> Plan:
    """The plan without what it does not do."""
    is_fenced = plan.low is not None and bool((plan.low > -NO_FENCE).any())
    is_logged = bool(plan.is_logged.any())
    return replace(
        plan,
        logged=plan.logged if is_logged else None,
        least=plan.least if is_logged else None,
        low=plan.low if is_fenced else None,
        high=plan.high if is_fenced else None,
    )


def pooled_scale(measured: Sequence[Measures]) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of every column over all sites, on the scale of the draft."""
    n = np.array([each.counts for each in measured], dtype=float)
    total = np.maximum(n.sum(axis=0), 1)
    means = np.array([each.means for each in measured])
    mean = (n * means).sum(axis=0) / total
    scatter = np.array([each.scatters for each in measured]).sum(axis=0) + (n * (means - mean) ** 2).sum(axis=0)
    return mean, np.sqrt(scatter / total)


def pooled_correlations(measured: Sequence[Measures], means: FloatArray, deviations: FloatArray) -> FloatArray:
    """Correlation of every two columns over the rows that have both; 0 of columns without such rows."""
    d = len(means)
    products, pairs = np.zeros((d, d)), np.zeros((d, d))
    for each in measured:
        if each.products is not None and each.pairs is not None:
            products += each.products
            pairs += each.pairs
    spread = np.where(deviations > 0, deviations, 1.0)
    mean_products = products / np.maximum(pairs, 1) - np.outer(means, means)
    found: FloatArray = np.where(pairs > 0, mean_products / np.outer(spread, spread), 0.0)
    found = np.clip(found, -1.0, 1.0)
    np.fill_diagonal(found, 1.0)
    return found
