"""Build the documentation site into build/docs, with warnings as errors, and check what came out.

    python scripts/build_docs.py        # also: make docs

Every link within the site must lead to a page and a place on it that exist, and no page may load a style, script, font
or image from elsewhere.
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parent.parent
SOURCE, TARGET = ROOT / "docs", ROOT / "build" / "docs"
# Elements that a browser fetches by itself, and the attribute that says from where.
LOADS = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
}
# A link element that is not fetched.
NOT_FETCHED = {"canonical", "next", "prev", "index", "search", "author", "help", "alternate"}
STYLE_LOADS = re.compile(r"""(?:url\(\s*|@import\s+)["']?(https?:)?//""")


class Page(HTMLParser):
    """What a page links to, loads, and can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADS and LOADS[tag] in given and not (set(given.get("rel", "").split()) & NOT_FETCHED):
            self.loads.append(given[LOADS[tag]])


def is_elsewhere(address: str) -> bool:
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def faults_of(pages: dict[Path, Page]) -> Iterator[str]:
    """A sentence for every broken link and every load from elsewhere."""
    for path, page in pages.items():
        name = path.relative_to(TARGET)
        for address in page.loads:
            if is_elsewhere(address):
                yield f"{name} loads {address}"
            elif not address.startswith("data:") and not (path.parent / unquote(urlsplit(address).path)).exists():
                yield f"{name} loads {address}, which is not there"
        for address in page.links:
            parts = urlsplit(address)
            if is_elsewhere(address):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{name} links to {address}, which is not there"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                yield f"{name} links to {address}, a place that is not on that page"
    for style in TARGET.rglob("*.css"):
        if STYLE_LOADS.search(style.read_text(encoding="utf-8")):
            yield f"{style.relative_to(TARGET)} loads from elsewhere"


def main() -> int:
    from sphinx.cmd.build import build_main

    options = ["--builder", "html", "--fail-on-warning", "--keep-going", "--fresh-env", "--quiet"]
    failed = build_main([*options, "--doctree-dir", str(TARGET.parent / "doctrees"), str(SOURCE), str(TARGET)])
    if failed:
        return failed
    pages = {path.resolve(): Page(path) for path in TARGET.rglob("*.html") if "_static" not in path.parts}
    faults = sorted(set(faults_of(pages)))
    for fault in faults:
        print(fault, file=sys.stderr)
    print(
        f"{len(pages)} pages in {TARGET.relative_to(ROOT)}, {sum(len(page.links) for page in pages.values()):,} links"
    )
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
