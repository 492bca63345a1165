"""Take the pictures of the README and of the pages anew, with Chromium: the report of the demo, and the site.

    python scripts/screenshots.py        # after make docs; also: make screenshots

Writes docs/figures/report.png (the top of the demo's report), report-profiles.png (its profiles), report-phone.png (390
pixels wide), report-dark.png, and site.png (the first page of build/docs).
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
    ("report.png", "report", 1280, 1240, ()),
    ("report-profiles.png", "report#profiles", 1280, 780, ()),
    ("report-phone.png", "report", 390, 1100, ()),
    ("report-dark.png", "report#holdings,profiles", 1280, 1060, (DARK,)),
    ("site.png", "site", 1280, 800, ()),
)
LEAST_WIDTH = 500  # of a window of Chromium; what is narrower is shown in a frame


def main() -> int:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"screenshots need one of {', '.join(BROWSERS)} on PATH", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        koncord = Path(sys.executable).with_name("koncord")
        subprocess.run([koncord, "demo", "--out", f"{folder}/demo"], check=True, stdout=subprocess.DEVNULL)
        pages = {"report": Path(folder) / "demo" / "report.html", "site": SITE}
        for name, place, width, height, options in SHOTS:
            page, _, sections = place.partition("#")
            if not pages[page].exists():
                print(f"{name}: no {pages[page]}; make docs first", file=sys.stderr)
                continue
            shown = only(pages[page], sections.split(","), Path(folder)) if sections else pages[page]
            take(browser, shown.as_uri(), FIGURES / name, width, height, options, Path(folder))
            print(f"docs/figures/{name}: {(FIGURES / name).stat().st_size // 1024} kB")
    return 0


def only(page: Path, sections: list[str], folder: Path) -> Path:
    """A copy of a page with these sections alone: a browser without a window does not scroll for a picture."""
    rules = f"header, section {{ display: none }} {', '.join(f'#{name}' for name in sections)} {{ display: block }}"
    part = folder / "part.html"
    part.write_text(page.read_text(encoding="utf-8").replace("</style>", f"{rules}</style>", 1), encoding="utf-8")
    return part


def take(browser: str, page: str, to: Path, width: int, height: int, options: tuple[str, ...], folder: Path) -> None:
    """A picture of the top of a page."""
    frame = folder / "frame.html"
    window = max(width, LEAST_WIDTH)
    style = f"border:0;display:block;width:{width}px;height:{height}px;margin:0 auto"
    frame.write_text(f'<body style="margin:0;background:#888"><iframe src="{page}" style="{style}"></iframe>')
    command = [
        browser,
        "--headless",
        "--disable-gpu",
        "--hide-scrollbars",
        "--force-device-scale-factor=1",
        f"--user-data-dir={folder}/profile",
        f"--window-size={window},{height}",
        f"--screenshot={to}",
        *options,
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
        frame.as_uri() if width < LEAST_WIDTH else page,
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    sys.exit(main())
