"""Pages of the documentation: their code runs, what they show is printed, and none is forgotten."""

import re
import runpy
import sys
import tomllib
from pathlib import Path

import pytest

import koncord

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "scripts"))
import doc_blocks  # noqa: E402

# Pages whose code another test runs, because it is more than commands in a folder.
ELSEWHERE = {"howto-aggregator.md": "test_outside_package.py"}
PAGES = sorted(path.name for pattern in ("tutorial-*.md", "howto-*.md", "index.md") for path in DOCS.glob(pattern))


def is_network(name):
    return "koncord serve" in (DOCS / name).read_text(encoding="utf-8")


def params():
    for name in PAGES:
        if name not in ELSEWHERE:
            yield pytest.param(name, marks=pytest.mark.network if is_network(name) else ())


def ran(page, folder):
    for block, printed in doc_blocks.run_page(page, folder):
        assert doc_blocks.is_as_shown(block, printed), (
            f"line {block.line}: the page shows\n{block.expected}\nbut the code prints\n{printed}\n"
            "scripts/doc_blocks.py PAGE --write puts it there"
        )


@pytest.mark.parametrize("name", list(params()))
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(name, tmp_path):
    page = (DOCS / name).read_text(encoding="utf-8")
    if name == "index.md":
        page = page.replace("pip install .          # in a clone of the repository\n", "")  # a test installs nothing
    assert doc_blocks.blocks_of(page)
    ran(page, tmp_path)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_pages_that_are_run_elsewhere_are_named_there(name):
    assert name in (ROOT / "tests" / ELSEWHERE[name]).read_text(encoding="utf-8")


# --- the program that runs pages ---

GOOD = """
```sh
x=3; echo "a b" > f
```

```sh
cat f; echo $x
```

```text
a b
3
```

```python
import pathlib
n = len(pathlib.Path("f").read_text())
```

```python
print(n, "seconds")
```

```text
4 ...
```

```json
not run
```
"""


def test_blocks_share_a_folder_a_shell_and_a_namespace(tmp_path):
    ran(GOOD, tmp_path)
    assert [block.language for block in doc_blocks.blocks_of(GOOD)] == ["sh", "sh", "python", "python"]


@pytest.mark.parametrize(("old", "new"), [("\na b\n3\n", "\na b\n4\n"), ("4 ...", "5 ...")])
def test_what_is_not_printed_is_found_and_can_be_written(old, new, tmp_path):
    wrong = GOOD.replace(old, new)
    with pytest.raises(AssertionError, match="but the code prints"):
        ran(wrong, tmp_path)
    ran(doc_blocks.rewritten(wrong, tmp_path), tmp_path)


@pytest.mark.parametrize("code", ["```sh\necho before\nls nowhere\n```\n", "```python\n1 / 0\n```\n"])
def test_code_that_fails_is_a_failure_that_names_the_line(code, tmp_path):
    with pytest.raises(RuntimeError, match="The block at line 4 fails"):
        ran(f"# Page\n\n{code}", tmp_path)


# --- what the pages list ---


def test_the_api_page_lists_every_public_name():
    page = (DOCS / "api.rst").read_text(encoding="utf-8")
    listed = set(re.findall(r"^   ([\w.]+)$", page, re.MULTILINE))
    modules = {"data", "theory"}
    assert {name.split(".")[0] for name in listed} == set(koncord.__all__) - {"__version__"}
    assert {name for name in listed if name.startswith("data.")} == {f"data.{name}" for name in koncord.data.__all__}
    assert modules.isdisjoint(listed)


def test_the_glossary_is_in_alphabetical_order_and_explains_what_the_report_says():
    page = (DOCS / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^([A-Za-z][^\n]*)\n  \S", page.split("```{glossary}")[1], re.MULTILINE)
    assert terms == sorted(terms, key=str.lower)
    wanted = "site coordinator server exchange round micro-cluster floor min_report suppression quorum timeout resume"
    assert {*wanted.split(), "support", "budget", "complementary suppression", "null model", "d'"} <= set(terms)
    assert "joint partition" in terms


def test_no_glossary_term_is_used_that_is_not_there():
    page = (DOCS / "glossary.md").read_text(encoding="utf-8")
    for path in DOCS.glob("*.md"):
        for term in re.findall(r"\{term\}`([^`]+)`", path.read_text(encoding="utf-8")):
            assert f"\n{term}\n  " in page, f"{path.name}: {term}"


# --- what `make` installs ---


def pins(name):
    lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split(" ;")[0].split("==") for line in lines if "==" in line and not line.lstrip().startswith("#"))


def names(requirements):
    return {re.split(r"[<>=!~ \[;]", requirement)[0].lower() for requirement in requirements}


def test_the_demo_installs_all_that_koncord_needs_and_little_more():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    base = pins("base.txt")
    assert names(project["dependencies"]) <= base.keys()
    extras = {name for needed in project["optional-dependencies"].values() for name in names(needed)}
    assert extras.isdisjoint(base)
    assert len(base) < 25


@pytest.mark.parametrize("name", ["base.txt", "docs.txt"])
def test_one_environment_holds_all_sets_of_requirements(name):
    developers = pins("dev.txt")
    for distribution, version in pins(name).items():
        assert developers.get(distribution, version) == version, distribution


def test_the_version_is_written_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "koncord.__version__"}
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {koncord.__version__}\n" in citation
    assert f"\n## {koncord.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_program_that_builds_the_site_finds_what_is_wrong(tmp_path):
    build = runpy.run_path(str(ROOT / "scripts" / "build_docs.py"))
    build["faults_of"].__globals__["TARGET"] = tmp_path
    (tmp_path / "b.html").write_text('<h1 id="here">b</h1>')
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here">good</a> <a href="b.html#gone">1</a> <a href="c.html">2</a> <a href="https://x.org">good</a>'
        '<img src="https://x.org/y.png"><script src="gone.js"></script><link rel="canonical" href="https://x.org/">'
    )
    (tmp_path / "s.css").write_text("@import url('https://fonts.example/x.css');")
    pages = {path: build["Page"](path) for path in tmp_path.glob("*.html")}
    assert sorted(build["faults_of"](pages)) == [
        "a.html links to b.html#gone, a place that is not on that page",
        "a.html links to c.html, which is not there",
        "a.html loads gone.js, which is not there",
        "a.html loads https://x.org/y.png",
        "s.css loads from elsewhere",
    ]
