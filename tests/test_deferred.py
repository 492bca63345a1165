"""Modules that stand aside while scikit-learn is imported."""

import subprocess
import sys

FIT = """
import sys
from koncord.cli import main
assert main(["fit", *sys.argv[1:], "--out", "run"]) == 0
seldom = {"scipy.stats", "scipy.optimize", "pandas", "narwhals", "numpy.f2py", "sklearn.cluster", "sklearn.metrics"}
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
