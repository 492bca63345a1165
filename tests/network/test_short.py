"""The short form: three sites over TLS give the model of one process; who is killed comes back, others stay out."""

import json
import os
import re
import resource
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import warnings
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from scipy.spatial.distance import cdist

from koncord.network.certificates import site_key, write_authority
from koncord.network.flower.programs import environment, program
from koncord.network.places import Invitation
from koncord.network.processes import die_with_parent
from koncord.network.proxy import CARRIES, FLEET
from network.federation import SITES, Command, assert_same_model, descendants, koncord, write_connection
from network.pace import PACE, waits

pytestmark = pytest.mark.network

METHOD = ("--aggregator", "kfed", "--clusters", "3", "--seed", "5")


@pytest.fixture
def finished(federation):
    """A finished run, with the addresses that any process of the federation was connected to meanwhile."""
    return federation.keep("finished", lambda: finish(federation))


def finish(federation):
    watch = Watch([federation.server, *federation.joined.values()])
    run = federation.run("--out", "short", "--min-sites", "3", *METHOD, "--json")
    watch.commands.append(run)
    with watch:
        assert run.end(120) == 0, run.text
    (federation.folder / "short.json").write_text(run.text.splitlines()[-1])
    return federation, run, watch


class Watch(threading.Thread):
    """Collects the remote addresses of all TCP sockets of some commands and all that they start."""

    def __init__(self, commands):
        super().__init__(daemon=True)
        self.commands, self.remote, self.is_over = list(commands), set(), False

    def run(self):
        while not self.is_over:
            for command in self.commands:
                for pid in (command.process.pid, *descendants(command.process.pid)):
                    self.remote |= remote_addresses(pid)
            time.sleep(0.2)

    def __enter__(self):
        self.start()

    def __exit__(self, *_):
        self.is_over = True
        self.join()


def remote_addresses(pid):
    """Where a process is connected to, from what Linux tells of its sockets."""
    found = set()
    try:
        inodes = {
            re.findall(r"\d+", str(fd.readlink()))[0] for fd in Path(f"/proc/{pid}/fd").iterdir() if is_socket(fd)
        }
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[9] in inodes and fields[2].rpartition(":")[2] != "0000":
                    found.add(fields[2].rpartition(":")[0])
    except OSError:  # it ended meanwhile
        pass
    return found


def is_socket(fd):
    try:
        return str(fd.readlink()).startswith("socket:")
    except OSError:
        return False


def test_the_model_is_that_of_one_process_to_the_last_bit(finished):
    federation, run, _ = finished
    assert_same_model(federation.model("short"), federation.in_process("short-fit", *METHOD))
    for site in SITES:
        expected = (federation.folder / "short-fit" / "labels" / f"{site}.csv").read_text()
        assert federation.labels(site, "short.json") == expected
    assert "exchange 4: Attribute: north, south, west" in run.text
    page = (federation.folder / "short" / "report.html").read_text()
    assert "The labels of the rows are at the sites, a file each" in page
    assert "the folder of the run holds one file of labels" not in page


def test_a_finished_run_keeps_no_journal_and_cannot_be_resumed(finished):
    federation, _, _ = finished
    assert {path.name for path in (federation.folder / "short").iterdir()} == {
        "model.koncord",
        "run.json",
        "report.html",
    }
    told = koncord(federation.folder, "run", "--folder", "coordinator", "--out", "short", "--resume", code=1)
    assert "is finished; there is nothing to resume" in told


def test_every_process_spoke_to_this_machine_only(finished):
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert finished[2].remote, "no connection was seen at all"
    assert finished[2].remote <= loopback


def test_each_site_has_a_ledger_of_what_left(finished):
    federation, _, _ = finished
    lines = (federation.folder / "state-north" / "north.ledger.jsonl").read_text().splitlines()
    run = json.loads((federation.folder / "short.json").read_text())["run"]
    left = [json.loads(line)["message"] for line in lines if json.loads(line)["run"] == run]
    assert left == ["setup.Sketch", "setup.Measured", "setup.Prepared", "kfed.LocalCenters", "setup.Holdings"]


