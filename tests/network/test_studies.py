"""Studies: made once at the coordinator, agreed to once at a site, and never changed in between."""

import json

import pytest

from koncord.cli import main
from koncord.cli.terms import terms_in_words
from koncord.network import method as methods
from koncord.network.consent import APPROVED, REFUSED, WAITING, Terms, agreed_studies, consents, decide, read_policy
from koncord.network.overview import site_now
from koncord.network.places import Coordinator, RegisteredSite
from koncord.network.studies import Study, read_studies, read_study, write_study
from network.test_consent import TODAY, ask, make, stated, statement

STUDY = ("--sites", "north,south", "--columns", "age,stay", "--by", "J. Doe", "--purpose", "stays")


@pytest.fixture
def place(tmp_path):
    made = Coordinator(folder=tmp_path / "c", hosts=("localhost",), listen="127.0.0.1", port=1, internal_port=2)
    made.create()
    for node, site in enumerate(("north", "south", "west"), start=1):
        made.write_site(RegisteredSite(name=site, node=node))
    return made


def create(place, name="stays", *more):
    return main(["study", "create", name, "--folder", str(place.folder), *STUDY, *more])


# --- at the coordinator ---


def test_a_study_is_made_once_and_listed_with_the_identifier_of_its_runs(place, capsys):
    assert create(place, "stays", "--aggregator", "kfed", "--clusters", "3") == 0
    assert create(place, "Stays") == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["study", "list", "--folder", str(place.folder), "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["studies"]
    assert (listed["name"], listed["sites"], listed["method"]["columns"]) == (
        "stays",
        ["north", "south"],
        ["age", "stay"],
    )
    study = read_study(place.folder, "stays")
    assert listed["identifier"] == study.identifier
    assert main(["study", "list", "--folder", str(place.folder)]) == 0
    assert study.identifier in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "x", "--sites", "nobody"), "was not invited"),
        (("create", "x", "--sites", "north"), "The study would have 1 site; --min-sites asks for 2."),
        (("create", "../x"), "The name of a study must be"),
        (("create", "x", "--aggregator", "kfed"), "--clusters"),
        (("create",), "takes create NAME, or list"),
        (("drop", "x"), "takes create NAME, or list"),
    ],
)
def test_what_is_no_study_is_refused(place, capsys, words, said):
    assert main(["study", *words, "--folder", str(place.folder)]) == 2
    assert said in capsys.readouterr().err
    assert read_studies(place.folder) == []


def test_a_run_takes_all_of_its_study_and_may_not_change_what_was_agreed(place, tmp_path):
    from koncord.cli import build_parser
    from koncord.cli.run import estimator_arguments, fill_usual, request_of, take_study

    create(place, "stays", "--aggregator", "kfed", "--clusters", "3", "--min-sites", "1", "--seed", "4")

    def given(*words):
        folder = ("--folder", str(place.folder), "--out", str(tmp_path / "o"))
        args = build_parser().parse_args(["run", *folder, "--study", "stays", *words])
        take_study(args)
        fill_usual(args)
        return args

    args = given()
    assert (args.aggregator, args.clusters, args.columns, args.by, args.min_sites, args.seed, args.sites) == (
        *("kfed", 3, ["age", "stay"], "J. Doe", 1, 4),
        ["north", "south"],
    )
    from koncord.cli.options import aggregator_of

    text = methods.statement_text(aggregator_of(args), estimator_arguments(args), request_of(args))
    assert methods.identifier(text) == read_study(place.folder, "stays").identifier
    assert (given("--seed", "9").seed, given("--min-sites", "2").min_sites) == (9, 2)
    assert given("--sites", "north").sites == ["north"]
    for words in (("--aggregator", "consensus"), ("--columns", "age"), ("--clusters", "4"), ("--by", "R. Roe")):
        with pytest.raises(ValueError, match="Another method is another study"):
            given(*words)
    with pytest.raises(ValueError, match="west, who is not of the study"):
        given("--sites", "west")


def test_the_list_of_sites_shows_studies(place):
    study = Study(
        name="stays",
        identifier="0123",
        sites=("north",),
        method={"aggregator": "kfed", "columns": ["age"], "by": "<i>", "purpose": None},
        policy={},
        created="",
    )
    write_study(place.folder, study)
    sites = [site_now(place, site, None, [study]) for site in place.registered()]
    assert [site.studies for site in sites] == [("stays",), (), ()]


# --- at a site ---


def test_the_study_is_part_of_what_is_stated():
    assert (
        methods.identifier(stated(study="a")) != methods.identifier(stated(study="b")) != methods.identifier(stated())
    )
    assert statement(study="a").as_record()["study"] == "a"
    for study in (3, "../a", "a b", "x" * 100):
        with pytest.raises(ValueError, match="study"):
            methods.asked_in({"study": study})


POLICY = """
[study.stays]
columns = ["age", "stay"]

[study.old]
until = 2020-01-01
otherwise = "ask"
"""


def test_every_study_has_rules_of_its_own_and_the_rest_is_not_agreed_to(tmp_path):
    (tmp_path / "policy.toml").write_text(POLICY)
    _, terms = read_policy(tmp_path / "policy.toml")
    assert Terms.from_record(json.loads(json.dumps(terms.as_record()))) == terms
    decided = {
        study: terms.decision(statement(columns=("age",), study=study), TODAY)
        for study in ("stays", "old", "new", None)
    }
    assert decided["stays"] == (APPROVED, "policy", "")
    assert decided["old"] == (WAITING, "", "its owner's agreement ended on 2020-01-01")
    assert decided["new"] == decided[None] == (REFUSED, "policy", "its owner has agreed to the studies old, stays only")
    assert terms_in_words(terms) == "consent: its policy agrees to runs of the studies old, stays; others are refused"
    assert terms_in_words(Terms()) == "consent: runs within these limits are not asked about"
    (tmp_path / "policy.toml").write_text("[study.stays]\nrounds = 3\n")
    with pytest.raises(ValueError, match=r"\[study.stays\] of the policy .*'rounds' is not a rule"):
        read_policy(tmp_path / "policy.toml")


def test_agreement_to_a_study_is_for_all_runs_of_it_until_one_is_refused(tmp_path, capsys):
    place = make(tmp_path, asks=True)
    first, other = stated(study="stays"), stated(study="stays", purpose="something else")
    assert ask(place, run="run-1", text=first).waiting == "consent"
    decide(place.folder, "run-1", APPROVED, whole_study=True)
    assert ask(place, run="run-1", text=first).replies
    assert ask(place, run="run-2", text=first).replies, "the same study is not asked about again"
    assert [each.by for each in consents(place.folder)] == ["owner", "study"]
    assert ask(place, run="run-3", text=other).waiting == "consent", "the same name with another purpose is"
    assert ask(place, run="run-4", text=stated()).waiting == "consent"
    assert main(["refuse", "run-2", "--reason", "no more", "--state", str(place.folder)]) == 0
    assert "refused; the study stays is no longer agreed to" in capsys.readouterr().out
    assert agreed_studies(place.folder) == {}
    assert ask(place, run="run-5", text=first).waiting == "consent"
    with pytest.raises(ValueError, match="belongs to none"):
        decide(place.folder, "run-4", APPROVED, whole_study=True)
