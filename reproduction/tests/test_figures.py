"""Figures: what they show, and that the same rows give the same bytes."""

import re
from functools import cache

import numpy as np
import pytest

from koncord_reproduction import theory
from koncord_reproduction.figures import FIGURES, counts_of, nice_ticks, png, svg
from koncord_reproduction.findings import Findings
from koncord_reproduction.paper import SETS

from .fabricated import SEEDS, any_rows, row


@cache
def everything():
    return Findings(any_rows(seeds=SEEDS[:2]))


def federated(regime, method, local_counts, true_counts, dataset="abalone", seeds=SEEDS):
    return [
        row(f"federated-{regime}", dataset, method, seed, ari=0.1, k=8, local_counts=local_counts,
            true_counts=true_counts, sizes=[50] * len(true_counts))
        for seed in seeds
    ]  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_without_runs_there_is_no_figure(name):
    assert FIGURES[name].draw(Findings([])) is None


@cache
def drawn(name):
    return FIGURES[name].draw(everything())


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_can_be_drawn_and_says_what_it_is(name):
    figure = drawn(name)
    assert len(figure.axes) == {
        "split-onset": 3,
        "components-before-merging": 1,
        "points-per-cluster": 16,
        "merge-sweep": 16,
    }.get(name, 40)
    assert FIGURES[name].title
    assert FIGURES[name].caption.endswith(".")


def test_a_picture_has_the_same_bytes_every_time_and_no_date():
    def draw():
        return FIGURES["components-before-merging"].draw(everything())

    once, again = svg(draw()), svg(draw())
    assert once == again
    assert b"<svg" in once
    assert not re.search(rb"<dc:date>|20\d\d-\d\d-\d\d", once)
    assert png(draw()) == png(draw())


def test_the_onset_is_drawn_where_half_of_the_splits_are_accepted():
    figure = drawn("split-onset")
    predicted, observed, limit = figure.axes[2].get_lines()
    assert predicted.get_ydata()[0] == pytest.approx(theory.critical_size(64, 1))
    assert len(observed.get_xdata()) == 12
    values = everything().runs("synthetic-onset", "gauss-64", "r1").done[0]
    assert observed.get_ydata()[0] == theory.observed_onset(values["sizes"], values["accepted"])
    assert limit.get_ydata()[0] == 10


def test_panels_of_regime_a_tell_the_error_and_the_share_at_one():
    figure = FIGURES["local-counts-a"].draw(Findings(federated("a", "asm-s", [1, 1, 3, 6], [2, 3, 3, 4])))
    titles = [panel.get_title() for panel in figure.axes]
    assert titles[0] == "ASM-I\n"
    assert titles[1] == "ASM-S\nMAE 1.2 · K=1 50%"
    assert [text.get_text() for text in figure.axes[0].texts] == ["not run"]
    assert figure.axes[0].get_ylabel() == "Abalone"


def test_panels_of_regime_b_tell_both_correlations():
    rows = federated("a", "asm-s", [1, 2, 3], [2, 3, 4]) + federated(
        "b", "asm-s", [5, 4, 3], [2, 3, 4], seeds=SEEDS[:3]
    )
    figure = FIGURES["local-counts-b"].draw(Findings(rows))
    assert figure.axes[1].get_title() == "ASM-S\nMAE 1.7 · ρ −1.00 (+1.00)"
    assert [text.get_text() for text in figure.axes[1].texts] == ["n = 3"]
    rows = federated("b", "xmeans", [5, 5, 5], [2, 3, 4])
    assert FIGURES["local-counts-b"].draw(Findings(rows)).axes[3].get_title() == "X-means\nMAE 2.0 · ρ – (–)"


def test_a_histogram_holds_every_client_and_those_beyond_its_end_in_the_last_bin():
    figure = FIGURES["local-counts-a"].draw(Findings(federated("a", "gmeans", [150, 180, 3], [2, 3, 4])))
    panel = figure.axes[4]
    truth, estimate = panel.patches
    for shape in (truth, estimate):
        assert max(shape.get_xy()[:, 1]) == pytest.approx(2 / 3 if shape is estimate else 1 / 3)
    assert panel.get_xticklabels()[-1].get_text() == ">16"


def test_clients_of_all_seeds_are_counted():
    truth, estimate = counts_of(
        Findings(federated("a", "asm-s", [1, 2], [3, 4])).runs("federated-a", "abalone", "asm-s")
    )
    assert truth.tolist() == [3, 4] * 10
    assert estimate.tolist() == [1, 2] * 10


def test_points_per_cluster_tell_mean_deviation_and_variation():
    rows = [row("partition-a", "mnist", "partition", seed, sizes=[100, 240], counts=[2, 3]) for seed in SEEDS]
    figure = FIGURES["points-per-cluster"].draw(Findings(rows))
    values = np.array([50, 80] * 10)
    told = f"mean 65\nSD {values.std(ddof=1):.0f}\nCV {values.std(ddof=1) / 65:.2f}"
    assert [text.get_text() for text in figure.axes[0].texts] == [told]
    assert [text.get_text() for text in figure.axes[1].texts] == ["not run"]


@pytest.mark.parametrize("most", [6, 16, 20, 94])
def test_ticks_keep_clear_of_the_last_bin(most):
    ticks = nice_ticks(most)
    assert ticks
    assert max(ticks) < most
    assert len(ticks) <= 5


def test_rows_of_the_histograms_are_the_sets_that_were_run():
    figure = drawn("local-counts-a")
    labels = [figure.axes[5 * at].get_ylabel() for at in range(len(SETS))]
    assert labels == ["Waveform", "Abalone", "FrogA", "FrogB", "MNIST", "FMNIST*", "EMNIST*", "CIFAR-10*"]


def test_the_merge_sweep_shows_the_papers_numbers_beside_ours():
    """Of each set the components in one panel and the ARI below it; squares are the paper's."""
    rows = [
        row("merge-sweep", "waveform", "asm-s", seed, alphas=[0.0, 1.25], ari=[0.1, 0.2], k=[30 + seed % 2, 11],
            selected={"merge_factor": 1.25}, selected_ari=0.2, selected_k=11)
        for seed in SEEDS
    ]  # fmt: skip
    figure = FIGURES["merge-sweep"].draw(Findings(rows))
    papers, ours = figure.axes[0].lines
    assert ours.get_xydata().tolist() == [[0.0, 30.5], [1.25, 11.0]]
    assert [0.0, 28.8] in papers.get_xydata().tolist()
    assert [1.25, 11.1] in papers.get_xydata().tolist()
    assert figure.axes[4].lines[1].get_ydata().tolist() == pytest.approx([0.1, 0.2])
