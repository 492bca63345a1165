"""What a forge and a package index need agrees with what there is."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def jobs(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]


def commands(path):
    return [step["run"] for job in jobs(path).values() for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_targets_that_exist(path):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in commands(path):
        for target in re.findall(r"\bmake ([a-z-]+)", command):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_may_do_no_more_than_they_need(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert "timeout-minutes" in job
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"] == {"persist-credentials": False}


def test_every_python_that_is_promised_is_tested():
    promised = {name.rsplit(" ", 1)[1] for name in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", name)}
    tested = jobs(ROOT / ".github" / "workflows" / "ci.yml")["test"]["strategy"]["matrix"]["python"]
    assert promised == set(tested)
    assert f">={min(tested, key=lambda version: int(version.split('.')[1]))}" == PROJECT["requires-python"]


def test_what_is_checked_here_is_checked_on_the_forge():
    own = set(re.findall(r"^make ([a-z-]+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE))
    forge = {target for command in commands(WORKFLOWS[0]) for target in re.findall(r"\bmake ([a-z-]+)", command)}
    assert own - {"test"} <= forge
    assert {"lint", "unit"} <= forge  # the halves of test


def test_the_repository_has_one_address():
    source = PROJECT["urls"]["Source"]
    for name in ("setup.py", "CITATION.cff", "docs/conf.py", ".github/ISSUE_TEMPLATE/config.yml"):
        assert source in (ROOT / name).read_text(encoding="utf-8"), name


@pytest.mark.parametrize("name", ["llms.txt", "SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_the_pages_at_the_root_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            assert (ROOT / target).exists(), target


def test_issue_templates_are_forms():
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        if path.name != "config.yml":
            assert form.keys() >= {"name", "description", "body"}
