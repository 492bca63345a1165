"""The page of a run: what it says, whether it is well formed, and how it behaves in a browser."""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from koncord._text import showable
from koncord.aggregate.diagnostics import Diagnostics, KCandidate, KChoice, UpsilonCandidate, UpsilonChoice
from koncord.model.facts import Promise, SessionFacts
from koncord.model.globalmodel import GlobalModel
from koncord.protocol.departures import Absence, Departure
from koncord.protocol.schema import Sent
from koncord.report.page import HEADINGS, page, write_page
from koncord.report.rendering import rendered
from koncord.report.style import CSS
from koncord.runs.record import RunRecord, Truth

SITES = ("<b>north</b> & co", "south", "west")
VOID = {"meta", "link"}


def model_of(
    n_clusters=3, n_features=4, sites=SITES, components=True, silhouettes=None, columns=None, diagnostics=None
):
    rng = np.random.default_rng(0)
    holdings = rng.integers(0, 90, (len(sites), n_clusters))
    holdings[:, 0] += 10
    groups = {site: np.arange(n_clusters) for site in sites} if components else {}
    centers = rng.normal(size=(n_clusters, n_features))
    return GlobalModel(
        centers=centers,
        weights=holdings.sum(axis=0) / holdings.sum(),
        columns=columns or tuple(f"column {at}" for at in range(n_features)),
        means=np.full(n_features, 100.0),
        scales=np.full(n_features, 10.0),
        sites=tuple(sites),
        local_counts=tuple(range(2, 2 + len(sites))),
        holdings=holdings,
        groups=groups,
        components={site: centers + 0.1 * rng.normal(size=centers.shape) for site in groups},
        seed=7,
        settings={"estimator": "ASM()", "aggregator": "FedGEM()"},
        diagnostics=diagnostics or Diagnostics(choice=UpsilonChoice(upsilon=1.0)),
        session=SessionFacts(exchanges=4, min_report=1, silhouettes=silhouettes or (0.5,) * n_clusters),
        versions={"koncord": "1.2.3", "numpy": "2.0.0"},
    )


def record_of(sites=SITES, **changes):
    departures = [
        Departure(exchange=at, site=site, message=message, numbers=numbers, n_bytes=1000 * numbers, seconds=0.25)
        for at, (message, numbers) in enumerate([("Moments", 9), ("Prepared", 1), ("Balls", 15)], start=1)
        for site in sites
    ]
    record = RunRecord(
        started="2026-01-02T03:04:05+00:00",
        seconds=12.345,
        estimator="asm",
        aggregator="fedgem",
        is_standardized=True,
        options={},
        files={site: f"{site}.csv" for site in sites},
        sends=(
            Sent(message="Balls", field="means", shape="local_k x n_features"),
            Sent(message="Judgement", field="scores", shape="candidates"),
        ),
        departures=tuple(departures),
        versions={"python": "3.11.0"},
    )
    return replace(record, **changes)


CANDIDATES = tuple(
    UpsilonCandidate(upsilon=upsilon, n_clusters=n_clusters, score=score)
    for upsilon, n_clusters, score in ((0.1, 3, 2.5), (1.0, 4, 3.0), (1000.0, 2, -0.5))
)
CHOSEN = Diagnostics(choice=UpsilonChoice(upsilon=1.0, candidates=CANDIDATES))
NOTES = Diagnostics(notes=("All final balls meet.", "And <more>."))
MANY = tuple(f"site-{at:02}" for at in range(30))
CASES = {
    "usual": (model_of(), record_of()),
    "chosen": (model_of(diagnostics=CHOSEN), record_of()),
    "one cluster": (model_of(1, silhouettes=(None,)), record_of()),
    "one column": (model_of(n_features=1), record_of()),
    "one site": (model_of(sites=("only",)), record_of(sites=("only",))),
    "no components": (model_of(components=False), record_of(aggregator="fedkmeans", clusters_given=3)),
    "below zero": (model_of(silhouettes=(0.2, -0.4, None)), record_of()),
    "many": (model_of(20, 40, sites=MANY), record_of(sites=MANY)),
    "long names": (
        model_of(columns=("w" * 200, "two words " * 20, "<script>alert(1)</script>", "\N{GREEK SMALL LETTER ALPHA}")),
        record_of(),
    ),
    "truth": (
        model_of(diagnostics=NOTES),
        record_of(truth=Truth(n_clusters=3, ari=0.4567, local_counts=dict.fromkeys(SITES, 2))),
    ),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


# --- what it says ---


class Reader(HTMLParser):
    """Elements in order, the text of each, and whether every element is closed where it should be."""

    def __init__(self, source):
        super().__init__()
        self.open, self.elements = [], []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, name, attributes):
        element = {"name": name, "text": "", "parents": [e["name"] for e in self.open], **dict(attributes)}
        self.elements.append(element)
        if name not in VOID:
            self.open.append(element)

    def handle_endtag(self, name):
        assert self.open.pop()["name"] == name

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, name, **attributes):
        return [e for e in self.elements if e["name"] == name and all(e.get(k) == v for k, v in attributes.items())]

    def cells(self, caption):
        """The lines of the table with this caption, as text."""
        lines = []
        in_table = False
        for element in self.elements:
            if element["name"] == "table":
                in_table = False
            if element["name"] == "caption":
                in_table = element["text"].startswith(caption)
            if in_table and element["name"] == "tr":
                lines.append([])
            if in_table and element["name"] in ("th", "td"):
                lines[-1].append(element["text"].strip())
        return lines


