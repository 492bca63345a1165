"""A site in another unit is named, with the conversion; sites that differ otherwise are not given one."""

import numpy as np
import pytest

from koncord.data.files import Table
from koncord.data.units import CONVERSIONS, SHORT, conversion_named, converted
from koncord.errors import TableArgumentError
from koncord.prepare.columns import describe_columns
from koncord.prepare.units import beyond_others, other_units

COLUMNS = ("temperature", "pressure", "speed")


def sites(seed, change=None):
    rng = np.random.default_rng(seed)
    tables = {f"s{at}": rng.normal([60, 5, 1500], [4, 0.3, 40], (600, 3)) for at in range(5)}
    if change is not None:
        column, name = change
        tables["s1"] = converted(Table(X=tables["s1"], columns=COLUMNS, name="s1"), {COLUMNS[column]: name}).X
    return {site: describe_columns(X, COLUMNS, {}, 20) for site, X in tables.items()}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("column", "given", "back"),
    [
        (0, "C-to-F", "F-to-C"),
        (0, "C-to-K", "K-to-C"),
        (1, "bar-to-mbar", ("mbar-to-bar", "x0.001")),
        (1, "bar-to-psi", "psi-to-bar"),
        (2, "rpm-to-Hz", "Hz-to-rpm"),
    ],
)
def test_a_site_in_another_unit_is_named_with_the_way_back(seed, column, given, back):
    (found,) = other_units(sites(seed, (column, given)), COLUMNS)
    assert (found.site, found.column) == ("s1", COLUMNS[column])
    assert found.conversion in back if isinstance(back, tuple) else found.conversion == back


@pytest.mark.parametrize("seed", range(5))
def test_like_sites_are_not_warned_of(seed):
    assert other_units(sites(seed), COLUMNS) == []


def test_clusters_that_some_sites_lack_are_no_other_unit():
    rng = np.random.default_rng(0)
    held = [(0,), (0, 9), (9, 18), (0, 18)]
    tables = [np.concatenate([rng.normal(m, 1, (300, 1)) for m in own]) for own in held]
    assert other_units({str(at): describe_columns(X, ("a",), {}, 20) for at, X in enumerate(tables)}, ("a",)) == []


def test_two_sites_alone_say_nothing():
    told = dict(list(sites(0, (0, "C-to-F")).items())[:2])
    assert other_units(told, COLUMNS) == []


def test_every_conversion_has_a_way_back():
    for name, (factor, shift) in CONVERSIONS.items():
        assert any(
            abs(back.factor * factor - 1) < 1e-9 and abs(back.factor * shift + back.shift) < 1e-9
            for back in CONVERSIONS.values()
        ), name
    assert conversion_named("F") == CONVERSIONS[SHORT["F"]]
    with pytest.raises(TableArgumentError, match="--convert knows no unit 'G'"):
        conversion_named("G")


@pytest.mark.parametrize("seed", range(20))
def test_sites_beyond_all_others_are_those_of_a_plain_loop(seed):
    rng = np.random.default_rng(seed)
    known = np.sort(rng.normal(size=(12, 5)), axis=1) + rng.choice([0.0, 0.0, 0.0, 6.0, -6.0], (12, 1))
    others = [np.delete(known, at, axis=0) for at in range(12)]
    plain = [at for at in range(12) if known[at, 1] > others[at][:, 4].max() or known[at, 3] < others[at][:, 0].min()]
    assert beyond_others(known).tolist() == plain
