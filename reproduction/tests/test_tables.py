"""Tables in the paper's layout, as text, Markdown and HTML."""

import re
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pytest

from koncord.estimate.search import combinations
from koncord_reproduction import plan, tables
from koncord_reproduction.claims import cell_claims
from koncord_reproduction.findings import Findings
from koncord_reproduction.paper import DIFFERENCES, SETS, TITLES
from koncord_reproduction.protocol import SWEEP, pooled_grid
from koncord_reproduction.tables import BOLD, OUTPUTS, PAPER, PLAIN, TIMES, Line, Shown, Table, html, markdown

from .fabricated import SEEDS, any_rows, row

MAKERS = {name: make for name, output in OUTPUTS.items() for make in output.tables}
ALL = [make for output in OUTPUTS.values() for make in output.tables]


def shown(rows):
    found = Findings(rows)
    return Shown(found=found, claims=cell_claims(found))


@cache
def of_nothing():
    return shown([])


@cache
def of_everything():
    return shown(any_rows(seeds=SEEDS[:2]))


def cell(table, head, column):
    (line,) = (line for line in table.rows if line[0][0].text == head)
    return line[table.columns.index(column)]


def texts(cell):
    return [line.text for line in cell]


def federated(ks, aris, dataset="waveform", method="asm-s", regime="a"):
    return [
        row(f"federated-{regime}", dataset, method, seed, ari=ari, k=k, phase1_ms=100.0 * k, personalised_ari=ari,
            local_counts=[2, 2], true_counts=[2, 2], sizes=[50, 60])
        for seed, k, ari in zip(SEEDS, ks, aris, strict=False)
    ]  # fmt: skip


def test_a_federated_table_names_the_runs_that_had_other_clients():
    here = row("partition-a", "waveform", "partition", 42, sizes=[50, 60], counts=[2, 2])
    there = row("partition-a", "abalone", "partition", 42, sizes=[50, 61], counts=[2, 2])
    rows = [*federated([4], [0.2]), *federated([4], [0.2], "abalone"), here, there]
    (note,) = (note for note in MAKERS["federated-a"](shown(rows)).notes if "by the same rules" in note)
    assert note.endswith("by the same rules: Abalone (ASM-S).")
    assert not any("by the same rules" in note for note in MAKERS["federated-a"](shown(rows[:1])).notes)


# --- what a cell says ---


def test_a_cell_has_two_lines_of_ours_and_two_of_the_papers():
    table = MAKERS["federated-a"](shown(federated([4, 5] * 5, [0.25, 0.27] * 5)))
    assert table.columns == ("Data set", "ASM-S", "DP-GMM", "X-means", "G-means", "oracle", "ASM-I")
    assert cell(table, "Waveform", "ASM-S") == (
        Line("0.260 ± 0.008"),
        Line("K 4.5 · |ΔK| 1.5"),
        Line("paper 0.258 ± 0.011", PAPER),
        Line("K 4.5 · |ΔK| 1.5", PAPER),
    )


def test_a_number_that_differs_bears_a_mark():
    table = MAKERS["federated-a"](shown(federated([9, 10] * 5, [0.25, 0.27] * 5)))
    assert texts(cell(table, "Waveform", "ASM-S"))[:2] == ["0.260 ± 0.008", "K 9.5 ≠ · |ΔK| 6.5 ≠"]
    table = MAKERS["federated-a"](shown(federated([90, 91] * 5, [0.01, 0.02] * 5, dataset="cifar10")))
    assert texts(cell(table, "CIFAR-10", "ASM-S"))[:2] == ["0.015 ± 0.004", "K 90.5 · |ΔK| 80.5"]


def test_a_cell_without_runs_says_so_beside_the_papers_number():
    table = MAKERS["pooled"](shown([]))
    assert texts(cell(table, "MNIST", "DP-GMM")) == ["not run", "paper 0.224 ± 0.019", "K 19.5"]