def test_the_headline_counts_clusters_rows_and_sites():
    model = CASES["usual"][0]
    read = Reader(page(*CASES["usual"]))
    expected = f"3 clusters in {int(model.holdings.sum()):,} rows at 3 sites"
    assert [heading["text"] for heading in read.all("h1")] == [expected]
    assert read.all("title")[0]["text"] == f"{expected} | koncord"


def test_sections_come_in_their_order():
    read = Reader(page(*CASES["truth"]))
    assert [heading["text"] for heading in read.all("h2")] == list(HEADINGS.values())
    links = [link["href"] for link in read.all("a") if link["href"] != "#results"]
    assert links == [f"#{name}" for name in HEADINGS]
    without = [heading["text"] for heading in Reader(page(*CASES["usual"])).all("h2")]
    assert without == [heading for heading in HEADINGS.values() if heading != HEADINGS["truth"]]


@pytest.mark.parametrize("silhouette", [0.9, 0.1, -0.2])
def test_how_sure_it_is_does_not_rest_on_the_silhouette(silhouette):
    shown = Reader(page(model_of(silhouettes=(silhouette,) * 3), record_of())).all("section", id="sure")[0]
    assert "does not tell how sure" in shown["text"]
    assert not re.search("strong structure|reasonable|weak|hardly any", shown["text"])


def test_the_aggregators_notes_and_empty_clusters_are_not_missed():
    model = model_of(diagnostics=NOTES)
    model.holdings[:, 2] = 0
    notes = [note["text"] for note in Reader(page(model, record_of())).all("p", role="note")]
    assert notes == [
        "Note: All final balls meet.",
        "Note: And <more>.",
        "Note: No row of any site is nearest to the center of cluster 2.",
    ]


def test_the_choice_of_upsilon_is_shown_where_there_was_one():
    read = Reader(page(*CASES["chosen"]))
    assert [[line[0], line[1], line[2], line[4]] for line in read.cells("Values of upsilon")[1:]] == [
        ["0.1", "3", "2.500", ""],
        ["1", "4", "3.000", "chosen"],
        ["1,000", "2", "\N{MINUS SIGN}0.500", ""],
    ]
    text = read.all("section", id="sure")[0]["text"]
    assert "The 3 values tried give 2 to 4 clusters, the chosen one 4; with the held-out rows back it is 3." in text
    assert Reader(page(*CASES["usual"])).cells("Values of upsilon") == []


def test_who_holds_what_gives_every_count():
    model, record = CASES["usual"]
    lines = Reader(page(model, record)).cells("Rows by site and cluster")
    assert lines[0] == ["site", "0", "1", "2", "rows"]
    for line, name, counts in zip(lines[1:], model.sites, model.holdings, strict=False):
        assert line[0] == name
        assert [int(cell.split()[0].replace(",", "")) for cell in line[1:]] == [*counts, counts.sum()]
    assert lines[-1] == ["all sites", *(f"{n:,}" for n in model.holdings.sum(axis=0)), f"{model.holdings.sum():,}"]


def test_centers_are_in_the_units_of_the_tables_and_the_telling_ones_are_marked():
    model, record = CASES["usual"]
    head, *lines = Reader(page(model, record)).cells("Profiles")
    lines = [head, *sorted(lines)]  # by the names of the columns
    original = model.centers * 10 + 100
    for line, expected in zip(lines[1:], original.T, strict=True):
        values = [float(re.sub("[^0-9.]", "", cell)) for cell in line[1:4]]
        assert values == pytest.approx(expected, abs=0.06)
    apart = model.centers - model.weights @ model.centers
    for cluster in range(3):
        marked = [
            at
            for at in range(4)
            if lines[at + 1][cluster + 1][0] in "\N{BLACK UP-POINTING TRIANGLE}\N{BLACK DOWN-POINTING TRIANGLE}"
        ]
        assert marked == [np.abs(apart[cluster]).argmax()]
        is_up = lines[marked[0] + 1][cluster + 1].startswith("\N{BLACK UP-POINTING TRIANGLE}")
        assert is_up == (apart[cluster, marked[0]] > 0)


