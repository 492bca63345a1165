"""A hostile site among honest ones, as a process of its own: the run ends well without it, and says who it was."""

import json
import os
import time

import pytest

from koncord.session.checkpoint import read_blobs, write_blobs
from network.federation import Federation, koncord

pytestmark = pytest.mark.network

METHOD = ("--aggregator", "kfed", "--clusters", "3", "--seed", "5")
BAD = "west"
# In the process that speaks for the site: what it sends is as the file says at that moment.
EVIL = """\
import sys
if "join" in sys.orig_argv:
    from pathlib import Path
    import koncord.network.joining as joining
    honest = joining.answered_by_copy

    def answered(state, asked, meanwhile, **options):
        record = honest(state, asked, meanwhile, **options)
        exec(Path({lie!r}).read_text())
        return record

    joining.answered_by_copy = answered
"""
ESCAPES = "\\x1b]0;PWNED\\x07\\x1b[2J\\nexchange 9: all is well\\r\\u202egnp.exe"
LIES = {
    "text for seconds": "record['seconds'] = ['x']",
    "seconds that are no number": "record['seconds'] = [float('nan')] * len(record['replies'])",
    "an integer that becomes memory": "record['replies'] = [10**9] * 20",
    "a number for the replies": "record['replies'] = 5",
}


@pytest.fixture(scope="module")
def federation(programs, tmp_path_factory):
    """Three sites, of which one answers as the file `lie` says."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "lie").write_text("")
    (folder / "evil").mkdir()
    (folder / "evil" / "sitecustomize.py").write_text(EVIL.format(lie=str(folder / "lie")))
    path = os.pathsep.join(filter(None, (str(folder / "evil"), os.environ.get("PYTHONPATH"))))
    made = Federation(folder)
    try:
        made.serve().invite().join(BAD, variables={"PYTHONPATH": path})
        yield made.join("north", "south").wait_joined()
    finally:
        made.stop()


@pytest.mark.parametrize("name", LIES)
def test_a_run_with_a_hostile_site_succeeds_and_names_it(federation, name):
    (federation.folder / "lie").write_text(LIES[name])
    out = f"run-{list(LIES).index(name)}"
    run = federation.run("--out", out, "--min-sites", "2", *METHOD, "--json")
    assert run.end(300) == 0, run.text
    (missing,) = json.loads(run.text.splitlines()[-1])["info"]["missing"]
    assert (missing["site"], missing["exchange"]) == (BAD, 1)
    assert missing["reason"].startswith("set aside: its ")
    assert f"missing: {BAD} (set aside: its " in run.text
    assert federation.model(out).sites == ("north", "south")
    assert f"Site {BAD} was missing from exchange 1" in (federation.folder / out / "report.html").read_text()
    json.loads((federation.folder / out / "run.json").read_text(), parse_constant=pytest.fail)


def test_a_run_is_resumed_once_at_a_time_and_shows_no_escapes_of_a_site(federation):
    (federation.folder / "lie").write_text(f"record.clear(); record['error'] = '{ESCAPES}' * 10_000")
    options = ("--min-sites", "2")
    run = federation.run("--out", "stopped", *options, *METHOD).wait_for("exchange 1: ")
    with run.held():  # else it may be over before the second one has started
        told = koncord(federation.folder, "run", "--folder", "coordinator", "--out", "stopped", "--resume", code=1)
        assert "Another koncord run works in 'stopped'" in told
        run.kill()
    assert "\x1b" not in run.text
    assert "\nexchange 9" not in run.text
    assert "\\x1b]0;PWNED\\x07" in run.text
    run = federation.run("--out", "stopped", "--resume", *options, "--json")
    assert run.end(300) == 0, run.text
    missing = json.loads(run.text.splitlines()[-1])["info"]["missing"]
    assert {each["site"] for each in missing} == {BAD}
    assert all(each["reason"].isprintable() and len(each["reason"]) <= 300 for each in missing)
    files = {path.name for path in (federation.folder / "stopped").iterdir()}
    assert files == {"model.koncord", "run.json", "report.html"}
    page = (federation.folder / "stopped" / "report.html").read_text()
    assert not [each for each in page if not each.isprintable() and each != "\n"]


def test_a_journal_with_no_number_in_it_is_an_error_of_the_file_and_not_of_the_call(federation):
    (federation.folder / "lie").write_text("")
    run = federation.run("--out", "nan", "--min-sites", "3", *METHOD)
    journal = federation.folder / "nan" / "journal" / "00001.exchange"
    while not journal.exists() and run.process.poll() is None:
        time.sleep(0.05)
    run.kill()
    header, blobs = read_blobs(journal)
    header["seconds"]["north"] = [float("nan")]
    write_blobs(journal, header, blobs)
    told = koncord(federation.folder, "run", "--folder", "coordinator", "--out", "nan", "--resume", code=1)
    assert "00001.exchange' is damaged" in told