def test_fewer_seeds_and_runs_that_did_not_end_are_told_in_the_cell():
    rows = federated([4] * 7, [0.25, 0.26] * 4)
    rows += [row("federated-a", "waveform", "asm-s", seed, status="timed out") for seed in SEEDS[7:9]]
    rows += [row("federated-a", "waveform", "asm-s", SEEDS[9], status="failed")]
    table = MAKERS["federated-a"](shown(rows))
    assert texts(cell(table, "Waveform", "ASM-S"))[2] == "n = 7, 2 of 10 timed out, 1 of 10 failed"


def test_runs_that_all_failed_show_no_number():
    rows = [row("pooled", "mnist", "gmeans", seed, status="timed out") for seed in SEEDS]
    table = MAKERS["pooled"](shown(rows))
    assert texts(cell(table, "MNIST", "G-means")) == ["10 of 10 timed out", "paper 0.078 ± 0.000", "K 200.0"]


def test_the_papers_own_shortfall_is_shown():
    table = MAKERS["federated-b"](shown([]))
    assert texts(cell(table, "EMNIST", "G-means"))[-1] == "n = 9"


def test_the_mean_row_compares_the_same_sets():
    rows = federated([4] * 10, [0.2] * 10) + federated([10] * 10, [0.4] * 10, dataset="mnist")
    table = MAKERS["federated-a"](shown(rows))
    assert texts(cell(table, "Mean", "ASM-S")) == ["0.300", "|ΔK| 0.5", "of 2 sets", "paper 0.338", "|ΔK| 5.0"]
    assert texts(cell(table, "Mean", "oracle")) == ["not run"]


# --- tables of their own ---


def test_mechanisms_show_all_rows_and_a_quarter():
    rows = [row("classes", "mnist", "classes", 0, n=70000, d=10, k=10, anisotropies=[1.0, 2.07, 3.0])]
    for seed in SEEDS:
        rows += [
            row("pooled", "mnist", "asm-s", seed, ari=0.16, k=80),
            row("quarter", "mnist", "asm-s", seed, ari=0.33, k=26),
        ]
        rows += [row("merge-sweep", "mnist", "asm-s", seed, alphas=[0, 1, 1.25], ari=[0, 0, 0], k=[150, 120, 27],
                     selected={"merge_factor": 1.1}, selected_ari=0.16, selected_k=80)]  # fmt: skip
    table = MAKERS["mechanisms"](shown(rows))
    assert texts(cell(table, "MNIST", "r_med")) == ["2.07", "paper 2.07"]
    assert texts(cell(table, "MNIST", "0.8 √r_med")) == ["1.15", "paper 1.15"]
    assert texts(cell(table, "MNIST", "α½")) == ["1–1.25", "paper 1–1.25"]
    assert texts(cell(table, "MNIST", "ASM-S K")) == ["80.0 → 26.0 ≠", "paper 81.0 → 26.5"]
    assert texts(cell(table, "MNIST", "k-means ARI")) == ["not run → not run", "paper 0.643 → 0.638"]
    assert texts(cell(table, "FMNIST", "α½")) == ["not run", "paper > 3"]
    assert texts(cell(table, "Abalone", "ASM-S K")) == ["not run", "paper 7.5"]


def test_the_merge_sweep_marks_changes_and_what_was_selected():
    scores = [[0.08, 0.08, 0.08, 0.08, 0.2, 0.3, 0.26, 0.01 + 0.001 * at] for at in range(10)]
    rows = [
        row("merge-sweep", "waveform", "asm-s", seed, alphas=[0, 0.5, 0.75, 1, 1.25, 1.5, 2, 3], ari=ari,
            k=[28, 28, 28, 28, 11, 6, 3, 1], selected={"merge_factor": 2.0}, selected_ari=0.26, selected_k=3)
        for seed, ari in zip(SEEDS, scores, strict=True)
    ]  # fmt: skip
    table = MAKERS["merge-sweep"](shown(rows))
    assert cell(table, "Waveform", "no merge")[0] == Line("0.080 ≠")
    assert cell(table, "Waveform", "α = 2")[0] == Line("0.260 ≠ ↑", BOLD)
    assert cell(table, "Waveform", "α = 3")[0].text == "0.015 ≠ ↓"
    assert texts(cell(table, "Waveform", "α = 2"))[2] == "paper 0.256 ↑ (selected)"
    assert texts(cell(table, "Abalone", "α = 2"))[:2] == ["not run", "paper 0.087 ↑ (selected)"]