def test_what_left_each_site_adds_up():
    read = Reader(page(*CASES["usual"]))
    lines = read.cells("Sent by each site")
    rows = CASES["usual"][0].holdings.sum(axis=1)
    assert lines[2] == ["south", "3", "25", "25.0 kB", f"{4 * rows[1]:,}"]
    assert lines[-1][:4] == ["all sites", "9", "75", "75.0 kB"]
    assert read.cells("Sent by kind")[1:] == [
        ["Moments", "3", "9", "27", "27.0 kB"],
        ["Prepared", "3", "1", "3", "3.0 kB"],
        ["Balls", "3", "15", "45", "45.0 kB"],
    ]
    assert read.cells("All that a site may send")[1:] == [
        ["Balls", "means", "local_k x n_features", "no", "sent"],
        ["Judgement", "scores", "candidates", "no", "not sent"],
    ]


def test_a_method_that_discloses_rows_and_a_lone_row_are_warned_of():
    sends = (Sent(message="Pulls", field="pulls", shape="n_samples x n_features", grows_with_rows=True),)
    model = model_of()
    model.holdings[1] = [1, 0, 0]
    read = Reader(page(model, record_of(aggregator="afcl", sends=sends)))
    warnings = [note["text"] for note in read.all("p", role="note")]
    assert [text.startswith("Warning:") for text in warnings] == [True, True]
    assert "afcl sends values that grow with the rows" in warnings[0]
    assert warnings[1].endswith("Sites of one row: south.")
    assert read.cells("All that a site may send")[1][3] == "yes"
    assert "never the rows" not in read.all("section", id="reading")[0]["text"]


def test_settings_seed_versions_and_timings_are_there():
    text = Reader(page(*CASES["usual"])).all("section", id="settings")[0]["text"]
    for part in (
        "seed7",
        "ASM()",
        "FedGEM()",
        "2026-01-02 03:04:05 UTC",
        "12.3",
        "koncord1.2.3",
        "python3.11.0",
        "0.750",
    ):
        assert part in text


def test_the_same_run_gives_the_same_bytes(case, tmp_path):
    model, record = case
    model.save(tmp_path / "model.koncord")
    record.save(tmp_path / "run.json")
    write_page(tmp_path / "one.html", model, record)
    loaded = GlobalModel.load(tmp_path / "model.koncord"), RunRecord.load(tmp_path / "run.json")
    write_page(tmp_path / "two.html", *loaded)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes() == page(model, record).encode()
    assert loaded[1] == record
    assert not list(tmp_path.glob(".*"))


# --- how it is built ---


def test_every_element_is_closed_and_every_id_is_its_own(case):
    read = Reader(page(*case))
    ids = Counter(element["id"] for element in read.elements if "id" in element)
    assert max(ids.values()) == 1
    for element in read.elements:
        for name in element.get("aria-labelledby", "").split():
            assert name in ids
        if element.get("href", "").startswith("#"):
            assert element["href"][1:] in ids


def test_names_from_outside_stay_text(case):
    read = Reader(page(*case))
    assert not read.all("script")
    assert not [element for element in read.all("b") if element["text"] == "north"]


ATTACK = """<script>alert(1)</script>"'><img src=x onerror=alert(1)></svg></style></title>{{ 7 * 7 }}"""