def test_keys_and_folders_are_their_owners_alone(federation):
    private = [
        *(federation.folder / f"{site}.invite" for site in SITES),
        *(federation.folder / f"state-{site}" / "key" for site in SITES),
        federation.folder / "coordinator" / "ca.key",
        federation.folder / "coordinator" / "server.key",
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    folders = [federation.folder / "coordinator", *(federation.folder / f"state-{site}" for site in SITES)]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}


# --- who does not get in ---


def post(federation, path, data=b"", **headers):
    """The status of a request to the public port."""
    trusted = ssl.create_default_context(cafile=str(federation.folder / "coordinator" / "ca.crt"))
    request = urllib.request.Request(
        f"https://localhost:{federation.ports[0]}{path}", data=data, headers=headers, method="POST"
    )
    try:
        return urllib.request.urlopen(request, context=trusted, timeout=10).status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/register-node",
        "/v1/control/start-run",
        "/v1/control/list-nodes",
        "/v1/control/stream-logs",
        "/v1/runtime/acquire-task",
        "/v1/runtime/pull-messages",
        "/v1/fleet/register-node",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "//v1/control/start-run",
        "/v1/fleet/pull-messages/../../control/start-run",
        "/docs",
        "/",
    ],
)
def test_only_what_a_site_needs_is_reachable_from_outside(federation, path):
    assert post(federation, path, **{"Content-Type": "application/protobuf"}) == 403


@pytest.mark.parametrize("path", [*FLEET, CARRIES])
def test_without_a_registered_key_even_that_refuses(federation, path):
    assert post(federation, f"/v1/fleet/{path}", **{"Content-Type": "application/protobuf"}) in (
        400,
        401,
        403,
        415,
        422,
    )


