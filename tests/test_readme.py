"""What the README shows is what happens."""

import csv
import re
import runpy
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

from gate.lines import LAST, read_figures

import koncord

ROOT = Path(__file__).parent.parent
REPRODUCTION = ROOT / "reproduction" / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_prints_what_its_comment_says(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    (said,) = re.findall(r"local_counts_\)  # (.*)", code)
    assert capsys.readouterr().out.strip() == said
    assert (tmp_path / "model.koncord").exists()


def test_every_name_in_the_readme_exists():
    table = README[README.index("| phase 1 |") : README.index("## What leaves a site")]
    for name in re.findall(r"`([A-Z][A-Za-z]+)", table):
        assert name in koncord.__all__


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if target.startswith("https://"):
            continue
        assert (Path(__file__).parent.parent / target).exists(), target


def test_every_make_target_in_the_readme_is_in_the_makefile():
    makefile = (Path(__file__).parent.parent / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make ([a-z][a-z0-9-]+)", README):
        if target not in ("are",):
            assert re.search(rf"^{target}\b.*:|^[a-z0-9 -]*\b{target}\b.*:", makefile, re.MULTILINE), target


VERDICTS = ("agrees", "differs", "too few runs", "not comparable", "not run")


def verdicts():
    """How many claims agree, differ, rest on too few runs, are not comparable, were not run; how many there are."""
    with (REPRODUCTION / "reproduction" / "claims.csv").open(encoding="utf-8", newline="") as file:
        counts = Counter(row["verdict"] for row in csv.DictReader(file))
    return [counts[verdict] for verdict in VERDICTS] + [counts.total()]


def test_what_is_said_of_the_papers_claims_is_what_the_verdicts_are():
    page = (REPRODUCTION / "reproduction.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"\| \*\*all claims\*\* \|(.*)\|", page)
    assert [int(cell) for cell in row.split("|")] == verdicts()
    agrees, differs, too_few, not_comparable, not_run, every = verdicts()
    sentence = (
        f"Of the {every} numbers and sentences of the paper, {agrees} agree with ours and {differs} differ; "
        f"{too_few} rest on too few runs, {not_comparable} are not comparable (other data, another embedding, another "
        f"machine) and {not_run} were not run"
    )
    assert sentence in " ".join(README.split())
    assert "in full" not in README


def test_what_is_said_of_accuracy_is_what_the_gate_stored():
    figures = read_figures()["full"][LAST]

    def ari(group, method):
        return f"{figures[f'accuracy: {group}: {method}, ARI']:.2f}"

    said = " ".join(README.split())
    assert f"of the default is {ari('fresh', 'koncord')}; of the paper's method" in said
    assert f"as the paper runs it, {ari('fresh', 'paper')}." in said
    assert f"mixture by BIC has {ari('fresh', 'pooled GMM + BIC')}, k-means that is given K" in said
    assert f"given K {ari('fresh', 'pooled k-means, K given')}." in said
    own = [ari("fresh by own sites", method) for method in ("koncord", "paper")]
    assert f"the default has {own[0]}, the paper's method {own[1]}:" in said


def test_every_extra_in_the_readme_can_be_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {extra for listed in re.findall(r"\.\[([a-z,]+)\]", README) for extra in listed.split(",")}
    assert named
    assert named <= project["optional-dependencies"].keys()


def test_the_next_command_of_the_demo_can_be_typed_as_it_is_shown(tmp_path):
    """`make demo` puts nothing on PATH."""
    koncord = Path(sys.executable).with_name("koncord")
    bare = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run([koncord, "demo"], cwd=tmp_path, env=bare, capture_output=True, text=True, check=True)
    (command,) = re.findall(r"^next: +(\S+) fit ", done.stdout, re.MULTILINE)
    assert Path(command) == koncord


def test_the_readme_is_short_and_has_a_picture():
    assert len(README.splitlines()) < 150
    assert "![" in README


def test_the_description_on_the_package_index_has_no_address_that_leads_nowhere_there():
    description = runpy.run_path(str(ROOT / "setup.py"))["description"](README)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", description)
    links = re.findall(r"(?<!!)\[[^\]]*\]\(([^)]*)\)", description)
    assert pictures
    assert links
    assert all(address.startswith("https://raw.githubusercontent.com/") for address in pictures)
    assert all(address.startswith("https://") for address in links)
    assert any(address.startswith(f"{project['urls']['Source']}/blob/main/docs/") for address in links)


def test_the_comparison_is_the_same_here_and_where_its_sources_are():
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    tables = [
        re.findall(
            r"^\| ?(?:\| koncord|clusters rows|global K|local K|rules|differential|secure|site or).*$", text, re.M
        )
        for text in (README, page)
    ]
    assert len(tables[0]) == 8
    assert tables[0] == tables[1]
    heads = [head.strip() for head in tables[0][0].strip("| ").split("|")]
    for head in heads[1:]:
        assert f"\n{head} (" in page, f"where is {head} from?"