def attacked():
    """A model and a record with hostile text in every place that somebody else can write to."""
    sites = (ATTACK, f"b{ATTACK}", "c")
    hostile = KCandidate(hierarchy=ATTACK, n_clusters=3, silhouette=0.5, separation=0.3, gap=0.2)
    others = [replace(hostile, n_clusters=k) for k in (1, 2, 4)]
    diagnostics = Diagnostics(
        choice=KChoice(chosen=hostile, runner_up=others[1], candidates=(*others[:2], hostile, others[2])),
        stabilities=(0.5, 0.5, 0.5),
        micro_clusters=dict.fromkeys(sites, 3),
        notes=(f"note {ATTACK}",),
        extra={f"extra {ATTACK}": f"fact {ATTACK}"},
    )
    model = replace(
        model_of(sites=sites, columns=(f"column {ATTACK}", "x", "y", "z"), diagnostics=diagnostics),
        settings={"estimator": f"estimator {ATTACK}", "aggregator": f"aggregator {ATTACK}"},
        versions={"koncord": f"version {ATTACK}", f"library {ATTACK}": "1"},
        session=SessionFacts(
            exchanges=4,
            missing=(Absence(exchange=2, site=ATTACK, asked=f"asked {ATTACK}", reason=f"reason {ATTACK}"),),
            silent=(ATTACK,),
            withheld={sites[1]: 3},
            support=(3, 1, 2),
            min_support=2,
            privacy={sites[1]: Promise(epsilon=1.0, delta=1e-6, bound=2.0)},
            left_out_columns={f"left {ATTACK}": (f"holder {ATTACK}",)},
        ),
    )
    model = replace(model, excluded={ATTACK: np.array([True, False, False])})
    message = f"message {ATTACK}"
    record = record_of(
        sites,
        started=f"{ATTACK}",
        estimator=f"phase 1 {ATTACK}",
        aggregator=f"phase 2 {ATTACK}",
        options={f"--{ATTACK}": f"value {ATTACK}"},
        files=dict.fromkeys(sites, f"file {ATTACK}"),
        sends=(Sent(message=message, field=f"field {ATTACK}", shape=f"shape {ATTACK}", grows_with_rows=True),),
        versions={f"python {ATTACK}": f"number {ATTACK}"},
        departures=(
            Departure(exchange=1, site=ATTACK, message=message, numbers=1, n_bytes=2, seconds=0.5),
            Departure(exchange=1, site="c", message=message, numbers=1, n_bytes=2, seconds=0.5),
        ),
    )
    return model, record


def test_hostile_text_stays_text_in_every_place_of_the_page():
    model, record = attacked()
    source = page(model, record)
    read = Reader(source)
    plain = Reader(page(model_of(), record_of()))
    assert {element["name"] for element in read.elements} <= {element["name"] for element in plain.elements}
    assert not [key for element in read.elements for key in element if key.startswith("on") or key == "src"]
    assert "<script" not in source
    assert "<img" not in source
    assert "49" not in source  # a template inside a name is not filled
    words = " | ".join(element["text"] for element in read.elements)
    kinds = "note extra fact column estimator aggregator version library asked reason left holder message value"
    for kind in (*kinds.split(), "phase 1", "phase 2", "file", "field", "shape", "python", "number"):
        assert f"{kind} {ATTACK}" in words.replace("\n", " "), kind
    assert [box for box in read.all("div", role="region") if f"phase 2 {ATTACK}" in box["aria-label"]]
    assert [line[0] for line in read.cells("Rows by site and cluster")[1:3]] == [ATTACK, f"b{ATTACK}"]


@given(st.text(st.sampled_from("<>&\"'{}%#/=!- ab") | st.characters(), min_size=1, max_size=30))
@example("<b>&amp;</b>")
def test_any_name_is_read_back_as_it_can_be_shown(name):
    model = model_of(sites=(name,), columns=(name, "x", "y", "z"))
    read = Reader(page(model, record_of(sites=(name,))))
    assert {line[0] for line in read.cells("Profiles")[1:]} == {showable(name).strip(), "x", "y", "z"}
    assert read.cells("File of each site")[1] == [showable(name).strip(), showable(f"{name}.csv").strip()]


def test_a_template_that_asks_for_what_nobody_gave_is_an_error():
    with pytest.raises(UndefinedError, match="notes"):
        rendered("sure", view={"belief": "none", "others": [], "choice": None})


def test_the_help_of_the_command_line_loads_no_templates():
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "from koncord.cli import main; main(['--help'])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "jinja2" not in told.stderr
    assert "koncord.cli" in told.stderr


def test_a_screen_reader_finds_its_way(case):
    read = Reader(page(*case))
    assert read.all("html")[0]["lang"] == "en"
    assert [len(read.all(name)) for name in ("header", "nav", "main", "footer", "h1")] == [1, 1, 1, 1, 1]
    levels = [int(element["name"][1]) for element in read.elements if re.fullmatch("h[1-6]", element["name"])]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for element in read.elements:
        if re.fullmatch("h[1-6]|th|a|dt|caption|summary", element["name"]):
            assert element["text"].strip()
        if element["name"] == "th":
            assert element["scope"] in ("row", "col")
        if element["name"] == "section":
            assert element["aria-labelledby"]
    tables, captions = read.all("table"), read.all("caption")
    assert len(tables) == len(captions)
    assert all(table["parents"][-1] == "div" for table in tables)
    boxes = read.all("div", role="region")
    assert len(boxes) == len(tables)
    assert all(box["tabindex"] == "0" and box["aria-label"] for box in boxes)


