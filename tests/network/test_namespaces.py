"""Five sites in network namespaces of their own, without a route to anywhere else; one is cut off and reconnected."""

import json
import os
import shutil
import subprocess
import time

import pytest

from network.federation import USUAL, Federation, assert_same_model
from network.pace import waits

pytestmark = pytest.mark.network

SITES = ("a", "b", "c", "d", "e")
METHOD = ("--aggregator", "fedgem", "--set", "upsilon=10", "--seed", "7")
TAG = f"kc{os.getpid() % 10000}"


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def namespace(name):
    return f"{TAG}-{name}"


def inside(name):
    return ("ip", "netns", "exec", namespace(name))


@pytest.fixture(scope="module")
def network():
    """One namespace a site and one for the coordinator, joined by a bridge in the coordinator's; no other way out."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("needs root and the program ip to make network namespaces")
    try:
        ip("netns", "add", namespace("hub"))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are not permitted here: {error.stderr.strip()}")
    try:
        hub = inside("hub")[1:]
        ip(*hub, "ip", "link", "set", "lo", "up")
        ip(*hub, "ip", "link", "add", "bridge", "type", "bridge")
        ip(*hub, "ip", "addr", "add", "10.77.0.1/24", "dev", "bridge")
        ip(*hub, "ip", "link", "set", "bridge", "up")
        for at, site in enumerate(SITES, start=2):
            ip("netns", "add", namespace(site))
            ip(*hub, "ip", "link", "add", f"to-{site}", "type", "veth", "peer", "name", "out", "netns", namespace(site))
            ip(*hub, "ip", "link", "set", f"to-{site}", "master", "bridge", "up")
            own = inside(site)[1:]
            ip(*own, "ip", "link", "set", "lo", "up")
            ip(*own, "ip", "addr", "add", f"10.77.0.{at}/24", "dev", "out")
            ip(*own, "ip", "link", "set", "out", "up")
        yield
    finally:
        for name in ("hub", *SITES):
            subprocess.run(["ip", "netns", "delete", namespace(name)], check=False, capture_output=True)


class Apart(Federation):
    """Every site in the namespace of its name."""

    def join(self, *sites, **more):
        for site in sites or self.sites:
            super().join(site, prefix=inside(site), **more)
        return self


@pytest.fixture(scope="module")
def make_federation(programs, network, tmp_path_factory):
    return lambda: Apart(tmp_path_factory.mktemp("namespaces"), SITES, hosts="10.77.0.1", prefix=inside("hub"))


def link(site, state):
    ip(*inside("hub")[1:], "ip", "link", "set", f"to-{site}", state)


def test_a_site_cut_off_in_the_middle_is_left_out_and_takes_part_again(federation):
    run = federation.run("--out", "cut", "--min-sites", "4", *waits("--round-timeout", 25), *METHOD, "--json")
    run.wait_for("exchange 3: ")
    link("c", "down")
    run.wait_for("missing: c (")
    time.sleep(1)
    link("c", "up")
    assert run.end(300) == 0, run.text
    missing = json.loads(run.text.splitlines()[-1])["info"]["missing"]
    assert {each["site"] for each in missing} == {"c"}
    model = federation.model("cut")
    assert model.sites == SITES
    assert model.holdings[SITES.index("c")].sum() > 0, "it was back before the end"


def test_without_a_cut_and_without_any_route_the_model_is_that_of_one_process(federation):
    """The first run of these sites: after one of another method the joint partition is finer than in one process."""
    assert_same_model(federation.model("measured"), federation.in_process("one-process", *USUAL))


def test_a_site_reaches_the_public_port_only(federation):
    for port, expected in zip(federation.ports, (0, 1), strict=True):
        code = f"import socket; socket.create_connection(('10.77.0.1', {port}), timeout=5)"
        done = subprocess.run([*inside("a"), "python3", "-c", code], check=False, capture_output=True)
        assert done.returncode == expected
