"""Secure sums of five sites over TLS: one is killed in each of the five steps, and the run ends."""

import json
import time

import pytest

from koncord.protocol.ledger import read_ledger
from koncord.runs.record import RunRecord
from network.federation import ROWS, Federation, koncord
from network.pace import PACE, waits

pytestmark = pytest.mark.network

SITES = ("a", "b", "c", "d", "e")
STOPPED = "go on with: koncord run"  # on a machine with far too much to do, Flower may end its run
BUDGET = ("--epsilon", "20", "--delta", "1e-5", "--bound", "10", "--center", "2")
METHOD = ("--aggregator", "consensus", "--min-sites", "4", "--seed", "5")
# The step in which each site is killed, and in which sum: before it answers, with all it has started. Where cells are
# counted there are four sums.
KILLED = {
    "a": ("AskKeys", 2),
    "b": ("AskShares", 3),
    "c": ("AskMasked", 3),
    "d": ("AskAgreement", 4),
    "e": ("AskUnmask", 4),
}
KILLS = """\
import os, signal
if "DIES_AT" in os.environ:
    from koncord.privacy import releases

    answer, (step, number) = releases.SummedClient.answer, os.environ["DIES_AT"].split()

    def dies(client, message, stream_of):
        name = type(message).__name__
        is_later = name in ("AskAgreement", "AskUnmask")
        of = client._sent_number if is_later else getattr(message, "number", client._number)
        if (name, str(of)) == (step, number):
            open(os.environ["DIES_FILE"], "w").close()
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(1)
        return answer(client, message, stream_of)

    releases.SummedClient.answer = dies
"""


@pytest.fixture
def federation(programs, tmp_path):
    """Five sites with one budget, each to be killed in another step."""
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(KILLS)
    made = Federation(tmp_path, sites=SITES)
    try:
        made.serve().invite()
        for site, (step, number) in KILLED.items():
            hook = {"PYTHONPATH": str(tmp_path / "hook"), "DIES_FILE": str(tmp_path / f"died-{site}")}
            variables = {**hook, "DIES_AT": f"{step} {number}"}
            made.join(site, options=(*BUDGET, "--secure-sums"), variables=variables)
        yield made.wait_joined()
    finally:
        made.stop()


def test_one_of_five_sites_is_killed_in_each_step_and_the_run_ends(federation):
    plain = federation.run("--out", "plain", "--no-standardize", *METHOD)
    for _ in range(5):
        if plain.end(120) == 0 or STOPPED not in plain.text.lower():
            break
        plain = federation.run("--out", "plain", "--resume")
    assert plain.process.poll() == 0, plain.text
    PACE.saw_exchanges(plain.text)
    run = federation.run("--out", "run", "--secure-sums", *BUDGET, *METHOD, *waits("--round-timeout", 10), "--json")
    back, began = set(), time.monotonic()
    while run.process.poll() != 0:
        assert time.monotonic() - began < PACE.limit(600), run.text
        for site in SITES:
            is_dead = (federation.folder / f"died-{site}").exists()
            is_missed = f"{site} (" in run.text or run.process.poll() is not None
            if is_dead and is_missed and site not in back:
                back.add(site)
                federation.joined[site].process.wait(30)  # it was killed, and nobody has asked for its end
                federation.join(site, options=(*BUDGET, "--secure-sums"))
        if run.process.poll() not in (None, 0):  # the next was killed before the last was back
            assert "the run needs at least 4" in run.text or STOPPED in run.text.lower(), run.text
            federation.wait_joined()
            run = federation.run("--out", "run", "--resume", *waits("--round-timeout", 10), "--json")
        time.sleep(0.2)
    assert back == set(SITES)  # every step was met
    found = json.loads(run.text.splitlines()[-1])
    model = federation.model("run")
    assert model.sites == ("5 sites together",)
    assert model.n_clusters >= 2
    page = (federation.folder / "run" / "report.html").read_text()
    assert "The server saw sums over all sites only" in page
    for site in SITES:
        state = federation.folder / f"state-{site}"
        labels = state / "runs" / found["run"] / "labels.csv"
        assert len(labels.read_text().splitlines()) == 1 + ROWS
        lines = [line for line in read_ledger(state / f"{site}.ledger.jsonl") if line.run == found["run"]]
        sent = [line.message for line in lines]
        assert not {"setup.Moments", "setup.Measured", "commoncells.CellSums"} & set(sent)
        assert 2 <= sent.count("securesums.Masked") <= 7  # of four sums or more; some were opened before it was back
        assert 0 < lines[-1].epsilon <= 20
    for name in ("plain", "run"):
        record = RunRecord.load(federation.folder / name / "run.json")
        sent = sum(departure.n_bytes for departure in record.departures)
        exchanges = federation.model(name).session.exchanges
        print(f"{name}: {exchanges} exchanges, {record.seconds:.0f} s, {sent / len(SITES):.0f} bytes of a site")


def test_what_cannot_be_summed_is_refused_by_name_before_anybody_is_asked(federation):
    refused = koncord(
        federation.folder,
        *("run", "--folder", "coordinator", "--out", "no", "--secure-sums", *BUDGET, "--aggregator", "kfed"),
        *("--clusters", "3"),
        code=1,
    )
    assert "kfed has no private form" in refused