def test_bars_are_silent_because_the_number_stands_beside_them(case):
    for bar in Reader(page(*case)).all("span", **{"class": "bar"}):
        assert bar["aria-hidden"] == "true"
        assert bar["text"] == ""


def test_the_page_names_no_address_and_has_no_script(case):
    source = page(*case)
    read = Reader(source)
    assert "http://" not in source
    assert "https://" not in source
    assert "@import" not in source
    assert "url(" not in CSS
    loaded = [e for e in read.elements if "src" in e or (e["name"] == "link" and e["href"] != "data:,")]
    assert loaded == []
    assert not [key for e in read.elements for key in e if key.startswith("on")]
    policy = read.all("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"]
    assert policy.startswith("default-src 'none';")


def luminance(color):
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_marks_stand_out_from_their_ground(theme):
    light, dark = CSS.split("@media screen and (prefers-color-scheme: dark)")[:2]
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light if theme == "light" else dark.split("* {")[0]))
    for ground in ("bg", "panel", "notice"):
        for ink in ("ink", "muted", "accent"):
            assert contrast(colors[ink], colors[ground]) >= 4.5, (ink, ground)
    for at in range(8):
        assert contrast(colors[f"c{at}"], colors["panel"]) >= 3, at
    shade = [int(part) for part in re.search(r"--shade: ([\d, ]+);", light if theme == "light" else dark)[1].split(",")]
    ground = [int(colors["bg"][at : at + 2], 16) for at in (1, 3, 5)]
    darkest = "#" + "".join(f"{round(0.45 * s + 0.55 * g):02x}" for s, g in zip(shade, ground, strict=True))
    assert contrast(colors["ink"], darkest) >= 4.5
    warm = [int(part) for part in re.search(r"--warm: ([\d, ]+);", light if theme == "light" else dark)[1].split(",")]
    warmest = "#" + "".join(f"{round(0.45 * s + 0.55 * g):02x}" for s, g in zip(warm, ground, strict=True))
    assert contrast(colors["ink"], warmest) >= 4.5


# --- in a browser ---

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--window-size=1400,1000",
)
# Every page in a frame of each width; the frame measures what is in it and what it fetched.
HARNESS = """<!doctype html><meta charset="utf-8"><body>FRAMES<pre id="out"></pre><script>
addEventListener("load", () => {
  const out = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, root = page.documentElement, view = frame.contentWindow;
    const wide = [...page.querySelectorAll("body *")].filter(element => {
      if (element.closest(".box") && !element.matches(".box")) return false;
      return element.getBoundingClientRect().right > root.clientWidth + 0.5;
    });
    const small = [...page.querySelectorAll("p, td, th, dd, li")].map(
      element => parseFloat(view.getComputedStyle(element).fontSize));
    return {case: frame.title, width: root.clientWidth, content: root.scrollWidth,
            wide: wide.map(element => element.outerHTML.slice(0, 80)),
            fetched: view.performance.getEntriesByType("resource").map(entry => entry.name),
            smallest: Math.min(...small), ground: view.getComputedStyle(page.body).backgroundColor};
  });
  document.getElementById("out").textContent = JSON.stringify(out);
});
</script>"""


def in_browser(folder, *flags):
    """What the browser measures of every case at 360 and 1280 pixels, and what it says on stderr."""
    frames = [
        f'<iframe title="{name}" width="{width}" height="800" style="border:0" srcdoc="{escape(page(*case))}"></iframe>'
        for name, case in CASES.items()
        for width in (360, 1280)
    ]
    harness = folder / "harness.html"
    harness.write_text(HARNESS.replace("FRAMES", "".join(frames)), encoding="utf-8")
    command = [BROWSER, *FLAGS, *flags, f"--user-data-dir={folder / 'profile'}", "--dump-dom", harness.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(Reader(done.stdout).all("pre", id="out")[0]["text"]), done.stderr


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium (Debian: apt-get install chromium)")
@pytest.mark.parametrize(("scheme", "ground"), [("1", "rgb(255, 255, 255)"), ("0", "rgb(20, 24, 29)")])
def test_in_a_browser_the_page_fits_fetches_nothing_and_follows_the_theme(tmp_path, scheme, ground):
    measured, log = in_browser(tmp_path, f"--blink-settings=preferredColorScheme={scheme}")
    assert len(measured) == 2 * len(CASES)
    assert {frame["width"] for frame in measured} == {360, 1280}
    for frame in measured:
        assert frame["content"] <= frame["width"], frame
        assert frame["wide"] == [], frame
        assert frame["fetched"] == []
        assert frame["smallest"] >= 12
        assert frame["ground"] == ground
    assert "CONSOLE" not in log
