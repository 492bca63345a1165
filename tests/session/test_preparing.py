"""The openings of a run on a site's side: one shape, measured once, and no sums that differ by few rows."""

from dataclasses import replace

import numpy as np
import pytest

from koncord import Consensus, KnownCounts
from koncord.errors import MessageError
from koncord.prepare.settings import Preparation
from koncord.privacy.budget import Budget
from koncord.protocol import setup
from koncord.protocol.wire import pack, unpack
from koncord.session.federation import run_federation
from koncord.session.inprocess import InProcess
from koncord.session.policy import SitePolicy
from koncord.session.site import Site

COLUMNS = ("a", "b")


def table(seed=0, n=400):
    return np.random.default_rng(seed).normal(size=(n, 2))


def site(X=None, name="s", **policy):
    return Site(
        name,
        table() if X is None else X,
        COLUMNS,
        estimator=KnownCounts(1),
        aggregator=Consensus(),
        policy=SitePolicy(**policy),
    )


def ask(to, message):
    return unpack(to.answer(pack(message)), (setup.REPLIES[type(message)],))[0]


MEASURE = setup.Measure(
    columns=COLUMNS, means=np.zeros(2), scales=np.ones(2), low=np.full(2, -5.0), high=np.full(2, 5.0)
)
PREPARE = setup.Prepare(
    seed=0, columns=COLUMNS, means=np.zeros(2), scales=np.ones(2), low=MEASURE.low, high=MEASURE.high, missing="mean"
)


def test_sums_of_the_values_and_of_the_fenced_values_are_never_both_sent():
    one, other = site(), site()
    ask(one, setup.Describe())
    with pytest.raises(MessageError, match="together tell single rows"):
        ask(one, MEASURE)
    ask(other, MEASURE)
    with pytest.raises(MessageError, match="together tell single rows"):
        ask(other, setup.Describe())


def test_only_one_shape_is_measured_and_the_plan_must_have_it():
    asked = site()
    first = ask(asked, MEASURE)
    np.testing.assert_array_equal(ask(asked, MEASURE).means, first.means)  # a reply that was lost
    with pytest.raises(MessageError, match="a second Measure that is not the first"):
        ask(asked, replace(MEASURE, high=np.full(2, 4.0)))
    for other in (replace(PREPARE, high=np.full(2, 4.0)), replace(PREPARE, low=None, high=None)):
        with pytest.raises(MessageError, match="not the one it measured by"):
            ask(asked, other)
    ask(asked, PREPARE)


def test_a_plan_without_a_measure_is_refused():
    with pytest.raises(MessageError, match="nothing was measured for"):
        ask(site(), PREPARE)


def test_what_a_site_sends_of_its_columns_does_not_tell_an_extreme_row():
    X = table()
    found = []
    for value in (50.0, 5000.0):
        X[7, 0] = value
        asked = site(X.copy())
        sketch, sums = ask(asked, setup.Survey()), ask(asked, MEASURE)
        found.append((sketch.blocks, sums.means, sums.scatters))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_beside_a_site_with_a_budget_columns_are_scaled_and_nothing_else():
    X = {name: np.exp(table(at)) for at, name in enumerate("xyz")}
    sites = [site(X["x"], "x"), site(X["y"], "y"), site(X["z"], "z", budget=Budget(epsilon=8, delta=1e-6, bound=20))]
    model = run_federation(
        InProcess(sites), Consensus(), seed=0, standardize=True, settings={}, preparation=Preparation()
    )
    assert model.plan.logged is None
    assert model.plan.low is None
    (note,) = model.session.preparation.notes
    assert note.endswith("tells no distribution: z.")


def test_gaps_beside_a_budget_are_refused_in_a_sentence():
    X = table()
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="missing values, which a privacy budget does not cover"):
        site(X, budget=Budget(epsilon=1, delta=1e-6, bound=5))


def test_rows_that_dominate_a_column_but_not_its_logarithm_stay_where_they_are():
    X = np.exp(3 * table())
    asked = site(X)
    assert not np.allclose(asked.answered, X)  # on the scale of the table some rows make up most of a column
    ask(asked, replace(MEASURE, logged=np.ones(2, dtype=np.int64), low=np.full(2, -50.0), high=np.full(2, 50.0)))
    np.testing.assert_allclose(asked.answered, X, rtol=1e-9)
