"""Names that are imported when first used.

A package lists the module of each name and imports it on demand, so that importing the package
costs only what is used. Editors and type checkers see the names through `TYPE_CHECKING` imports.
Modules that zeus 0.16 had are likewise made when one is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package whose names are defined in other modules.

    Args:
        package: The package's `__name__`.
        homes: Module that defines each name.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return get, names


class _FormerModules:
    """Is asked for a module after everything else was."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> Any:  # noqa: ARG004
        if not name.startswith("zeus.") or name.startswith("zeus._bridges"):
            return None
        return import_module("zeus._bridges._modules").spec_of(name)


def find_former_modules() -> None:
    """Let `import` find the modules of zeus 0.16. May be called again."""
    if _FormerModules not in sys.meta_path:
        sys.meta_path.append(_FormerModules)
