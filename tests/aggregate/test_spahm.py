from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from koncord.aggregate.spahm import (
    SPAHM,
    Atoms,
    Prior,
    evidence,
    fitted_prior,
    gains,
    log_posterior,
    match,
    matched_in_turn,
    matching_from,
    means_stand_for_rows,
    posterior_means,
    rematch,
    start_priors,
    totals,
)
from koncord.errors import KoncordError, MessageError

PRIOR = Prior(center=np.array([0.7]), noise=np.array([0.3]), scatter=np.array([2.1]))


def marginal(atoms, prior=PRIOR):
    """Density of one-dimensional atoms that share a global one, by quadrature over the global one."""

    def joint(theta):
        copies = np.prod(norm.pdf(atoms, theta, np.sqrt(prior.noise[0])))
        return copies * norm.pdf(theta, prior.center[0], np.sqrt(prior.scatter[0]))

    return quad(joint, -20, 20, points=[*atoms, prior.center[0]], limit=400, epsabs=0, epsrel=1e-11)[0]


def same_partition(first, second):
    first, second = np.asarray(first), np.asarray(second)
    return bool(((first[:, None] == first) == (second[:, None] == second)).all())


def copies(seed=0, n_clients=6, n_global=5, n_each=3, noise=0.2, d=2):
    """Atoms of clients that each hold copies of some of separated global atoms; their owners and the truth."""
    rng = np.random.default_rng(seed)
    true = 6.0 * rng.permutation(np.indices([3] * d).reshape(d, -1).T)[:n_global] + rng.random((n_global, d))
    held = np.concatenate([rng.choice(n_global, n_each, replace=False) for _ in range(n_clients)])
    atoms = true[held] + noise * rng.normal(size=(len(held), d))
    return atoms, np.repeat(np.arange(n_clients), n_each), held


def test_the_gain_of_joining_is_the_ratio_of_marginal_likelihoods():
    """Up to a term of the atom alone, which joining and opening share."""
    groups = [np.array([0.1, -0.4]), np.array([2.0]), np.array([1.5, 1.1, 1.9])]
    atoms = np.array([[0.3], [2.4]])
    sums = np.array([[group.sum()] for group in groups])
    counts = np.array([float(len(group)) for group in groups])
    table = gains(atoms, sums, counts, PRIOR, gamma=1.4, n_clients=9)
    for row, atom in enumerate(atoms[:, 0]):
        shared = np.log(2 * np.pi) + np.log(PRIOR.noise[0]) + atom**2 / PRIOR.noise[0]
        for column, group in enumerate(groups):
            ratio = np.log(marginal([*group, atom]) / marginal(group))
            popularity = np.log(len(group) / (9 - len(group)))
            assert table[row, column] == pytest.approx(2 * ratio + shared + 2 * popularity, abs=1e-7)
        for q in (1, 2):
            opened = 2 * np.log(marginal([atom])) + shared + 2 * np.log(1.4 / 9) - 2 * np.log(q)
            assert table[row, 2 + q] == pytest.approx(opened, abs=1e-7)


def test_popularity_is_capped_at_ten_clients():
    sums, atoms = np.array([[40.0]]), np.array([[1.0]])
    table = gains(atoms, sums, np.array([40.0]), PRIOR, gamma=1.0, n_clients=50)
    gained = evidence(sums + atoms, np.array([41.0]), PRIOR) - evidence(sums, np.array([40.0]), PRIOR)
    assert table[0, 0] == pytest.approx(gained[0] + 2 * np.log(10 / 40))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(0, 3))
def test_the_match_is_the_best_of_all_one_to_one_matchings(seed, n_atoms, n_global):
    rng = np.random.default_rng(seed)
    atoms, sums = 2 * rng.normal(size=(n_atoms, 2)), 2 * rng.normal(size=(n_global, 2))
    counts = rng.integers(1, 4, size=n_global).astype(float)
    prior = Prior(center=np.zeros(2), noise=np.array([0.5, 0.2]), scatter=np.array([3.0, 2.0]))
    table = gains(atoms, sums, counts, prior, gamma=1.0, n_clients=5)
    values = {
        columns: sum(table[row, column] for row, column in enumerate(columns))
        for columns in product(range(n_global + n_atoms), repeat=n_atoms)
        if len(set(columns)) == n_atoms
    }
    best = max(values, key=values.get)
    found = match(atoms, sums, counts, prior, gamma=1.0, n_clients=5)
    assert [column if column < n_global else -1 for column in found] == [c if c < n_global else -1 for c in best]
    assert sorted(found[found >= n_global]) == list(range(n_global, n_global + int((found >= n_global).sum())))


