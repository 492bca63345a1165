"""Do what somebody does in the first hour, from a clean clone and an empty environment, and write down the times.

    python scripts/first_hour.py        # writes docs/first-hour.md

Packages come from pip's cache or index. The times are of the machine as it is; the page says how busy it was.
"""

import os
import platform
import resource
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "first-hour.md"
NETWORK = """\
koncord serve --insecure > serve.txt 2>&1 &
until koncord invite Biscoe --out Biscoe.invite > /dev/null 2>&1; do sleep 1; done
koncord invite Dream --out Dream.invite > /dev/null 2>&1
for site in Biscoe Dream; do
  koncord join --invite $site.invite --data koncord-demo/sites/$site.csv --state at-$site > join-$site.txt 2>&1 &
done
koncord run --out over-network --min-sites 2 --wait 300
kill $(jobs -p); wait"""
# Two exports as they are: semicolons and decimal commas, gaps, a category, a note, a column that one lacks.
TABLES = """\
python - <<'END'
import numpy as np
rng = np.random.default_rng(0)
for site, states in {"aachen": (0, 1), "bergen": (1, 2)}.items():
    with open(f"{site}.csv", "w") as file:
        print("temperature;pressure;shift;note" + ";humidity" * (site == "bergen"), file=file)
        for row in range(600):
            state = states[row % 2]
            values = rng.normal((60 + 30 * state, 5 + 2 * state), (4, 0.3))
            cells = ["" if rng.random() < 0.05 else f"{value:.2f}".replace(".", ",") for value in values]
            cells += [["early", "late"][row % 3 == 0], f"row {row}", *["55,5"] * (site == "bergen")]
            print(*cells, sep=";", file=file)
END"""
STEPS = (
    ("Clone", f"git clone --quiet {ROOT} koncord"),
    ("An environment", "python3 -m venv env"),
    ("Install", "pip install --quiet ./koncord"),
    ("The demo", "koncord demo"),
    ("The command it prints next", "koncord fit koncord-demo/sites/*.csv --out my-run"),
    ("New rows", "koncord predict my-run koncord-demo/sites/Dream.csv --out dream.csv"),
    ("Own files: two raw exports", TABLES),
    ("What is in them, and which options are needed?", "koncord check aachen.csv bergen.csv || test $? = 1"),
    (
        "With the options that it names",
        "koncord fit aachen.csv bergen.csv --categories shift --common-columns --out own-run",
    ),
    ("Their page again, from the files of the run", "koncord report own-run"),
    ("Kernel for notebooks", "pip install --quiet nbclient ipykernel"),
    ("The notebook", "jupyter execute koncord/examples/penguins.ipynb"),
    ("Extra for a network", "pip install --quiet './koncord[flower]'"),
    ("Two sites over a network", NETWORK),
)


def main() -> int:
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        began = perf_counter()
        for what, command in STEPS:
            wall, cpu = taken(command, Path(folder))
            lines.append(f"## {what}: {wall:.0f} s ({cpu:.0f} s of CPU)\n\n```console\n{shown(command)}\n```\n")
            print(f"{what}: {wall:.0f} s", file=sys.stderr)
        in_all = perf_counter() - began
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores, a load of {load} (1, 5 and 15 minutes)"
    opening = (
        "# The first hour\n\nFrom a clean clone and an empty environment to two sites over a network: "
        f"**{in_all / 60:.1f} minutes** of commands, on {datetime.now(UTC):%Y-%m-%d} with {machine}. Packages came "
        "from a cache. `python scripts/first_hour.py` writes this page.\n\n"
    )
    PAGE.write_text(opening + "\n".join(lines), encoding="utf-8")
    return 0


def taken(command: str, folder: Path) -> tuple[float, float]:
    """Seconds, and seconds of CPU, that a command takes in the environment."""
    variables = {**os.environ, "PATH": f"{folder}/env/bin:{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    variables.pop("VIRTUAL_ENV", None)
    began, used = perf_counter(), children()
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=1800
    )
    if done.returncode:
        raise SystemExit(f"{command}\n{done.stdout}\n{done.stderr}")
    return perf_counter() - began, children() - used


def children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def shown(command: str) -> str:
    return command.replace(str(ROOT), "https://github.com/koncord/koncord")


if __name__ == "__main__":
    sys.exit(main())
