"""Modules of zeus 0.16, made when they are imported, and their names, resolved when used."""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from zeus._bridges._names import ATTRIBUTES, MODULES, NAMES, PROGRAMS, Former
from zeus._former import former_names

_PAGE = "docs/from-zeus.md"
_warned: set[str] = set()


def warn_once(former: str, use: str, *, stacklevel: int) -> None:
    """Warn that something is of zeus 0.16, the first time it is used in this process.

    Args:
        former: What is used.
        use: What to write instead.
        stacklevel: Frames from here to the caller to blame, as for `warnings.warn`.
    """
    if former not in _warned:
        warnings.warn(
            f"zeus 0.16 had {former}, which will be dropped here; use {use} ({_PAGE})",
            DeprecationWarning,
            stacklevel=stacklevel + 1,
        )
        _warned.add(former)


def spec_of(module: str) -> ModuleSpec | None:
    """Return how to load a module of zeus 0.16; `None` if it had no such module.

    A module that is gone is found, too: loading it raises an error that says what to use.

    Args:
        module: Its full name.
    """
    if module in PROGRAMS:
        file = Path(__file__).with_name(f"{PROGRAMS[module]}.py")
        return spec_from_file_location(module, file)
    if module not in MODULES:
        return None
    is_package = any(other.startswith(f"{module}.") for other in MODULES)
    return ModuleSpec(module, _Loader(), is_package=is_package)


def former_name(module: str, name: str) -> Any:
    """Return what a name of zeus 0.16 stands for, and warn once.

    Args:
        module: The module that it is asked of.
        name: The name.

    Raises:
        AttributeError: If there was no such name.
        ImportError: If it is gone; says what to use.
    """
    names = MODULES.get(module) or NAMES.get(module, {})
    former = None if isinstance(names, str) else names.get(name)
    if former is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    if not isinstance(former, Former):
        raise ImportError(_gone(f"{module}.{name}", former), name=module)
    warn_once(f"{module}.{name}", former.use, stacklevel=3)
    home, _, attribute = former.home.partition(":")
    return getattr(import_module(home), attribute)


def former_attribute(kind: str, name: str) -> str:
    """Return the end of an error: what to use instead of an attribute of zeus 0.16.

    Args:
        kind: The class of today that does not have it.
        name: The attribute; the end is empty if there never was one.
    """
    use = ATTRIBUTES.get(kind, {}).get(name)
    return "" if use is None else f": {_gone(name, use)}"


def _gone(what: str, use: str) -> str:
    return f"zeus 0.16 had {what}, which is gone; instead: {use} ({_PAGE})"


class _Loader(Loader):
    """Makes a module of former names."""

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to the import system."""

    def exec_module(self, module: ModuleType) -> None:
        """Let names be looked up, or say what to use instead of the module."""
        name = module.__name__
        names = MODULES[name]
        if isinstance(names, str):
            raise ModuleNotFoundError(_gone(name, names), name=name)
        own: dict[str, Any] = vars(module)
        own["__doc__"] = f"Names of zeus 0.16; see {_PAGE}."
        own["__all__"] = sorted(key for key, value in names.items() if isinstance(value, Former))
        own["__getattr__"] = former_names(name)
        own["__dir__"] = lambda: sorted({*own, *own["__all__"]})
