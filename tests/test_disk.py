"""A disk that is full: the file is named, and the word said."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from koncord.network.places import Invitation

KONCORD = str(Path(sys.executable).parent / "koncord")
LARGEST_FILE = 4096


@pytest.fixture
def folder(tmp_path):
    X = np.concatenate([np.random.default_rng(at).normal(30 * at, 1, (100, 10)) for at in range(3)])
    np.savetxt(tmp_path / "north.csv", X, delimiter=",", header=",".join("abcdefghij"), comments="")
    Invitation(site="north", address="localhost:1", authority="", key="", is_insecure=True).save(tmp_path / "x.invite")
    return tmp_path


def told(folder, *words, code=1):
    """What the command says where no file may grow beyond some bytes, as on a disk that is nearly full."""
    done = subprocess.run(
        [KONCORD, *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE)),
    )
    assert done.returncode == code, done.stderr
    return done.stderr


def test_joining_with_a_full_disk_names_the_file(folder):
    error = told(folder, "join", "--invite", "x.invite", "--data", "north.csv", "--state", "state")
    assert "table.npy'; the disk may be full." in error


def test_fitting_onto_a_full_disk_names_the_file(folder):
    error = told(folder, "fit", "north.csv", "--out", "run")
    assert error.startswith("koncord: ")
    assert "'; the disk may be full." in error
    assert "labels/north.csv" in error
    assert not (folder / "run").exists()


def test_a_disk_that_has_no_space_names_the_file(folder):
    """A real one, of 16 kB."""
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", disk], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        done = subprocess.run(
            [KONCORD, "fit", folder / "north.csv", "--out", disk / "run"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env={**os.environ, "TMPDIR": str(folder)},
        )
    finally:
        subprocess.run(["umount", disk], check=True)
    assert done.returncode == 1
    assert "No space left on device: '" in done.stderr
    assert "'; the disk may be full." in done.stderr
