"""What the owner of a site promised when it joined, beside what would be promised now."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from koncord.aggregate.base import sends_rows
from koncord.aggregate.registry import AGGREGATORS, aggregator_named
from koncord.errors import NotAllowed

if TYPE_CHECKING:
    from koncord.network.sitefolder import SiteFolder


def check_no_weaker(before: "SiteFolder", after: "SiteFolder") -> None:
    """`NotAllowed`, with what would become weaker, unless every limit is at least as strong as it was."""
    weaker = list(weakened(before, after))
    if weaker:
        raise NotAllowed(
            f"The state folder '{before.folder}' was joined with stronger limits: {'; '.join(weaker)}. "
            "If its owner wants that, add --weaken."
        )


def weakened(before: "SiteFolder", after: "SiteFolder") -> Iterator[str]:
    """What the owner promised before and would not promise any more, in words."""
    old, new = before.policy, after.policy
    if new.min_report < old.min_report:
        yield f"the floor would fall from {old.min_report} rows to {new.min_report}"
    if old.budget is not None and new.budget is None:
        yield f"the privacy budget (epsilon {old.budget.epsilon:g}, delta {old.budget.delta:g}) would be gone"
    elif old.budget is not None and new.budget is not None:
        for name in ("epsilon", "delta"):
            was, would_be = getattr(old.budget, name), getattr(new.budget, name)
            if would_be > was:
                yield f"{name} would rise from {was:g} to {would_be:g}"
    if old.max_runs is not None and new.max_runs is None:
        yield f"runs would no longer be limited to {old.max_runs}"
    elif old.max_runs is not None and new.max_runs is not None and new.max_runs > old.max_runs:
        yield f"runs would be limited to {new.max_runs} instead of {old.max_runs}"
    if old.total_epsilon is not None and (new.total_epsilon is None or new.total_epsilon > old.total_epsilon):
        yield f"all runs would no longer be limited to epsilon {old.total_epsilon:g} together"
    if new.allows_disclosure and not old.allows_disclosure:
        yield f"rows themselves would be allowed to leave ({', '.join(newly(before, after, with_rows=True))})"
    more = newly(before, after, with_rows=False)
    if more:
        yield f"{', '.join(more)} would be allowed"
    for name in sorted(set(before.methods) & set(after.methods)):
        if name not in AGGREGATORS:  # an estimator, or of a package that is no longer installed
            continue
        kind = aggregator_named(name)
        was, would_be = old.most_rounds(kind), new.most_rounds(kind)
        can_have_more = {"n_rounds", "max_rounds"} & set(kind().get_params())  # others have one round
        if would_be > was and can_have_more:
            yield f"{name} would have {would_be} rounds instead of {was}"


def newly(before: "SiteFolder", after: "SiteFolder", *, with_rows: bool) -> list[str]:
    """Methods that would be allowed and were not, of those that send rows or of the others."""
    new = sorted(set(after.methods) - set(before.methods))
    return [name for name in new if (name in AGGREGATORS and sends_rows(aggregator_named(name))) == with_rows]
