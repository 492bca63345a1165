"""A distribution adds commands to koncord by entry points; one that is broken takes nothing away."""

import subprocess
import sys

import pytest

from koncord.cli import COMMANDS

KONCORD = "import sys; from koncord.cli import main; sys.exit(main())"
COUNT = """
NAME, SUMMARY = "count", "how many files there are"

def add_parser(subparsers):
    parser = subparsers.add_parser(NAME, help=SUMMARY)
    parser.add_argument("files", nargs="*")
    parser.set_defaults(run=lambda args: print(len(args.files)))
"""


@pytest.fixture
def with_command(tmp_path):
    """Run koncord beside a distribution 'counting' whose one entry point names a module with this source."""

    def run(source, *arguments, entry="count"):
        (tmp_path / "counting.py").write_text(source, encoding="utf-8")
        about = tmp_path / "counting-1.0.dist-info"
        about.mkdir(exist_ok=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1.0\n", encoding="utf-8")
        (about / "entry_points.txt").write_text(f"[koncord.commands]\n{entry} = counting\n", encoding="utf-8")
        beside = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {KONCORD}"
        return subprocess.run([sys.executable, "-c", beside, *arguments], capture_output=True, text=True, check=False)

    return run


def test_a_command_of_an_installed_distribution_runs_and_is_listed(with_command):
    done = with_command(COUNT, "count", "a.csv", "b.csv")
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")
    listed = with_command(COUNT, "--help")
    assert "how many files there are" in listed.stdout
    assert "count" in with_command(COUNT).stderr  # what there is to do, where no command is given


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import a_module_that_is_not_there", "cannot be loaded: ModuleNotFoundError: No module named"),
        ("NAME = 'count'", "cannot be loaded: AttributeError: "),
        (COUNT.replace('"count"', '"amount"'), "cannot be loaded: ValueError: its module names itself 'amount'"),
    ],
)
def test_a_broken_command_is_left_out_with_one_line_and_the_others_work(with_command, source, reason):
    done = with_command(source, "--version")
    assert (done.returncode, done.stdout[:8]) == (0, "koncord ")
    assert done.stderr.startswith(f"koncord: warning: The command 'count' of the distribution 'counting' {reason}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", [command.NAME for command in COMMANDS])
def test_no_distribution_replaces_a_command_of_koncord(with_command, name):
    done = with_command(COUNT.replace('"count"', f'"{name}"'), name, "--help", entry=name)
    assert (done.returncode, done.stdout.splitlines()[0].startswith(f"usage: koncord {name}")) == (0, True)
    assert f"\n  koncord {name} " in done.stdout  # the example in koncord's own help
    assert done.stderr.endswith("is left out: there is a command of that name.\n")
    assert done.stderr.count("\n") == 1
