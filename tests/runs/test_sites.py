"""Runs of very many sites: a page of the largest ones, and a file with all."""

import csv
from pathlib import Path

import numpy as np
import pytest

import koncord
from koncord.report.page import page
from koncord.runs import sites as runs_sites
from koncord.runs.folder import SITES, write_run
from koncord.runs.sites import LARGEST_SHOWN, shown_sites


def test_the_page_of_many_sites_shows_the_largest_and_a_file_has_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_sites, "MOST_SHOWN", 30)
    rng = np.random.default_rng(0)
    sizes = 40 + rng.permutation(40)
    sites = {f"site-{at:03}": rng.normal(size=(n, 2)) + 9 * rng.integers(0, 2, (n, 1)) for at, n in enumerate(sizes)}
    fitted = koncord.FederatedClustering(random_state=0).fit(sites)
    shown = shown_sites(fitted.model_)
    assert shown == tuple(f"site-{at:03}" for at in sorted(np.argsort(-sizes)[:LARGEST_SHOWN]))
    text = page(fitted.model_, fitted.record_)
    hidden = next(name for name in sites if name not in shown)
    assert hidden not in text
    assert "Of 40 sites the page shows the 20 with most rows" in text
    write_run(tmp_path, fitted.model_, fitted.record_, text)
    with (tmp_path / SITES).open() as file:
        lines = list(csv.DictReader(file))
    assert [line["site"] for line in lines] == sorted(sites)
    assert sum(int(line["rows"]) for line in lines) == sizes.sum()
    assert sum(int(line["bytes"]) for line in lines) == sum(each.n_bytes for each in fitted.ledger_)
    held = np.array([[int(line[f"cluster_{k}"]) for k in range(fitted.n_clusters_)] for line in lines])
    assert np.array_equal(held, fitted.model_.holdings)


def test_few_sites_are_all_on_the_page_and_need_no_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    fitted = koncord.FederatedClustering(random_state=0).fit([rng.normal(size=(50, 2)) for _ in range(3)])
    assert shown_sites(fitted.model_) == fitted.model_.sites
    write_run(tmp_path, fitted.model_, fitted.record_, "")
    assert not (tmp_path / SITES).exists()
