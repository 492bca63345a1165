"""Certificates, invitations, programs and their configuration, each by itself."""

import json
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from koncord.errors import KoncordError
from koncord.network.begun import BegunRun
from koncord.network.certificates import certificate, site_key, write_authority
from koncord.network.flower.frames import as_frame, from_frame
from koncord.network.flower.programs import QUIET, environment
from koncord.network.places import Coordinator, Invitation, RegisteredSite, check_host, check_port, check_site_name
from koncord.network.processes import Program, start_time, wait_until
from koncord.network.proxy import nginx, write_config
from network.federation import Command, descendants, wait_gone
from network.ports import free_port

# --- certificates ---


def handshake(folder, trusted, host):
    """Whether a client that trusts `trusted` accepts the server of `folder` as `host`."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    client = ssl.create_default_context(cafile=str(trusted / "ca.crt"))
    one, two = socket.socketpair()

    def accept():
        try:
            with server.wrap_socket(one, server_side=True) as accepted:
                accepted.recv(1)
        except OSError:
            pass

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        with client.wrap_socket(two, server_hostname=host) as connected:
            connected.send(b"x")
        return True
    except ssl.SSLError:
        two.close()
        return False
    finally:
        thread.join()


def test_the_certificate_is_good_for_its_names_and_its_authority_alone(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_authority(tmp_path / name, ["fed.example.org", "10.1.2.3"])
    one, two = tmp_path / "one", tmp_path / "two"
    assert all(handshake(one, one, host) for host in ("fed.example.org", "10.1.2.3", "localhost", "127.0.0.1"))
    assert not handshake(one, one, "other.example.org")
    assert not handshake(one, two, "fed.example.org")
    assert {stat.S_IMODE((one / name).stat().st_mode) for name in ("ca.key", "server.key")} == {0o600}


def test_keys_of_sites_differ_and_are_what_flower_reads():
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

    private, public = site_key()
    assert load_ssh_private_key(private, None).public_key() == load_ssh_public_key(public)
    assert site_key()[0] != private


# --- folders and invitations ---


def test_an_invitation_is_private_and_comes_back_whole(tmp_path):
    invitation = Invitation(site="north", address="h:1", authority="ca", key="key")
    invitation.save(tmp_path / "x")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600
    assert Invitation.load(tmp_path / "x") == invitation
    for text in ("", "{}", "[1]", '{"format": "koncord-invite", "version": 1}', '{"format": "other", "version": 1}'):
        (tmp_path / "x").write_text(text)
        with pytest.raises(KoncordError, match="is not a koncord invitation"):
            Invitation.load(tmp_path / "x")


def test_a_coordinator_keeps_its_settings_and_its_sites(tmp_path):
    place = Coordinator(folder=tmp_path / "c", hosts=("::1", "b"), listen="*", port=1, internal_port=2)
    place.create()
    place.write_site(RegisteredSite(name="north", node=2**63 + 1))
    assert Coordinator.load(tmp_path / "c") == place
    assert place.sites() == {"north": 2**63 + 1}
    assert place.address == "[::1]:1"


@pytest.mark.parametrize("name", ["", ".x", "a/b", "a b", "x\n", "a" * 64, 'a"', "a;b", "$x"])
def test_names_that_are_not_safe_everywhere_are_refused(name):
    with pytest.raises(ValueError, match="The name of a site must be"):
        check_site_name(name)
    assert check_site_name("St.Mary-2_b") == "St.Mary-2_b"


@pytest.mark.parametrize("host", ["", "a b", "a;b", "x\n", "-a", "{x}", "a/b"])
def test_hosts_that_are_not_safe_in_a_configuration_are_refused(host):
    with pytest.raises(ValueError, match="--host must be a host name or an address"):
        check_host(host)
    assert check_host("fed.example.org") == "fed.example.org"
    assert check_host("0::1") == "::1"
    with pytest.raises(ValueError, match="--port must be from 1 to 65535; got 0"):
        check_port("--port", 0)


# --- without TLS ---


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--host", "fed.example.org"), "--host must be localhost, 127.0.0.1 or ::1; got fed.example.org."),
        (("--host", "localhost,10.1.2.3"), "--host must be localhost, 127.0.0.1 or ::1; got localhost, 10.1.2.3."),
        (("--host", "0.0.0.0"), "--host must be localhost, 127.0.0.1 or ::1; got 0.0.0.0."),
        (("--listen", "*"), "--listen must be localhost, 127.0.0.1 or ::1; got *."),
        (("--listen", "10.1.2.3"), "--listen must be localhost, 127.0.0.1 or ::1; got 10.1.2.3."),
        (("--internal-port", "18443"), "--internal-port does not go with --insecure"),
    ],
)
def test_insecure_is_refused_anywhere_but_on_this_machine(options, told, run, tmp_path):
    code, out, error = run("serve", "--folder", tmp_path / "c", "--insecure", *options)
    assert (code, out) == (2, "")
    assert told in error
    assert not (tmp_path / "c").exists()


def test_a_coordinator_is_insecure_or_not_from_its_first_start_on(run, tmp_path):
    place = Coordinator(folder=tmp_path / "c", hosts=("localhost",), listen="127.0.0.1", port=1, internal_port=2)
    place.create()
    assert "was made without --insecure" in run("serve", "--folder", tmp_path / "c", "--insecure")[2]
    place = replace(place, folder=tmp_path / "d", hosts=("10.1.2.3",), is_insecure=True)
    place.create()
    assert not list((tmp_path / "d").glob("*.key"))
    assert run("serve", "--folder", tmp_path / "d")[0] == 2, "settings that somebody changed open nothing"


def test_an_insecure_invitation_is_refused_unless_it_is_to_this_machine(run, tmp_path):
    for address in ("localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1"):
        invitation = Invitation(site="north", address=address, authority="", key="", is_insecure=True)
        invitation.save(tmp_path / "x")
        assert Invitation.load(tmp_path / "x") == invitation
    for address in ("fed.example.org:1", "10.1.2.3:1", "[2001:db8::1]:1", "localhost.example.org:1", "", ":1"):
        Invitation(site="north", address=address, authority="", key="", is_insecure=True).save(tmp_path / "x")
        code, _, error = run("join", "--invite", tmp_path / "x", "--data", tmp_path / "none.csv")
        assert code == 2
        assert f"is an invitation without encryption to {address}, which is not this machine" in error


# --- the proxy ---


def test_nginx_accepts_the_configuration(tmp_path):
    try:
        program = nginx()
    except KoncordError as error:
        pytest.skip(str(error))
    write_authority(tmp_path, ["localhost"])
    config = write_config(
        tmp_path / "n",
        listen="*",
        port=20443,
        internal_port=20444,
        certificates=tmp_path,
        internal=tmp_path,
        log=tmp_path / "log",
    )
    done = subprocess.run(
        [program, "-t", "-p", str(config.parent), "-c", str(config)], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_without_nginx_it_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(KoncordError, match="nginx is not installed; koncord serve needs it"):
        nginx()


# --- programs ---

GRANDCHILD = "import subprocess, sys, time; subprocess.Popen(['sleep', '300'], start_new_session=True); time.sleep(300)"


def test_a_program_is_stopped_with_all_it_started_even_in_other_sessions(tmp_path, capsys):
    program = Program("it", [sys.executable, "-c", GRANDCHILD], log=tmp_path / "log", environment=os.environ)
    assert wait_until(lambda: len(descendants(program.process.pid)) == 1, 20)
    family = {program.process.pid: start_time(program.process.pid), **descendants(program.process.pid)}
    program.stop()
    wait_gone(family)
    assert capsys.readouterr().err.startswith(f"starting it: {sys.executable} -c ")


def test_what_a_killed_program_left_in_other_sessions_is_stopped_too(tmp_path):
    program = Program("it", [sys.executable, "-c", GRANDCHILD], log=tmp_path / "log", environment=os.environ)
    assert wait_until(lambda: len(descendants(program.process.pid)) == 1, 20)
    left = descendants(program.process.pid)
    program.process.kill()
    assert wait_until(lambda: program.has_ended, 20)
    assert [pid for pid, started in left.items() if start_time(pid) == started], "it outlives the program"
    program.stop()
    wait_gone(left)


def test_a_program_that_ignores_being_asked_is_killed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("koncord.network.processes.STOP_WITHIN", 0.5)
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(300)"
    )
    program = Program("it", [sys.executable, "-c", stubborn], log=tmp_path / "log", environment=os.environ)
    assert wait_until(lambda: program.last_lines() == "1", 20)
    program.stop()
    assert program.has_ended
    assert "it does not end by itself: killed" in capsys.readouterr().err


def test_a_program_ends_when_its_owner_is_killed(tmp_path):
    code = (
        "import os, time; from pathlib import Path; from koncord.network.processes import Program; "
        f"p = Program('it', ['sleep', '300'], log=Path({str(tmp_path / 'log')!r}), environment=os.environ); "
        "print(p.process.pid, flush=True); time.sleep(300)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with owner:
        pid = int(owner.stdout.readline())
        family = {pid: start_time(pid)}
        owner.send_signal(signal.SIGKILL)
    wait_gone(family)


def test_the_environment_switches_everything_off_that_calls_home(tmp_path):
    variables = environment(tmp_path)
    assert variables.items() >= QUIET.items()
    assert QUIET["FLWR_TELEMETRY_ENABLED"] == "0"
    assert QUIET["FLWR_DISABLE_UPDATE_CHECK"] == QUIET["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert variables["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)


def test_a_frame_comes_back_as_it_was():
    blobs = {"a/0": b"", "b/1": bytes(range(256))}
    assert from_frame(as_frame({"n": 2**63 + 1}, blobs)) == ({"n": 2**63 + 1}, blobs)
    assert from_frame(as_frame({})) == ({}, {})


# --- certificates that have expired ---


@pytest.fixture
def expired(tmp_path, monkeypatch):
    """A coordinator's folder whose certificates expired yesterday."""
    place = Coordinator(
        folder=tmp_path / "c",
        hosts=("localhost",),
        listen="127.0.0.1",
        port=free_port(),
        internal_port=free_port(),
    )
    with monkeypatch.context() as patch:
        patch.setattr("koncord.network.certificates.VALID_FOR", timedelta(days=-1))
        patch.setattr("koncord.network.certificates.CLOCKS_DIFFER", timedelta(days=9))
        place.create()
    return place


