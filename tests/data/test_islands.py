"""The penguins that come with koncord, and the classes that are known of them."""

import csv
import hashlib
from importlib.resources import files

import numpy as np
import pytest

import koncord
from koncord.data.islands import GAP, MEASUREMENTS, SEXES, SPECIES, birds


@pytest.fixture(scope="module")
def shown():
    return koncord.data.penguins()


def test_every_site_has_a_class_for_every_row(shown):
    for kind in shown.classes:
        assert kind.of_rows.keys() == shown.tables.keys()
        for site, table in shown.tables.items():
            of_rows = kind.of_rows[site]
            assert table.shape == (len(of_rows), len(MEASUREMENTS))
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


def test_penguins_are_those_of_the_file_row_by_row():
    text = files("koncord.data").joinpath("shipped/penguins.csv").read_text(encoding="utf-8")
    rows = [row for row in csv.DictReader(text.splitlines()) if row["body_mass_g"] != GAP]
    held = birds()
    assert len(rows) == len(held.X) == 342
    for at, row in enumerate(rows):
        assert held.X[at].tolist() == [float(row[name]) for name in MEASUREMENTS]
        assert SPECIES[held.species[at]] == row["species"]
        assert (SEXES[held.sex[at]] if held.sex[at] >= 0 else GAP) == row["sex"]


def test_the_file_is_the_published_one_and_says_where_it_is_from():
    folder = files("koncord.data").joinpath("shipped")
    content = folder.joinpath("penguins.csv").read_bytes()
    assert hashlib.sha256(content).hexdigest() == PUBLISHED
    about = folder.joinpath("README.md").read_text(encoding="utf-8")
    for word in ("CC0", "10.1371/journal.pone.0090081", "palmerpenguins 0.1.6"):
        assert word in about


def test_islands_hold_the_species_that_live_there(shown):
    held = {site: {SPECIES[at] for at in set(rows.tolist())} for site, rows in shown.classes[0].of_rows.items()}
    assert held == {"Biscoe": {"Adelie", "Gentoo"}, "Dream": {"Adelie", "Chinstrap"}, "Torgersen": {"Adelie"}}


PUBLISHED = "f204db2c753b0937caac3cb35258562c14f073e4bbc76be24b4c51ce22767a93"
