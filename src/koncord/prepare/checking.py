"""What a person should know of tables before a run: what each column is, what will be done, what looks wrong."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from koncord._words import counted, joined, listed
from koncord.data.columns import MOST_OFFERED_LEVELS, na_options, odd_cells, option
from koncord.data.files import Table, complete_rows
from koncord.data.notes import first_value, notes_on
from koncord.errors import TableError
from koncord.prepare.columns import Columns, describe_columns
from koncord.prepare.planning import Draft, draft_plan
from koncord.prepare.settings import Preparation
from koncord.prepare.units import OtherUnit, other_units

NUMBERS, CATEGORY, TEXT, LEFT_OUT = "numbers", "category", "text", "left out"
MOST_WHOLE = 8  # different whole numbers up to which a column may be a category
MOST_SHOWN = 6  # levels of text in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCheck:
    """One column over all tables."""

    name: str
    kind: str
    action: str  # what a run will do with it
    missing: Mapping[str, float] = field(default_factory=dict)  # share of the rows, by site that has gaps
    lacking: tuple[str, ...] = ()  # sites without the column
    levels: tuple[str, ...] = ()  # of a category or of text
    is_used: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What a run with these tables would do, and why it would be refused."""

    rows: Mapping[str, int]  # of each site
    columns: tuple[ColumnCheck, ...]
    warnings: tuple[str, ...]
    refusals: tuple[str, ...]

    @property
    def is_refused(self) -> bool:
        return bool(self.refusals)


def check_tables(
    tables: Sequence[Table],
    asked: Preparation,
    *,
    common: bool,
    floor: int,
    errors: Sequence[str] = (),
) -> Check:
    """What a run with these tables would do.

    Parameters
    ----------
    tables : sequence of Table
        As they are read when text is not refused, and values may be missing.
    asked : Preparation
        What the run is asked for.
    common : bool
        Whether columns that some tables lack are left out.
    floor : int
        Rows that a site reports of at least.
    errors : sequence of str, default ()
        Why other tables could not be read.
    """
    shared = [name for name in all_columns(tables) if all(name in table.columns for table in tables)]
    mixed = [name for name in shared if len({name in table.levels for table in tables}) > 1]
    usable = [name for name in shared if name not in mixed]
    categories = [name for name in usable if name in tables[0].levels] if tables else []
    numbers = [name for name in usable if name not in categories]
    refusals = list(errors)
    draft: Draft | None = None
    if numbers:
        try:
            whole = complete_rows(tables) if asked.missing == "drop" else tables
        except TableError as error:
            refusals.append(str(error))
            whole = tables
        sent = {table.name: describe_columns(table.X, table.columns, table.levels, floor) for table in whole}
        draft = draft_plan(sent, numbers, categories, asked)
        refusals += nothing_left(draft, sent, floor)
    plan, gappy = (None, None) if draft is None else (draft.plan, draft.too_gappy)
    found = []
    for name in all_columns(tables):
        kind = kind_of(name, tables)
        lacking = () if kind in (TEXT, LEFT_OUT) else tuple(t.name for t in tables if name not in t.columns)
        logged = plan is not None and name in plan.columns and bool(plan.is_logged[plan.columns.index(name)])
        action, is_used = action_of(name, kind, lacking, tables, gappy or {}, logged=logged, common=common)
        found.append(
            ColumnCheck(
                name=name,
                kind=kind,
                action=action,
                missing=missing_shares(name, tables),
                lacking=lacking,
                levels=levels_of(name, tables),
                is_used=is_used,
            )
        )
    used = [name for name in numbers if name not in (gappy or {})]
    refusals += refusals_of(tables, found, mixed, common=common)
    if tables and not numbers:
        refusals.append("No column of numbers is at every site.")
    # The owner of the tables may see more of them than is sent.
    seen = {table.name: describe_columns(table.X, table.columns, table.levels, 1) for table in tables}
    return Check(
        rows={table.name: len(table.X) for table in tables},
        columns=tuple(found),
        warnings=(
            *unit_warnings(seen, used),
            *level_warnings(tables, categories),
            *constant_warnings(tables, used),
            *whole_warnings(tables, used),
            *notes_on(tables),
        ),
        refusals=tuple(refusals),
    )