def test_the_posterior_tells_the_gain_of_moving_an_atom():
    """The last client has one atom: joining a group instead of opening one changes the posterior by the gains."""
    atoms, owners, held = copies(seed=3, n_clients=4)
    atoms, owners = np.concatenate([atoms, [[0.5, -0.3]]]), np.append(owners, 4)
    prior = Prior(center=np.array([0.2, 0.1]), noise=np.array([0.5, 0.3]), scatter=np.array([3.0, 2.0]))
    others = np.unique(held, return_inverse=True)[1]
    sums, counts = totals(atoms[:-1], others)
    table = gains(atoms[-1:], sums, counts, prior, gamma=1.7, n_clients=5)[0]
    values = [log_posterior(atoms, owners, np.append(others, g), prior, gamma=1.7) for g in range(len(counts) + 1)]
    held_by = np.array([np.isin(range(4), owners[:-1][others == g]) for g in range(len(counts))])
    assert len(np.unique(held_by, axis=0)) == len(counts)  # so that no two groups are alike before or after
    np.testing.assert_allclose(np.array(values) - values[-1], table - table[-1], atol=1e-9)


def test_the_posterior_counts_the_marginal_likelihoods_of_all_groups():
    atoms, owners = np.array([[0.1], [2.0], [0.3], [1.8]]), np.array([0, 0, 1, 1])
    matched, apart = np.array([0, 1, 0, 1]), np.array([0, 1, 2, 3])
    difference = [log_posterior(atoms, owners, groups, PRIOR, gamma=1.0) for groups in (matched, apart)]
    likelihoods = [
        sum(np.log(marginal(atoms[groups == g, 0])) for g in range(groups.max() + 1)) for groups in (matched, apart)
    ]
    # Indian buffet process, two clients: two atoms of both, against two of one and two of the other.
    process = [-np.log(2) + 2 * np.log(1 / 2), -2 * np.log(2) + 4 * np.log(1 / 2)]
    expected = 2 * (likelihoods[0] + process[0] - likelihoods[1] - process[1])
    assert difference[0] - difference[1] == pytest.approx(expected, abs=1e-7)


def test_the_posterior_mean_is_that_of_the_quadrature():
    atoms = np.array([[0.1], [-0.4], [2.0]])
    groups = np.array([0, 0, 1])
    for g, center in enumerate(posterior_means(atoms, groups, PRIOR)):
        own = atoms[groups == g, 0]

        def weighted(theta, own=own):
            copies = np.prod(norm.pdf(own, theta, np.sqrt(0.3)))
            return theta * copies * norm.pdf(theta, 0.7, np.sqrt(2.1))

        expected = quad(weighted, -20, 20, points=[*own, 0.7], limit=400)[0] / marginal(own)
        assert center[0] == pytest.approx(expected, abs=1e-6)


def test_the_fitted_prior_is_that_of_the_formulas():
    atoms, _, held = copies(d=3)
    groups = np.unique(held, return_inverse=True)[1]
    found = fitted_prior(atoms, groups, PRIOR)
    n_groups = groups.max() + 1
    members = [atoms[groups == g] for g in range(n_groups)]
    means = np.array([part.mean(axis=0) for part in members])
    noise = sum(((part - part.mean(axis=0)) ** 2).sum(axis=0) for part in members) / (len(atoms) - n_groups)
    scatter = means.var(axis=0) - noise * np.mean([1 / len(part) for part in members])
    np.testing.assert_allclose(found.center, means.mean(axis=0))
    np.testing.assert_allclose(found.noise, noise)
    np.testing.assert_allclose(found.scatter, scatter)


