"""Optional parts of koncord: the modules that each brings, and one sentence where they are not installed."""

from importlib.util import find_spec

from koncord.errors import MissingExtra

# As in pyproject.toml, where a requirement has the name of its module.
MODULES = {
    "flower": ("flwr", "cryptography", "httpx"),
    "privacy": ("opendp",),
    "excel": ("openpyxl",),
}


def require(extra: str, what: str) -> None:
    """Raise `MissingExtra`, which says that `what` needs it, unless all modules of an extra are installed."""
    if any(find_spec(name) is None for name in MODULES[extra]):
        raise MissingExtra(what, extra)
