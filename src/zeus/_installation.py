"""How this Zeus was installed, and the commands that change it, as messages name them.

Each command works as printed: with the pip (or uv) of this environment, whether or not that is the
one on the path, and from what Zeus was installed from, since no index may have it.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

NAME = "zeus-energy"
_CLONE = Path(__file__).resolve().parents[2]


def pip(action: str) -> str:
    """Return the start of a shell command: the installer of this environment, and an action."""
    python = shlex.quote(sys.executable)
    if find_spec("pip") is None:
        if shutil.which("uv"):
            return f"uv pip {action} --python {python}"
        return f"{python} -m ensurepip && {python} -m pip {action}"
    found = shutil.which("pip")
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return f"pip {action}"
    return f"{python} -m pip {action}"


def add_extras(*extras: str) -> str:
    """Return the command that installs what extras of Zeus need."""
    if getattr(sys, "frozen", False):
        return "build this program again with what is missing"
    named = f"[{','.join(extras)}]"
    installed = _installed()
    if installed is not None:
        known = installed.metadata.get_all("Provides-Extra") or []
        # What is installed satisfies the name: pip asks an index only for the extras' packages.
        if set(extras) <= set(known):
            return f"{pip('install')} {shlex.quote(NAME + named)}"
    if (_CLONE / "pyproject.toml").is_file():  # not installed, or before it had these extras
        return f"{pip('install')} --editable {shlex.quote(str(_CLONE) + named)}"
    return f"install {NAME} with {named}"


def remove_namesake(name: str) -> str:
    """Return the command that removes another distribution and restores the files of Zeus."""
    remove = f"{pip('uninstall')} {shlex.quote(name)}"
    if not remove.startswith("uv "):
        remove = remove.replace(" uninstall ", " uninstall --yes ")
    source = _source()
    if source is None:
        return remove
    return f"{remove} && {pip('install')} --force-reinstall --no-deps {source}"


def _installed() -> Distribution | None:
    try:
        return distribution(NAME)
    except PackageNotFoundError:
        return None


def _source() -> str | None:
    """What Zeus can be installed from again; `None` if its files are not in this environment."""
    installed = _installed()
    if installed is None:
        return None
    told: dict[str, Any] = json.loads(installed.read_text("direct_url.json") or "{}")
    if "url" not in told:
        return f"{NAME}=={installed.version}"
    if told.get("dir_info", {}).get("editable"):
        return None
    url = told["url"]
    if "vcs_info" in told:
        revision = told["vcs_info"]
        return shlex.quote(f"{revision['vcs']}+{url}@{revision['commit_id']}")
    parts = urlsplit(url)
    if parts.scheme != "file":
        return shlex.quote(url)
    path = unquote(parts.path)
    if Path(path).exists():
        return shlex.quote(path)
    return f"WHEEL  (a wheel or a clone of Zeus; {path}, which it was installed from, is gone)"
