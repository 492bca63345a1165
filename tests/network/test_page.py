"""The page to watch a coordinator by: a server of its own, seen by a real browser, that can change nothing."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import replace

import numpy as np
import pytest

from koncord.errors import KoncordError
from koncord.network import serving
from koncord.network.certificates import site_key
from koncord.network.places import Coordinator, RegisteredSite
from koncord.network.processes import Program, wait_until
from koncord.network.runstate import FINISHED, RUNNING, WAITING, RunState, driven_by_this, read_states, write_state
from koncord.network.serving import answers
from koncord.protocol.setup import Moments, Prepared
from network.ports import free_port

pytest.importorskip("fastapi")
from koncord.network.page import NO_TOKEN, label, token_of
from koncord.network.watch import budgets_in

CHROMIUM = shutil.which("chromium")
HOSTILE = "<script>document.title='stolen'</script>"


def state(run, **changes):
    made = RunState(
        run=run,
        identifier="0123456789abcdef",
        asked_by="jane",
        purpose=HOSTILE,
        aggregator="kfed",
        out="/nowhere",
        sites=("north", "south"),
        started=f"2026-11-16T10:00:0{run[-1]}+00:00",
    )
    return replace(made, **changes)


EXCHANGE = {"exchange": 1, "asked": ["Describe"], "answered": ["south"], "seconds": 1.25, "bytes": 1234}
ABSENCE = {"exchange": 1, "site": "north", "asked": "Describe", "reason": f"no answer {HOSTILE}"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    made = Coordinator(
        folder=folder / "c", hosts=("fed.example.org",), listen="*", port=free_port(), internal_port=free_port()
    )
    made.create()
    public = site_key()[1].decode()
    made.write_site(RegisteredSite(name="north", node=1, public=public, has_own_key=True))
    made.write_site(RegisteredSite(name="south", node=2, public=public, revoked="2026-11-16", reason=HOSTILE))
    made.note_seen({"north": "0.1"})
    out = folder / "out"
    out.mkdir()
    (out / "report.html").write_text("<p>the report of the run</p>")
    write_state(
        made.folder,
        state(
            "run-1",
            state=FINISHED,
            out=str(out),
            clusters=3,
            exchanges=(EXCHANGE,),
            missing=(ABSENCE,),
            budgets={"north": {"epsilon": 2.0, "delta": 1e-6}},
        ),
    )
    going = {
        "state": WAITING,
        "study": "stays",
        "asked": ("Survey",),
        "answered": ("south",),
        "awaited": ("north",),
        "owners": {"north": "its owner has not agreed to the run yet"},
    }
    spends = {"north": {"epsilon": 0.5, "delta": 1e-6}}
    write_state(made.folder, driven_by_this(state("run-2", budgets=spends, **going)))
    write_state(made.folder, replace(state("run-3", state=RUNNING), pid=2**22 + 1, pid_started="1"))
    return made


@pytest.fixture(scope="module")
def served(place):
    port = free_port()
    command = [sys.executable, "-m", "koncord.network.page", str(place.folder), "127.0.0.1", str(port)]
    program = Program("page", command, log=place.logs / "page.log", environment=os.environ)
    try:
        assert wait_until(lambda: program.has_ended or answers(port, "127.0.0.1"), 120)
        assert not program.has_ended, program.last_lines()
        yield f"http://127.0.0.1:{port}", token_of(place)
    finally:
        program.stop()


def get(served, path, token=None, method="GET"):
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(served[0] + path, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode(), response.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


def test_a_run_that_nobody_drives_any_more_is_stopped(place):
    states = {each.run: each for each in read_states(place.folder)}
    assert [each.state for each in states.values()] == ["stopped", WAITING, FINISHED]
    assert "go on with --resume" in states["run-3"].problem


@pytest.mark.parametrize("path", ["/", "/runs/run-1", "/runs/run-1/report", "/metrics", "/runs/x", "/?token=wrong"])
def test_without_the_token_nothing_is_shown(served, path):
    for token in (None, "", "wrong", served[1][:-1]):
        code, body, _ = get(served, path, token)
        assert (code, body) == (401, NO_TOKEN)


def test_with_it_sites_runs_and_their_exchanges_are(served):
    code, body, headers = get(served, "/", served[1])
    assert code == 200
    for word in ("north", "revoked", "run-1", "3 clusters", "waiting for north", "stopped", "fed.example.org"):
        assert word in body
    assert "answered: south<br>waiting for north" in body, "who has answered, and no owner twice"
    assert "study stays: kfed, asked by jane, 2026-11-16 10:00:02 UTC" in body
    assert "so far: 0 exchanges, 0 s, 0 bytes" in body
    assert "script-src" not in headers["Content-Security-Policy"]
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "<script" not in body
    body = get(served, "/runs/run-1", served[1])[1]
    assert "no answer &lt;script&gt;" in body
    assert "1,234" in body
    assert "none is over" in get(served, "/runs/run-2", served[1])[1]
    assert get(served, "/runs/run-1/report", served[1])[1] == "<p>the report of the run</p>"
    assert get(served, "/runs/run-2/report", served[1])[0] == 404
    assert get(served, "/runs/..%2f..%2fetc%2fpasswd", served[1])[0] == 404


def test_the_budget_that_runs_spend_is_shown(served):
    body = get(served, "/", served[1])[1]
    assert "budget: epsilon 2.5 in 2 runs" in body
    assert "budget: north epsilon 0.5, delta 1e-06" in body, "of the run that goes on"
    body = get(served, "/runs/run-1", served[1])[1]
    assert "<th>budget spent</th><td>north epsilon 2, delta 1e-06</td>" in body


def test_the_budget_of_a_site_is_read_from_its_first_reply():
    moments = {"columns": ("x",), "count": 20, "means": np.zeros(1), "scatters": np.ones(1)}
    budget = {"epsilon": 2.0, "delta": 1e-6, "bound": 5.0, "center": 0.0}
    replies = {"north": Moments(**moments, **budget), "south": Moments(**moments), "west": Prepared(local_k=2)}
    assert budgets_in([replies, {}]) == {"north": {"epsilon": 2.0, "delta": 1e-6}}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/", "/runs/run-1", "/metrics", "/health"])
def test_there_is_no_way_to_change_anything(served, method, path):
    assert get(served, path, served[1], method)[0] == 405


def test_machines_see_health_and_metrics(served):
    code, body, _ = get(served, "/health")
    assert (code, json.loads(body)) == (503, {"status": "Flower does not answer"}), "nobody serves here"
    code, body, headers = get(served, "/metrics", served[1])
    assert (code, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    values = dict(re.findall(r'^(koncord_[a-z_]+(?:\{[a-z]+="[^"]*"\})?) (\S+)$', body, re.MULTILINE))
    assert values["koncord_up"] == "0"
    assert values['koncord_runs{state="finished"}'] == values['koncord_runs{state="waiting"}'] == "1"
    assert values["koncord_received_bytes_total"] == "1234"
    assert values["koncord_absences_total"] == "1"
    assert label('a"b\n\\') == 'a\\"b\\n\\\\'


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_real_browser_shows_it_on_a_phone_and_runs_nothing_of_what_others_wrote(served, tmp_path):
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--window-size=390,844"]

    def browse(*words):
        return subprocess.run(
            [CHROMIUM, *options, *words], capture_output=True, text=True, timeout=180, check=True
        ).stdout

    dom = browse("--dump-dom", f"{served[0]}/?token={served[1]}")
    assert "<b>north</b>" in dom
    assert "waiting for north" in dom
    assert "<title>koncord: fed.example.org" in dom, "no script of a site's or an asker's was run"
    assert served[1] not in dom
    shot = tmp_path / "phone.png"
    browse(f"--screenshot={shot}", f"{served[0]}/?token={served[1]}")
    assert shot.stat().st_size > 5000


def test_a_page_that_ends_is_started_again_and_what_ends_else_ends_the_coordinator(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(serving, "PAGE_AGAIN", 0.05)
    monkeypatch.setattr(serving, "WATCH_EVERY", 0.05)
    place = Coordinator(
        folder=tmp_path, hosts=("localhost",), listen="127.0.0.1", port=1, internal_port=2, is_insecure=True
    )
    begun = tmp_path / "begun"
    page = "import sys, time; open(sys.argv[1], 'a').write('x'); time.sleep(60 * (len(open(sys.argv[1]).read()) > 1))"
    flower = (
        "import os, sys, time\n"
        "while not os.path.exists(sys.argv[1]) or len(open(sys.argv[1]).read()) < 2: time.sleep(.05)"
    )
    programs = [
        Program(name, [sys.executable, "-c", code, str(begun)], log=tmp_path / f"{name}.log", environment=os.environ)
        for name, code in (("Flower", flower), (serving.PAGE_PROGRAM, page))
    ]
    try:
        with pytest.raises(KoncordError, match="Flower has ended"):
            serving.Serving(programs, place).watch()
        assert begun.read_text() == "xx"
        assert not programs[1].has_ended, "the second one"
    finally:
        for program in programs:
            program.stop()
    assert "the page has ended" in capsys.readouterr().err