def test_a_selected_merge_factor_that_is_no_column_is_reported_below():
    selected = {"merge_factor": 1.1, "min_mass": 80, "split_factor": 0.5}
    values = {"alphas": [0], "ari": [0.1], "k": [100], "selected_ari": 0.17, "selected_k": 70}
    rows = [row("merge-sweep", "mnist", "asm-s", seed, selected=selected, **values) for seed in SEEDS]
    table = MAKERS["merge-sweep"](shown(rows))
    assert "MNIST: the selected α = 1.1 is not a column: ARI 0.170, K 70.0." in table.notes
    assert "Chosen by the silhouette (minimum mass, split factor, α): MNIST 80, 0.5, 1.1." in table.notes


def test_run_times_are_multiples_of_those_of_asm_and_the_fastest_is_bold():
    rows = [row("times", "waveform", method, phase1_ms=ms) for method, ms in (("asm-s", 300.0), ("gmeans", 200.0))]
    table = MAKERS["runtime"](shown(rows))
    assert cell(table, "Waveform", "ASM-S")[0] == Line(f"{TIMES} 1.0")
    assert cell(table, "Waveform", "G-means")[0] == Line(f"{TIMES} 0.67", BOLD)
    assert texts(cell(table, "Waveform", "ASM-S"))[1:] == ["300 ms", f"paper {TIMES} 1.0, 266 ms (fastest)"]
    assert cell(table, "Waveform", "DP-GMM")[0] == Line("not run")


# --- other readings ---


def sweep_row(seed, method, k):
    selected = {"min_mass": 200, "split_factor": 0.5, "merge_factor": 2.0}
    values = {"alphas": list(SWEEP), "ari": [0.2] * 8, "k": [k] * 8, "selected_ari": 0.2, "selected_k": k}
    return row("merge-sweep", "frog_species", method, seed, selected=selected, **values)


def test_a_reading_is_compared_with_that_of_koncord_by_the_numbers_that_depend_on_it():
    """K of FrogA is 15.5 three times in the paper, then 15.2, 14.6, 14.0, 10.6, 6.7; all other numbers stay."""
    rows = [sweep_row(seed, "asm-s", 12 + seed % 2) for seed in SEEDS]
    rows += [sweep_row(seed, "asm-s@closest", 15 + seed % 2) for seed in SEEDS]
    table = tables.readings(shown(rows))
    numbers, agree, moved = (cell(table, "closest", name)[0].text for name in table.columns[1:4])
    assert numbers == "19"  # 16 of the sweep, the selected alpha, the marks and alpha one half
    before, after = map(int, agree.split(" → "))
    assert after == before + 4
    assert moved == "5, 2"
    assert cell(table, "koncord.ASM", "FrogA, α = 1, K")[0].text == "12.5"
    assert [line[0][0].text for line in table.rows] == ["paper", "koncord.ASM", "closest"]


def test_every_two_hold_outs_pick_the_configuration_with_the_best_mean_score():
    grid = combinations(pooled_grid("asm-s", "waveform"))
    scores = np.zeros((3, len(grid)))
    scores[0, 0], scores[1, 0], scores[2, -1] = 0.2, 0.2, 0.3
    rows = [row("draws", "waveform", "asm-s", 1000 + at, scores=s.tolist(), counts=[3] * len(grid))
            for at, s in enumerate(scores)]  # fmt: skip
    table = tables.choice_by_draw(shown(rows))
    assert [texts(part)[0] for part in table.rows[0]] == ["Waveform", "33 %", "0 %", "0 %", "0 %", "67 %", "0.25, 2"]


