"""Who did not install an optional part of koncord is told which, and how. `make wheel-test` asks a real wheel."""

import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import koncord
from koncord._extras import MODULES
from koncord._installation import install_command
from koncord.cli.installed import ELSEWHERE as ELSEWHERE_COMMANDS

ROOT = Path(__file__).parents[1]
CHECK_WHEEL = runpy.run_path(str(ROOT / "scripts" / "check_wheel.py"), run_name="imported")
NEEDS, ELSEWHERE = CHECK_WHEEL["NEEDS"], CHECK_WHEEL["ELSEWHERE"]
# An interpreter that finds no module of any extra, and no other distribution that brings commands.
BARE = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in ABSENT else super().find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, *args, **kwargs):
        return (found for found in PathFinder.find_distributions(*args, **kwargs) if found.name not in ABSENT)

ABSENT = {absent}
sys.meta_path = [Without if finder is PathFinder else finder for finder in sys.meta_path]
from koncord.cli import main
sys.exit(main(sys.argv[1:]))
"""


def bare(folder, arguments):
    """One command without any extra, in this folder."""
    absent = {"koncord-reproduction", *(name for names in MODULES.values() for name in names)}
    program = BARE.replace("{absent}", repr(absent))
    command = [sys.executable, "-c", program, *arguments.split()]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the tables that the commands name."""
    folder = tmp_path_factory.mktemp("bare")
    sites = folder / "koncord-demo" / "sites"
    sites.mkdir(parents=True)
    for at, island in enumerate(("Biscoe", "Dream")):
        rows = np.random.default_rng(at).normal(size=(60, 2))
        np.savetxt(sites / f"{island}.csv", rows, delimiter=",", header="a,b", comments="")
    return folder


@pytest.mark.parametrize("arguments", NEEDS)
def test_a_command_without_its_extra_says_in_one_line_what_to_install(arguments, folder):
    done = bare(folder, arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("koncord: ")
    extra = NEEDS[arguments]
    assert f" needs an optional part of koncord, '{extra}': " in done.stderr
    assert done.stderr.endswith(f"{install_command('koncord', extra)}\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", ELSEWHERE)
def test_a_command_of_a_distribution_that_is_not_installed_says_in_one_line_how_to_get_it(arguments, folder):
    done = bare(folder, arguments)
    assert (done.returncode, done.stdout) == (1, "")
    name = arguments.split()[0]
    assert done.stderr == (
        f"koncord: koncord {name} comes with another distribution, koncord-reproduction: "
        "pip install ./reproduction, in a checkout of koncord.\n"
    )
    assert f"    {name}" not in bare(folder, "--help").stdout


def test_what_a_site_would_send_is_shown_without_any_extra(folder):
    invitation = '{"format": "koncord-invite", "version": 1, "site": "north", "address": "fed.example.org:8443", '
    (folder / "north.invite").write_text(
        invitation + '"authority": "", "key": "", "fingerprint": "", "is_insecure": false}'
    )
    table = "koncord-demo/sites/Biscoe.csv"
    done = bare(folder, f"join --invite north.invite --data {table} --dry-run --estimator xmeans")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Nothing was sent." in done.stdout


def test_the_reproduction_is_of_the_version_of_koncord_that_it_asks_for():
    project = tomllib.loads((ROOT / "reproduction" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == koncord.__version__
    assert f"koncord=={koncord.__version__}" in project["dependencies"]
    assert set(project["entry-points"]["koncord.commands"]) == set(ELSEWHERE_COMMANDS)


def test_every_extra_is_known_by_the_modules_it_installs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {
        extra: tuple(requirement.split(">")[0] for requirement in requirements)
        for extra, requirements in project["optional-dependencies"].items()
    }
    assert asked == MODULES
