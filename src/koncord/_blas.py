"""One BLAS thread while koncord computes: sums then round alike on any number of cores."""

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[object]:
    limiter: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return limiter
