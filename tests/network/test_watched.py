"""What runs at a site: whatever of it is killed comes back, and no other user of the machine can use it."""

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from koncord.network.processes import command_line
from network.federation import SITES, assert_same_model, descendants

pytestmark = pytest.mark.network

METHOD = ("--aggregator", "kfed", "--clusters", "3", "--seed", "5")
MOST_MEMORY = 300  # megabytes of a site, all its processes together


def memory(pid):
    """Megabytes of a process that it shares with no other, or its part of those that it does."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:  # it ended meanwhile
        return 0.0
    return int(re.findall(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)[0]) / 1024


# --- killed ---


def test_a_site_that_is_killed_and_started_again_is_taken_at_once(federation):
    federation.joined["south"].kill()
    began = time.monotonic()
    federation.join("south").joined["south"].wait_joined()
    assert "next try in" not in federation.joined["south"].text
    run = federation.run("--out", "after-kill", "--min-sites", "3", *METHOD)
    assert run.end(120) == 0, run.text
    assert federation.model("after-kill").sites == SITES
    assert time.monotonic() - began < 120


def test_a_site_whose_answer_is_killed_says_so_and_answers_once_more(federation):
    site = federation.joined["south"]
    run = federation.run("--out", "answer-killed", "--min-sites", "2", *METHOD, "--json")
    site.wait_until(lambda: descendants(site.process.pid), "made an answer", 60)
    for copy in descendants(site.process.pid):
        os.kill(copy, signal.SIGKILL)
    assert run.end(180) == 0, run.text
    assert "the process that answered a message ended with -9" in site.text
    assert "it is answered once more" in site.text
    assert json.loads(run.text.splitlines()[-1])["info"]["missing"] == []
    assert_same_model(federation.model("answer-killed"), federation.model("measured"))


# --- what others see, and what it costs ---


def test_a_site_is_at_most_two_processes_without_a_port_or_a_secret_in_a_command_line(federation):
    run = federation.run("--out", "watched", "--min-sites", "3", *METHOD)
    seen, most, largest = set(), 0, 0.0
    while run.process.poll() is None:
        for site in federation.joined.values():
            own = (site.process.pid, *descendants(site.process.pid))
            most, largest = max(most, len(own)), max(largest, sum(map(memory, own)))
            seen |= {command_line(pid) for pid in own} - {""}
            assert not any(listens(pid) for pid in own)
        time.sleep(0.02)
    assert run.end() == 0, run.text
    assert most == 2, "the site itself, and the copy that answers"
    assert largest < MOST_MEMORY
    assert {re.sub(r".*(koncord join).*", r"\1", line) for line in seen} == {"koncord join"}
    assert not [line for line in seen if "--token" in line or re.search(r"[0-9a-f]{64}", line)]


def listens(pid):
    """Whether a process has a TCP port that others can connect to."""
    try:
        links = {str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}
        tables = [Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:] for table in ("tcp", "tcp6")]
    except OSError:  # it ended meanwhile
        return False
    rows = [line.split() for table in tables for line in table]
    return any(f"socket:[{row[9]}]" in links for row in rows if row[3] == "0A")