def announced(federation, path, n_bytes):
    """The status of a call that says how many bytes it will send, before it sends any."""
    trusted = ssl.create_default_context(cafile=str(federation.folder / "coordinator" / "ca.crt"))
    with (
        socket.create_connection(("localhost", federation.ports[0]), timeout=30) as plain,
        trusted.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        head = f"POST /v1/fleet/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {n_bytes}\r\n\r\n"
        connection.sendall(head.encode())
        return int(connection.recv(100).split()[1])


def test_a_large_body_from_nobody_is_refused_at_the_door(federation):
    """Flower would read it, in seconds and with seven times its size of memory, before it looks for a key."""
    assert announced(federation, CARRIES, 60_000_000) == 413
    assert [announced(federation, path, 300_000) for path in FLEET] == [413] * len(FLEET)
    kind = {"Content-Type": "application/protobuf"}
    assert post(federation, f"/v1/fleet/{CARRIES}", bytes(300_000), **kind) in (400, 401)


def test_large_bodies_from_one_address_wait_their_turn(federation):
    """Those that a site may send: four at a time reach Flower, the others are turned away."""
    trusted = ssl.create_default_context(cafile=str(federation.folder / "coordinator" / "ca.crt"))
    head = f"POST /v1/fleet/{CARRIES} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000000\r\n\r\n".encode()
    with ExitStack() as held:
        senders = []
        for _ in range(12):
            plain = held.enter_context(socket.create_connection(("localhost", federation.ports[0]), timeout=60))
            senders.append(held.enter_context(trusted.wrap_socket(plain, server_hostname="localhost")))
            senders[-1].sendall(head)  # the body does not come: nginx waits 30 s for it
        answers, until = {}, time.monotonic() + 25
        while len(answers) < 8 and time.monotonic() < until:
            for at, sender in enumerate(senders):
                sender.settimeout(0.1)
                with suppress(TimeoutError):
                    if at not in answers:
                        answers[at] = sender.recv(12)
        assert list(answers.values()) == [b"HTTP/1.1 429"] * 8


def test_with_a_sites_credentials_nobody_registers_a_key_or_starts_a_run(federation, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    invitation = Invitation.load(federation.folder / "north.invite")
    (tmp_path / "ca.crt").write_text(invitation.authority)
    (tmp_path / "key.pub").write_bytes(site_key()[1])
    write_connection(home, port=federation.ports[0], authority=tmp_path / "ca.crt")
    for words in (("supernode", "register", str(tmp_path / "key.pub"), "koncord"), ("list", "koncord")):
        done = subprocess.run(
            [program("flwr"), *words], env=environment(home), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode != 0, done.stdout


def test_plain_http_is_refused(federation):
    with socket.create_connection(("localhost", federation.ports[0]), timeout=10) as plain:
        plain.sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        assert plain.recv(100).startswith(b"HTTP/1.1 400")


def old_client(version):
    """A client of one version of TLS that takes any certificate and any cipher."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = context.maximum_version = version
    return context


def test_old_versions_of_tls_are_refused(federation):
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2):
        with socket.create_connection(("localhost", federation.ports[0]), timeout=10) as plain:
            if version is ssl.TLSVersion.TLSv1_2:
                with old_client(version).wrap_socket(plain) as encrypted:
                    assert encrypted.version() == "TLSv1.2"
            else:
                with pytest.raises(ssl.SSLError):
                    old_client(version).wrap_socket(plain)


def test_idle_connections_of_nobody_keep_no_site_out(federation):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with ExitStack() as held:
            for _ in range(1_100):
                held.enter_context(socket.create_connection(("localhost", federation.ports[0]), timeout=10))
            kind = {"Content-Type": "application/protobuf"}
            assert post(federation, "/v1/fleet/pull-messages", **kind) in (400, 401)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_one_invitation_at_two_machines_is_one_site(federation, tmp_path):
    """Which of them answers is not left to chance: the second is refused as long as the first is there."""
    assert "another koncord join is connected with it" in refused(federation, tmp_path)
    assert federation.joined["north"].is_joined


def refused(federation, tmp_path, variables=None, **changes):
    """What join says with a changed invitation, until it has been refused once."""
    content = json.loads((federation.folder / "north.invite").read_text()) | changes
    (tmp_path / "forged.invite").write_text(json.dumps(content))
    words = ("join", "--invite", "forged.invite", "--data", federation.folder / "north.csv")
    command = Command(tmp_path, *words, variables=variables)
    command.wait_for("does not take this site now")
    assert command.stop() == 0
    assert "joined" not in command.text
    return command.text


def test_an_unregistered_key_is_refused(federation, tmp_path):
    assert "it does not know this site's key" in refused(federation, tmp_path, key=site_key()[0].decode())


def test_a_server_of_another_authority_is_refused(federation, tmp_path):
    write_authority(tmp_path, ["localhost"])
    told = refused(federation, tmp_path, authority=(tmp_path / "ca.crt").read_text())
    assert "its certificate is not of the authority of the invitation" in told


WRONG_CLOCK = """\
import time
right = time.time
time.time = lambda: right() + {seconds}
"""


@pytest.mark.parametrize(("seconds", "told"), [(30, "s ahead of"), (-400, "s behind")])
def test_a_site_whose_clock_is_wrong_is_reported_to_look_at_it(federation, tmp_path, seconds, told):
    (tmp_path / "sitecustomize.py").write_text(WRONG_CLOCK.format(seconds=seconds))
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    said = refused(federation, tmp_path, {"PYTHONPATH": path})
    assert re.search(rf"check that this machine's clock is right: it is \d+ {told} the coordinator's", said)


def test_one_name_is_invited_once_and_only_a_safe_one(federation):
    invite = ("invite", "--folder", "coordinator")
    assert "is registered already" in koncord(federation.folder, *invite, "North", "--out", "again", code=2)
    for name in ("../up", "a b", 'x"', "", "-x", "a\nb", "ä"):
        assert "The name of a site must be" in koncord(federation.folder, *invite, "--", name, code=2)


def test_a_second_coordinator_on_the_same_ports_and_a_second_join_of_one_state_are_refused(federation):
    told = koncord(federation.folder, "serve", "--folder", "coordinator", code=1)
    assert "koncord serve runs already in" in told
    told = koncord(federation.folder, "serve", "--folder", "second", "--port", federation.ports[0], code=1)
    assert f"Port {federation.ports[0]} of this machine is in use" in told
    assert not (federation.folder / "second").exists(), "another --port can be given the next time"
    words = ("join", "--invite", "south.invite", "--data", "south.csv", "--state", "state-north", "--min-report", "1")
    state = federation.folder / "state-north"
    before = {name: (state / name).read_bytes() for name in ("site.json", "table.npy", "key", "ca.crt")}
    assert "Another koncord join uses the state folder" in koncord(federation.folder, *words, code=1)
    assert {name: (state / name).read_bytes() for name in before} == before


def test_a_program_sent_by_the_coordinator_is_not_run_at_a_site(federation, tmp_path):
    app = tmp_path / "app"
    (app / "foreign").mkdir(parents=True)
    marker = tmp_path / "was-run"
    (app / "pyproject.toml").write_text(
        '[project]\nname = "foreign"\nversion = "1.0.0"\ndependencies = []\n[tool.flwr.app]\npublisher = "x"\n'
        '[tool.flwr.app.components]\nserverapp = "foreign.server:app"\nclientapp = "foreign.client:app"\n'
        '[tool.flwr.app.config]\nout = ""\n'
    )
    (app / "foreign" / "__init__.py").write_text("")
    (app / "foreign" / "client.py").write_text(
        f"from pathlib import Path\nPath({str(marker)!r}).touch()\nfrom flwr.clientapp import ClientApp\n"
        "app = ClientApp()\n@app.query('exchange')\ndef steal(message, context):\n    raise RuntimeError('ran')\n"
    )
    (app / "foreign" / "server.py").write_text(
        "import json, time\nfrom pathlib import Path\nfrom flwr.app import ConfigRecord, Message, RecordDict\n"
        "from flwr.serverapp import ServerApp\napp = ServerApp()\n@app.main()\ndef main(grid, context):\n"
        "    nodes = list(grid.get_node_ids())\n"
        "    record = ConfigRecord({'run': 'x', 'exchange': 1, 'method': '{}', 'messages': [b'']})\n"
        "    asked = [Message(RecordDict({'koncord': record}), node, 'query.exchange') for node in nodes]\n"
        "    got = grid.send_and_receive(asked, timeout=60)\n"
        "    told = [str(m.error.reason if m.has_error() else dict(m.content['koncord'])) for m in got]\n"
        "    Path(context.run_config['out']).write_text(json.dumps(told))\n"
    )
    out = tmp_path / "out.json"
    home = tmp_path / "flower"
    home.mkdir()
    authority = federation.folder / "coordinator" / "internal" / "ca.crt"
    write_connection(home, port=federation.ports[1], authority=authority)
    subprocess.run(
        [program("flwr"), "run", str(app), "koncord", "--run-config", f'out="{out}"'],
        env=environment(home),
        check=True,
        capture_output=True,
        timeout=120,
    )
    # koncord serve starts no program of a run: one who wants that has to do it himself.
    where = ("--runtime-api-address", f"127.0.0.1:{federation.ports[1]}", "--root-certificates", str(authority))
    starter = subprocess.Popen(
        [program("flower-superexec"), *where],
        env=environment(home),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=die_with_parent,
    )
    try:
        end = time.monotonic() + PACE.limit(120)
        while not out.exists() and time.monotonic() < end:
            time.sleep(0.5)
    finally:
        starter.terminate()
        starter.wait()
    told = json.loads(out.read_text())
    assert len(told) == 3
    assert all("was asked for a method it does not know" in each for each in told), told
    assert not marker.exists()


def test_the_dry_run_sends_nothing_and_tells_every_field(federation):
    words = ("join", "--invite", "north.invite", "--data", "north.csv", "--dry-run", "--json", *METHOD)
    before = (federation.folder / "state-north" / "north.ledger.jsonl").read_text()
    sent = json.loads(koncord(federation.folder, *words))["sent"]
    fields = [(row["exchange"], row["message"], row["field"]) for row in sent]
    assert fields[:2] == [(1, "Sketch", "columns"), (1, "Sketch", "count")]
    assert (3, "LocalCenters", "centers") in fields
    assert fields[-1] == (4, "Holdings", "scored")
    assert (federation.folder / "state-north" / "north.ledger.jsonl").read_text() == before


def test_koncord_works_where_flower_is_not_installed():
    code = (
        "import sys; sys.modules['flwr'] = None; import koncord.cli as c; "
        "sys.exit(c.main(['serve', '--help']) or c.main(['run', '--help']))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False).returncode == 0


# --- what breaks ---


def test_a_run_goes_on_without_a_site_that_is_killed(federation):
    limits = (*waits("--first-timeout", 10), *waits("--round-timeout", 10))
    run = federation.run("--out", "without-south", "--min-sites", "2", *limits, *METHOD, "--json")
    run.wait_for("exchange 1: ")
    federation.joined["south"].kill()
    federation.join("south")  # it is back at once, and answers unless the exchange was over
    assert run.end(180) == 0, run.text
    missing = json.loads(run.text.splitlines()[-1])["info"]["missing"]
    assert {each["site"] for each in missing} <= {"south"}
    assert set(federation.model("without-south").sites) - {"south"} == {"north", "west"}


RUBBISH = """\
import sys
if "join" in sys.orig_argv:
    from koncord.network import sitefolder
    from koncord.network.sitefolder import answer
    def rubbish(folder, run, exchange, method, messages, **word):
        answer(folder, run, exchange, method, messages, **word)
        return sitefolder.Reply([b"\\xff" * 99] * len(messages), [])
    sitefolder.answer = rubbish
"""


def test_a_site_that_sends_rubbish_is_set_aside_and_the_others_go_on(federation, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(RUBBISH)
    assert federation.joined["west"].stop() == 0
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    federation.join("west", variables={"PYTHONPATH": path})
    federation.joined["west"].wait_joined()
    run = federation.run("--out", "rubbish", "--sites", "north,west", "--min-sites", "1", *METHOD, "--json")
    assert run.end(180) == 0, run.text
    (missing,) = json.loads(run.text.splitlines()[-1])["info"]["missing"]
    assert (missing["site"], missing["exchange"]) == ("west", 1)
    assert missing["reason"] == "set aside: the bytes are not a koncord message."
    ours, theirs = federation.model("rubbish"), federation.in_process("only-north", *METHOD, sites=("north",))
    # Not to the bit, nor in this order: north has answered runs on another scale before, which its partition keeps.
    gaps = cdist(ours.centers, theirs.centers)
    assert sorted(gaps.argmin(axis=1)) == list(range(len(theirs.centers)))
    assert gaps.min(axis=1).max() < 0.5
    assert ours.holdings.sum() == theirs.holdings.sum()
    assert federation.joined["west"].stop() == 0
    federation.join("west")


def test_a_run_killed_with_its_flower_is_resumed_to_the_model_of_an_undisturbed_run(finished):
    federation, _, _ = finished
    run = federation.run("--out", "killed", "--min-sites", "3", *METHOD).wait_for("exchange 1: ")
    assert "connected: north, south, west; away: nobody" in run.text, "who was killed or set aside is back"
    run.kill()
    federation.kill_superlink()
    assert federation.server.end() == 1
    assert "Flower was killed (signal 9)" in federation.server.text
    federation.serve()
    for _ in range(3):  # a site that Flower has not heard of again yet may be missing: the run stops and can go on
        run = federation.run("--out", "killed", "--resume", "--min-sites", "3")
        if run.end(180) == 0:
            break
        assert "go on with: koncord run --out killed --resume" in run.text.lower()
    assert run.end(1) == 0, run.text
    assert_same_model(federation.model("killed"), federation.model("short"))
