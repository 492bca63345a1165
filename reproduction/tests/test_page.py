"""The page and the files beside it: the same rows, the same bytes, whatever is missing."""

import csv
import io
import re
import runpy
import sys
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koncord_reproduction.claims import DIFFERS, NOT_COMPARABLE, VERDICTS, Claim
from koncord_reproduction.page import (
    BESIDE,
    CLAIMS_CSV,
    PAGE,
    Report,
    claims_csv,
    claims_text,
    differing_text,
    docs_texts,
    incomparable_text,
    page,
    page_text,
    rounded,
    verdict_table,
    whole_page,
    with_interval,
    write,
)
from koncord_reproduction.rows import as_text
from koncord_reproduction.tables import OUTPUTS

from .fabricated import SEEDS, any_rows, row

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "reproduction_page.py"
EVERYTHING = any_rows(seeds=SEEDS[:3])
# Few rows, quick to draw.
FEW = [each for each in EVERYTHING if each.experiment in ("classes", "synthetic-components", "pooled")]


def texts(rows):
    report = Report(rows)
    return docs_texts(report, ["split-onset"]) | {"html": whole_page(report, {})}


def test_the_same_rows_in_another_order_give_the_same_bytes():
    shuffled = [EVERYTHING[at] for at in np.random.default_rng(0).permutation(len(EVERYTHING))]
    assert texts(EVERYTHING) == texts(shuffled)


@given(st.integers(0, 10_000), st.floats(0, 1))
@settings(max_examples=10)
def test_any_part_of_the_rows_gives_a_page(seed, share):
    random = Random(seed)
    rows = [each for each in EVERYTHING if random.random() < share]
    rows = [each if random.random() < 0.9 else ended_badly(each, random) for each in rows]
    report = Report(rows)
    text = page_text(report, [], beside="")
    assert "nan" not in re.sub(r"[a-z]nan|nan[a-z]", "", text.lower())
    assert sum(Counter(claim.verdict for claim in report.claims).values()) == len(report.claims)
    assert {claim.verdict for claim in report.claims} <= set(VERDICTS)


def ended_badly(each, random):
    status = random.choice(["failed", "timed out"])
    return row(each.experiment, each.dataset, each.method, each.seed, status=status, reason="because")


@pytest.mark.parametrize("name", OUTPUTS)
def test_one_experiment_alone_gives_a_page(name):
    rows = [each for each in EVERYTHING if each.experiment in OUTPUTS[name].experiments]
    report = Report(rows, [name])
    assert report.names == [name]
    assert page_text(report, [], beside="").startswith("# The paper, reproduced\n")


def test_no_rows_give_a_page_that_says_so():
    text = page([])
    assert "The rows here: 0 runs, 0 done" in text
    assert "Nothing that was run differs." in text
    assert "![" not in text


def test_the_count_of_verdicts_is_that_of_the_claims():
    report = Report(EVERYTHING)
    counts = Counter(claim.verdict for claim in report.claims)
    line = next(line for line in verdict_table(report.claims).splitlines() if "all claims" in line)
    assert [int(cell) for cell in re.findall(r"\d+", line)] == [
        *(counts[verdict] for verdict in VERDICTS),
        len(report.claims),
    ]


def test_what_differs_comes_before_the_tables_and_names_both_numbers():
    rows = [row("pooled", "mnist", "xmeans", seed, ari=0.5, k=9) for seed in SEEDS]
    text = page_text(Report(rows), [], beside="")
    line = "| Pooled benchmark | MNIST, X-means, ARI | 0.112 [0.106, 0.118] | 0.500 | 10 | differs |  |"
    assert line in text
    assert text.index(line) < text.index("## Tables and figures")


def test_what_cannot_be_compared_is_counted_by_reason():
    report = Report(EVERYTHING)
    told = incomparable_text(report.claims)
    counts = [int(count) for count in re.findall(r"^- (\d+): ", told, re.MULTILINE)]
    assert sum(counts) == sum(claim.verdict == NOT_COMPARABLE for claim in report.claims) > 0
    assert told in page_text(report, [], beside="")
    assert "CIFAR-10, stand-in features" in told
    assert incomparable_text([]) == "Nothing.\n"


