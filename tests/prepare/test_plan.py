"""One plan for all sites: which columns are logged and fenced, what fills a gap, what a category becomes."""

from dataclasses import replace

import numpy as np
import pytest

from koncord.prepare.columns import describe_columns, level_counts, measure
from koncord.prepare.plan import as_covariance, conditional_means, means_of_nearest, nearest_center_fill, neighbor_means
from koncord.prepare.planning import draft_plan, final_plan, skewness
from koncord.prepare.settings import Preparation


def plan_of(tables, columns, asked=None, levels=None, floor=20):
    """The plan that sites with these tables agree on."""
    asked = asked or Preparation()
    levels = levels or [{} for _ in tables]
    each = zip(tables, levels, strict=True)
    told = {f"s{at}": describe_columns(X, columns, own, floor) for at, (X, own) in enumerate(each)}
    categories = [name for name in columns if name in levels[0]]
    draft = draft_plan(told, [name for name in columns if name not in categories], categories, asked)
    order = [list(columns).index(name) for name in draft.plan.columns]
    found = {f"s{at}": measure(X[:, order], draft.plan, floor, paired=draft.is_paired) for at, X in enumerate(tables)}
    return final_plan(draft, found, asked)


def normal(n=800, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def test_without_skew_and_extremes_the_scale_is_that_of_the_pooled_rows():
    tables = [normal(seed=at) * [1, 5, 100] + [0, 50, -3] for at in range(3)]
    plan = plan_of(tables, ("a", "b", "c"))
    pooled = np.concatenate(tables)
    assert plan.logged is None
    np.testing.assert_allclose(plan.means, pooled.mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(plan.scales, pooled.std(axis=0), rtol=1e-9)


def test_skewed_positive_columns_are_logged_and_others_are_not():
    rng = np.random.default_rng(0)
    plain = [np.column_stack([rng.normal(size=900), rng.normal(50, 1, 900), rng.normal(size=900)]) for _ in "ab"]
    # the first is log-normal, the last skewed but not positive
    tables = [np.column_stack([np.exp(X[:, 0]), X[:, 1:], np.exp(X[:, 2]) - 0.5]) for X in plain]
    plan = plan_of(tables, tuple("abcd"))
    assert plan.is_logged.tolist() == [True, False, False, False]
    assert not plan_of(tables, tuple("abcd"), Preparation(log=False)).is_logged.any()
    assert plan_of(tables, tuple("abcd"), Preparation(log=False, logged=("b",))).is_logged.tolist()[1]
    assert not plan_of(tables, tuple("abcd"), Preparation(standardize=False)).is_logged.any()
    with pytest.raises(ValueError, match="--log names e; the columns of numbers are a, b, c, d"):
        plan_of(tables, tuple("abcd"), Preparation(logged=("e",)))


def test_a_tenth_of_the_rows_far_below_does_not_hide_that_a_column_is_skewed():
    rng = np.random.default_rng(0)
    tables = []
    for _ in range(3):
        Z = 0.8 * rng.normal(size=(1000, 1))
        Z[:105] -= 5  # the lower decile of the logarithms lies among these
        tables.append(np.exp(Z))
    assert plan_of(tables, ("a",)).is_logged.tolist() == [True]


@pytest.mark.parametrize("share", [0.1, 0.15, 0.2])
@pytest.mark.parametrize("off", [4, 5, 6])
def test_a_frequent_cluster_at_one_side_is_no_skewness_and_hides_none(share, off):
    """Logarithms would give the usual rows of the first column a tail, and take that of the second away."""
    rng = np.random.default_rng(0)
    Z = [rng.normal(size=2000) + off * (rng.random(2000) < share) for _ in range(5)]
    assert plan_of([np.column_stack([3 + each, np.exp(0.5 * each)]) for each in Z], ("a", "b")).is_logged.tolist() == [
        False,
        True,
    ]


def test_wrong_readings_are_fenced_and_clusters_are_not():
    rng = np.random.default_rng(0)
    tables = []
    for at in range(3):
        X = rng.normal(size=(1000, 2))
        X[:100, 0] += 40  # one row in ten
        X[200:202, 1] = 1e6 * (at + 1)
        tables.append(X)
    plan = plan_of(tables, ("a", "b"))
    Z = np.concatenate([plan.apply(X, ("a", "b")) for X in tables])
    assert np.corrcoef(Z[:, 0], np.concatenate(tables)[:, 0])[0, 1] == pytest.approx(1)  # nothing was moved
    assert np.abs(Z[:, 1]).max() < 12
    assert plan.scales[1] == pytest.approx(1, rel=0.3)
    assert plan_of(tables, ("a", "b"), Preparation(fence=False)).scales[1] > 1e4


def test_small_sites_hide_too_much_for_a_logarithm_and_for_a_fence():
    tables = [np.exp(normal(n=110, d=1, seed=at)) for at in range(3)]  # 20 of 110 values at each end
    plan = plan_of(tables, ("a",))
    assert not plan.is_logged.any()
    assert plan.low is None
    assert plan_of([np.exp(normal(n=400, d=1, seed=at)) for at in range(3)], ("a",)).low is not None


def test_skewness_is_that_of_three_numbers():
    assert skewness(-1, 0, 1) == 0
    assert skewness(0, 1, 11) == pytest.approx(9 / 11)
    assert skewness(2, 2, 2) == 0


def test_a_gap_is_what_a_regression_on_the_rest_of_its_row_expects():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3)) @ np.array([[1, 0.8, 0], [0, 0.6, 0.5], [0, 0, 1]])
    covariance, mean = np.cov(X.T), X.mean(axis=0)
    holes = X[:50].copy()
    holes[:25, 1] = np.nan
    holes[25:, [0, 2]] = np.nan
    found = conditional_means(holes, mean, covariance)
    rest = X[:, [0, 2]] - mean[[0, 2]]
    slopes = np.linalg.lstsq(rest, X[:, 1] - mean[1], rcond=None)[0]
    np.testing.assert_allclose(found[:25, 1], mean[1] + rest[:25] @ slopes, atol=1e-6)
    np.testing.assert_array_equal(found[:25, 0], X[:25, 0])
    assert conditional_means(np.full((1, 3), np.nan), np.array([1.0, 2, 3]), covariance).tolist() == [[1, 2, 3]]


