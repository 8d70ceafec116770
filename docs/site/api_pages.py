"""Pages of the public names, made of their docstrings.

A public name is one in the `__all__` of a package, or one of a module without an underscore. What
several packages hand out is described once, where it is most at home; the others refer to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

_PRIVATE_ROOMS = {"_bridges", "cli", "drawing", "migrations", "state", "storage", "transport"}
"""Packages whose names are for other rooms only."""


def public_names(source: Path) -> dict[str, list[str]]:
    """Return the public names of each public package and module.

    Args:
        source: The folder of the package `zeus`.
    """
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        if _PRIVATE_ROOMS & set(parts) or any(
            part.startswith("_") and part != "__init__" for part in parts
        ):
            continue
        module = import_module(".".join(part for part in parts if part != "__init__"))
        names = getattr(module, "__all__", None)
        if names is None and path.name != "__init__.py":
            names = _defined(module)
        if names:
            found[module.__name__] = sorted(names)
    return found


def _defined(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def write_api_pages(destination: Path, names: Mapping[str, list[str]]) -> None:
    """Write one page per module."""
    destination.mkdir(parents=True, exist_ok=True)
    homes = _homes(names)
    for module, own in names.items():
        text = "\n".join(_page(module, own, homes))
        (destination / f"{module}.rst").write_text(text, encoding="utf-8")


def _homes(names: Mapping[str, list[str]]) -> dict[str, str]:
    """Return where each name is described, by the name with its module.

    That is the module that it is defined below, and the outermost of those if there are several.
    """
    places: dict[int, list[tuple[str, str]]] = {}
    for module, own in names.items():
        for name in own:
            value = getattr(import_module(module), name)
            places.setdefault(id(value), []).append((module, name))
    homes = {}
    for those in places.values():
        module, name = those[0]
        value = getattr(import_module(module), name)
        home = f"{getattr(value, '__module__', '')}."
        # The longest that it is below; among equals, in order of length.
        best = max(those, key=lambda it: (home.startswith(f"{it[0]}.") * len(it[0]), -len(it[0])))
        for place in those:
            homes[".".join(place)] = ".".join(best if _describable(value) else place)
    return homes


def _describable(value: object) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)


def _page(module: str, names: list[str], homes: Mapping[str, str]) -> Iterator[str]:
    yield from (module, "=" * len(module), "", f".. py:module:: {module}", "")
    yield from (_with_code(inspect.cleandoc(import_module(module).__doc__ or "")), "")
    for name in names:
        full = f"{module}.{name}"
        value = getattr(import_module(module), name)
        if homes[full] != full:
            yield from (f".. py:data:: {name}", "   :no-typesetting:", "")
            yield from (f"``{name}`` is :py:obj:`{homes[full]}`.", "")
        elif inspect.ismodule(value):
            yield from (f"``{name}`` is the module :py:mod:`{value.__name__}`.", "")
        else:
            yield from _entry(full, value)


def is_public(base: type) -> bool:
    """Whether a class can be named by users, as a base of another one."""
    parts = [*base.__module__.split("."), base.__name__]
    return base is not object and not any(part.startswith("_") for part in parts)


def summary(module: str) -> str:
    """Return the first sentence of the docstring of a module."""
    paragraph = inspect.cleandoc(import_module(module).__doc__ or "").split("\n\n")[0]
    return " ".join(paragraph.split())


def _with_code(text: str) -> str:
    """Mark indented blocks as code, as they are in Markdown."""
    paragraphs = text.split("\n\n")
    marked = paragraphs[:1]
    for before, paragraph in pairwise(paragraphs):
        begins = paragraph.startswith("    ") and not before.startswith("    ")
        if begins and not before.endswith("::"):
            marked.append("::")
        marked.append(paragraph)
    return "\n\n".join(marked)


def _entry(full: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield f".. autoclass:: {full}"
        yield "   :members:"
        if any(is_public(base) for base in value.__bases__):
            yield "   :show-inheritance:"
        foreign = [
            base.__name__ for base in value.__mro__ if not base.__module__.startswith("zeus")
        ]
        yield f"   :inherited-members: {', '.join(foreign)}"
    elif inspect.isroutine(value):
        yield f".. autofunction:: {full}"
    else:
        yield f".. py:data:: {full.rpartition('.')[2]}"
        yield f"   :value: {value!r}"
    yield ""
