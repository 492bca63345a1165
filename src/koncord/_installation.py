"""How this koncord was installed, so that advice on installing more of it works as it is given."""

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import distribution as find_distribution
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from urllib.parse import unquote, urlsplit


def install_command(distribution: str, extra: str) -> str:
    """The command that adds an extra to this installation.

    Parameters
    ----------
    distribution : str
        That has the extra.
    extra : str
        Name of the extra.

    Returns
    -------
    str
        With the installer that this environment has, from where the distribution came: the package index, a folder, a
        file or a repository.
    """
    return f"{installer()} {requirement(distribution, extra, origin_of(distribution))}"


def origin_of(distribution: str) -> dict[str, object]:
    """Where a distribution came from, as installers write it down (PEP 610); nothing of one from the package index."""
    try:
        stored = find_distribution(distribution).read_text("direct_url.json")
        found: dict[str, object] = json.loads(stored or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return found


def requirement(distribution: str, extra: str, origin: dict[str, object]) -> str:
    """What to install, quoted for a shell.

    >>> requirement("koncord", "flower", {})
    "'koncord[flower]'"
    >>> requirement("koncord", "flower", {"url": "https://host/k.git", "vcs_info": {"vcs": "git"}})
    "'koncord[flower] @ git+https://host/k.git'"
    """
    url = str(origin.get("url", ""))
    is_local = url.startswith("file:")
    path = Path(unquote(urlsplit(url).path))
    if not url or (is_local and not path.exists()):
        return shlex.quote(f"{distribution}[{extra}]")
    folder = origin.get("dir_info")
    if is_local and isinstance(folder, dict):
        return f"{'-e ' if folder.get('editable') else ''}{shlex.quote(f'{path}[{extra}]')}"
    system = origin.get("vcs_info")
    prefix = f"{system['vcs']}+" if isinstance(system, dict) else ""
    return shlex.quote(f"{distribution}[{extra}] @ {prefix}{url}")


def installer() -> str:
    """What installs into this environment."""
    prefix = Path(sys.prefix)
    if (prefix / "pipx_metadata.json").exists():
        return "pipx install --force"
    if (prefix / "uv-receipt.toml").exists():
        return "uv tool install"
    python = shlex.quote(sys.executable)
    if find_spec("pip") is None:
        return f"uv pip install --python {python}"
    found = which("pip")
    is_own = found is not None and Path(found).parent == Path(sys.executable).parent
    return "pip install" if is_own else f"{python} -m pip install"
