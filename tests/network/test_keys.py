"""A site's key is made at the site and stays there; what leaves can be checked by whoever has its public half."""

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import numpy as np
import pytest

from koncord.cli import main
from koncord.errors import KoncordError
from koncord.network.certificates import (
    ANNOUNCEMENT,
    announce_authority,
    announced,
    certificates_in,
    fingerprint,
    is_signed,
    public_half,
    signed,
    site_key,
    switch_authority,
    valid_until,
    write_authority,
    write_server,
)
from koncord.network.places import Coordinator, Invitation, RegisteredSite, Request
from koncord.network.sitefolder import trust
from network.ports import free_port


@pytest.fixture
def requested(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["request", "north", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_request_holds_the_public_half_of_a_key_that_only_its_owner_reads(requested, capsys):
    key = Path("north.key")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    text = Path("north.request").read_text()
    body = "".join(key.read_text().splitlines()[1:-1])
    assert not any(body[at : at + 40] in text for at in range(0, len(body) - 40, 10))
    request = Request.load(Path("north.request"))
    assert request.public.encode() == public_half(key.read_bytes())
    assert request.fingerprint == requested["fingerprint"]
    assert main(["request", "north"]) == 2
    assert "is there already" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_the_fingerprint_is_the_one_that_ssh_keygen_prints(requested):
    Path("x.pub").write_text(Request.load(Path("north.request")).public)
    printed = subprocess.run(["ssh-keygen", "-l", "-f", "x.pub"], capture_output=True, text=True, check=True).stdout
    assert printed.split()[1] == requested["fingerprint"]


def test_a_request_that_was_changed_on_its_way_is_refused(requested):
    content = json.loads(Path("north.request").read_text())
    for name, value in {"site": "south", "koncord": "9", "public": site_key()[1].decode()}.items():
        Path("bad.request").write_text(json.dumps(content | {name: value}))
        with pytest.raises(KoncordError, match="was not signed with the key in it"):
            Request.load(Path("bad.request"))
    for changed in ({"public": "ssh-rsa x"}, {"signature": "x"}, {"site": 3}, {"format": "x"}):
        Path("bad.request").write_text(json.dumps(content | changed))
        with pytest.raises(KoncordError):
            Request.load(Path("bad.request"))


def test_a_fingerprint_that_is_not_the_one_read_over_the_telephone_is_refused(requested, capsys):
    other = fingerprint(site_key()[1])
    assert main(["invite", "north.request", "--fingerprint", other]) == 2
    assert "it is not the key of the site that you spoke with" in capsys.readouterr().err
    assert main(["invite", "north", "--fingerprint", other]) == 2


def test_an_invitation_without_a_key_takes_the_one_that_was_registered_and_no_other(requested, tmp_path, capsys):
    np.savetxt("t.csv", np.ones((3, 2)), delimiter=",", header="a,b", comments="")
    Invitation(site="north", address="localhost:1", authority="ca", fingerprint=requested["fingerprint"]).save(
        tmp_path / "north.invite"
    )
    words = ["join", "--invite", "north.invite", "--data", "t.csv", "--patience", "0.1"]
    assert main(words) == 1  # nobody answers, but the key was found beside the invitation
    assert Path("koncord-site-north/key").read_bytes() == Path("north.key").read_bytes()
    Path("other.key").write_bytes(site_key()[0])
    capsys.readouterr()
    assert main([*words, "--key", "other.key"]) == 2
    assert f"the coordinator has registered {requested['fingerprint']}" in capsys.readouterr().err
    Path("north.key").rename("kept.key")
    assert main(words) == 1, "the state folder has it"
    assert main([*words, "--state", "new"]) == 2
    assert "name it by --key FILE" in capsys.readouterr().err
    assert main([*words, "--state", "new", "--key", "t.csv"]) == 2


def test_signatures_are_of_one_key_and_one_text():
    private, public = site_key()
    signature = signed(private, b"text")
    assert is_signed(public, b"text", signature)
    assert not is_signed(public, b"other", signature)
    assert not is_signed(site_key()[1], b"text", signature)
    assert not is_signed(public, b"text", b"rubbish")


# --- certificates that are renewed ---


def test_a_new_server_certificate_is_of_the_same_authority(tmp_path):
    write_authority(tmp_path, ["fed.example.org"])
    before = (tmp_path / "server.crt").read_bytes()
    write_server(tmp_path, ["fed.example.org"])
    assert (tmp_path / "server.crt").read_bytes() != before
    (authority,) = certificates_in(tmp_path / "ca.crt")
    (server,) = certificates_in(tmp_path / "server.crt")
    server.verify_directly_issued_by(authority)
    assert valid_until(tmp_path / "server.crt").year >= 2036


def test_a_site_learns_a_new_authority_from_the_one_it_trusts_and_from_nobody_else(tmp_path):
    ours, other = tmp_path / "ours", tmp_path / "other"
    for folder in (ours, other):
        folder.mkdir()
        write_authority(folder, ["localhost"])
    invitation = Invitation(site="n", address="h:1", authority=(ours / "ca.crt").read_text(), key="x")
    site = tmp_path / "site"
    site.mkdir()
    trust(site, invitation)
    announce_authority(ours)
    announce_authority(other)
    assert announced((other / ANNOUNCEMENT).read_bytes(), site / "ca.crt") is None
    forged = json.loads((other / ANNOUNCEMENT).read_text())
    forged["signature"] = json.loads((ours / ANNOUNCEMENT).read_text())["signature"]
    assert announced(json.dumps(forged).encode(), site / "ca.crt") is None
    for rubbish in (b"", b"[]", b"{}", b'{"certificate": "x", "signature": "x"}'):
        assert announced(rubbish, site / "ca.crt") is None
    new = announced((ours / ANNOUNCEMENT).read_bytes(), site / "ca.crt")
    trust(site, invitation, new)
    assert announced((ours / ANNOUNCEMENT).read_bytes(), site / "ca.crt") is None, "it is known now"
    old_server = certificates_in(ours / "server.crt")[0]
    switch_authority(ours, ["localhost"])
    server = certificates_in(ours / "server.crt")[0]
    old, next_ = certificates_in(site / "ca.crt")
    old_server.verify_directly_issued_by(old)
    server.verify_directly_issued_by(next_)
    assert len(certificates_in(ours / "ca.crt")) == 1
    # Joined again with the same invitation, it still knows; with another one, it begins anew.
    trust(site, invitation)
    assert len(certificates_in(site / "ca.crt")) == 2
    trust(site, Invitation(site="n", address="h:1", authority=(other / "ca.crt").read_text(), key="x"))
    assert len(certificates_in(site / "ca.crt")) == 2  # those of the other invitation
    assert next_ not in certificates_in(site / "ca.crt")


def test_the_steps_of_renewal_come_in_order(tmp_path, capsys):
    place = Coordinator(folder=tmp_path / "c", hosts=("localhost",), listen="*", port=1, internal_port=2)
    place.create()
    renew = ["renew", "--folder", str(tmp_path / "c")]
    assert main([*renew, "--switch"]) == 2
    assert "begin with: koncord renew --authority" in capsys.readouterr().err
    assert main([*renew, "--authority"]) == 0
    assert len(certificates_in(place.folder / "ca.crt")) == 2, "invitations hold both meanwhile"
    assert main([*renew, "--authority"]) == 2
    assert main([*renew, "--switch", "--json"]) == 0
    assert main([*renew]) == 0
    (authority,) = certificates_in(place.folder / "ca.crt")
    certificates_in(place.folder / "server.crt")[0].verify_directly_issued_by(authority)


def test_letting_the_new_authority_sign_names_the_sites_that_cannot_have_learned_of_it(tmp_path, capsys):
    place = Coordinator(folder=tmp_path / "c", hosts=("localhost",), listen="*", port=free_port(), internal_port=1)
    place.create()
    for name in ("away", "gone", "here", "never"):
        place.write_site(RegisteredSite(name=name, node=1, revoked="2026-11-16" if name == "gone" else None))
    place.note_seen({"away": "0.1"})
    assert main(["renew", "--folder", str(place.folder), "--authority"]) == 0
    announced = place.folder / "authority.json"
    os.utime(announced, (announced.stat().st_mtime - 7200,) * 2)
    seen = place.folder / "seen" / "away.json"
    kept = json.loads(seen.read_text())
    time_of = next(name for name, value in kept.items() if "T" in str(value))
    seen.write_text(json.dumps(kept | {time_of: "2026-01-01T00:00:00+00:00"}))
    place.note_seen({"here": "0.1"})
    capsys.readouterr()
    before = (place.folder / "server.crt").read_bytes()
    assert main(["renew", "--folder", str(place.folder), "--switch"]) == 1
    assert "announced: away, never. Wait for them, or add --anyway" in capsys.readouterr().err
    assert (place.folder / "server.crt").read_bytes() == before, "nobody is shut out by mistake"
    assert main(["renew", "--folder", str(place.folder), "--anyway"]) == 2
    capsys.readouterr()
    assert main(["renew", "--folder", str(place.folder), "--switch", "--anyway", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["need_invitation"] == ["away", "never"]
