"""What an owner once promised her rows stays promised: a second join changes nothing, a weaker one must say so."""

import json
from pathlib import Path

import numpy as np
import pytest

from koncord.cli import main
from koncord.network.certificates import site_key
from koncord.network.places import Invitation
from koncord.network.sitefolder import SiteFolder, sole_owner

COLUMNS = ("age", "stay", "pain")
BUDGET = ("--epsilon", "2", "--delta", "1e-6", "--bound", "10")
STRONG = (*BUDGET, "--max-runs", "3", "--methods", "fedkmeans", "--max-rounds", "4")


def content_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def joining(tmp_path, monkeypatch):
    """Calls `koncord join` in a folder with an invitation to a coordinator that is away, and two tables."""
    monkeypatch.chdir(tmp_path)
    own = Invitation(site="north", address="localhost:1", authority="ca", key=site_key()[0].decode())
    own.save(tmp_path / "north.invite")
    rng = np.random.default_rng(0)
    for name in ("visits", "others"):
        X = rng.normal(size=(60, 3))
        np.savetxt(f"{name}.csv", X, delimiter=",", header=",".join(COLUMNS), comments="")

    def join(*options, data="visits.csv"):
        return main(["join", "--invite", "north.invite", "--data", data, "--state", "state", *options])

    return join


def joined(join, *options):
    """Join until it is plain that nobody is there; the state folder is as a running join leaves it."""
    pytest.importorskip("flwr")
    assert join(*options, "--patience", "0.1") == 1
    return content_of(Path("state"))


def test_a_second_join_is_refused_before_it_writes_a_byte(joining, capsys):
    joined(joining, *STRONG)
    other = Invitation(site="north", address="localhost:2", authority="another", key=site_key()[0].decode())
    with sole_owner(Path("state")):
        before = content_of(Path("state"))
        other.save(Path("north.invite").absolute().with_name("other.invite"))
        Path("north.invite").write_bytes(Path("other.invite").read_bytes())
        for options in ((), ("--min-report", "1"), ("--weaken", "--min-report", "1"), ("--ledger", "elsewhere")):
            assert joining(*options, data="others.csv") == 1
            assert "Another koncord join uses the state folder" in capsys.readouterr().err
        assert content_of(Path("state")) == before
        assert not Path("elsewhere").exists()
    place = SiteFolder.load(Path("state"))
    policy = place.policy
    assert (policy.budget.epsilon, policy.max_runs, policy.min_report) == (2.0, 3, 20)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (STRONG[6:], "the privacy budget (epsilon 2, delta 1e-06) would be gone"),
        (("--epsilon", "3", *STRONG[2:]), "epsilon would rise from 2 to 3"),
        ((*STRONG[:2], "--delta", "1e-5", *STRONG[4:]), "delta would rise from 1e-06 to 1e-05"),
        ((*STRONG, "--min-report", "19"), "the floor would fall from 20 rows to 19"),
        ((*BUDGET, *STRONG[8:]), "runs would be limited to 10 instead of 3"),
        ((*BUDGET, *STRONG[8:], "--total-epsilon", "9"), "runs would no longer be limited to 3"),
        ((*STRONG, "--max-runs", "4"), "runs would be limited to 4 instead of 3"),
        ((*STRONG, "--methods", "fedkmeans,kfed"), "kfed would be allowed"),
        ((*STRONG, "--max-rounds", "5"), "fedkmeans would have 5 rounds instead of 4"),
    ],
)
def test_a_weaker_join_is_refused_until_the_owner_says_so(options, said, joining, capsys):
    before = joined(joining, *STRONG)
    capsys.readouterr()
    assert joining(*options) == 1
    err = capsys.readouterr().err
    assert said in err
    assert "--weaken" in err
    assert content_of(Path("state")) == before
    after = joined(joining, *options, "--weaken")
    assert after["site.json"] != before["site.json"]


def test_rows_are_not_newly_allowed_to_leave_unless_the_owner_says_so(joining, capsys):
    joined(joining, "--min-report", "1")
    assert joining("--min-report", "1", "--allow-disclosure") == 1
    assert "rows themselves would be allowed to leave (afcl)" in capsys.readouterr().err


def test_the_same_limits_stronger_ones_and_another_table_need_no_word(joining):
    before = joined(joining, "--max-runs", "5", "--max-rounds", "4")
    again = joined(joining, "--max-runs", "5", "--max-rounds", "4")
    assert again["site.json"] == before["site.json"]
    stronger = json.loads(joined(joining, *STRONG, "--min-report", "30")["site.json"])
    assert (stronger["min_report"], stronger["max_runs"], stronger["methods"]) == (30, 3, ["fedkmeans"])
    assert joining(*STRONG, "--min-report", "30", "--patience", "0.1", data="others.csv") == 1
    assert SiteFolder.load(Path("state")).digest != stronger["digest"]


@pytest.mark.parametrize(
    ("options", "most"),
    [((), None), (BUDGET, 10), ((*BUDGET, "--max-runs", "40"), 40), ((*BUDGET, "--total-epsilon", "5"), None)],
    ids=["no budget", "budget", "runs given", "total given"],
)
def test_runs_within_a_budget_have_a_limit_also_where_the_owner_names_none(options, most, joining, capsys):
    joined(joining, *options)
    assert SiteFolder.load(Path("state")).policy.max_runs == most
    assert f"; runs: {'no limit' if most is None else most}\n" in capsys.readouterr().err
