"""scikit-learn without the two modules that it imports and koncord seldom uses.

It imports scipy.stats, and pandas where there is one, whatever is asked of it; both together take longer than a small
command. Here they are stood in for while it is imported, and load when it first uses them.
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

SELDOM_USED = ("scipy.stats", "pandas")


class Deferred(ModuleType):
    """Stands for a module that is loaded when one of its attributes is read."""

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(spec.name)
        self.__spec__ = spec

    def __getattr__(self, attribute: str) -> Any:
        remove(self)
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
        Modules that may not be installed, or may be loaded already; the packages that they are part of are loaded.
    """
    standing = []
    for name in names:
        spec = None if name in sys.modules else find_spec(name)
        if spec is not None:
            sys.modules[name] = Deferred(spec)
            standing.append(sys.modules[name])
            package, _, own = name.rpartition(".")
            if package:
                setattr(sys.modules[package], own, sys.modules[name])
    try:
        yield
    finally:
        for module in standing:
            remove(module)


def remove(module: ModuleType) -> None:
    """Have the next import find what the module stands for."""
    name = module.__name__
    package, _, own = name.rpartition(".")
    if sys.modules.get(name) is module:
        del sys.modules[name]
    if package and vars(sys.modules[package]).get(own) is module:
        delattr(sys.modules[package], own)
