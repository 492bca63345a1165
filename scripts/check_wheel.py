"""Install the bare wheel into an empty environment and meet koncord as somebody does who took no extra.

    python scripts/check_wheel.py        # also: make wheel-test

The wheel is built from a copy of the tree and installed with the versions of requirements/dev.txt. Then every command
shows its help, what needs no extra works, and what needs one says which in one line. A command of koncord-reproduction
says how to get it, and is there once the wheel of that distribution is installed beside it.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from koncord.cli import COMMANDS

ROOT = Path(__file__).parent.parent
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src")
REPRODUCTION = "pip install ./reproduction"
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
N_AT_ONCE = 2
# Commands that need an extra, by the extra whose absence they must name.
NEEDS = {
    "serve": "flower",
    "invite north": "flower",
    "join --invite north.invite --data koncord-demo/sites/Biscoe.csv": "flower",
    "run --out run": "flower",
    "fit koncord-demo/sites/Biscoe.csv koncord-demo/sites/Dream.csv --out noisy"
    " --epsilon 2 --delta 1e-6 --bound 9": "privacy",
}
# Commands of koncord-reproduction.
ELSEWHERE = ("reproduce --list", "embed images.npz --latent 2 --out embedded.npz")
# What works without any extra, in this order.
WORKS = (
    "--version",
    "demo",
    "fit koncord-demo/sites/Biscoe.csv koncord-demo/sites/Dream.csv --out run --estimator xmeans",
    "predict run koncord-demo/sites/Torgersen.csv --out labels.csv",
    "report run",
)


def main() -> int:
    began = perf_counter()
    with TemporaryDirectory(prefix="koncord-wheel-") as folder:
        bare = Bare(Path(folder))
        installed = perf_counter() - began
        faults = [*bare.faults_of_help(), *bare.faults_of_work(), *bare.faults_of_extras()]
        faults += bare.faults_of_reproduction()
    met = perf_counter() - began - installed
    print(f"bare wheel: installed in {installed:.0f} s, {len(COMMANDS)} commands met in {met:.0f} s")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


class Bare:
    """An environment with koncord and what it depends on, nothing else; commands run in an empty folder beside it."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "venv" / "bin"
        self.work = folder / "work"
        self.work.mkdir()
        self.folder = folder
        call([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")])
        self.install("koncord", ROOT, "--constraint", str(ROOT / "requirements" / "dev.txt"))

    def install(self, name: str, root: Path, *options: str) -> None:
        """Build the wheel of a distribution from its folder, and install it."""
        wheel = built(self.folder / name, root)
        call([*PIP, "--python", str(self.bin / "python"), "install", "--no-compile", *options, str(wheel)])

    def koncord(self, arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.bin / "koncord", *arguments.split()], cwd=self.work, capture_output=True, text=True, check=False
        )

    def faults_of_help(self) -> Iterator[str]:
        asked = [f"{command.NAME} --help" for command in COMMANDS]
        with ThreadPoolExecutor(N_AT_ONCE) as pool:
            for arguments, done in zip(asked, pool.map(self.koncord, asked), strict=True):
                usage = f"usage: koncord {arguments.split()[0]}"
                if done.returncode or done.stderr or not done.stdout.startswith(usage):
                    yield fault(arguments, done, "its help and exit code 0")

    def faults_of_work(self) -> Iterator[str]:
        for arguments in WORKS:
            done = self.koncord(arguments)
            if done.returncode or not done.stdout:
                yield fault(arguments, done, "a result and exit code 0")

    def faults_of_extras(self) -> Iterator[str]:
        with ThreadPoolExecutor(N_AT_ONCE) as pool:
            for arguments, done in zip(NEEDS, pool.map(self.koncord, NEEDS), strict=True):
                advice = f"'koncord[{NEEDS[arguments]}] @ file:"
                if done.returncode != 1 or advice not in done.stderr or done.stderr.count("\n") != 1 or done.stdout:
                    yield fault(arguments, done, f"one line with {advice} and exit code 1")

    def faults_of_reproduction(self) -> Iterator[str]:
        for arguments in ELSEWHERE:
            done = self.koncord(arguments)
            if done.returncode != 1 or REPRODUCTION not in done.stderr or done.stderr.count("\n") != 1 or done.stdout:
                yield fault(arguments, done, f"one line with {REPRODUCTION} and exit code 1")
        self.install("koncord-reproduction", ROOT / "reproduction", "--no-deps")
        for arguments in ("--help", "reproduce --list", "embed --help"):
            done = self.koncord(arguments)
            if done.returncode or done.stderr or not done.stdout:
                yield fault(arguments, done, "a result and exit code 0, with koncord-reproduction installed")


def built(folder: Path, root: Path) -> Path:
    """The wheel, from a copy: setuptools would take up what an older build left in the tree."""
    tree = folder / "tree"
    tree.mkdir(parents=True)
    for name in SOURCES:
        if not (root / name).exists():  # setup.py
            continue
        copy = shutil.copytree if (root / name).is_dir() else shutil.copy
        copy(root / name, tree / name)
    call([*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(tree)])
    (wheel,) = folder.glob("*.whl")
    return wheel


def call(command: list[str]) -> None:
    subprocess.run(command, check=True)


def fault(arguments: str, done: subprocess.CompletedProcess[str], wanted: str) -> str:
    said = " ".join(f"{done.stdout[-300:]} {done.stderr[-300:]}".split())
    return f"koncord {arguments}: wanted {wanted}; got exit code {done.returncode} and: {said}"


if __name__ == "__main__":
    sys.exit(main())
