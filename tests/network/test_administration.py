"""What an administrator does while a federation runs: real processes, real keys, real waiting."""

import json
import re
import ssl
import time
from importlib.metadata import version

import numpy as np
import pytest

from network.federation import Command, koncord
from network.pace import PACE, waits

pytestmark = pytest.mark.network

LONG = ("--aggregator", "fedkmeans", "--clusters", "3", "--seed", "5")
SHORT = ("--aggregator", "kfed", "--clusters", "3", "--seed", "5")
OWN = ("--folder", "coordinator")


def as_json(federation, *words):
    return json.loads(koncord(federation.folder, *words, "--json"))


def test_a_key_made_at_the_site_joins_and_its_ledger_lists_what_left(federation):
    folder = federation.folder
    made = as_json(federation, "request", "east")
    np.savetxt(folder / "east.csv", np.loadtxt(folder / "north.csv", delimiter=",", skiprows=1), delimiter=",")
    header = (folder / "north.csv").read_text().splitlines()[0]
    (folder / "east.csv").write_text(header + "\n" + (folder / "east.csv").read_text())
    told = as_json(federation, "invite", "east.request", "--fingerprint", made["fingerprint"], *OWN)
    assert told["has_own_key"]
    assert "PRIVATE KEY" not in (folder / "east.invite").read_text()
    words = ("join", "--invite", "east.invite", "--key", "east.key", "--data", "east.csv", "--state", "state-east")
    east = Command(folder, *words, name="join-east").wait_joined()
    run = federation.run("--out", "keys", "--sites", "east,north", "--min-sites", "2", *SHORT)
    assert run.end(180) == 0, run.text
    assert "this site's key" not in east.text
    sent = json.loads((folder / "keys" / "run.json").read_text())["departures"]
    for site in ("east", "north"):
        noted = [each["bytes"] for each in as_json(federation, "ledger", f"state-{site}")["messages"]]
        own = [each["n_bytes"] for each in sent if each["site"] == site]
        assert noted[-len(own) :] == own
    rows = {row["name"]: row for row in as_json(federation, "sites", *OWN)["sites"]}
    assert (rows["east"]["state"], rows["east"]["key_made"]) == ("connected", "at the site")
    assert rows["east"]["fingerprint"] == made["fingerprint"]
    assert rows["east"]["version"] == version("koncord")
    assert rows["north"]["key_made"] == "by the coordinator"
    koncord(folder, "revoke", "east", *OWN)


def test_a_revoked_site_is_refused_within_one_exchange_and_the_run_goes_on(federation):
    run = federation.run("--out", "revoked", "--min-sites", "2", *waits("--round-timeout", 20), *LONG, "--json")
    run.wait_for("exchange 2: ")
    koncord(federation.folder, "revoke", "west", "--reason", "laptop lost", *OWN)
    n_when = len(re.findall(r"^exchange \d+: ", run.text, re.MULTILINE))
    assert run.end(300) == 0, run.text
    missing = json.loads(run.text.splitlines()[-1])["info"]["missing"]
    first = min(each["exchange"] for each in missing)
    assert first <= n_when + 1
    assert {each["site"] for each in missing} == {"west"}
    assert missing[0]["reason"] == "its key was revoked"
    west = federation.joined["west"].wait_for("this site's key")
    assert not west.is_joined
    row = next(row for row in as_json(federation, "sites", *OWN)["sites"] if row["name"] == "west")
    assert (row["state"], row["reason"]) == ("revoked", "laptop lost")
    assert "was revoked on" in koncord(federation.folder, "revoke", "west", *OWN, code=2)
    state = as_json(federation, "runs", json.loads(run.text.splitlines()[-1])["run"], *OWN)
    assert (state["state"], state["n_exchanges"]) == ("finished", 13)
    assert {each["site"] for each in state["missing"]} == {"west"}
    # The same name with a new key, made at the site this time; the old key stays out.
    assert west.stop() == 0
    koncord(federation.folder, "request", "west")
    (federation.folder / "west.invite").unlink()
    koncord(federation.folder, "invite", "west.request", *OWN)
    federation.join("west").joined["west"].wait_joined()


def serial(federation):
    """Of the certificate that sites see now."""
    import socket

    from cryptography import x509

    context = ssl.create_default_context()  # whoever signed it: that is what changes
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("localhost", federation.ports[0]), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        return x509.load_der_x509_certificate(connection.getpeercert(binary_form=True)).serial_number


def wait_new_serial(federation, before):
    end = time.monotonic() + PACE.limit(30)
    while serial(federation) == before:
        assert time.monotonic() < end
        time.sleep(0.3)


def test_certificates_are_renewed_while_sites_stay_joined_and_a_run_goes_on(federation):
    before = serial(federation)
    run = federation.run("--out", "renewed", "--min-sites", "3", *LONG).wait_for("exchange 2: ")
    koncord(federation.folder, "renew", *OWN)
    wait_new_serial(federation, before)
    assert run.end(180) == 0, run.text
    assert "missing" not in run.text
    # The authority, with a time in which both are trusted: a site that connects learns of the next one.
    koncord(federation.folder, "renew", "--authority", *OWN)
    for site in federation.sites:
        assert federation.joined[site].stop() == 0
    federation.join().wait_joined()
    assert all("a new certificate authority" in site.text for site in federation.joined.values())
    before = serial(federation)
    koncord(federation.folder, "renew", "--switch", "--anyway", *OWN)
    wait_new_serial(federation, before)
    run = federation.run("--out", "switched", "--min-sites", "3", *SHORT)
    assert run.end(180) == 0, run.text
    # Joined anew with the invitation of before, a site still trusts what it has learned.
    assert federation.joined["south"].stop() == 0
    federation.join("south").joined["south"].wait_joined()
