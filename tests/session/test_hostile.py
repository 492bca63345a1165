"""One hostile site among honest ones: it is named and set aside, and the run goes on as if it had not come.

The exchange and the link are the real ones. Only Flower's run is a stand-in: it hands records to the sites and takes
theirs, as bytes of Flower's own making.
"""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone
from test_checkpoint import same_models
from test_roster import AGGREGATORS, SITES, make_site

from koncord.errors import CheckpointError, ColumnsDiffer, TooFewSites
from koncord.report.federation import notes_of
from koncord.session.checkpoint import FileJournal, SiteMemory, read_blobs, write_blobs
from koncord.session.policy import ServerPolicy

flwr = pytest.importorskip("flwr.app")

from koncord.network.flower.carrier import Answer  # noqa: E402
from koncord.network.flower.exchange import Roll  # noqa: E402
from koncord.network.flower.link import FlowerLink  # noqa: E402
from koncord.session.federation import run_federation  # noqa: E402

BAD, AGGREGATOR = "north", "kfed"
LONGEST = 300
ESCAPES = "\x1b]0;PWNED\x07\x1b[2J\nexchange 9: all is well\r\u202egnp.exe\x9b31m\u2028end"


class Grid:
    """A run of Flower, without the network: each site answers from its own disk; a hostile one as `lies` says."""

    def __init__(self, folder, lies):
        self.folder, self.lies, self.replies = folder, lies, {}
        self.nodes = dict(enumerate(SITES, start=1))
        self.n_pushed = 0

    def connected(self):
        return set(self.nodes)

    def renew(self):
        raise AssertionError("it was not lost")

    def push(self, messages):
        numbers = []
        for message in messages:
            self.n_pushed += 1
            number = f"{self.n_pushed}"
            answer = self.answer(self.nodes[message.node], message)
            if answer is not None:
                self.replies[number] = {"question": number, **answer}
            numbers.append(number)
        return numbers

    def pull(self, numbers):
        return [Answer(**self.replies.pop(each)) for each in list(numbers) if each in self.replies]

    def answer(self, site, message):
        """What is answered to a message: an `Answer` without the number of its question, or None."""
        lie = self.lies.get((site, message.record["exchange"]), dict)
        if not callable(lie):
            return sent(lie)
        return sent(record(**lie(self.honest(site, **message.record))))

    def honest(self, site, run, exchange, method, messages):
        kind = type(AGGREGATORS[AGGREGATOR])
        memory = SiteMemory(self.folder / site, make_site(site, kind), kind, {"table": site})
        answered = memory.answer(exchange, messages)
        return {"replies": list(answered.replies), "seconds": list(answered.seconds)}


class Killed(Exception):
    pass


def federate(folder, lies=(), *, dies_in=None, min_sites=1, make_grid=None, coordinator=None):
    """The model and the link of a run over the grid; `dies_in` is an exchange that kills koncord run."""
    folder.mkdir(exist_ok=True)
    grid = (make_grid or Grid)(folder, dict(lies))

    class Mortal(FlowerLink):
        def carry(self, exchange, down):
            if exchange == dies_in:
                raise Killed
            return super().carry(exchange, down)

    link = Mortal(
        Roll(grid),
        {site: node for node, site in grid.nodes.items()},
        run="r",
        method="{}",
        policy=ServerPolicy(round_timeout=5.0, first_timeout=5.0, min_sites=min_sites),
        journal=FileJournal(folder / "journal"),
        coordinator=coordinator,
    )
    model = run_federation(link, clone(AGGREGATORS[AGGREGATOR]), seed=3, standardize=True, settings={})
    return SimpleNamespace(model=model, link=link)


def record(**entries):
    return flwr.RecordDict({"koncord": flwr.ConfigRecord(entries)})


def sent(records):
    """What arrives of a site's records."""
    kept = records.config_records.get("koncord")
    return {"record": {} if kept is None else dict(flwr.ConfigRecord.inflate(kept.deflate()))}


def with_seconds(value):
    """An honest answer but for this."""
    return lambda truth: {**truth, "seconds": value}


HOSTILE = {
    "seconds of text": with_seconds(["x", "y"]),
    "seconds that are a number": with_seconds(3),
    "seconds that are no number": with_seconds([float("nan"), 0.0]),
    "endless seconds": with_seconds([float("inf"), 0.0]),
    "negative seconds": with_seconds([-1.0, 0.0]),
    "seconds that overflow a sum": with_seconds([1e308, 1e308]),
    "seconds that are truth values": with_seconds([True, False]),
    "more seconds than replies": with_seconds([0.0] * 100_000),
    "replies that are a number": record(replies=5, seconds=[]),
    "a negative length": record(replies=[-1], seconds=[]),
    "replies of text": record(replies=["a"], seconds=[]),
    "replies that are a text": record(replies="abc", seconds=[]),
    "replies that are bytes": record(replies=b"ab", seconds=[]),
    "an integer that becomes memory": record(replies=[10**8, 10**8], seconds=[]),
    "too many replies": record(replies=[b""] * 100_000, seconds=[]),
    "no replies": record(replies=[], seconds=[]),
    "more bytes than the door lets through": record(replies=[bytes(40 << 20)] * 2, seconds=[]),
    "no record": flwr.RecordDict({}),
    "an empty record": record(),
    "an error that is no text": record(error=[1.0, 2.0]),
    "replies and an error": lambda truth: {**truth, "error": 5},
    "a message that names a million fields": record(
        replies=[
            (lambda text: len(text).to_bytes(8, "little") + text)(
                json.dumps(
                    {
                        "__metadata__": {
                            "koncord": json.dumps(
                                {
                                    "format": 1,
                                    "message": "setup.Prepared",
                                    "round": 0,
                                    "values": {f"\x1b[2J{at}": 1 for at in range(50_000)},
                                }
                            )
                        }
                    }
                ).encode()
            )
        ]
        * 2,
        seconds=[],
    ),
}