def nothing_left(draft: Draft, sent: Mapping[str, Columns], floor: int) -> list[str]:
    """Why nothing can be computed with columns of numbers that all sites have."""
    if not any(each.count for each in sent.values()):
        return [f"Every site has fewer than the {floor} rows that a site reports of at least (--min-report)."]
    if not draft.plan.columns:
        return [
            f"No column of numbers is left: more than half of {joined(list(draft.too_gappy))} is missing somewhere."
        ]
    return []


def used_in(table: Table) -> tuple[str, ...]:
    return (*table.columns, *table.texts, *table.left_out)


def all_columns(tables: Sequence[Table]) -> list[str]:
    return list(dict.fromkeys(name for table in tables for name in used_in(table)))


def kind_of(name: str, tables: Sequence[Table]) -> str:
    if any(name in table.texts for table in tables):
        return TEXT
    if any(name in table.levels for table in tables):
        return CATEGORY
    return NUMBERS if any(name in table.columns for table in tables) else LEFT_OUT


def levels_of(name: str, tables: Sequence[Table]) -> tuple[str, ...]:
    own = (table.texts.get(name) or table.levels.get(name, ()) for table in tables)
    return tuple(dict.fromkeys(level for levels in own for level in levels))


def missing_shares(name: str, tables: Sequence[Table]) -> dict[str, float]:
    """Share of missing values at each site that has some."""
    having = [table for table in tables if name in table.columns]
    shares = {table.name: float(np.isnan(table.X[:, table.columns.index(name)]).mean()) for table in having}
    return {site: share for site, share in shares.items() if share}


def action_of(
    name: str,
    kind: str,
    lacking: Sequence[str],
    tables: Sequence[Table],
    gappy: Mapping[str, Collection[str]],
    *,
    logged: bool,
    common: bool,
) -> tuple[str, bool]:
    """What a run does with a column, in words, and whether it uses it."""
    if kind == TEXT:
        levels = levels_of(name, tables)
        odd = sorted(stand_ins_of(name, tables))
        if odd:
            return f"refused: numbers and {listed(odd)}; {na_options(odd)} or {option('--drop', [name])}", False
        offer = option("--categories", [name]) if 1 < len(levels) <= MOST_OFFERED_LEVELS else ""
        ways = " or ".join(filter(None, [offer, option("--drop", [name])]))
        return f"refused: text with {counted(len(levels), 'level')}; {ways}", False
    if kind == LEFT_OUT:
        return f"left out: {next(table.left_out[name] for table in tables if name in table.left_out)}", False
    if lacking:
        why = "not every site has it" + "".join(f"; {each}" for each in left_out_at(name, tables))
        return f"left out: {why}" if common else f"refused: {why}; --common-columns", False
    if name in gappy:
        return f"left out: more than half of its values are missing at {joined(list(gappy[name]))}", False
    if kind == CATEGORY:
        return "used as a category", True
    return ("used, as its logarithm" if logged else "used"), True


def refusals_of(
    tables: Sequence[Table], columns: Sequence[ColumnCheck], mixed: Sequence[str], *, common: bool
) -> list[str]:
    """Why a run would be refused."""
    refusals = []
    for column in columns:
        odd = sorted(stand_ins_of(column.name, tables)) if column.kind == TEXT else []
        if odd:
            refusals.append(
                f"{column.name} holds {listed(odd)} among its numbers: if that stands for a missing value, say so with "
                f"{na_options(odd)}."
            )
    texts = [column.name for column in columns if column.kind == TEXT and not stand_ins_of(column.name, tables)]
    if texts:
        refusals.append(
            f"{joined(texts)} {'is' if len(texts) == 1 else 'are'} text: name what is a category with --categories, "
            "and leave the rest out with --drop."
        )
    lacking = [column for column in columns if column.lacking and column.kind in (NUMBERS, CATEGORY)]
    if lacking and not common:
        named = "; ".join(
            f"{column.name} is not at {joined(list(column.lacking))}"
            + "".join(f" ({each})" for each in left_out_at(column.name, tables))
            for column in lacking
        )
        refusals.append(f"The sites have different columns: {named}. Use what all share with --common-columns.")
    refusals += [f"{name} is a category at some sites and numbers at others." for name in mixed]
    return refusals


