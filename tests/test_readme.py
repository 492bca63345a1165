"""What the README shows is what happens."""

import csv
import json
import re
import runpy
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from statistics import fmean

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


def test_what_is_said_of_consensus_is_what_was_measured():
    lines = (ROOT / "docs" / "consensus" / "clusters.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    methods = [name for name in rows[0] if isinstance(rows[0][name], list)]
    real, made, paper = (
        [f"{fmean(row[method][0] for row in rows if row['group'] == group):.3f}" for method in methods]
        for group in ("real", "made", "paper")
    )
    said = " ".join(README.split())
    assert f"index of Consensus is {real[0]}; of the paper's method, {real[1]}; of its oracle" in said
    assert f"local counts, {real[2]}; of a mixture by BIC with all rows in one place, {real[3]}." in said
    assert f"On 18 made sets it is {made[0]}, {made[1]}, {made[2]} and {made[3]}." in said
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    table = [
        re.findall(r"(0\.\d{3})", row) for row in re.findall(r"^\| \d+ (?:real|made|tabular) .*", page, re.MULTILINE)
    ]
    assert table[:3] == [real, made, paper]


def test_the_tables_of_the_sets_of_the_paper_are_those_of_the_stored_rows():
    with (ROOT / "docs" / "consensus" / "rows.csv").open(encoding="utf-8", newline="") as file:
        found = {
            (row["experiment"][-1], row["dataset"], row["method"], int(row["seed"])): json.loads(row["values"])["ari"]
            for row in csv.DictReader(file)
            if row["status"] == "done"
        }
    names = {"FrogA": "frog_species", "FrogB": "frog_genus", "CIFAR-10": "cifar10"}
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    sections = re.findall(r"^Regime ([AB]):\n\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert [regime for regime, _ in sections] == ["A", "B"]
    for regime, table in sections:
        lines = re.findall(r"^\| (\S+) \| (\d+) \|(.*)\|$", table, re.MULTILINE)
        assert lines
        for name, n_seeds, cells in lines:
            said = re.findall(r"0\.\d{3}", cells)
            dataset = names.get(name, name.lower())
            seeds = [seed for seed in range(47, 50) if (regime.lower(), dataset, "consensus", seed) in found]
            assert len(seeds) == int(n_seeds)
            for method, mean in zip(("consensus", "asm-s", "oracle"), said, strict=True):
                assert mean == f"{fmean(found[regime.lower(), dataset, method, seed] for seed in seeds):.3f}"


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
