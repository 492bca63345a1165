"""Take the pictures of the README and of the pages anew, with Chromium: the report of the demo, and the site.

    python scripts/screenshots.py        # after make docs; also: make screenshots

Writes docs/figures/report.png (the top of the demo's report), report-phone.png and report-dark.png (narrow, and dark),
and site.png (the first page of build/docs).
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "figures"
SITE = ROOT / "build" / "docs" / "index.html"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Name, page, width and height of the window, and what the browser is to prefer.
DARK = "--blink-settings=preferredColorScheme=0"
SHOTS = (
    ("report.png", "report", 1280, 1500, ()),
    ("report-phone.png", "report", 500, 1100, ()),
    ("report-dark.png", "report", 1280, 900, (DARK,)),
    ("site.png", "site", 1280, 800, ()),
)


def main() -> int:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"screenshots need one of {', '.join(BROWSERS)} on PATH", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        koncord = Path(sys.executable).with_name("koncord")
        subprocess.run([koncord, "demo", "--out", f"{folder}/demo"], check=True, stdout=subprocess.DEVNULL)
        pages = {"report": Path(folder) / "demo" / "report.html", "site": SITE}
        for name, page, width, height, options in SHOTS:
            if not pages[page].exists():
                print(f"{name}: no {pages[page]}; make docs first", file=sys.stderr)
                continue
            take(browser, pages[page], FIGURES / name, width, height, options, Path(folder))
            print(f"docs/figures/{name}: {(FIGURES / name).stat().st_size // 1024} kB")
    return 0


def take(browser: str, page: Path, to: Path, width: int, height: int, options: tuple[str, ...], folder: Path) -> None:
    """A picture of the top of a page."""
    command = [
        browser,
        "--headless",
        "--disable-gpu",
        "--hide-scrollbars",
        "--force-device-scale-factor=1",
        f"--user-data-dir={folder}/profile",
        f"--window-size={width},{height}",
        f"--screenshot={to}",
        *options,
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
        page.as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    sys.exit(main())
