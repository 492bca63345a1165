"""The gate says what it measured: what falls, what it counts, and that its page is of its figures."""

import ast

import numpy as np
import pytest
from gate.cases import every_case
from gate.lines import FIRST, HIGHER, LAST, LOWER, Line, read_figures
from gate.made import CLOUDS, PLANTS, cloud, mixture
from gate.page import PAGE, results
from gate.size import n_constants, n_literals, n_public, options_in
from gate.speed import ASM_CONFIG, reference_components

from koncord import ASM


@pytest.mark.parametrize(
    ("line", "stored", "fell"),
    [
        (Line(name="a", value=0.50, better=HIGHER, tolerance=0.02), 0.51, False),
        (Line(name="a", value=0.48, better=HIGHER, tolerance=0.02), 0.51, True),
        (Line(name="a", value=0.90, better=HIGHER, tolerance=0.02), 0.51, False),
        (Line(name="a", value=130, better=LOWER, tolerance=0.25, is_share=True), 100, True),
        (Line(name="a", value=120, better=LOWER, tolerance=0.25, is_share=True), 100, False),
        (Line(name="a", value=1, better=LOWER), 0, True),
        (Line(name="a", value=0.1), 0.9, False),
        (Line(name="a", value=0.1, better=HIGHER), None, False),
    ],
)
def test_a_line_falls_where_it_is_worse_by_more_than_its_tolerance(line, stored, fell):
    assert line.fell(stored) is fell


def test_constants_are_names_in_capitals_that_hold_numbers():
    tree = ast.parse("A = 1\nB, C = 2.5, (3, 4)\nD = 'x'\nE: float = 1 / 3\nname = 7\nF = True\nG = [1, 2]\n")
    assert n_constants(tree) == 5


def test_other_numbers_are_those_in_functions_but_for_the_plainest():
    assert n_literals(ast.parse("A = 9\ndef f(x=0.3):\n    return x[1:] * 2 - 7 + (-0.5)\n")) == 2


def test_public_names_have_no_underscore():
    assert n_public(ast.parse("def f(): ...\ndef _g(): ...\nclass C: ...\nA = 1\nB: int = 2\n")) == 4


def test_options_are_read_off_the_help():
    assert options_in("  -h, --help  x\n  --out DIR  y --not-this\n  -q, --quiet\n") == {"--out", "--quiet"}


def test_every_made_table_is_of_its_seed_alone():
    for make in (*PLANTS.values(), mixture, lambda seed: cloud(next(iter(CLOUDS)), seed)):
        one, again, other = make(7), make(7), make(8)
        assert all(np.array_equal(a, b) for a, b in zip(one[0], again[0], strict=True))
        assert not np.array_equal(one[0][0][:5], other[0][0][:5])
        assert [len(table) for table in one[0]] == [len(own) for own in one[1]]


def test_a_case_is_named_once():
    cases = list(every_case(True))
    assert len(set(cases)) == len(cases)
    assert set(every_case(False)) <= set(cases)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_reference_of_asm_finds_its_components():
    rng = np.random.default_rng(3)
    X = 4 * rng.standard_normal((4, 3))[rng.integers(0, 4, 900)] + rng.standard_normal((900, 3))
    ours = ASM(**ASM_CONFIG).fit(X).n_split_components_
    assert len(reference_components(X, ASM_CONFIG["split_factor"], int(ASM_CONFIG["min_mass"]))) == ours


def test_the_page_of_results_is_of_the_stored_figures():
    figures = read_figures()["full"]
    assert PAGE.read_text(encoding="utf-8") == results(figures[LAST], figures[FIRST])
