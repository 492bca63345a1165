"""Data and fixtures that all tests share. A set that is not on this machine skips the test and says where it looked."""

import hashlib
import json
import os
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, settings

from koncord.cli import main

os.environ["KONCORD_TABLES"] = str(Path(tempfile.gettempdir()) / f"koncord-tables-{os.getpid()}")  # of wider fixtures

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell starts its background jobs so, and children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_record_of_tables(tmp_path_factory, request, monkeypatch):
    """No test writes into the record of tables of whoever runs it, and none knows what another one answered."""
    name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]
    monkeypatch.setenv("KONCORD_TABLES", str(tmp_path_factory.getbasetemp() / "tables" / name))


@pytest.fixture(scope="session")
def benchmark_set():
    """Loader of a set of KONCORD_DATA by file name."""

    def load(name, *arrays):
        folder = os.environ.get("KONCORD_DATA")
        path = Path(folder or ".") / f"{name}.npz"
        if folder is None or not path.exists():
            pytest.skip(f"needs {name}.npz in the folder KONCORD_DATA names ({folder or 'not set'})")
        with np.load(path) as stored:
            return tuple(stored[array] for array in arrays)

    return load


@pytest.fixture
def blobs():
    """Rows around the given centers, one Gaussian each, and the center every row came from."""

    def make(centers, n_each, spread=1.0, seed=0):
        rng = np.random.default_rng(seed)
        centers = np.asarray(centers, dtype=float)
        labels = np.repeat(np.arange(len(centers)), n_each)
        return centers[labels] + spread * rng.normal(size=(len(labels), centers.shape[1])), labels

    return make


@pytest.fixture
def run(capsys):
    """Run the command line; returns its exit code, stdout and stderr."""

    def run(*argv):
        code = main([str(word) for word in argv])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def result(run):
    """The JSON object of a run that succeeds and says nothing on stderr."""

    def result(*argv):
        code, out, err = run(*argv, "--json")
        assert (code, err) == (0, "")
        assert out.count("\n") == 1
        return json.loads(out)

    return result


# Shrinking can take minutes on tests that fit models; the failing input is printed without it.
settings.register_profile("koncord", deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
settings.load_profile("koncord")