def test_the_fitted_prior_stays_positive_and_keeps_the_old_one_while_nothing_is_matched():
    atoms = np.array([[0.0], [0.0], [5.0], [5.0]])
    fitted = fitted_prior(atoms, np.array([0, 0, 1, 1]), PRIOR)
    assert fitted.noise.tolist() == [1e-8 * 6.25]
    crossed = fitted_prior(atoms, np.array([0, 1, 0, 1]), PRIOR)
    assert crossed.scatter.tolist() == [1e-8 * 6.25]
    assert fitted_prior(atoms, np.arange(4), PRIOR) is PRIOR
    assert fitted_prior(np.zeros((2, 1)), np.zeros(2, dtype=int), PRIOR) is PRIOR


@pytest.mark.parametrize("seed", range(5))
def test_copies_are_matched_to_what_they_are_copies_of(seed):
    """From the start with the highest posterior; other starts may end elsewhere."""
    atoms, owners, held = copies(seed)
    found = [
        matching_from(atoms, owners, start, np.random.default_rng(0), gamma=1.0, n_passes=10, estimate_hyper=True)
        for start in start_priors(atoms, None, None)
    ]
    best = max(found, key=lambda m: log_posterior(atoms, owners, m.groups, m.prior, gamma=1.0))
    assert best.has_converged
    assert same_partition(best.groups, held)


def test_no_client_has_two_atoms_in_one_group():
    rng = np.random.default_rng(0)
    atoms, owners = 0.01 * rng.normal(size=(12, 2)), np.repeat(np.arange(4), 3)
    prior = Prior(center=np.zeros(2), noise=np.ones(2), scatter=np.ones(2))
    groups = matched_in_turn(atoms, owners, prior, gamma=1.0, n_clients=4)
    for client in range(4):
        assert len(set(groups[owners == client])) == 3
    again = rematch(atoms, groups, owners == 2, prior, gamma=1.0, n_clients=4)
    assert len(set(again[owners == 2])) == 3
    assert same_partition(again[owners != 2], groups[owners != 2])


def test_taking_a_client_out_removes_the_groups_it_had_alone():
    atoms, owners = np.array([[0.0], [0.1], [90.0], [0.05]]), np.array([0, 1, 1, 2])
    prior = Prior(center=np.array([20.0]), noise=np.array([0.01]), scatter=np.array([900.0]))
    groups = rematch(atoms, np.array([0, 0, 1, 2]), owners == 2, prior, gamma=1.0, n_clients=3)
    assert groups.tolist() == [0, 0, 1, 0]
    groups = rematch(atoms, np.array([1, 1, 0, 1]), owners == 1, prior, gamma=1.0, n_clients=3)
    assert same_partition(groups, [1, 1, 0, 1])
    assert sorted(set(groups)) == [0, 1]


def test_six_clusters_are_found_where_every_client_holds_three(federate, six, worst_error):
    for seed in range(6):
        centers, tables = six(seed)
        run = federate(SPAHM(), tables, seed=seed)
        assert len(run.centers) == 6
        assert worst_error(centers, run.centers) < 0.3


@pytest.mark.parametrize(("scale", "offset"), [(1e-4, 0.0), (1e4, 0.0), (1.0, 1e6)])
def test_units_and_origin_do_not_matter(federate, six, scale, offset):
    _, tables = six()
    first = federate(SPAHM(), tables)
    second = federate(SPAHM(), {name: scale * X + offset for name, X in tables.items()})
    np.testing.assert_allclose(second.centers, scale * first.centers + offset, rtol=1e-7)


def test_the_order_of_atoms_within_clients_does_not_matter(federate, six, monkeypatch):
    """Centers may come in another order."""
    _, tables = six()
    first = federate(SPAHM(), tables)
    monkeypatch.setitem(
        SPAHM.client_steps,
        type(first.exchanges[0].down),
        lambda local, state, down: (None, Atoms(atoms=local.estimate.means[::-1])),
    )
    second = federate(SPAHM(), tables)
    assert second.exchanges[0].up.atoms.tolist() == first.exchanges[0].up.atoms[::-1].tolist()
    order = [np.linalg.norm(first.centers - center, axis=1).argmin() for center in second.centers]
    assert sorted(order) == list(range(6))
    np.testing.assert_allclose(second.centers, first.centers[order], atol=1e-9)


def test_groups_and_centers_belong_together(federate, six):
    outcome = federate(SPAHM(), six()[1]).outcome
    for client, group in outcome.groups.items():
        gaps = np.linalg.norm(outcome.components[client] - outcome.centers[group], axis=1)
        assert (gaps < 1).all()
        assert len(set(group)) == len(group) == 3


