"""State folders over one table: they answer by one joint partition, or one of them does not answer."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from koncord._files import locked, write_atomic
from koncord.errors import NotAllowed
from koncord.network.tables import MARKS, Hashes, KnownTable, Marks, TableRecord, read_marks
from koncord.session.checkpoint import read_blobs, write_blobs
from koncord.session.streamedfile import StreamedSource, kept_digest
from koncord.session.versions import (
    VERSION,
    Stored,
    digest_of_cells,
    digest_of_version,
    first_version,
    joint_folder,
    next_version,
    point_to,
    read_version,
    stored,
    version_digest,
    write_cells,
)
from koncord.types import FloatArray

if TYPE_CHECKING:
    from koncord.network.sitefolder import SiteFolder

RUNS = "runs.json"  # of all state folders over a table


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """A table as other state folders over it have it."""

    X: FloatArray | StreamedSource
    levels: Mapping[str, tuple[str, ...]]  # in the places that they have there
    marks: Marks
    order: Hashes  # of the rows; none of a table that is read batch by batch


def held_together(place: "SiteFolder", X: FloatArray | StreamedSource, *, may_weaken: bool) -> Together:
    """The table of a site that joins without a budget, as it is in other state folders over it.

    Afterwards the folder answers by what was answered of the table, if anything was. `NotAllowed` where it cannot: what
    else was answered of these rows would tell single ones. The caller is the folder's `sole_owner`.
    """
    record = TableRecord()
    marks, order = marked(record, place, X)
    with record.alone():
        joint = joint_folder(place.folder)
        others = [] if place.is_apart else record.sharing(marks, place.policy.min_report, but=joint)
        if not may_weaken:
            check_floors(place, others)
        if not place.keeps_partition:
            return Together(X=X, levels=place.levels, marks=marks, order=order)
        if others and (joint is not None or len(others) > 1 or not is_alike(others[0], place, X)):
            refuse(others)
        levels = place.levels
        known = KnownTable.load(joint) if joint is not None else others[0] if others else None
        if known is not None and not isinstance(X, StreamedSource):
            X, levels = with_known_levels(X, place.columns, place.levels, known.levels)
            if joint is None or digest_of_version(place.folder / VERSION) != digest_of_cells(joint):
                renew(known, place, X, order, may_move=joint is not None)
        if known is not None and joint is None:
            point_to(place.folder, known.folder)
        if known is not None:
            floor = min(known.min_report, place.policy.min_report)
            replace(known.used_from(place.folder), min_report=floor).save()
    return Together(X=X, levels=levels, marks=marks, order=order)


def claim(place: "SiteFolder") -> None:
    """Before a site answers a run: what was answered of its table, so far nothing, is kept for all state folders.

    `NotAllowed` if another state folder has answered over the same rows since this one was joined, by other cells.
    """
    if not place.keeps_partition or joint_folder(place.folder) is not None:
        return
    record = TableRecord()
    marks, order = read_marks(place.folder)
    with record.alone():
        if joint_folder(place.folder) is None:
            start_record(record, place, marks, order)


def start_record(record: TableRecord, place: "SiteFolder", marks: Marks, order: Hashes) -> None:
    """Begin to keep what is answered of a site's table for all state folders, unless another has these cells."""
    source = StreamedSource.load(place.folder) if place.is_streamed else None
    kept = None if place.is_streamed else read_version(place.folder)
    others = [] if place.is_apart else record.sharing(marks, place.policy.min_report)
    digest = "" if source is None else sampled_digest(source)
    version = "" if kept is None else kept.digest
    if others and (len(others) > 1 or (others[0].digest, digest_of_cells(others[0].folder)) != (digest, version)):
        refuse(others)
    known = others[0] if others else None
    if known is None:
        folder = record.new_folder()
        if kept is not None:
            write_cells(folder, kept.digest, kept.now(place.policy.min_report).cells)
        known = KnownTable(
            folder=folder,
            marks=marks,
            order=order,
            levels=place.levels,
            min_report=place.policy.min_report,
            digest=digest,
        )
    known.used_from(place.folder).save()
    point_to(place.folder, known.folder)


def other_states(place: "SiteFolder") -> list[str]:
    """State folders that answer by the same cells as this one, or did."""
    joint = joint_of(place)
    return [] if joint is None else [state for state in KnownTable.load(joint).states if Path(state) != place.folder]


def runs_alone(place: "SiteFolder") -> AbstractContextManager[None]:
    """Within the block no other process notes a run, of this state folder or of another one over its table."""
    return locked((joint_of(place) or place.folder) / "lock")


def n_runs(place: "SiteFolder", noted: Sequence[str]) -> int:
    """Runs that state folders over the same table took part in, also if they are gone; this one has `noted` its own."""
    return sum(map(len, runs_by_state(place, noted).values()))


def note_runs(place: "SiteFolder", noted: Sequence[str]) -> None:
    """Keep for all state folders over the table which runs this one takes part in; on the disk when this returns."""
    joint = joint_of(place)
    if joint is not None:
        content = json.dumps(runs_by_state(place, noted)).encode()
        write_atomic(joint / RUNS, content, private=True, durable=True)