def test_gaps_are_filled_from_sums_over_all_sites_better_than_by_the_mean():
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(4, 4))
    whole = [rng.normal(size=(1500, 4)) @ mixing * [1, 10, 100, 1] + 7 for _ in range(3)]
    tables = [np.where(rng.random(X.shape) < 0.1, np.nan, X) for X in whole]
    columns = tuple("abcd")
    plan = plan_of(tables, columns, Preparation(missing="gaussian"))
    gaps = np.isnan(np.concatenate(tables))
    errors = {}
    for how in ("gaussian", "neighbors", "mean"):
        own = replace(plan, missing=how)
        filled = np.concatenate([own.apply(X, columns) for X in tables])
        exact = np.concatenate([own.scaled(X) for X in whole])
        errors[how] = float(np.sqrt(((filled - exact)[gaps] ** 2).mean()))
    assert errors["mean"] == pytest.approx(1, abs=0.05)
    assert errors["gaussian"] < 0.75 * errors["mean"]
    assert errors["neighbors"] < 0.85 * errors["mean"]


def plain_search(Z, compared):
    """Every gap at the mean of the five nearest rows that have a value there, row by row."""
    filled = np.where(np.isnan(Z).all(axis=1)[:, None], 0.0, Z)
    for row, column in np.argwhere(np.isnan(filled)).tolist():
        distances = []
        for other in range(len(Z)):
            both = ~np.isnan(compared[row]) & ~np.isnan(compared[other])
            if other != row and both.any() and not np.isnan(Z[other, column]):
                distances.append((((compared[row] - compared[other])[both] ** 2).mean(), other))
        filled[row, column] = np.mean([Z[other, column] for _, other in sorted(distances)[:5]])
    return filled


def test_neighbors_are_those_of_a_plain_search_done_twice():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(120, 4))
    Z[rng.random(Z.shape) < 0.15] = np.nan
    Z[7] = np.nan
    np.testing.assert_allclose(neighbor_means(Z, np.zeros(4)), plain_search(Z, plain_search(Z, Z)))


