"""One thread while koncord computes: sums then round alike on any number of cores, and small work waits for no team."""

import sys
from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController


@cache
def _controller(*, with_sklearn: bool) -> ThreadpoolController:
    if with_sklearn:
        from sklearn.utils import _openmp_helpers  # noqa: F401  so that its OpenMP is loaded, and found

    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Within the block BLAS and OpenMP use one thread."""
    limiter: AbstractContextManager[object] = _controller(with_sklearn="sklearn" in sys.modules).limit(limits=1)
    return limiter
