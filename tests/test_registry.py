"""Aggregators and estimators by name: koncord's own first, those of packages when they are used."""

from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

import koncord
from koncord._registry import Offer, Registry
from koncord.aggregate.base import Aggregator
from koncord.aggregate.registry import AGGREGATORS, aggregator_named
from koncord.errors import KoncordError
from koncord.estimate.registry import ESTIMATORS


@pytest.mark.parametrize("name", AGGREGATORS.own)
def test_an_aggregator_of_the_registry_is_one_and_a_public_name(name):
    kind = aggregator_named(name)
    assert issubclass(kind, Aggregator)
    assert kind.name == name
    assert getattr(koncord, kind.__name__) is kind
    assert kind.__name__ in koncord.__all__


def test_every_public_name_can_be_imported():
    assert all(getattr(koncord, name) is not None for name in koncord.__all__)
    assert dir(koncord) == koncord.__all__


def registry(*found):
    """A registry with one name of its own, where packages offer these: name, home and package."""
    made = Registry("method", "koncord.methods", [Offer(name="own", home="math:pi", summary="ours")])
    entries = [with_package(EntryPoint(name, home, "koncord.methods"), package) for name, home, package in found]
    made.find = lambda: entries
    return made


def with_package(entry, package):
    return entry._for(SimpleNamespace(name=package, metadata={"Summary": "a summary"}))


def test_names_are_listed_with_those_of_packages_last():
    known = registry(("theirs", "math:e", "p"), ("also", "math:tau", "q"))
    assert list(known) == ["own", "also", "theirs"]
    assert "theirs" in known
    assert known["theirs"] == Offer(name="theirs", home="math:e", summary="a summary", package="p")
    assert known["theirs"].load() == pytest.approx(2.718281828)


def test_a_package_cannot_take_a_name_of_our_own_and_two_cannot_share_one():
    known = registry(("own", "math:e", "p"), ("both", "math:e", "p"), ("both", "math:tau", "q"))
    assert list(known) == ["own"]
    assert known["own"].home == "math:pi"


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"There is no method 'none'; there are own\."):
        registry()["none"]
    with pytest.raises(ValueError, match="There is no estimator 'none'; there are asm, asm-identity"):
        ESTIMATORS["none"]


def test_a_package_that_cannot_be_loaded_is_named():
    for home in ("no_such_module:X", "math:no_such_name"):
        with pytest.raises(KoncordError, match="'theirs' of the package p cannot be loaded from"):
            registry(("theirs", home, "p"))["theirs"].load()