def bytes_of(folder):
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_reply_sets_its_site_aside_and_the_run_goes_on_and_is_resumed_alike(name, tmp_path):
    lies = {(BAD, 2): HOSTILE[name]}
    run = federate(tmp_path / "whole", lies)
    (missing,) = run.model.info["missing"]
    assert (missing["site"], missing["exchange"]) == (BAD, 2)
    assert missing["reason"].startswith("set aside: ")
    assert missing["reason"].isprintable()
    assert len(missing["reason"]) <= LONGEST
    assert run.model.sites == tuple(site for site in SITES if site != BAD)
    assert np.isfinite([departed.seconds for departed in run.link.departures]).all()
    json.dumps(run.model.info, allow_nan=False)
    assert bytes_of(tmp_path / "whole" / "journal") < 20_000, "what is refused is not kept"
    with pytest.raises(Killed):
        federate(tmp_path / "killed", lies, dies_in=3)
    resumed = federate(tmp_path / "killed")
    same_models(resumed.model, run.model)
    assert resumed.link.set_aside == run.link.set_aside


@pytest.mark.parametrize("text", [ESCAPES, "x" * 30_000_000, "\ud800" + "\x00" * 2_000, "\n" * 1000], ids=range(4))
def test_the_text_of_an_error_is_cut_and_escaped_wherever_it_is_shown(text, tmp_path):
    entry = record(error=text.encode(errors="replace").decode())
    run = federate(tmp_path / "run", {(BAD, 2): entry})
    (missing,) = run.model.info["missing"]
    assert missing["site"] == BAD
    assert missing["reason"].isprintable()
    assert len(missing["reason"]) <= LONGEST
    assert all(note.isprintable() for note in notes_of(run.model))
    assert bytes_of(tmp_path / "run" / "journal") < 20_000
    assert run.model.sites == SITES, "a site that says why it does not answer is asked again"
    with pytest.raises(TooFewSites) as caught:
        federate(tmp_path / "few", {(BAD, 2): entry}, min_sites=4)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2 * LONGEST


def test_what_an_honest_error_says_is_shown_as_it_is(tmp_path):
    told = "site 'nördlich' 北 🏥 was asked for a method it does not know."
    run = federate(tmp_path / "run", {(BAD, 2): record(error=told)})
    assert [each["reason"] for each in run.model.info["missing"]] == [told]


def test_a_reply_that_flower_itself_cannot_read_sets_its_site_aside(tmp_path):
    class Unreadable(Grid):
        def answer(self, site, message):
            if (site, message.record["exchange"]) == (BAD, 2):
                return {"is_readable": False}
            return super().answer(site, message)

    run = federate(tmp_path / "run", make_grid=Unreadable)
    (missing,) = run.model.info["missing"]
    assert (missing["site"], missing["exchange"]) == (BAD, 2)
    assert missing["reason"] == "set aside: its reply could not be read."


def test_seconds_may_be_left_out_and_may_be_whole(tmp_path):
    class Plain(Grid):
        def answer(self, site, message):
            kept = super().answer(site, message)["record"]
            return {"record": {**kept, "seconds": [] if site == BAD else [2] * len(kept["replies"])}}

    run = federate(tmp_path / "run", make_grid=Plain)
    assert run.model.info["missing"] == []
    assert {departed.seconds for departed in run.link.departures} == {0.0, 2.0}


def test_a_journal_with_seconds_that_are_no_numbers_is_refused_by_name(tmp_path):
    """An error of the file, not of the call."""
    federate(tmp_path / "run")
    path = tmp_path / "run" / "journal" / "00001.exchange"
    header, blobs = read_blobs(path)
    header["seconds"][BAD] = [float("nan")]
    write_blobs(path, header, blobs)
    with pytest.raises(CheckpointError, match=r"00001\.exchange"):
        federate(tmp_path / "run")


# --- answers that make the run impossible ---


def test_a_site_with_other_columns_stops_the_run_behind_the_exchange_and_again_when_it_is_resumed(tmp_path):
    from koncord.protocol import setup
    from koncord.protocol.wire import pack

    strange = setup.Moments(columns=("x", "z"), count=90, means=np.zeros(2), scatters=np.ones(2))
    lies = {(BAD, 1): record(replies=[pack(strange)], seconds=[])}
    for _ in range(2):
        with pytest.raises(ColumnsDiffer, match="The columns of site 'north'"):
            federate(tmp_path / "run", lies)
        assert FileJournal(tmp_path / "run" / "journal").n_kept == 1