def test_a_second_search_fills_better_where_many_values_are_missing():
    rng = np.random.default_rng(0)
    whole = np.repeat(rng.normal(0, 5, (8, 6)), 60, axis=0) + rng.normal(size=(480, 6))
    Z = np.where(rng.random(whole.shape) < 0.3, np.nan, whole)
    once, twice = means_of_nearest(Z, Z, np.zeros(6)), neighbor_means(Z, np.zeros(6))
    errors = [float(((found - whole) ** 2).mean()) for found in (once, twice)]
    assert errors[1] < 0.85 * errors[0]


def test_a_row_of_one_cluster_is_filled_from_it_and_from_no_other():
    centers = np.array([[0.0, 0, 0], [9, 9, 9]])
    Z = np.array([[8.5, np.nan, 9.2], [np.nan, 0.3, np.nan], [1.0, 2, 3]])
    assert nearest_center_fill(Z, centers).tolist() == [[8.5, 9, 9.2], [0, 0.3, 0], [1, 2, 3]]


def test_few_gaps_of_a_site_are_filled_by_the_mean():
    rng = np.random.default_rng(0)
    tables = [rng.normal(size=(600, 1)) + 0.3 * rng.normal(size=(600, 3)) for _ in range(3)]
    tables[0][:50, 1] = np.nan
    tables[1][:5, 1] = np.nan
    plan = plan_of(tables, tuple("abc"))
    many, few = (plan.apply(X, tuple("abc"), floor=20) for X in tables[:2])
    assert not few[:5, 1].any()
    assert many[:50, 1].all()


def test_correlations_that_fit_no_rows_become_some_that_do():
    impossible = np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]])
    assert np.linalg.eigvalsh(impossible)[0] < 0
    found = as_covariance(impossible, np.array([1.0, 2, 3]))
    assert np.linalg.eigvalsh(found)[0] > 0
    np.testing.assert_allclose(np.diagonal(found), [1, 4, 9])


def test_a_column_that_is_mostly_missing_at_a_site_is_not_used():
    tables = [normal(seed=at) for at in range(3)]
    tables[1][:500, 2] = np.nan
    assert plan_of(tables, tuple("abc")).columns == ("a", "b")


def test_a_category_has_the_variance_of_one_column_of_numbers():
    rng = np.random.default_rng(0)
    levels = ("low", "mid", "high", "rare")
    tables = [np.column_stack([rng.normal(size=1000), rng.choice(3, 1000, p=[0.6, 0.3, 0.1])]) for _ in range(3)]
    tables[0][:5, 1] = 3
    plan = plan_of(tables, ("x", "c"), levels=[{"c": levels}] * 3)
    assert plan.features == ("x", "c=high", "c=low", "c=mid", "c=other")
    Z = np.concatenate([plan.apply(X, ("x", "c"), {"c": levels}) for X in tables])
    # shares are those that are told: one site holds its rows of "high" back, as its five rare ones would follow
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=0.12)
    assert Z[:, 1:].var(axis=0).sum() == pytest.approx(1, abs=0.15)
    # another site with its levels in another order, one of them new, and a gap
    again = plan.apply(np.array([[0.0, 1], [0, 0], [0, np.nan]]), ("x", "c"), {"c": ("new", "low")})
    np.testing.assert_array_equal(again[0, 1:], Z[np.concatenate(tables)[:, 1] == 0][0, 1:])
    assert again[1, 1:].argmax() == 3
    assert again[2, 1:].tolist() == [0, 0, 0, 0]


def test_levels_of_few_rows_are_one_and_no_difference_tells_them():
    codes = np.repeat([0.0, 1, 2, 3], [100, 60, 30, 5])
    assert level_counts(codes, "abcd", 20) == {"a": 100, "b": 60}  # 5 rows alone would follow from the number of rows
    assert level_counts(np.repeat([0.0, 1, 2], [100, 15, 15]), "abc", 20) == {"a": 100}


def test_a_plan_goes_back_to_the_units_of_the_tables():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.exp(rng.normal(size=900)), rng.normal(5, 2, 900)])
    plan = plan_of([X], ("a", "b"))
    assert plan.is_logged.tolist() == [True, False]
    np.testing.assert_allclose(plan.original(plan.apply(X, ("a", "b"))), X, rtol=1e-6)