def test_an_expired_certificate_is_reported_at_once_by_every_command(expired, run, tmp_path):
    invitation = Invitation(
        site="north", address="localhost:1", authority=expired.authority.read_text(), key=site_key()[0].decode()
    )
    invitation.save(tmp_path / "x")
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4\n")
    began = time.monotonic()
    for words, what in (
        (("serve", "--folder", expired.folder), "ca.crt"),
        (("run", "--folder", expired.folder, "--out", tmp_path / "run"), "ca.crt"),
        (("invite", "north", "--folder", expired.folder, "--out", tmp_path / "y"), "ca.crt"),
        (("join", "--invite", tmp_path / "x", "--data", tmp_path / "t.csv", "--state", tmp_path / "s"), "invitation"),
    ):
        code, out, error = run(*words)
        assert (code, out) == (1, ""), error
        assert re.search(rf"{what}.* expired on \d{{4}}-\d\d-\d\d", error), error
        assert error.rstrip("\n").rpartition("\n")[2].startswith("koncord: The certificate ")
    assert time.monotonic() - began < 20


def renewed(folder, *, expired):
    """The certificates of a folder made anew; those named have expired."""
    ends = {"authority": timedelta(days=9), "server": timedelta(days=9)} | dict.fromkeys(expired, timedelta(days=-1))
    lengths = iter(ends.values())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("koncord.network.certificates.CLOCKS_DIFFER", timedelta(days=30))

        def certificate_until(*names):
            patch.setattr("koncord.network.certificates.VALID_FOR", next(lengths))
            return certificate(*names)

        patch.setattr("koncord.network.certificates.certificate", certificate_until)
        write_authority(folder, ["localhost"])


