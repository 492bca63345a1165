"""Names of columns and sites: letters of any script work everywhere, what disturbs a terminal nowhere."""

import csv

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from koncord import FederatedClustering
from koncord.aggregate.kfed import KFed
from koncord.errors import MessageError
from koncord.estimate.known import KnownCounts
from koncord.protocol import setup
from koncord.protocol.wire import pack, unpack
from koncord.session.inprocess import InProcess
from koncord.session.site import Site

GOOD = ["größe", "血压", "👩\u200d⚕️ visits", "می\u200cکند", "naïve (mmol/l)", "a'b\"c", "ß" * 300]
BAD = ["a\u202egnp", "a\x1b[2Jb", "a\x07", "a\u2066b", "a\u200fb", "a\u2028b", "a\x85b", "a\x9b31mb"]


def table(seed=0):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(center, 1, (40, 2)) for center in ((0, 0), (30, 0))])


class Frame:
    """Rows with names, as data frames have them."""

    def __init__(self, X, columns):
        self.X, self.columns = X, columns

    def __array__(self, dtype=None, copy=None):
        return np.array(self.X, dtype=dtype)


def write_csv(path, names, seed):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *table(seed).tolist()])
    return path


@pytest.mark.parametrize("name", GOOD)
def test_a_column_may_have_a_name_of_any_script(name, tmp_path, result):
    files = [write_csv(tmp_path / f"{site}.csv", [name, "x"], seed) for seed, site in enumerate(("a", "b"))]
    told = result("fit", *files, "--out", tmp_path / "run")
    assert told["columns"] == [name, "x"]
    assert result("predict", tmp_path / "run", files[0])["labels"]


def test_a_line_break_in_the_header_of_a_csv_file_is_a_space(tmp_path, run, result):
    files = [write_csv(tmp_path / f"{site}.csv", ["blood\r\npressure", "x"], seed) for seed, site in enumerate("ab")]
    assert result("fit", *files, "--out", tmp_path / "run")["columns"] == ["blood pressure", "x"]
    assert result("predict", tmp_path / "run", files[0])["labels"]
    assert run("fit", *files, "--out", tmp_path / "two", "--columns", "blood pressure")[0] == 0


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("name", BAD)
def test_a_column_whose_name_disturbs_what_it_is_shown_in_is_refused_with_a_sentence(name, suffix, tmp_path, run):
    path = tmp_path / f"a.{suffix}"
    if suffix == "csv":
        write_csv(path, [name, "x"], 0)
    else:
        parquet.write_table(pa.table({name: table()[:, 0], "x": table()[:, 1]}), path)
    for words in (("fit", path, "--out", tmp_path / "run"), ("estimate", path)):
        code, out, error = run(*words)
        assert code == 1
        assert out == ""
        assert error.rstrip("\n").isprintable()
        assert "has a column whose name holds a control character, a line break or a mark of direction" in error
    assert run("estimate", path, "--drop", name)[0] == 0


@pytest.mark.parametrize("name", [*BAD, "a\nb", "a\tb"])
def test_such_a_name_is_refused_on_the_wire_and_in_python(name):
    for message in (
        setup.Moments(columns=(name, "x"), count=9, means=np.zeros(2), scatters=np.ones(2)),
        setup.Prepare(seed=0, columns=(name, "x"), means=np.zeros(2), scales=np.ones(2)),
    ):
        with pytest.raises(MessageError, match="must be names of at most 1000 characters that can be shown"):
            unpack(pack(message), (type(message),))
    frame = Frame(table(), [name, "x"])
    with pytest.raises(ValueError, match="a column whose name cannot be shown"):
        FederatedClustering().fit({"a": frame, "b": frame})
    with pytest.raises(ValueError, match="must have names that can be shown"):
        FederatedClustering().fit({name: table(), "b": table()})


def test_a_site_with_such_a_column_is_set_aside_by_the_coordinator():
    def site(name, columns):
        return Site(name, table(), columns, estimator=KnownCounts(2), aggregator=KFed(2))

    link = InProcess([site("a", ("x", "y")), site("b", ("x", "y\u202e"))])
    link.exchange(0, {"a": setup.Describe(), "b": setup.Describe()})
    (absence,) = link.absences
    assert absence.site == "b"
    assert absence.reason.isprintable()


@pytest.mark.parametrize("name", BAD)
def test_a_file_whose_name_disturbs_a_terminal_is_no_site(name, tmp_path, run):
    path = write_csv(tmp_path / f"{name}.csv", ["x", "y"], 0)
    code, out, error = run("fit", path, "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert error.rstrip("\n").isprintable()
    assert "rename the file" in error
