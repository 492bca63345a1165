"""Data the tests share. A set that is not on this machine skips the test and says where it was looked for."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, settings


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


# Shrinking can take minutes on tests that fit models; the failing input is printed without it.
settings.register_profile("koncord", deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
settings.load_profile("koncord")