def test_a_sweep_at_the_papers_mass_counts_the_numbers_that_agree():
    ks = [[28.8, 28.8, 28.8, 28.8, 11.1, 6.2, 3.0, 1.4]]
    values = {"split_factors": [0.3], "k": ks, "ari": [[0.9] * 8], "alphas": list(SWEEP)}
    rows = [row("sweep-at-mass", "waveform", "asm-s", seed, **values) for seed in SEEDS]
    table = tables.sweeps_at_mass(shown(rows))
    assert texts(cell(table, "Waveform", "δ = 0.3")) == ["8 of 16, K 28.8"]


def test_true_counts_show_published_released_ours_and_global():
    rows = federated([2] * 10, [0.34] * 10, method="oracle")
    rows += [row("released", "waveform", "released", seed, ari=0.3, personalised_ari=0.31, k=4) for seed in SEEDS]
    rows += [row("released", "fmnist", "released-10", seed, ari=0.3, personalised_ari=0.31, k=9) for seed in SEEDS]
    table = MAKERS["true-counts"](shown(rows))
    assert texts(cell(table, "Waveform", "published")) == ["0.335 ± 0.022", "K 4.4"]
    assert texts(cell(table, "Waveform", "released program"))[:2] == ["0.310 ± 0.000", "K 4.0 ≠"]
    assert texts(cell(table, "Waveform", "corrected, global ARI")) == ["0.340 ± 0.000", "paper 0.339 ± 0.024"]
    assert texts(cell(table, "CIFAR-10", "released program")) == ["not run"]
    assert any("with 10 rounds K is 9.0 (paper 9.1)" in note for note in table.notes)


def test_aggregators_say_what_they_were_given():
    rows = [row("aggregators-a", "mnist", "kfed", seed, ari=0.4, k=10, given="K and true K_g") for seed in SEEDS]
    table = MAKERS["aggregators"](shown(rows))
    assert table.columns[1] == "KFed (given: K and true K_g)"
    assert texts(table.rows[SETS.index("mnist")][1]) == ["0.400 ± 0.000", "K 10.0"]


def test_robustness_shows_intervals_and_how_many_sets():
    rows = federated([8, 9] * 5, [0.1] * 10, dataset="abalone") + federated(
        [8, 9] * 5, [0.1] * 10, dataset="abalone", regime="b"
    )
    table = MAKERS["partition-robustness"](shown(rows))
    assert texts(cell(table, "ASM-S", "D [90 %]"))[:2] == ["0.000 [0.000, 0.000]", "10 pairs"]
    assert texts(cell(table, "ASM-S", "equivalent")) == ["yes", "paper yes"]
    assert texts(cell(table, "ASM-S", "sets that change")) == ["0 of 1", "paper 0 of 8"]
    assert texts(cell(table, "oracle", "local error")) == ["–"]


def test_points_per_cluster_show_the_interval_of_what_the_paper_gives_one_for():
    rows = []
    for at, seed in enumerate(SEEDS):
        rows += [row("partition-a", "mnist", "partition", seed, sizes=[200, 300 + at, 290], counts=[2, 3, 3])]
        rows += [row("partition-b", "mnist", "partition", seed, sizes=[500, 300 + at, 90], counts=[2, 3, 3])]
    points, tests = (make(shown(rows)) for make in OUTPUTS["points-per-cluster"].tables[1:])
    assert texts(cell(points, "MNIST", "cases")) == ["30", "paper 1000"]
    assert texts(cell(points, "Waveform", "A: ρ(N_g, K_g)")) == ["–"]
    assert texts(cell(tests, "MNIST", "seeds higher")) == ["10 of 10", "paper 10 of 10"]
    assert re.fullmatch(r"[\d.]+( ≠)? \[[\d.]+, [\d.]+\]", texts(cell(tests, "MNIST", "CV ratio"))[0])
    assert texts(cell(tests, "MNIST", "CV ratio"))[1] == "paper 11.96 [10.01, 15.74]"