def test_what_people_found_out_is_added_to_what_differs(monkeypatch):
    monkeypatch.setattr("koncord_reproduction.page.explanations", lambda: {"pooled/*/ari": "another random stream"})
    claim = Claim(
        name="pooled/mnist/xmeans/ari",
        table="pooled",
        cell="x",
        paper=1.0,
        ours=2.0,
        verdict=DIFFERS,
        reason="2 failed",
    )
    assert "| x | 1.00 | 2.00 |  | differs | 2 failed; another random stream |" in differing_text([claim])


def test_the_claims_are_a_table_that_reads_back():
    claims = Report(EVERYTHING).claims
    lines = list(csv.DictReader(io.StringIO(claims_csv(claims))))
    assert [line["name"] for line in lines] == [claim.name for claim in claims]
    for line, claim in zip(lines, claims, strict=True):
        assert line["verdict"] == claim.verdict
        if isinstance(claim.ours, float):
            assert float(line["ours"]) == pytest.approx(claim.ours, rel=1e-4, abs=1e-12)
    assert claims_text(claims).count("\n| ") >= len(claims)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.1234, "0.123"), (-0.5, "−0.500"), (9.876, "9.88"), (81.04, "81.0"), (131600.0, "131,600")]
)
def test_numbers_have_as_many_decimals_as_their_size_asks_for(value, shown):
    assert rounded(value) == shown


def test_an_interval_without_upper_end_is_reported_as_above():
    assert with_interval(None, 3.0, None) == "> 3.00"
    assert with_interval(None, None, None) == "–"
    assert with_interval("on MNIST", None, None) == "on MNIST"


# --- files ---


def test_writing_makes_tables_figures_claims_and_pages(tmp_path):
    claims = write(FEW, tmp_path, ["pooled", "synthetic"])
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {
        "reproduction.md",
        "reproduction.html",
        "claims.md",
        "claims.csv",
        "tables/pooled.md",
        "tables/pooled.html",
        "tables/synthetic.md",
        "tables/synthetic.html",
        "figures/components-before-merging.png",
        "figures/components-before-merging.svg",
    }
    assert {claim.table for claim in claims} == {"pooled", "synthetic"}
    whole = (tmp_path / "reproduction.html").read_text(encoding="utf-8")
    assert 'src="data:image/png;base64,' in whole
    assert "http://" not in whole
    assert "https://" not in whole
    text = (tmp_path / "reproduction.md").read_text(encoding="utf-8")
    assert "](figures/components-before-merging.png)" in text


def test_writing_again_changes_no_byte(tmp_path):
    for folder in ("one", "two"):
        write(FEW, tmp_path / folder, ["synthetic"])
    paths = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert len(paths) == 8
    for path in paths:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes()


# --- the documentation ---


@pytest.fixture
def script(monkeypatch):
    """Run the script; returns its exit code, a sentence if it is one."""
    main = runpy.run_path(str(SCRIPT), run_name="imported")["main"]

    def run(*argv):
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, argv)])
        try:
            main()
        except SystemExit as stop:
            return stop.code
        return 0

    return run


def test_the_script_keeps_the_rows_builds_the_page_and_notices_when_it_is_stale(tmp_path, script, capsys):
    stored = tmp_path / "rows.csv"
    stored.write_text(as_text(FEW), encoding="utf-8")
    docs = tmp_path / "docs"
    assert script("--rows", stored, "--docs", docs) == 0
    assert "'agrees'" in capsys.readouterr().out
    assert (docs / BESIDE / "rows.csv").read_text(encoding="utf-8") == stored.read_text(encoding="utf-8")
    assert script("--check", "--docs", docs) == 0
    with (docs / PAGE).open("a", encoding="utf-8") as file:
        file.write("A word that no row says.\n")
    (docs / BESIDE / "figures" / "components-before-merging.svg").unlink()
    stale = script("--check", "--docs", docs)
    assert "-A word that no row says." in stale
    assert "figure components-before-merging.svg is missing" in stale
    assert "The page is stale" in stale
    assert CLAIMS_CSV not in stale


def test_without_rows_the_script_says_how_to_get_them(tmp_path, script):
    assert "--rows" in script("--check", "--docs", tmp_path)


def test_the_page_of_the_documentation_is_what_the_stored_rows_say(script):
    assert script("--check") == 0