def runs_by_state(place: "SiteFolder", noted: Sequence[str]) -> dict[str, list[str]]:
    """The runs of each state folder over the table of this one."""
    joint, state = joint_of(place), str(place.folder.resolve())
    kept: dict[str, list[str]] = {}
    if joint is not None and (joint / RUNS).exists():
        kept = json.loads((joint / RUNS).read_text(encoding="utf-8"))
    return {**kept, state: list(dict.fromkeys((*kept.get(state, ()), *noted)))}


def joint_of(place: "SiteFolder") -> Path | None:
    """Where what was answered of a site's table is kept, if it is held together with that of other state folders."""
    return joint_folder(place.folder) if place.keeps_partition else None


def note_version(place: "SiteFolder", joint: Path, X: FloatArray) -> None:
    """Keep in the record which rows are answered about from now on, beside all that were."""
    record = TableRecord(joint.parent)
    marking = record.marking(place.columns, place.levels)
    order = marking.add(X)
    with record.alone():
        known = KnownTable.load(joint)
        marks = known.marks.with_others(marking.marks)
        replace(known, marks=marks, order=order, levels=place.levels).save()


def marked(record: TableRecord, place: "SiteFolder", X: FloatArray | StreamedSource) -> tuple[Marks, Hashes]:
    """Marks of a table, and hashes of its rows in their order; of one that is read batch by batch, none: one pass."""
    marking = record.marking(place.columns, place.levels)
    if not isinstance(X, StreamedSource):
        order = marking.add(X)
        return marking.marks, order
    if kept_digest(place.folder) == X.digest and (place.folder / MARKS).exists():
        return read_marks(place.folder)
    for rows in X.table.batches("hashes"):
        marking.add(rows)
    return marking.marks, np.empty(0, dtype=np.uint64)


def is_alike(known: KnownTable, place: "SiteFolder", X: FloatArray | StreamedSource) -> bool:
    """Whether a table may be the known one: the same columns, and read in the same way."""
    if isinstance(X, StreamedSource):
        return known.digest == sampled_digest(X)
    return not known.digest and known.marks.columns == place.columns


def sampled_digest(source: StreamedSource) -> str:
    """Digest of a table that is read batch by batch, and of its sample."""
    sample = np.ascontiguousarray(source.table.sample, dtype="<f8").tobytes()
    return hashlib.sha256(source.digest.encode() + sample).hexdigest()


def renew(known: KnownTable, place: "SiteFolder", X: FloatArray, order: Hashes, *, may_move: bool) -> None:
    """Write the rows that the known table is answered about by into a site's folder.

    Unless it `may_move`, a table from which others would be answered about is refused: the other state folders would
    have to join anew.
    """
    found = first_again(known, place, X, order)
    for state in known.states:
        if found is None and digest_of_version(Path(state) / VERSION) == digest_of_cells(known.folder):
            kept = read_version(Path(state))
            assert kept is not None
            least = place.policy.min_report
            if not may_move and next_version(kept.now(least), X, least)[1].is_a_move:
                refuse([known])
            found = read_blobs(Path(state) / VERSION)
    if found is None:
        raise NotAllowed(
            f"Rows of this table were answered about from {known.places}, which is gone or has other rows now, with "
            f"--min-report {known.min_report}: what was answered cannot be held together with new answers. Put it back "
            "from a backup, or join with the rows and the floor that it had, or with a privacy budget (--epsilon)."
        )
    place.folder.mkdir(mode=0o700, exist_ok=True)
    write_blobs(place.folder / VERSION, *found)


def first_again(known: KnownTable, place: "SiteFolder", X: FloatArray, order: Hashes) -> Stored | None:
    """The first version of a table, if this is all that was ever answered about, in whatever order its rows come."""
    rows = known.in_order(X, order)
    if rows is None:
        return None
    content = stored(first_version(rows, place.policy.min_report), place.columns, is_answered=False)
    return content if version_digest(*content) == digest_of_cells(known.folder) else None


def check_floors(place: "SiteFolder", others: list[KnownTable]) -> None:
    """`NotAllowed` if rows were answered about with a higher floor."""
    for known in others:
        if known.min_report > place.policy.min_report:
            raise NotAllowed(
                f"Rows of this table were answered about from {known.places} with a floor of {known.min_report}; "
                f"--min-report {place.policy.min_report} would undo it. If their owner wants that, add --weaken."
            )


def refuse(others: list[KnownTable]) -> NoReturn:
    places = " and from ".join(known.places for known in others)
    raise NotAllowed(
        f"Rows of this table were answered about from {places}: answers of both, apart from each other, could tell "
        "single rows. Join from there (--state), or with the same rows and columns as there, or with a privacy budget "
        "(--epsilon). If equal rows are of others, or their owner accepts that, add --apart."
    )


def with_known_levels(
    X: FloatArray,
    columns: tuple[str, ...],
    levels: Mapping[str, tuple[str, ...]],
    before: Mapping[str, tuple[str, ...]],
) -> tuple[FloatArray, dict[str, tuple[str, ...]]]:
    """The table with the levels of every category in the places that they had before, new ones behind them.

    Positions in sorted levels would all move with a new level: the rows would count as others, answered about anew.
    """
    table, placed = X.copy(), dict(levels)
    for name, own in levels.items():
        known = before.get(name, ())
        placed[name] = (*known, *(level for level in own if level not in known))
        places = np.array([placed[name].index(level) for level in own], dtype=float)
        codes = X[:, columns.index(name)]
        is_there = ~np.isnan(codes)
        table[is_there, columns.index(name)] = places[codes[is_there].astype(np.int64)]
    return table, placed