def test_a_server_certificate_that_has_expired_under_a_valid_authority_is_reported_too(expired, run):
    renewed(expired.folder, expired=["server"])
    code, _, error = run("serve", "--folder", expired.folder)
    assert code == 1
    assert re.search(r"server\.crt' expired on \d", error)
    renewed(expired.folder, expired=[])
    expired.check_certificates()


def test_a_site_says_at_once_that_the_servers_certificate_has_expired(expired, tmp_path):
    """The server began when its certificate was valid, and still runs."""
    renewed(expired.folder, expired=["server"])
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(expired.folder / "server.crt", expired.folder / "server.key")
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse():
            while True:
                try:
                    server.wrap_socket(listening.accept()[0], server_side=True).close()
                except ssl.SSLError:
                    continue
                except OSError:
                    return

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        Invitation(
            site="north",
            address=f"localhost:{listening.getsockname()[1]}",
            authority=expired.authority.read_text(),
            key=site_key()[0].decode(),
        ).save(tmp_path / "x")
        (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4\n")
        join = Command(tmp_path, "join", "--invite", "x", "--data", "t.csv")
        join.wait_for("the coordinator's certificate has expired", 180)
        assert join.stop() == 0
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def begun_run(folder):
    folder.mkdir()
    begun = BegunRun(folder=folder, run="r", started="2026-01-01T00:00:00+00:00", sites=("north",), method={})
    begun.save()
    return begun


def test_a_begun_run_is_resumed_by_the_version_that_began_it(tmp_path):
    assert BegunRun.load((begun := begun_run(tmp_path / "run")).folder) == begun


def test_a_run_of_another_version_is_refused_with_a_way_out(tmp_path):
    path = begun_run(tmp_path / "run").folder / "resume.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "koncord": "0.0.7"}))
    said = r"begun with koncord 0\.0\.7, and this is .*\(pip install koncord==0\.0\.7\), or begin the run anew"
    with pytest.raises(KoncordError, match=said):
        BegunRun.load(path.parent)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"koncord": 5}', '"text"'])
def test_a_damaged_note_of_a_begun_run_is_an_error_that_names_the_file(tmp_path, text):
    path = begun_run(tmp_path / "run").folder / "resume.json"
    path.write_text(text)
    with pytest.raises(KoncordError, match="run"):
        BegunRun.load(path.parent)
