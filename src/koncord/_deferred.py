"""scikit-learn without modules that it imports and koncord seldom uses.

It imports scipy.stats, narwhals, and pandas where there is one, whatever is asked of it, and through SciPy the compiler
of Fortran that comes with NumPy; together they take longer than a small command. Here they are stood in for while it
is imported, and load when it first uses them.
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

SELDOM_USED = ("scipy.stats", "pandas", "narwhals", "narwhals.stable", "narwhals.stable.v2", "numpy.f2py")


class Deferred(ModuleType):
    """Stands for a module that is loaded when one of its attributes is read."""

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(spec.name)
        self.__spec__ = spec

    def __getattr__(self, attribute: str) -> Any:
        for name in with_packages(self.__name__):
            remove(sys.modules.get(name))
        return getattr(import_module(self.__name__), attribute)


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
        Modules that may not be installed, or may be loaded already. The packages that they are part of are loaded,
        unless they are named before them.
    """
    standing = []
    for name in names:
        if name in sys.modules:
            continue
        package, _, own = name.rpartition(".")
        is_part = isinstance(sys.modules.get(package), Deferred)
        spec = ModuleSpec(name, None) if is_part else find_spec(name)
        if spec is not None:
            sys.modules[name] = Deferred(spec)
            standing.append(sys.modules[name])
            if package:
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
    """Have the next import find what the module stands for, if it stands for one."""
    if not isinstance(module, Deferred):
        return
    name = module.__name__
    package, _, own = name.rpartition(".")
    if sys.modules.get(name) is module:
        del sys.modules[name]
    if package in sys.modules and vars(sys.modules[package]).get(own) is module:
        delattr(sys.modules[package], own)
