"""SciPy and scikit-learn without modules that they import and koncord seldom uses.

scikit-learn imports scipy.stats, narwhals, and pandas where there is one, whatever is asked of it; SciPy imports all of
NumPy, with the compiler of Fortran that comes with it, and of its own packages every part. Together they take longer
than a small command. Here they are stood in for while the two are imported, and load when they are first used.
`importlib.util.LazyLoader` does not serve: in Python 3.11 the import statement itself makes it load.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

SELDOM_USED_BY_SCIPY = (
    *("numpy.f2py", "numpy.testing", "numpy.ma", "numpy.polynomial", "numpy.ctypeslib", "numpy.matlib"),
    *("scipy.spatial.transform", "scipy.sparse.linalg", "scipy.sparse.csgraph", "scipy.cluster.vq"),
)
SELDOM_USED = ("scipy.stats", "pandas", "narwhals", "narwhals.stable", "narwhals.stable.v2", *SELDOM_USED_BY_SCIPY)


class Deferred(ModuleType):
    """Stands for a module that is loaded when one of its attributes is read."""

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(spec.name)
        self.__spec__ = spec

    def __getattr__(self, attribute: str) -> Any:
        for name in with_packages(self.__name__):
            remove(sys.modules.get(name))
        return getattr(import_module(self.__name__), attribute)


def import_scipy() -> None:
    """Import what koncord uses of SciPy, if nobody has, without what is seldom used."""
    if "scipy.spatial" not in sys.modules:
        with deferred(*SELDOM_USED_BY_SCIPY):
            for name in ("scipy.sparse", "scipy.spatial.distance", "scipy.cluster.hierarchy"):
                import_module(name)


def import_sklearn() -> None:
    """Import scikit-learn, if nobody has, without what it seldom uses."""
    if "sklearn" not in sys.modules:
        with deferred(*SELDOM_USED):
            import_module("sklearn.base")


@contextmanager
def deferred(*names: str) -> Iterator[None]:
    """Within the block an import of these modules gives one that loads when it is used; after it, imports are as ever.

    Parameters
    ----------
    *names : str
        Modules that may not be installed, or may be loaded already. Of the packages that they are part of the outermost
        is loaded, unless it is named before them.
    """
    standing = []
    for name in names:
        if name in sys.modules:
            continue
        package, _, own = name.rpartition(".")
        outermost = name.partition(".")[0]
        if outermost in sys.modules or find_spec(outermost) is not None:
            if package:
                import_module(outermost)
            sys.modules[name] = Deferred(ModuleSpec(name, None))
            standing.append(sys.modules[name])
            if package in sys.modules:
                setattr(sys.modules[package], own, sys.modules[name])
    try:
        yield
    finally:
        for module in standing:
            remove(module)


def with_packages(name: str) -> list[str]:
    """The packages that a module is part of, the outermost first, and the module.

    >>> with_packages("a.b.c")
    ['a', 'a.b', 'a.b.c']
    """
    parts = name.split(".")
    return [".".join(parts[: at + 1]) for at in range(len(parts))]


def remove(module: ModuleType | None) -> None:
    """Have the next import find what the module stands for, if it stands for one.

    Its package keeps it as an attribute until then: one that imports its parts has no other way to give them.
    """
    if isinstance(module, Deferred) and sys.modules.get(module.__name__) is module:
        del sys.modules[module.__name__]
