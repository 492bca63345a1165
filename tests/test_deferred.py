"""Modules that stand aside while SciPy and scikit-learn are imported, and those that a command does without."""

import subprocess
import sys

import pytest

FIT = """
import sys
from koncord.cli import main
assert main(["fit", *sys.argv[1:], "--out", "run"]) == 0
seldom = {"scipy.stats", "scipy.optimize", "scipy.constants", "scipy.sparse.linalg", "scipy.spatial.transform"}
seldom |= {"pandas", "narwhals", "numpy.f2py", "numpy.testing", "unittest", "sklearn", "joblib", "asyncio"}
loaded = seldom & set(sys.modules)
assert not loaded, loaded
from sklearn.utils import fixes
assert fixes.scipy.stats.mode([1, 1, 2]).mode == 1
from sklearn.utils import validation
import narwhals.stable.v2, numpy.f2py, pandas, scipy.stats
assert validation.nw.from_native is narwhals.stable.v2.from_native
assert sys.modules["narwhals"] is narwhals and type(narwhals.stable).__name__ == "module"
assert fixes.pd.DataFrame is pandas.DataFrame
assert scipy.stats is sys.modules["scipy.stats"] is fixes.scipy.stats
assert type(scipy.stats).__name__ == "module"
"""


def test_a_fit_loads_neither_pandas_nor_scipy_stats_and_both_work_afterwards(tmp_path):
    rows = "\n".join(f"{at % 7},{at % 5}.5,{(at > 40) * 9 + at % 3}" for at in range(80))
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(f"x,y,z\n{rows}\n")
    done = subprocess.run([sys.executable, "-c", FIT, "a.csv", "b.csv"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


HELP = """
import sys
from koncord.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    assert ended.code == 0
loaded = {"numpy", "scipy", "sklearn", "pyarrow", "jinja2", "flwr", "opendp", "cryptography"} & set(sys.modules)
assert not loaded, loaded
"""


@pytest.mark.parametrize("command", [["--help"], ["fit", "--help"], ["join", "--help"], ["--version"]])
def test_help_loads_neither_numpy_nor_anything_that_needs_it(command):
    done = subprocess.run([sys.executable, "-c", HELP, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


SCIPY = """
import sys
import koncord._deferred as d
d.import_scipy()
assert not {"scipy.spatial.transform", "scipy.sparse.csgraph", "scipy.cluster.vq", "numpy.ma"} & set(sys.modules)
import scipy.cluster, scipy.sparse, scipy.spatial
assert scipy.spatial.transform.Rotation.identity().magnitude() == 0  # a part that its package imports is there
from scipy.sparse.csgraph import connected_components
import numpy.ma, scipy.sparse.linalg
assert connected_components(scipy.sparse.eye_array(3))[0] == 3
for module in (scipy.spatial.transform, scipy.sparse.csgraph, scipy.sparse.linalg, numpy.ma):
    assert module is sys.modules[module.__name__] and not isinstance(module, d.Deferred), module
assert scipy.cluster.vq.kmeans2 is __import__("scipy.cluster.vq", fromlist=["kmeans2"]).kmeans2
import sklearn.cluster
"""


def test_scipy_without_what_is_seldom_used_is_whole_once_it_is_used():
    done = subprocess.run([sys.executable, "-c", SCIPY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


SELDOM = """
import koncord._deferred as d, sys
with d.deferred("scipy.stats", "no_such_module_at_all"):
    import scipy.stats
    assert isinstance(sys.modules["scipy.stats"], d.Deferred)
    held = scipy.stats
assert "scipy.stats" not in sys.modules
assert held.norm.cdf(0) == 0.5
import scipy.stats
assert scipy.stats.norm is held.norm
with d.deferred("scipy.stats"):
    assert scipy.stats is sys.modules["scipy.stats"]
    assert not isinstance(scipy.stats, d.Deferred)
"""


def test_a_module_that_stands_aside_is_the_real_one_once_it_is_used():
    done = subprocess.run([sys.executable, "-c", SELDOM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