def stand_ins_of(name: str, tables: Sequence[Table]) -> set[str]:
    """The few texts that a column holds among numbers, at the sites where it is not read as numbers."""
    found = [odd_cells(table.texts[name]) for table in tables if name in table.texts]
    return set().union(*found) if all(found) else set()


def left_out_at(name: str, tables: Sequence[Table]) -> list[str]:
    """Where a column that other sites measure is left out, and why."""
    return [f"at {table.name} it is left out: {table.left_out[name]}" for table in tables if name in table.left_out]


def level_warnings(tables: Sequence[Table], categories: Sequence[str]) -> list[str]:
    """Of categories whose levels at one site are at no other: they may be written in another way."""
    warnings = []
    for name in categories:
        for table in tables:
            others = {level for other in tables if other is not table for level in other.levels[name]}
            if others and table.levels[name] and not others & set(table.levels[name]):
                own, theirs = (shown_levels(each) for each in (table.levels[name], sorted(others)))
                warnings.append(
                    f"{name} has no level at {table.name} ({own}) that other sites have ({theirs}): is it written in "
                    "another way?"
                )
    return warnings


def shown_levels(levels: Sequence[str]) -> str:
    return ", ".join(levels[:MOST_SHOWN]) + ", ..." * (len(levels) > MOST_SHOWN)


def unit_warnings(sent: Mapping[str, Columns], numbers: Sequence[str]) -> list[str]:
    return [about_unit(each) for each in other_units(sent, numbers)]


def about_unit(found: OtherUnit) -> str:
    """A sentence on a column that lies elsewhere at one site."""
    medians = f"(median {found.median:.4g}, theirs {found.others:.4g})"
    said = f"{found.column} lies elsewhere at {found.site} than at all other sites {medians}"
    if found.conversion is None:
        return f"{said}: check its unit and its calibration."
    return f"{said}, as in another unit: if so, --convert {found.site}:{found.column}={found.conversion}."


def constant_warnings(tables: Sequence[Table], numbers: Sequence[str]) -> list[str]:
    """Of columns that hold one value at some sites and vary at others."""
    warnings = []
    for name in numbers:
        at = [table.name for table in tables if name in table.constant_columns and len(table.X) > 1]
        if at and len(at) < len(tables):
            one = next(table for table in tables if table.name == at[0])
            value = first_value(one, name)
            warnings.append(
                f"{name} is the same in every row of {joined(at)} ({value:g}) and varies elsewhere: was it measured "
                f"there? {option('--drop', [name])} leaves it out."
            )
    return warnings


def whole_warnings(tables: Sequence[Table], numbers: Sequence[str]) -> list[str]:
    """Of columns of few whole numbers, which may be codes."""
    few = []
    for name in numbers:
        values = np.concatenate([table.X[:, table.columns.index(name)] for table in tables])
        kept = np.unique(values[~np.isnan(values)])
        if 1 < len(kept) <= MOST_WHOLE and (kept == np.trunc(kept)).all():
            few.append(
                f"{name} ({', '.join(f'{value:g}' for value in kept[:MOST_SHOWN])}{', ...' * (len(kept) > MOST_SHOWN)})"
            )
    if not few:
        return []
    names = [each.rpartition(" (")[0] for each in few]
    return [
        f"few whole numbers, used as amounts: {'; '.join(few)}. If they are codes or yes and no, say so with "
        f"{option('--categories', names)}."
    ]
