"""deploy/ says what the command line understands, and hangs together."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

from koncord.cli import build_parser

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "deploy"
UNITS = sorted(FOLDER.glob("*.service"))
COMMENTED = re.compile(r"^#.*?\bkoncord ((?:serve|invite|join|run) .*)$", re.MULTILINE)


def parsed(words):
    """What the command line makes of a command; it refuses options that it does not have."""
    return build_parser().parse_args(words)


def service(unit):
    content = ConfigParser(interpolation=None)
    content.optionxform = str
    content.read_string(unit.read_text())
    return content["Service"]


def compose():
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_a_command_that_writes_where_the_unit_lets_it(unit):
    settings = service(unit)
    program, *words = shlex.split(settings["ExecStart"])
    assert Path(program).name == "koncord"
    args = parsed(words)
    writable = Path(settings["ReadWritePaths"])
    folder = Path(settings["WorkingDirectory"]) / (args.folder if "serve" in unit.stem else args.state)
    assert folder.is_relative_to(writable)
    assert f"--home-dir {writable} " in unit.read_text()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_understands_a_unit(unit, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    program = shlex.split(service(unit)["ExecStart"])[0]
    (tmp_path / unit.name).write_text(unit.read_text().replace(program, str(Path(sys.executable).parent / "koncord")))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / unit.name)], capture_output=True, text=True, check=False
    )
    assert unit.name not in done.stderr, done.stderr


@pytest.mark.parametrize("file", [*UNITS, FOLDER / "compose.yaml"], ids=lambda file: file.name)
def test_commands_in_comments_are_ones_a_person_can_give(file):
    commands = COMMENTED.findall(file.read_text())
    assert commands or file.stem == "koncord-join"
    for command in commands:
        parsed(shlex.split(command))


def test_the_services_of_compose_fit_each_other_and_the_image():
    services = compose()["services"]
    image = (FOLDER / "Dockerfile").read_text()
    home = re.search(r"^WORKDIR (.*)$", image, re.MULTILINE)[1]
    assert 'ENTRYPOINT ["koncord"]' in image
    for name, each in services.items():
        assert FOLDER / each["build"]["context"] / each["build"]["dockerfile"] == FOLDER / ".." / "deploy/Dockerfile"
        assert f"{name}:{home}" in each["volumes"]
        assert name in compose()["volumes"]
    serve, join = (parsed(services[name]["command"]) for name in ("coordinator", "site"))
    assert services["coordinator"]["ports"] == [f"{serve.port or 8443}:{serve.port or 8443}"]
    commented = [parsed(shlex.split(command)) for command in COMMENTED.findall((FOLDER / "compose.yaml").read_text())]
    invite, run = commented
    assert invite.folder == run.folder == serve.folder
    assert join.invite == Path(f"{invite.name}.invite")
    assert run.min_sites == len(services) - 1, "the sites of the file are enough for the run it shows"


def test_the_image_is_made_of_files_and_extras_that_are_there():
    image = (FOLDER / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (.*) \S+$", image, re.MULTILINE) for word in line.split()]
    assert {"pyproject.toml", "src"} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"setup.py", "README.md", *project["license-files"]} <= set(copied)
    for file in (FOLDER / "Dockerfile", *UNITS):
        extras = re.search(r"\[([a-z,]+)\]['\"]", file.read_text())[1].split(",")
        assert set(extras) <= project["optional-dependencies"].keys()
        assert "flower" in extras
