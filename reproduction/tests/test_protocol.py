"""The paper's protocol as data."""

from math import prod

import numpy as np
import pytest

from koncord import DPGMM, LabelFreeSearch
from koncord.errors import KoncordError
from koncord.estimate.base import n_components_of
from koncord_reproduction import load
from koncord_reproduction.protocol import (
    AGGREGATORS,
    IMAGES,
    PHASE_1,
    SETS,
    TABULAR,
    aggregator,
    phase_1,
    pooled_grid,
    released_rounds,
)


def test_sets_clients_and_splits_are_those_of_the_papers_table():
    used = {name: (setting.n_clients, setting.test_share, setting.is_standardised) for name, setting in SETS.items()}
    assert used == {
        "waveform": (5, 0.3, True),
        "abalone": (5, 0.3, True),
        "frog_species": (5, 0.3, True),
        "frog_genus": (5, 0.3, True),
        "mnist": (100, 0.3, False),
        "fmnist": (100, 0.3, False),
        "emnist": (25, 0.5, False),
        "cifar10": (100, 0.3, False),
    }
    assert (*TABULAR, *IMAGES) == tuple(SETS)


@pytest.mark.parametrize("name", SETS)
def test_every_set_can_be_dealt_to_its_clients(name):
    try:
        data = load(name)
    except KoncordError as error:
        pytest.skip(str(error))
    assert len(data.y) * (1 - SETS[name].test_share) > 100 * SETS[name].n_clients


def test_upsilon_is_fixed_on_images_and_chosen_in_ascending_order_on_tables():
    assert {name: SETS[name].upsilon for name in IMAGES} == {"mnist": 2, "fmnist": 300, "emnist": 2, "cifar10": 10}
    for name in TABULAR:
        assert SETS[name].upsilon is None
        assert list(SETS[name].upsilons) == sorted(SETS[name].upsilons)


def test_grids_have_as_many_configurations_as_the_paper_says():
    sizes = {name: prod(map(len, pooled_grid("asm-s", name).values())) for name in SETS}
    assert sizes == {name: 140 if name == "mnist" else 120 for name in SETS}
    assert prod(map(len, pooled_grid("dpgmm", "mnist").values())) == 24


@pytest.mark.parametrize("method", [method for method in PHASE_1 if method != "oracle"])
def test_the_estimator_of_every_method_counts_separated_clusters(method, blobs):
    X, _ = blobs([[0, 0], [40, 0], [0, 40]], n_each=120)
    estimator = phase_1(method, "waveform", [9], 0)
    if method == "dpgmm":
        assert len(estimator.param_grid["concentration"]) == 6
        estimator = LabelFreeSearch(DPGMM(truncation=12), estimator.param_grid)
    assert n_components_of(estimator.set_params(random_state=0).fit(X), X) == 3


def test_the_oracle_alone_is_reported_the_counts():
    assert phase_1("oracle", "waveform", [2, 3], 0).for_client("site-2", 1).counts == 3
    with pytest.raises(ValueError, match="'method' must be one of"):
        phase_1("guess", "waveform", [2], 0)


def test_asm_searches_the_finer_merge_factors_on_mnist_alone():
    assert {name for name in SETS if 0.9 in phase_1("asm-i", name, [], 0).merge_factor} == {"mnist"}
    assert phase_1("asm-i", "mnist", [], 0).covariance == "identity"


def test_the_released_program_runs_longer_on_fmnist():
    assert released_rounds("released", "fmnist") == 20
    assert released_rounds("released-10", "fmnist") == released_rounds("released", "mnist") == 10


@pytest.mark.parametrize("method", AGGREGATORS)
def test_an_aggregator_says_what_it_was_handed(method, blobs):
    estimator, server, given = aggregator(method, 4, [2, 3])
    handed = server.get_params()
    assert ("K" in given.replace("K_g", "")) == (4 in handed.values() or 8 in handed.values())
    assert ("K_g" in given) == (list(np.atleast_1d(estimator.counts)) == [2, 3])
