"""Advice on installing an extra works for the way koncord was installed."""

import subprocess
import sys
from importlib.metadata import distribution

import pytest

from koncord import _installation
from koncord._installation import install_command, installer, origin_of, requirement


def test_this_checkout_is_installed_from_its_folder():
    origin = origin_of("koncord")
    assert origin["dir_info"] == {"editable": True}
    command = install_command("koncord", "flower")
    assert f"-e '{origin['url'].removeprefix('file://')}[flower]'" in command


def test_a_distribution_from_the_index_has_no_origin():
    assert distribution("numpy").read_text("direct_url.json") is None
    assert origin_of("numpy") == {}
    assert origin_of("not-installed-anywhere") == {}


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ({}, "'koncord[report]'"),
        ({"url": "https://h/k-1.whl", "archive_info": {}}, "'koncord[report] @ https://h/k-1.whl'"),
        ({"url": "https://h/k.git", "vcs_info": {"vcs": "git"}}, "'koncord[report] @ git+https://h/k.git'"),
        ({"url": "file:///gone/away", "dir_info": {}}, "'koncord[report]'"),
    ],
)
def test_an_extra_is_asked_for_where_koncord_came_from(origin, expected):
    assert requirement("koncord", "report", origin) == expected


def test_a_folder_is_named_by_its_path(tmp_path):
    folder = tmp_path / "a b"
    folder.mkdir()
    assert requirement("koncord", "x", {"url": folder.as_uri(), "dir_info": {}}) == f"'{folder}[x]'"


def test_a_wheel_is_named_by_its_address(tmp_path):
    wheel = tmp_path / "koncord-1-py3-none-any.whl"
    wheel.touch()
    assert (
        requirement("koncord", "x", {"url": wheel.as_uri(), "archive_info": {}}) == f"'koncord[x] @ {wheel.as_uri()}'"
    )


@pytest.mark.parametrize(
    ("file", "command"),
    [("pipx_metadata.json", "pipx install --force"), ("uv-receipt.toml", "uv tool install")],
)
def test_tools_of_applications_are_known_by_their_file(file, command, tmp_path, monkeypatch):
    (tmp_path / file).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert installer() == command


def test_pip_is_called_by_its_name_only_where_that_is_the_pip_of_this_environment(tmp_path, monkeypatch):
    monkeypatch.setattr(_installation, "find_spec", lambda name: object())
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert installer() == f"{tmp_path / 'python'} -m pip install"
    pip = tmp_path / "pip"
    pip.write_text("#!/bin/sh\n")
    pip.chmod(0o755)
    assert installer() == "pip install"
    monkeypatch.setattr(_installation, "find_spec", lambda name: None)
    assert installer() == f"uv pip install --python {tmp_path / 'python'}"


def test_the_command_for_this_checkout_is_understood_by_its_installer(tmp_path):
    """Without installing: the installer resolves the requirement by itself."""
    pytest.importorskip("pip")
    asked = requirement("koncord", "report", origin_of("koncord"))
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--no-build-isolation", "--quiet"]
    done = subprocess.run(f"{' '.join(pip)} {asked}", shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
