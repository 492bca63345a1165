"""The openings of a run: what the columns of all sites are, and the plan that is made for them.

A run without preparation asks for counts and sums once (Describe). With it, sites first tell how their columns are
distributed (Survey), then what the shaped values sum to (Measure). A site with a privacy budget tells no distribution:
beside one, all columns are brought to one scale by counts and sums, and nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from koncord._progress import part
from koncord.errors import ColumnsDiffer, KoncordError
from koncord.model.facts import Gaps, PreparedColumns
from koncord.prepare.columns import Columns
from koncord.prepare.plan import Plan, plain_plan
from koncord.prepare.planning import Draft, draft_plan, final_plan
from koncord.prepare.settings import Preparation
from koncord.prepare.units import other_units
from koncord.protocol import setup
from koncord.protocol.floor import LOWER_FLOOR
from koncord.session.roster import Roster

BESIDE_BUDGET = (
    "Columns were brought to one scale by their means and variances and not otherwise prepared, as a site with a "
    "privacy budget tells no distribution: {sites}."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What the sites said at the beginning, and what was agreed."""

    plan: Plan
    replies: Mapping[str, setup.Moments | setup.Sketch]  # by site; those of a site that was away come later
    prepared: PreparedColumns = field(default_factory=PreparedColumns)  # for readers

    @property
    def left_out(self) -> dict[str, tuple[str, ...]]:
        """The columns that not every site has, and the sites that have them."""
        gappy = self.prepared.gaps.unused
        return {
            column: tuple(sites)
            for column, sites in setup.left_out(self.replies, self.plan.inputs).items()
            if column not in gappy and len(sites) < len(self.replies)
        }


def opened(roster: Roster, asked: Preparation | None, *, standardize: bool, common: bool) -> Opened:
    """Ask all sites what their columns are, and agree on what is done with them.

    Parameters
    ----------
    roster : Roster
        The sites.
    asked : Preparation or None
        What is to be done with columns; None is nothing but one scale.
    standardize : bool
        Without a preparation: whether columns are brought to one scale.
    common : bool
        Use the columns that all sites have, rather than refuse others.
    """
    if asked is None:
        return by_moments(roster, standardize=standardize, common=common, notes=())
    sketches = roster.require(setup.Survey())
    with part(0.0, 0.5, ""):
        roster.open()
    private = sorted(site for site, sketch in sketches.items() if sketch.epsilon is not None)
    if private:
        check_no_categories(sketches)
        note = BESIDE_BUDGET.format(sites=", ".join(private))
        with part(0.5, 1.0, ""):
            return by_moments(roster, standardize=asked.standardize, common=common, notes=(note,))
    return by_sketches(roster, sketches, asked, common=common)


def logged_in(plan: Plan) -> tuple[str, ...]:
    return tuple(name for name, is_logged in zip(plan.columns, plan.is_logged, strict=True) if is_logged)


def by_moments(roster: Roster, *, standardize: bool, common: bool, notes: tuple[str, ...]) -> Opened:
    """One scale, from counts and sums."""
    moments = roster.require(setup.Describe())
    roster.open()
    columns = setup.agreed_columns(moments, common=common)
    means, scales = setup.common_scale(moments, columns) if standardize else setup.no_scale(columns)
    return Opened(plan=plain_plan(columns, means, scales), replies=moments, prepared=PreparedColumns(notes=notes))


def by_sketches(roster: Roster, sketches: Mapping[str, setup.Sketch], asked: Preparation, *, common: bool) -> Opened:
    """A plan from the distribution of every column over all sites, and from sums of the shaped values."""
    inputs = setup.agreed_columns(sketches, common=common)
    numbers, categories = by_kind(sketches, inputs)
    said = {site: sketch.described() for site, sketch in sketches.items()}
    if not any(each.count for each in said.values()):
        raise KoncordError(
            f"Every site has fewer rows than it reports at least, so there is nothing to scale by. {LOWER_FLOOR}"
        )
    draft = draft_plan(said, numbers, categories, asked)
    if not draft.plan.columns:
        raise KoncordError(
            f"No column of numbers is left: in {', '.join(draft.too_gappy)} more than half of the values are missing."
        )
    measured = roster.require(setup.measure_message(draft.plan, paired=draft.is_paired))
    with part(0.5, 1.0, ""):
        roster.open()
    found = {site: reply.measures() for site, reply in measured.items()}
    plan = final_plan(draft, found, asked)
    fenced = np.sum([each.fenced for each in found.values()], axis=0)
    prepared = PreparedColumns(
        logged=logged_in(plan),
        fenced={name: int(n) for name, n in zip(plan.columns, fenced, strict=True) if n},
        gaps=gaps_of(draft, said, plan),
        categories={
            name: dict(zip(levels, shares.tolist(), strict=True))
            for name, levels, shares in zip(plan.categories, plan.levels, plan.shares, strict=True)
        },
        units=tuple(other_units(said, plan.columns)),
    )
    return Opened(plan=plan, replies=sketches, prepared=prepared)


def gaps_of(draft: Draft, said: Mapping[str, Columns], plan: Plan) -> Gaps:
    """What was done about missing values: how many of which columns, how, and which columns are not used for them."""
    if not draft.has_gaps and not draft.too_gappy:
        return Gaps()
    missing = {name: sum(each.count - each.available[name] for each in said.values()) for name in plan.inputs}
    how = plan.missing if plan.missing != "gaussian" or plan.covariances is not None else "mean"
    return Gaps(how=how, missing={name: n for name, n in missing.items() if n}, unused=draft.too_gappy)


def by_kind(sketches: Mapping[str, setup.Sketch], inputs: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The columns of numbers and the categories; an error where a column is one here and the other there."""
    first = next(iter(sketches))
    for name in inputs:
        kinds = {site: name in (sketch.categories or ()) for site, sketch in sketches.items()}
        if len(set(kinds.values())) > 1:
            one = next(site for site, is_category in kinds.items() if is_category)
            other = next(site for site, is_category in kinds.items() if not is_category)
            raise ColumnsDiffer(
                f"The column {name!r} is a category at site {one!r} and numbers at site {other!r}; name it in "
                "--categories at every site, or at none."
            )
    categories = [name for name in inputs if name in (sketches[first].categories or ())]
    return [name for name in inputs if name not in categories], categories


def check_no_categories(sketches: Mapping[str, setup.Sketch]) -> None:
    """Beside a privacy budget there is no plan for categories."""
    with_them = sorted(site for site, sketch in sketches.items() if sketch.categories)
    if with_them:
        raise ColumnsDiffer(
            f"Categories take no part beside a site with a privacy budget; {', '.join(with_them)} named some with "
            "--categories."
        )
