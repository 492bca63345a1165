"""Parameters in the manner of scikit-learn, without it."""

import pytest
from sklearn.base import BaseEstimator, clone

from koncord._parameters import Parameterized


class Inner(Parameterized):
    def __init__(self, depth=2, *, names=("a",)):
        self.depth = depth
        self.names = names


class Outer(Parameterized):
    def __init__(self, inner=None, rate=0.5):
        self.inner = inner
        self.rate = rate


class Twin(BaseEstimator):
    """The same in scikit-learn."""

    def __init__(self, inner=None, rate=0.5):
        self.inner = inner
        self.rate = rate


@pytest.mark.parametrize("deep", [True, False])
def test_parameters_are_those_of_scikit_learn(deep):
    given = {"inner": Inner(3), "rate": 0.5}
    assert Outer(**given).get_params(deep=deep) == Twin(**given).get_params(deep=deep)


def test_parameters_are_changed_by_name_also_inside():
    outer = Outer(Inner()).set_params(rate=1.5, inner__depth=7)
    assert (outer.rate, outer.inner.depth) == (1.5, 7)
    assert Twin(Inner()).set_params(inner__depth=7).inner.depth == 7
    with pytest.raises(ValueError, match="Invalid parameter 'rates' for Outer; it has inner, rate"):
        outer.set_params(rates=1)


def test_a_clone_has_its_own_copies_of_the_same_parameters():
    outer = Outer(Inner(4, names=["x"]), rate=2)
    for other in (outer.cloned(), clone(outer)):
        assert repr(other) == repr(outer) == "Outer(inner=Inner(depth=4, names=['x']), rate=2)"
        assert other.inner is not outer.inner
        assert other.inner.names is not outer.inner.names


@pytest.mark.parametrize("given", [{}, {"rate": 0.25}, {"rate": float("nan")}, {"inner": "a"}])
def test_it_is_shown_as_scikit_learn_shows_it(given):
    assert repr(Outer(**given)) == repr(Twin(**given)).replace("Twin", "Outer")


def test_one_without_a_constructor_has_no_parameters():
    class Plain(Parameterized):
        pass

    assert Plain().get_params() == {}
    assert repr(Plain().cloned()) == "Plain()"
