import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_asm import plain_asm
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.preprocessing import StandardScaler

from koncord import ASM, LabelFreeSearch
from koncord.estimate.asm import ASM_GRID
from koncord.kernels import centered, splitting


def random_table(seed):
    """Clusters of random size, shape and overlap, some of them with duplicates."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 7))
    parts = [
        rng.normal(rng.normal(0, 4, d), rng.uniform(0.2, 2, d), size=(int(rng.integers(5, 120)), d))
        for _ in range(int(rng.integers(1, 6)))
    ]
    X = np.concatenate(parts)
    return np.concatenate([X, X[: int(rng.integers(0, 20))]])


def waveform_client(benchmark_set):
    (X,) = benchmark_set("waveform", "X")
    return StandardScaler().fit_transform(X.astype(float))[:700]


def assert_same_components(fitted, X, components):
    assert [sorted(np.flatnonzero(fitted.labels_ == k)) for k in range(fitted.n_components_)] == [
        sorted(each.rows) for each in components
    ]
    np.testing.assert_allclose(fitted.means_, [each.mean for each in components], atol=1e-9)
    np.testing.assert_array_equal(fitted.counts_, [len(each.rows) for each in components])


@pytest.mark.parametrize("covariance", ["spherical", "identity"])
@pytest.mark.parametrize("seed", range(12))
def test_a_fit_equals_the_plain_algorithm(seed, covariance):
    X = random_table(seed)
    rng = np.random.default_rng([seed, 1])
    config = {
        "split_factor": float(rng.choice(ASM_GRID["split_factor"])),
        "min_mass": float(rng.choice([3, 8, 20])),
        "merge_factor": float(rng.choice([0, 0.75, 1.0, 1.5])),
    }
    fitted = ASM(covariance, **config).fit(X)
    components, n_split = plain_asm(X, **config, is_spherical=covariance == "spherical")
    assert fitted.n_split_components_ == n_split
    assert_same_components(fitted, X, components)
    np.testing.assert_allclose(
        fitted.variances_, [max(each.variance, 1e-6 * X.var(axis=0).mean()) for each in components]
    )


@pytest.mark.parametrize("max_components", [1, 2, 5, 8])
def test_the_cap_on_components_is_reached_in_pass_order(max_components):
    X = np.random.default_rng(3).normal(size=(600, 3))
    config = {"split_factor": 1.0, "min_mass": 10, "merge_factor": 0, "max_components": max_components}
    components, n_split = plain_asm(X, **config)
    assert n_split == max_components
    assert_same_components(ASM(**config).fit(X), X, components)


def test_a_table_far_wider_than_long_equals_the_plain_algorithm():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 900)) + np.repeat([[0.0], [1.0]], 30, axis=0)
    config = {"split_factor": 1.0, "min_mass": 5, "merge_factor": 0.5}
    components, n_split = plain_asm(X, **config)
    assert n_split > 1
    assert_same_components(ASM(**config).fit(X), X, components)


@pytest.mark.parametrize("kept_floats", [0, 1 << 40])
def test_components_larger_than_a_block_equal_the_plain_algorithm(monkeypatch, kept_floats):
    """Blocks of thirty rows, kept from one iteration to the next or made anew each time."""
    monkeypatch.setattr(splitting, "BLOCK_FLOATS", 150)
    monkeypatch.setattr(centered, "KEPT_FLOATS", kept_floats)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 3)) + 4 * rng.normal(size=(3, 3))[rng.integers(3, size=200)]
    config = {"split_factor": 0.7, "min_mass": 4, "merge_factor": 0.75}
    assert_same_components(ASM(**config).fit(X), X, plain_asm(X, **config)[0])


def test_a_large_table_is_fitted_without_a_second_copy_of_it():
    X = np.random.default_rng(0).normal(size=(600_000, 16))
    X[::2] += 3
    tracemalloc.start()
    fitted = ASM(split_factor=1.0, min_mass=20, merge_factor=1.0, max_components=3).fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert fitted.n_split_components_ == 3
    assert peak < 0.8 * X.nbytes  # 1.3 where the rows of the first component are kept


def plain_choice(X, seed, grid):
    """The paper's selection as a plain loop: every configuration fitted on 80 %, scikit-learn's silhouette."""
    order = np.random.default_rng(seed).permutation(len(X))
    n_held = round(0.2 * len(X))
    held, fitted = X[order[:n_held]], X[order[n_held:]]
    best = None
    for min_mass in grid["min_mass"]:
        for split_factor in grid["split_factor"]:
            for merge_factor in grid["merge_factor"]:
                config = {"min_mass": min_mass, "split_factor": split_factor, "merge_factor": merge_factor}
                components, _ = plain_asm(fitted, **config)
                means = np.array([each.mean for each in components])
                labels = ((held[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
                is_scored = 1 < len(np.unique(labels)) < len(held)
                score = round(silhouette_score(held, labels), 12) if is_scored else -np.inf
                if best is None or (score, -len(components)) > best[0]:
                    best = (score, -len(components)), config
    return best[1]


@pytest.mark.parametrize("seed", range(4))
def test_the_choice_equals_a_plain_loop_over_the_grid_on_random_tables(seed):
    X = random_table(seed + 100)
    fitted = ASM(min_mass=ASM_GRID["min_mass"], random_state=seed).fit(X)
    config = plain_choice(X, seed, ASM_GRID)
    assert fitted.config_ == config
    assert_same_components(fitted, X, plain_asm(X, **config)[0])


def test_the_choice_equals_a_plain_loop_over_the_grid_on_real_rows(benchmark_set):
    X = waveform_client(benchmark_set)
    grid = {**ASM_GRID, "min_mass": (50, 80, 120)}
    fitted = ASM(random_state=42, min_mass=grid["min_mass"]).fit(X)
    config = plain_choice(X, 42, grid)
    assert fitted.config_ == config
    assert_same_components(fitted, X, plain_asm(X, **config)[0])


@pytest.mark.parametrize("is_stretched", [False, True], ids=["round", "stretched"])
def test_of_tied_configurations_one_that_holds_on_all_rows_is_taken(is_stretched):
    found = {"default": [], "to the letter": []}
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = np.concatenate([rng.normal(center, 0.5, (80, 2)) for center in ([30, 2], [50, 9], [80, 4])])
        X = StandardScaler().fit_transform(X) if is_stretched else X
        default = ASM(random_state=seed).fit(X)
        tied = [each for each in default.results_ if each.score == default.best_score_]
        assert any(each.params == default.config_ for each in tied)
        found["default"].append(default.n_components_)
        found["to the letter"].append(ASM(min_mass=ASM_GRID["min_mass"], random_state=seed).fit(X).n_components_)
    assert found["default"] == [3] * 12
    assert found["to the letter"] != [3] * 12


@pytest.mark.parametrize("covariance", ["spherical", "identity"])
def test_one_tree_for_a_split_factor_scores_every_configuration_as_its_own_fit_does(covariance):
    X = StandardScaler().fit_transform(load_digits().data[:, 10:30])
    fast = ASM(covariance, random_state=7).fit(X)
    slow = LabelFreeSearch(ASM(covariance), ASM_GRID, random_state=7).fit(X)
    assert len(fast.results_) == 120
    for ours, theirs in zip(fast.results_, slow.results_, strict=True):
        assert ours.params == theirs.params
        assert ours.n_components == theirs.n_components
        np.testing.assert_array_equal(ours.score, theirs.score)
    assert fast.config_ == slow.best_params_
    np.testing.assert_array_equal(fast.means_, slow.best_estimator_.means_)
    np.testing.assert_array_equal(fast.labels_, slow.labels_)


def test_the_cuts_of_a_tree_equal_own_fits_when_the_cap_binds():
    X = np.random.default_rng(0).normal(size=(900, 4))
    grid = {"min_mass": (5, 40, 60), "split_factor": (0.5,), "merge_factor": (0.5, 1.0)}
    fast = ASM(random_state=1, max_components=9, **grid).fit(X)
    slow = LabelFreeSearch(ASM(max_components=9), grid, random_state=1).fit(X)
    assert max(c.n_components for c in fast.results_) == 9
    assert [(c.n_components, c.score) for c in fast.results_] == [(c.n_components, c.score) for c in slow.results_]


def test_a_sequence_is_a_grid_of_its_own():
    X, factors = random_table(5), (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.2)
    fitted = ASM(merge_factor=factors, random_state=0).fit(X)
    assert len(fitted.results_) == 140
    assert fitted.config_["merge_factor"] in factors


def test_fixed_values_are_used_as_given_and_nothing_is_searched():
    fitted = ASM(split_factor=0.4, min_mass=33, merge_factor=0.9).fit(random_table(2))
    assert fitted.config_ == {"split_factor": 0.4, "min_mass": 33, "merge_factor": 0.9}
    assert fitted.results_ == ()


def test_separated_round_clusters_are_found(blobs):
    X, truth = blobs([[0, 0, 0], [9, 0, 0], [0, 9, 0], [9, 9, 9]], 70)
    fitted = ASM(random_state=0).fit(X)
    assert fitted.n_components_ == 4
    assert adjusted_rand_score(truth, fitted.labels_) > 0.98  # a row on the wrong side of an early cut stays there
    assert adjusted_rand_score(truth, fitted.predict(X)) == 1.0
    np.testing.assert_allclose(fitted.weights_, 0.25, atol=0.01)


@pytest.mark.parametrize("n", [30, 50, 60, 74])
def test_far_apart_clusters_of_a_small_table_are_found_and_the_extra_masses_are_said(n):
    rng = np.random.default_rng(n)
    y = np.arange(n) % 3
    X = 30 * np.array([[0, 0], [1, 0], [0, 1]])[y] + rng.normal(size=(n, 2))
    fitted = ASM(random_state=0).fit(X)
    assert fitted.n_components_ == 3
    assert adjusted_rand_score(y, fitted.labels_) == 1.0
    assert fitted.extra_masses_ == tuple(n / by for by in (3, 6, 12, 24) if 2 <= n / by < 20)
    tried = list(dict.fromkeys(candidate.params["min_mass"] for candidate in fitted.results_))
    assert set(tried) <= {*ASM_GRID["min_mass"], *fitted.extra_masses_}
    assert tried[:5] == list(ASM_GRID["min_mass"])
    assert fitted.config_["min_mass"] in fitted.extra_masses_


def test_a_small_table_of_one_cluster_is_hardly_ever_cut():
    n_found = [
        ASM(random_state=0).fit(np.random.default_rng([n, draw]).normal(size=(n, 3))).n_components_
        for n in (25, 35)
        for draw in range(20)
    ]
    assert n_found.count(1) >= 36


def test_a_table_that_the_grid_suits_and_a_mass_that_is_given_are_left_alone():
    X = np.random.default_rng(0).normal(size=(75, 2))
    fitted = ASM(random_state=0).fit(X)
    assert fitted.extra_masses_ == ()
    assert {candidate.params["min_mass"] for candidate in fitted.results_} == set(ASM_GRID["min_mass"])
    for min_mass in (20, ASM_GRID["min_mass"]):
        fitted = ASM(min_mass=min_mass, random_state=0).fit(X[:50])
        assert fitted.extra_masses_ == ()
        assert {candidate.params["min_mass"] for candidate in fitted.results_} <= set(ASM_GRID["min_mass"])


def test_one_small_round_cluster_is_one_component():
    X = np.random.default_rng(0).normal(size=(35, 10))
    assert ASM(random_state=0).fit(X).n_components_ == 1


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1e-6, 0.5, 3.0, 1e7]))
def test_asm_s_does_not_depend_on_scale_or_place(seed, scale):
    X = random_table(seed)
    config = {"split_factor": 0.7, "min_mass": 10, "merge_factor": 1.0}
    ours = ASM(**config).fit(X)
    moved = ASM(**config).fit(scale * (X + 3))
    np.testing.assert_array_equal(ours.labels_, moved.labels_)
    np.testing.assert_allclose(moved.means_, scale * (ours.means_ + 3), rtol=1e-6, atol=scale * 1e-6)


def test_asm_i_does_depend_on_scale():
    X = np.random.default_rng(0).normal(size=(300, 3))
    config = {"covariance": "identity", "split_factor": 1.0, "min_mass": 20, "merge_factor": 0}
    assert ASM(**config).fit(0.01 * X).n_components_ == 1
    assert ASM(**config).fit(10 * X).n_components_ > 1


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_the_order_of_the_rows_does_not_change_the_partition(seed):
    X = random_table(seed)
    order = np.random.default_rng(seed).permutation(len(X))
    config = {"split_factor": 0.5, "min_mass": 12, "merge_factor": 0.75}
    assert adjusted_rand_score(ASM(**config).fit(X).labels_[order], ASM(**config).fit(X[order]).labels_) == 1.0


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([2, 10, 25]))
def test_components_partition_the_rows_and_a_larger_minimum_mass_never_gives_more(seed, min_mass):
    X = random_table(seed)
    counts = [
        ASM(split_factor=1.0, min_mass=mass, merge_factor=0).fit(X).n_components_ for mass in (min_mass, 2 * min_mass)
    ]
    assert counts[0] >= counts[1] >= 1
    fitted = ASM(split_factor=1.0, min_mass=min_mass, merge_factor=1.0).fit(X)
    np.testing.assert_array_equal(np.bincount(fitted.labels_, minlength=fitted.n_components_), fitted.counts_)
    np.testing.assert_allclose(fitted.weights_.sum(), 1.0)
    assert fitted.n_components_ <= fitted.n_split_components_ <= max(len(X) // min_mass, 1)


@pytest.mark.parametrize(
    "X",
    [
        np.ones((1, 3)),
        np.ones((40, 3)),
        np.full((40, 2), 1e9) + np.array([0.0, 1e-9]),
        np.repeat([[0.0, 0.0], [1.0, 1.0]], 30, axis=0),
        np.column_stack([np.ones(60), np.random.default_rng(0).normal(size=60)]),
        np.random.default_rng(1).normal(size=(12, 50)),
        np.concatenate([np.zeros((50, 4)), np.random.default_rng(2).normal(size=(50, 4))]),
        np.random.default_rng(3).normal(size=(80, 3)) * 1e-160,
        np.random.default_rng(4).normal(size=(80, 3)) * 1e149,
    ],
    ids=["one row", "one point", "rounding", "two points", "constant", "wide", "half zeros", "tiny", "huge"],
)
@pytest.mark.parametrize("covariance", ["spherical", "identity"])
@pytest.mark.parametrize("options", [{}, {"split_factor": 1.0, "min_mass": 2, "merge_factor": 0.5}])
def test_degenerate_tables_give_finite_components(X, covariance, options):
    fitted = ASM(covariance, random_state=0, **options).fit(X)
    for learned in (
        fitted.means_,
        fitted.variances_,
        fitted.weights_,
        fitted.predict_proba(X),
        fitted.score_samples(X),
    ):
        assert np.isfinite(learned).all()
    assert (fitted.variances_ > 0).all()
    np.testing.assert_allclose(fitted.predict_proba(X).sum(axis=1), 1.0)


def test_two_points_with_many_copies_are_two_components():
    X = np.repeat([[0.0, 0.0], [1.0, 1.0]], 30, axis=0)
    fitted = ASM(random_state=0).fit(X)
    assert fitted.n_components_ == 2
    assert sorted(fitted.counts_) == [30, 30]


def test_values_whose_squares_overflow_are_refused_by_column():
    X = np.ones((10, 3))
    X[4, 2] = 1e300
    with pytest.raises(ValueError, match=r"Column 2 .* 1e\+300"):
        ASM().fit(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"covariance": "full"}, "'covariance' of ASM must be 'spherical' or 'identity'; got 'full'"),
        ({"split_factor": 0}, "'split_factor' of ASM must be a finite number greater than 0; got 0"),
        ({"merge_factor": -1}, "'merge_factor' of ASM must be a finite number at least 0; got -1"),
        ({"min_mass": "many"}, "'min_mass' of ASM must be a number, a sequence of numbers or None; got 'many'"),
        ({"max_components": 0}, "'max_components' of ASM must be at least 1; got 0"),
        ({"max_em_iter": 2.5}, "'max_em_iter' of ASM must be an integer"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises((ValueError, TypeError)) as caught:
        ASM(**options).fit(np.zeros((5, 2)))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "labels", "min_mass", "paper"),
    [("waveform", "y", 80, 28.8), ("abalone", "y", 120, 16.3), ("frogs", "y_species", 200, 15.5)],
)
def test_the_split_stage_lands_on_the_papers_pooled_counts(benchmark_set, name, labels, min_mass, paper):
    from sklearn.model_selection import train_test_split

    X, y = benchmark_set(name, "X", labels)
    X = StandardScaler().fit_transform(X.astype(float))
    counts = [
        ASM(split_factor=0.3, min_mass=min_mass, merge_factor=0)
        .fit(train_test_split(X, test_size=0.3, stratify=y, random_state=seed)[0])
        .n_components_
        for seed in (42, 43, 44)
    ]
    assert abs(np.mean(counts) - paper) <= 1.5
