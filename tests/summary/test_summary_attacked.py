"""What somebody makes of a summary who wants the rows: lattices, differences, rare values, membership."""

import numpy as np
import pytest
from lattice import n_found, rows_from
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from koncord.summary.summarize import summarized

FLOOR = 20


def summary_of(X):
    """The summary of a table, and the scale of the plan that it is under."""
    means, scales = X.mean(axis=0), np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    return summarized(lambda: [(X - means) / scales], X.shape[1], FLOOR), means, scales


def likert(n, d, seed):
    """Answers of 1 to 5 that three factors move."""
    rng = np.random.default_rng(seed)
    answers = rng.normal(size=(n, 3)) @ rng.normal(size=(3, d)) * 0.6 + 0.8 * rng.normal(size=(n, d))
    return np.clip(np.rint(3 + answers), 1, 5)


def digits(n, d, seed):
    X = load_digits().data
    rows = X[np.random.default_rng(seed).choice(len(X), n, replace=False)]
    return rows[:, rows.std(axis=0) > 0][:, :d]


def moments_told(X):
    """Count, sums and sums of products of all rows, as far as a summary tells."""
    found, means, scales = summary_of(X)
    n, cells = found.rows, found.cells
    sums = n * means + scales * (cells.counts @ cells.means)
    own = means + scales * cells.means
    inside = n * np.outer(scales, scales) * (found.axes.T @ found.axes)
    variances = scales**2 * (cells.counts @ cells.variances)
    np.fill_diagonal(inside, variances)
    return n, sums, inside + (own * cells.counts[:, None]).T @ own


@pytest.mark.parametrize(("kind", "n", "d"), [(likert, 25, 30), (likert, 39, 40), (digits, 25, 40)])
def test_a_lattice_gives_all_rows_from_exact_products_and_none_from_a_summary(kind, n, d, recovered):
    X = kind(n, d, 0)
    exact = rows_from(n, X.sum(axis=0), X.T @ X)
    assert n_found(exact, X) >= 0.7 * n  # the attack works
    recovered(rows=n_found(rows_from(*moments_told(X)), X))


@pytest.mark.parametrize("n_new", [1, 5, 10])
def test_rows_that_are_added_are_not_the_difference_of_two_summaries(n_new, recovered):
    X = likert(300 + n_new, 12, 1)
    before, after = moments_told(X[:300]), moments_told(X)
    difference = after[1] - before[1]
    recovered(rows=n_found(np.rint([difference / n_new]), X[300:]))


def test_no_sum_over_few_rows_follows_from_a_zero_inflated_column(recovered):
    rng = np.random.default_rng(2)
    values = 0
    for seed in range(20):
        X = rng.normal(size=(400, 3))
        X[:, 0] = np.where(np.random.default_rng(seed).random(400) < 0.02, rng.pareto(2, 400) + 1, 0.0)
        found, means, scales = summary_of(X)
        sums = found.cells.counts * (means[0] + scales[0] * found.cells.means[:, 0])
        single = X[X[:, 0] > 0, 0]
        gaps = np.abs(np.append(sums, sums.sum())[:, None] - single)
        values += int((gaps < 1e-3 * single).any(axis=0).sum())
    recovered(values=values)


def nearness(found, Z):
    """How near each row is to a cell, in its standard deviations."""
    spread = np.maximum(found.cells.variances, 1e-3)
    squared = (((Z[:, None] - found.cells.means) ** 2) / spread).sum(axis=2) + np.log(spread).sum(axis=1)
    return -squared.min(axis=1)


@pytest.mark.parametrize(("d", "most"), [(5, 0.6), (20, 0.7), (50, 0.8)])
def test_membership_is_hardly_better_than_a_guess(d, most, capsys):
    """Against another thousand rows of the same clusters, and a summary of a third thousand to compare with."""
    aucs = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = 2 * rng.normal(size=(5, d))[rng.integers(0, 5, 3000)] + rng.normal(size=(3000, d))
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        members, others, reference = np.split(X, 3)
        found, beside = (summarized(lambda rows=rows: [rows], d, FLOOR) for rows in (members, reference))
        both = np.concatenate([members, others])
        aucs.append(roc_auc_score(np.repeat([1, 0], 1000), nearness(found, both) - nearness(beside, both)))
    with capsys.disabled():
        print(f"\n  membership, {d} columns, 1,000 rows: AUC {np.mean(aucs):.3f}", end=" ")
    assert np.mean(aucs) < most