# --- notes ---


@pytest.mark.parametrize("make", ALL, ids=lambda make: make(of_nothing()).name)
def test_a_table_tells_how_the_sets_it_uses_differ_from_the_papers(make):
    table = make(of_everything())
    if table.name in ("points-per-cluster", "points-per-cluster-tests"):  # made from the classes of all rows
        assert any("all rows of the paper's sets count" in note for note in table.notes)
    elif table.name not in ("synthetic", "readings", "sweeps-at-mass", "choice-by-draw"):
        told = [f"{TITLES[name]} is not the paper's: {how}." for name, how in DIFFERENCES.items()]
        assert [note for note in table.notes if "not the paper's" in note] == told
    assert not any("not the paper's" in note for note in make(of_nothing()).notes)


@pytest.mark.parametrize(
    ("data", "is_reported"), [("Waveform, 5,000 rows of Breiman's generator, seed 0", True), ("UCI", False)]
)
def test_a_generated_waveform_is_reported(data, is_reported):
    rows = federated([4] * 10, [0.2] * 10)
    rows += [row("classes", "waveform", "classes", 0, n=5000, d=21, k=3, anisotropies=[6.0], data=data)]
    notes = MAKERS["federated-a"](shown(rows)).notes
    assert any(note.startswith("Waveform is not the paper's: generated") for note in notes) is is_reported


# --- as text ---


def columns_of(line):
    return len(re.findall(r"(?<!\\)\|", line)) - 1


@pytest.mark.parametrize("source", [of_nothing, of_everything])
def test_every_line_of_a_markdown_table_has_as_many_cells_as_its_head(source):
    for table in (make(source()) for make in ALL):
        lines = [line for line in markdown(table).splitlines() if line.startswith("|")]
        assert len(lines) == 2 + len(table.rows)
        assert {columns_of(line) for line in lines} == {len(table.columns)}


class Balanced(HTMLParser):
    VOID = ("br", "meta", "link", "img")

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("source", [of_nothing, of_everything])
def test_html_is_well_formed_and_holds_every_cell(source):
    for table in (make(source()) for make in ALL):
        parser = Balanced()
        parser.feed(html(table))
        assert parser.open == []
        assert parser.seen.count("td") + parser.seen.count("th") == len(table.columns) * (1 + len(table.rows))


def test_markup_in_a_cell_is_text():
    cells = ((Line("<i>"),), (Line("1|2", BOLD), Line("y", PAPER)))
    table = Table(name="x", title="T", caption="a | b", columns=("", "c*d"), rows=(cells,), notes=())
    assert "| &lt;i> | **1\\|2**<br><sub>y</sub> |" in markdown(table)
    assert "c\\*d" in markdown(table)
    assert "&lt;i&gt;" in html(table)
    assert "<strong>1|2</strong><br><small>y</small>" in html(table)


def test_outputs_are_those_of_the_plan_and_name_what_they_need():
    assert list(OUTPUTS) == list(plan.OUTPUTS)
    for name, output in OUTPUTS.items():
        planned = {part.experiment for part in plan.OUTPUTS[name]}
        needed = {need.experiment for run in plan.plan([name]) for need in plan.needs(run)}
        assert planned | needed <= set(output.experiments)
        assert set(output.experiments) <= set(plan.EXPERIMENTS)
        assert output.tables or output.figures


def test_titles_are_those_of_the_paper():
    assert [line[0][0].text for line in MAKERS["pooled"](shown([])).rows] == list(TITLES.values())
    assert (PLAIN, tables.N_SEEDS) == ("plain", 10)
