"""Files that only their owner may read."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write a file that nobody else may read, not even for a moment."""
    partial = path.with_name(f".{path.name}.part")
    partial.unlink(missing_ok=True)
    with writing(path), os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    partial.replace(path)


# No space, no more for this user, larger than a file may be.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Within the block an error of the disk names the file."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        # NumPy tells of a file that was cut short in words alone.
        number = error.errno or errno.ENOSPC
        raise OSError(number, os.strerror(number), str(path)) from error
