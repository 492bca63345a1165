"""What runs at a site: whatever of it is killed comes back, and no other user of the machine can use it."""

import json
import os
import re
import signal
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from network.federation import SITES, descendants

pytestmark = pytest.mark.network

METHOD = ("--aggregator", "kfed", "--clusters", "3", "--seed", "5")
NOBODY = 65534


def command_line(pid):
    """What every user of the machine can read of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:  # it ended meanwhile
        return ""


def programs_of(site):
    """The processes that a site's `koncord join` started, by their command lines."""
    return {command_line(pid): pid for pid in descendants(site.process.pid)}


def kind_of(line):
    return re.findall(r"flower-\w+|koncord\.network\.\w+", line)[0]


# --- killed ---


@pytest.mark.parametrize("kind", ["koncord.network.clientapp", "flower-supernode"])
def test_whatever_is_killed_at_a_site_the_next_run_has_its_answers(federation, kind):
    site = federation.joined["south"]
    programs = {kind_of(line): pid for line, pid in programs_of(site).items()}
    assert programs.keys() == {"koncord.network.clientapp", "flower-supernode"}, "all that join starts is killed here"
    n_joined = site.text.count("joined ")
    os.kill(programs[kind], signal.SIGKILL)
    site.wait_until(lambda: site.text.count("joined ") > n_joined, "joined again", 120)
    run = federation.run("--out", f"after-{kind}", "--min-sites", "3", *METHOD)
    assert run.end(120) == 0, run.text
    assert federation.model(f"after-{kind}").sites == SITES


def test_a_site_whose_answer_is_killed_is_missing_once_and_answers_the_next_run(federation):
    site = federation.joined["south"]
    n_joined = site.text.count("joined ")
    (client,) = (pid for line, pid in programs_of(site).items() if kind_of(line) == "koncord.network.clientapp")
    run = federation.run("--out", "answer-killed", "--min-sites", "2", *METHOD, "--json")
    run.wait_until(lambda: descendants(client), "made a site answer", 60)
    for copy in descendants(client):
        os.kill(copy, signal.SIGKILL)
    assert run.end(180) == 0, run.text
    missing = json.loads(run.text.splitlines()[-1])["info"]["missing"]
    assert {each["site"] for each in missing} == {"south"}
    site.wait_until(lambda: site.text.count("joined ") > n_joined, "joined again", 120)
    run = federation.run("--out", "after-answer-killed", "--min-sites", "3", *METHOD)
    assert run.end(120) == 0, run.text


# --- another user of the machine ---


def test_another_user_takes_no_task_of_a_site_and_speaks_for_none(federation):
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    site = federation.joined["north"]
    (line,) = (line for line in programs_of(site) if "flower-supernode" in line)
    port = int(re.findall(r"--port (\d+)", line)[0])
    (secret,) = re.findall(r"--superexec-auth-secret-file (\S+)", line)

    def attack():
        calls = ("acquire-task", "pull-task-input", "pull-messages", "push-messages", "pull-object", "push-task-output")
        try:
            Path(secret).read_bytes()
            is_readable = True
        except PermissionError:
            is_readable = False
        return {"secret": is_readable, **{call: status(port, f"/v1/runtime/{call}") for call in calls}}

    owner = attack()  # here first: another user may not read what Python has to load for it
    assert owner.pop("secret")
    told = as_nobody(attack)
    assert not told.pop("secret")
    assert set(told.values()) == set(owner.values()) == {401}, (told, owner)


def test_no_token_of_a_task_stands_in_a_command_line(federation):
    run = federation.run("--out", "watched", "--min-sites", "3", *METHOD)
    seen = set()
    while run.process.poll() is None:
        seen |= set().union(*(programs_of(site) for site in federation.joined.values()))
        time.sleep(0.02)
    assert run.end() == 0, run.text
    assert any("flower-supernode" in line for line in seen)
    assert not [line for line in seen if "--token" in line or re.search(r"[0-9a-f]{64}", line)]


def status(port, path):
    """Of a request without credentials to a SuperNode, by TLS or, where it speaks none, without."""
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    for scheme in ("https", "http"):
        request = urllib.request.Request(
            f"{scheme}://127.0.0.1:{port}{path}",
            data=b"",
            headers={"Content-Type": "application/protobuf"},
            method="POST",
        )
        try:
            return urllib.request.urlopen(request, context=unchecked, timeout=10).status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            continue
    return 0


def as_nobody(function):
    """What `function` returns in a process of another user, who may do nothing here."""
    reads, writes = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writes, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as answer:
        told = answer.read()
    os.waitpid(child, 0)
    return json.loads(told)
