"""Errors of the disk that say which file it was: the system names none when a file that is open cannot be written."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
