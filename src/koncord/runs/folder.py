"""The folder of a run: its files, and how it appears whole or not at all."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from shutil import rmtree

from koncord._files import atomic_file, write_atomic
from koncord.data.batches import BatchedTable
from koncord.model.globalmodel import GlobalModel
from koncord.runs.assignments import Assignments, FarOff, csv_bytes, write_labels
from koncord.runs.record import RunRecord
from koncord.runs.sites import shown_sites, sites_csv

MODEL, RECORD, PAGE, LABELS = "model.koncord", "run.json", "report.html", "labels"
LOCK, SITES = "lock", "sites.csv"


def write_run(folder: Path, model: GlobalModel, record: RunRecord, page: str) -> None:
    """Write the files of a run into a folder, except the labels (`write_site_labels`).

    Parameters
    ----------
    folder : Path
        It exists. Files of a run that is resumed are replaced.
    model : GlobalModel
        The model that was found.
    record : RunRecord
        How it was found.
    page : str
        The report, as HTML.
    """
    model.save(folder / MODEL)
    record.save(folder / RECORD)
    write_atomic(folder / PAGE, page.encode())
    if shown_sites(model) != model.sites:
        write_atomic(folder / SITES, sites_csv(model, record).encode())


def write_site_labels(
    folder: Path, model: GlobalModel, labels: Mapping[str, Assignments | BatchedTable]
) -> list[FarOff | None]:
    """Write the labels of the rows of each site; the rows of each with a value far off, where these were looked for.

    Parameters
    ----------
    folder : Path
        Of the run, without labels.
    model : GlobalModel
        The model that was found.
    labels : mapping of str to Assignments or BatchedTable
        What was found at each site, or its table, which is labeled batch by batch.
    """
    (folder / LABELS).mkdir()
    far_off = []
    for site, own in labels.items():
        with atomic_file(labels_file(folder, site)) as file:
            if isinstance(own, Assignments):
                file.write(csv_bytes(own))
                far_off.append(own.outliers)
            else:
                far_off.append(write_labels(file, model, own, site).outliers)
    return far_off


def read_run(folder: Path) -> tuple[GlobalModel, RunRecord]:
    """Model and record of a finished run."""
    return GlobalModel.load(folder / MODEL), RunRecord.load(folder / RECORD)


def labels_file(folder: Path, site: str) -> Path:
    return folder / LABELS / f"{site}.csv"


def model_file(path: Path) -> Path:
    """The model file that a person means: the file itself, or that of the run whose folder it is."""
    return path / MODEL if path.is_dir() else path


# --- a folder that is whole ---


def check_folder(option: str, folder: Path, *, replaces: bool, keeps: Sequence[Path] = ()) -> Path:
    """The folder to write, with links resolved; refused, before any work, where it could not be written after it."""
    target = folder.resolve()
    if target.exists() and not target.is_dir():
        raise ValueError(f"{option} needs the name of a folder; '{folder}' is a file.")
    if target == Path.cwd() or target in Path.cwd().parents:
        raise ValueError(f"{option} needs a folder of its own; '{folder}' holds the folder you are in.")
    if not target.parent.is_dir():
        raise ValueError(f"The folder '{folder.parent}' of {option} does not exist; make it first.")
    if not os.access(target.parent, os.W_OK):
        raise ValueError(f"The folder '{folder.parent}' of {option} cannot be written to; choose another one.")
    if target.is_dir() and any(target.iterdir()):
        if not replaces:
            raise ValueError(f"The folder '{folder}' of {option} is not empty; name another, or replace it by --force.")
        for kept in keeps:
            if target in kept.resolve().parents:
                raise ValueError(f"'{kept}' lies in the folder '{folder}' that {option} replaces; name another folder.")
    return target


@contextmanager
def whole_folder(target: Path, *, replaces: bool) -> Iterator[Path]:
    """A folder to fill, beside `target`; it becomes `target` at the end of the block and goes if the block fails."""
    partial = target.with_name(f".{target.name}.{token_hex(4)}")
    partial.mkdir()
    try:
        yield partial
        put_in_place(partial, target, replaces=replaces)
    except BaseException:
        rmtree(partial, ignore_errors=True)
        raise


def put_in_place(new: Path, target: Path, *, replaces: bool) -> None:
    """Rename `new` to `target`; what was there comes back if that fails, and goes only if it does not."""
    if target.exists() and not replaces:
        target.rmdir()  # fails unless it is empty
    if not target.exists():
        new.rename(target)
        return
    old = new.with_name(f"{new.name}.old")
    target.rename(old)
    try:
        new.rename(target)
    except BaseException:
        old.rename(target)
        raise
    rmtree(old, ignore_errors=True)
