"""The description on the package index: the README, with links and pictures that lead to the repository.

All else is in pyproject.toml.
"""

import re
from pathlib import Path

from setuptools import setup

REPOSITORY = "https://github.com/koncord/koncord"
PICTURES = "https://raw.githubusercontent.com/koncord/koncord/main"


def description(readme: str) -> str:
    """The README with absolute addresses: the index has none of the files beside it."""
    readme = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{PICTURES}/", readme)
    return re.sub(r"(?<!!)(\[[^\]]*\]\()(?!https?:|#)", rf"\1{REPOSITORY}/blob/main/", readme)


if __name__ == "__main__":
    setup(
        long_description=description(Path("README.md").read_text(encoding="utf-8")),
        long_description_content_type="text/markdown",
    )
