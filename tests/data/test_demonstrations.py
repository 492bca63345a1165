"""Tables that come with koncord, and the classes that are known of them."""

import csv
import hashlib
from importlib.resources import files

import numpy as np
import pytest

import koncord
from koncord.cli.demo import DATA
from koncord.data.demonstrations import DEMONSTRATIONS
from koncord.data.penguins import GAP, MEASUREMENTS, SEXES, SPECIES, penguins
from koncord.data.pumps import FAULTS, MET, NOISE, SENSORS, STATES, pumps


@pytest.fixture(scope="module", params=DATA)
def shown(request):
    return koncord.data.demonstration(request.param)


def test_the_command_offers_what_there_is():
    assert tuple(DEMONSTRATIONS) == DATA


def test_every_site_has_a_class_for_every_row(shown):
    for kind in shown.classes:
        assert kind.of_rows.keys() == shown.tables.keys()
        for site, table in shown.tables.items():
            of_rows = kind.of_rows[site]
            assert table.shape == (len(of_rows), len(shown.columns))
            assert np.isfinite(table).all()
            assert set(of_rows.tolist()) <= {-1, *range(len(kind.names))}


def test_no_site_holds_all_classes_and_together_they_do(shown):
    held = {site: set(of_rows.tolist()) for site, of_rows in shown.classes[0].of_rows.items()}
    everything = set(range(len(shown.classes[0].names)))
    assert set().union(*held.values()) == everything
    assert all(own < everything for own in held.values())
    assert shown.true_counts == {site: len(own) for site, own in held.items()}


def test_finer_classes_are_parts_of_the_coarser_ones(shown):
    for site, coarse in shown.classes[0].of_rows.items():
        for kind in shown.classes[1:]:
            fine = kind.of_rows[site]
            for number in set(fine[fine >= 0].tolist()):
                assert len(set(coarse[fine == number].tolist())) == 1


def test_a_demonstration_is_the_same_every_time(shown):
    again = koncord.data.demonstration(shown.name)
    assert np.array_equal(again.pooled, shown.pooled)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(
        ValueError, match="'name' of demonstration must be 'penguins' or 'waveform' or 'plant'; got 'iris'"
    ):
        koncord.data.demonstration("iris")


def test_penguins_are_those_of_the_file_row_by_row():
    text = files("koncord.data").joinpath("shipped/penguins.csv").read_text(encoding="utf-8")
    rows = [row for row in csv.DictReader(text.splitlines()) if row["body_mass_g"] != GAP]
    birds = penguins()
    assert len(rows) == len(birds.X) == 342
    for at, row in enumerate(rows):
        assert birds.X[at].tolist() == [float(row[name]) for name in MEASUREMENTS]
        assert SPECIES[birds.species[at]] == row["species"]
        assert (SEXES[birds.sex[at]] if birds.sex[at] >= 0 else GAP) == row["sex"]


def test_the_file_is_the_published_one_and_says_where_it_is_from():
    folder = files("koncord.data").joinpath("shipped")
    content = folder.joinpath("penguins.csv").read_bytes()
    assert hashlib.sha256(content).hexdigest() == PUBLISHED
    about = folder.joinpath("README.md").read_text(encoding="utf-8")
    for word in ("CC0", "10.1371/journal.pone.0090081", "palmerpenguins 0.1.6"):
        assert word in about


def test_islands_hold_the_species_that_live_there():
    shown = koncord.data.demonstration("penguins")
    held = {site: {SPECIES[at] for at in set(rows.tolist())} for site, rows in shown.classes[0].of_rows.items()}
    assert held == {"Biscoe": {"Adelie", "Gentoo"}, "Dream": {"Adelie", "Chinstrap"}, "Torgersen": {"Adelie"}}


def test_a_fault_moves_its_sensors_and_no_others():
    """Against the definition: differences of means, in units of the noise."""
    pooled = pumps(40_000, fault_rows=8_000, seed=3)
    X = np.concatenate([plant.X for plant in pooled.values()])
    state = np.concatenate([plant.state for plant in pooled.values()])
    for number, name in enumerate(STATES):
        moved = (X[state == number].mean(axis=0) - X[state == 0].mean(axis=0)) / NOISE
        expected = [FAULTS.get(name, {}).get(sensor, 0.0) for sensor in SENSORS]
        np.testing.assert_allclose(moved, expected, atol=0.15)


def test_plants_have_met_the_faults_they_have():
    for plant, held in pumps(300, fault_rows=20).items():
        counts = np.bincount(held.state, minlength=len(STATES))
        assert counts[list(MET[plant])].tolist() == [20] * len(MET[plant])
        assert counts.sum() == 300
        assert counts[1:].sum() == 20 * len(MET[plant])


def test_more_fault_rows_than_there_are_rows_are_refused():
    with pytest.raises(ValueError, match=r"'fault_rows' of pumps must be at most 10 \(.*\); got 11"):
        pumps(30, fault_rows=11)


PUBLISHED = "f204db2c753b0937caac3cb35258562c14f073e4bbc76be24b4c51ce22767a93"