def test_neither_the_order_of_clients_nor_the_number_of_threads_matters(federate, six, same_result):
    same_result(federate, SPAHM(), six()[1])


def test_one_client_keeps_its_atoms(federate, blobs):
    X, _ = blobs([[0, 0], [9, 0], [0, 9]], 30)
    run = federate(SPAHM(), {"only": X})
    assert len(run.centers) == 3
    assert run.outcome.groups["only"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("n_clients", [4, 10])
def test_one_cluster_at_all_clients_is_one_cluster(federate, n_clients):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        run = federate(SPAHM(), [rng.normal(size=(40, 2)) for _ in range(n_clients)], k=1, seed=seed)
        assert len(run.centers) == 1


def test_one_atom_in_all_is_one_cluster(federate):
    run = federate(SPAHM(), {"only": np.array([[1.0, 2.0], [3.0, 4.0]])}, k=1)
    assert run.centers.tolist() == [[2.0, 3.0]]


def test_coinciding_atoms_are_one_cluster(federate):
    run = federate(SPAHM(), {name: np.array([[1.0], [3.0]]) for name in "abc"}, k=1)
    assert run.centers.tolist() == [[2.0]]
    assert run.diagnostics.extra["clients_of_each_center"] == [3]


def test_atoms_too_far_apart_to_match_stay_apart(federate):
    tables = {"a": np.array([[0.0], [1.0]]), "b": np.array([[1e3], [1e3 + 1]])}
    run = federate(SPAHM(noise_variance=1e-3, scatter_variance=1e6), tables, k=1)
    np.testing.assert_allclose(run.centers, [[0.5], [1000.5]], atol=1e-3)


def test_no_row_is_sent_while_atoms_stand_for_two(federate, uneven, disclosed):
    assert disclosed(federate(SPAHM(), uneven)) == set()
    assert {("rows1", 0), ("lone", 30)} <= disclosed(federate(SPAHM(min_count=1), uneven))


def test_a_mean_that_is_a_row_is_withheld_even_if_other_rows_lie_near_it():
    X = np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0], [9.0, 9.0], [9.0, 9.0]])
    means = np.array([[0.0, 0.0], [9.0, 9.0], [1.0, 0.5], [70.0, 70.0]])
    assert means_stand_for_rows(X, means, 2).tolist() == [False, True, True, False]
    assert means_stand_for_rows(np.append(X, [[0.1, 0.1]], axis=0), means, 2).tolist() == [False, True, True, False]
    assert means_stand_for_rows(X, means, 1).tolist() == [True, True, True, False]


def test_what_is_sent_does_not_grow_with_the_rows(federate, six):
    for n in (20, 200):
        assert {exchange.up.atoms.shape for exchange in federate(SPAHM(), six(n_each=n)[1]).exchanges} == {(3, 2)}


def test_nothing_sent_is_a_sentence(federate):
    with pytest.raises(KoncordError, match="No client sent an atom: no local component stands for 2 rows"):
        federate(SPAHM(), [np.zeros((1, 2)), np.ones((1, 2))])


@pytest.mark.parametrize(
    "wrong", [{"gamma": 0.0}, {"n_passes": -1}, {"noise_variance": 0.0}, {"scatter_variance": -1.0}, {"min_count": -1}]
)
def test_wrong_parameters_are_refused_when_the_server_starts(wrong):
    with pytest.raises(ValueError, match=f"'{next(iter(wrong))}' of SPAHM must be"):
        SPAHM(**wrong).server(("a",), 2, np.random.default_rng(0))


def test_a_message_must_be_a_matrix_of_numbers(carried):
    for atoms in (np.zeros(3), np.full((1, 2), np.inf)):
        with pytest.raises(MessageError, match=r"'atoms' of a message spahm.Atoms must"):
            carried(Atoms(atoms=atoms))


def test_parameters_may_be_numbers_of_numpy(federate, six):
    assert (
        len(federate(SPAHM(gamma=np.int64(1), n_passes=np.int64(2), min_count=np.int64(2)), six(n_each=10)[1]).centers)
        >= 1
    )


def test_it_declares_what_it_sends(declares_what_it_sends):
    declares_what_it_sends(SPAHM)
