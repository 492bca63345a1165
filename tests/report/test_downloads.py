"""What a reader saves from the page: every table as CSV, every drawing as SVG, without a script."""

import csv
import io
import re
from base64 import b64decode
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koncord import FederatedClustering, KnownCounts
from koncord.report.cells import Bar, Chip, Heat, Shade, TableView, numeric, words
from koncord.report.downloads import FORMULA, csv_of, file_name, safe

SVG = "{http://www.w3.org/2000/svg}"
LINK = re.compile(r'<a download="([^"]+)" href="data:([^,"]+),([^"]*)"')


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    rng = np.random.default_rng(0)
    sites = {f"=s{at}": rng.normal(9 * rng.integers(3, size=(300, 1)), 1, (300, 3)) for at in range(3)}
    fitted = FederatedClustering(KnownCounts(1), random_state=0).fit(sites)
    path = tmp_path_factory.mktemp("page") / "page.html"
    fitted.report(path)
    return path.read_text(encoding="utf-8")


def saved(source, kind):
    """Name and text of every file of a kind that the page can save."""
    for name, media, data in LINK.findall(source):
        if name.endswith(f".{kind}"):
            yield name, b64decode(data).decode() if media.endswith("base64") else unquote(data)


def test_every_table_of_the_page_can_be_saved_and_reads_back(source):
    files = dict(saved(source, "csv"))
    assert len(list(saved(source, "csv"))) == source.count("<table") == len(files)
    lines = {name: list(csv.reader(io.StringIO(text))) for name, text in files.items()}
    for name, table in lines.items():
        assert len({len(line) for line in table}) == 1, name
    holdings = lines["rows-by-site-and-cluster.csv"]
    assert holdings[0][:2] == ["site", "cluster 0"]
    counts = np.array([[int(cell) for cell in line[1:]] for line in holdings[1:]])
    assert (counts[:, :-1].sum(axis=1) == counts[:, -1]).all()
    assert (counts[:-1].sum(axis=0) == counts[-1]).all()
    assert [line[0] for line in holdings[1:-1]] == ["'=s0", "'=s1", "'=s2"]  # no formula


def test_a_saved_profile_has_the_center_and_both_ends_of_its_spread(source):
    head, *lines = csv.reader(io.StringIO(dict(saved(source, "csv"))["profiles-of-the-clusters.csv"]))
    assert head[:4] == ["column", "cluster 0 center", "cluster 0 low", "cluster 0 high"]
    for line in lines:
        center, low, high = map(float, line[1:4])
        assert low < center < high
        assert high - center == pytest.approx(center - low, rel=1e-3)
        assert high - low == pytest.approx(2, rel=0.15)  # clusters of variance 1


def test_every_drawing_can_be_saved_as_a_file_that_stands_alone(source):
    files = dict(saved(source, "svg"))
    assert set(files) == {"map.svg", "tree.svg", "criteria.svg", "profiles-of-the-clusters.svg"}
    assert source.count("<svg") == len(files) - 1  # the heat map is on the page as a table
    for name, text in files.items():
        root = ElementTree.fromstring(text)
        assert root.tag == f"{SVG}svg", name
        assert float(root.get("width")) > 100 < float(root.get("height"))
        assert "var(" not in text  # not every program knows names of colors
        assert "#" in root.find(f"{SVG}style").text
        assert not [e for e in root.iter() if e.tag == f"{SVG}script" or any("href" in key for key in e.attrib)]


def test_bars_are_left_out_and_chips_and_shades_are_numbers():
    table = TableView(
        caption="c",
        columns=[*words("cluster"), *numeric("rows", Chip(4)), *words("bar")],
        rows=[[Chip(3), "1,234", Shade(7, 0.5, 1.0), Bar(0.5, 0, 1)]],
    )
    assert csv_of(table) == "cluster,rows,cluster 4\r\n3,1234,7\r\n"


def test_a_line_without_spread_has_empty_ends():
    heat = Heat(text="1.2", value=1.2345678, step=0.1)
    table = TableView(caption="c", columns=[*words("column"), *numeric(Chip(0))], rows=[["x", heat], ["y", "none"]])
    assert csv_of(table).splitlines()[1:] == ["x,1.23457,,", "y,none,,"]


@given(st.text(max_size=20))
def test_nothing_that_others_wrote_begins_a_formula(text):
    kept = safe(text)
    assert not kept.startswith(FORMULA) or re.fullmatch(r"-[\d.e+-]+", kept)


@given(st.text(max_size=90))
def test_a_file_name_is_plain(text):
    assert re.fullmatch(r"[a-z0-9-]{1,40}\.csv", file_name(text, "csv"))
