"""An aggregator of another package: the one of docs/howto-aggregator.md, built from that page and installed."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parent.parent / "docs" / "howto-aggregator.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = "import sys; from koncord.cli import main; sys.exit(main())"
CENTERS = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]])


def blocks(language):
    return [code for found, code in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if found == language]


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of an environment of its own, which sees this one's packages and has the page's installed."""
    folder = tmp_path_factory.mktemp("outside")
    package = folder / "package"
    package.mkdir()
    (package / "koncord_linkage.py").write_text(blocks("python")[0], encoding="utf-8")
    (package / "pyproject.toml").write_text(blocks("toml")[0], encoding="utf-8")
    environment = folder / "venv"
    checked([sys.executable, "-m", "venv", "--without-pip", environment])
    own = next((environment / "lib").glob("python*/site-packages"))
    ours = sysconfig.get_path("purelib")
    (own / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n", encoding="utf-8")
    interpreter = environment / "bin" / "python"
    install = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", package]
    checked([interpreter, *install])
    return interpreter


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    for site, held in {"north": (0, 1), "south": (1, 2), "west": (0, 2)}.items():
        rows = np.concatenate([rng.normal(CENTERS[k], 1, (60, 2)) for k in held])
        np.savetxt(tmp_path / f"{site}.csv", rows, delimiter=",", header="x,y", comments="")
    return [tmp_path / f"{site}.csv" for site in ("north", "south", "west")]


def checked(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment_of_ours())
    assert done.returncode == 0, done.stderr
    return done.stdout


def environment_of_ours():
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP"))}


def koncord(python, *arguments):
    command = [python, "-c", COMMAND, *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment_of_ours())
    return done.returncode, done.stdout, done.stderr


def test_the_aggregator_of_the_page_has_under_100_lines():
    assert len(blocks("python")[0].splitlines()) < 100


def test_an_installed_aggregator_is_listed_in_the_help(python):
    code, shown, _ = koncord(python, "fit", "--help")
    assert code == 0
    assert ", linkage" in " ".join(shown.split())


def test_it_runs_under_koncord_fit_with_parameters_of_its_own(python, files, tmp_path):
    options = ("--aggregator", "linkage", "--estimator", "xmeans", "--json")
    code, shown, said = koncord(python, "fit", *files, "--out", tmp_path / "run", *options)
    assert code == 0, said
    assert json.loads(shown)["n_clusters"] == 3
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "at most local_k x n_features" in page
    assert "All that a site may send under linkage" in page
    code, shown, _ = koncord(python, "fit", *files, "--out", tmp_path / "far", *options, "--set", "reach=1e3")
    assert json.loads(shown)["n_clusters"] == 1


def test_what_it_has_no_parameter_for_is_refused_with_those_it_has(python, files, tmp_path):
    out = ("fit", *files, "--out", tmp_path / "run", "--aggregator", "linkage", "--estimator", "gmeans")
    code, _, said = koncord(python, *out, "--set", "width=3")
    assert (code, said.strip()) == (
        2,
        "koncord: --set width: there is no such parameter; the aggregator linkage has reach (number, default 1.0); the "
        "estimator gmeans has significance (number, default 0.0001), start (text, default axis), max_components "
        "(integer, default 200), tolerance (number, default 0.01).",
    )
    assert koncord(python, *out, "--set", "reach=wide")[2].strip() == (
        "koncord: --set reach must be number; got 'wide'."
    )
    assert koncord(python, *out, "--clusters", "3")[2].startswith("koncord: --clusters does not go with")


def test_it_passes_the_checks_of_the_page(python):
    checked([python, "-W", "error", "-c", blocks("python")[1]])


SITE = """
import json, sys
from pathlib import Path
import numpy as np
from koncord.network.certificates import site_key
from koncord.network.places import Invitation
from koncord.network.sitefolder import SiteFolder, answer
from koncord.protocol import setup
from koncord.protocol.wire import pack
from koncord.session.policy import SitePolicy

folder, methods = Path(sys.argv[1]), json.loads(sys.argv[2])
X = np.random.default_rng(0).normal(size=(60, 2))
invitation = Invitation(site="north", address="localhost:1", authority="ca", key=site_key()[0].decode())
place = SiteFolder.create(
    folder, invitation, X, ("x", "y"), policy=SitePolicy(methods=None if methods is None else tuple(methods))
)
asked = json.dumps({"aggregator": "linkage", "parameters": {"reach": 1.0}, "estimator": {"name": "xmeans"}})
try:
    replies = answer(folder, "run-1", 1, asked, [pack(setup.Describe())]).replies
    told = f"{len(replies)} reply"
except Exception as error:
    told = f"{type(error).__name__}: {error}"
print(json.dumps({"methods": place.methods, "told": told, "is_loaded": "koncord_linkage" in sys.modules}))
"""


@pytest.mark.parametrize("methods", [None, ["consensus", "kfed"]])
def test_a_site_whose_owner_did_not_name_it_refuses_it_unimported(python, tmp_path, methods):
    told = json.loads(checked([python, "-c", SITE, tmp_path / "site", json.dumps(methods)]))
    assert "linkage" not in told["methods"]
    assert told["told"] == (
        "NotAllowed: site 'north' was asked for a method that it does not run: the aggregator 'linkage' is of the "
        "package koncord-linkage and was not allowed by name (--methods)."
    )
    assert not told["is_loaded"]


def test_a_site_whose_owner_named_it_answers(python, tmp_path):
    told = json.loads(checked([python, "-c", SITE, tmp_path / "site", json.dumps(["consensus", "linkage"])]))
    assert told == {"methods": ["consensus", "linkage"], "told": "1 reply", "is_loaded": True}
