"""What pyproject.toml cannot say: the description on the package index, and the files in C.

The description is the README, with links and pictures that lead to the repository. The split test and labels in C are
optional: where they cannot be compiled, or with KONCORD_PURE=1, the package is built without them and NumPy does
their work.
"""

import os
import re
from pathlib import Path

REPOSITORY = "https://github.com/koncord/koncord"
PICTURES = "https://raw.githubusercontent.com/koncord/koncord/main"


def description(readme: str) -> str:
    """The README with absolute addresses: the index has none of the files beside it."""
    readme = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{PICTURES}/", readme)
    return re.sub(r"(?<!!)(\[[^\]]*\]\()(?!https?:|#)", rf"\1{REPOSITORY}/blob/main/", readme)


if __name__ == "__main__":
    from setuptools import Extension, setup

    # No -ffast-math, and no fused operations: results do not depend on the processor. The last two change no result.
    arguments = [] if os.name == "nt" else ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
    compiled = [
        Extension(
            f"koncord.kernels.{name}",
            [f"src/koncord/kernels/{name}.c"],
            depends=["src/koncord/kernels/_kernel.h"],
            extra_compile_args=arguments,
            optional=True,
        )
        for name in ("_splitting", "_labeling")
    ]
    setup(
        ext_modules=[] if os.environ.get("KONCORD_PURE") else compiled,
        long_description=description(Path("README.md").read_text(encoding="utf-8")),
        long_description_content_type="text/markdown",
    )
