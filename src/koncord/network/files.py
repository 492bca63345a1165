"""Files that only their owner may read."""

import os
from pathlib import Path

from koncord._disk import writing


def write_private(path: Path, content: bytes) -> None:
    """Write a file that nobody else may read, not even for a moment."""
    partial = path.with_name(f".{path.name}.part")
    partial.unlink(missing_ok=True)
    with writing(path), os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    partial.replace(path)
