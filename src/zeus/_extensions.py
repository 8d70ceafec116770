"""Extensions: what other distributions add to the registries of Zeus, through entry points.

An extension is loaded when the registry that it is for is consulted. One that cannot be used costs
itself only, with one warning that names its distribution.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zeus.errors import ExtensionError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

logger = logging.getLogger(__name__)

GPU_VENDORS = "zeus.gpu_vendors"
OBJECTIVES = "zeus.objectives"
POLICIES = "zeus.batch_size_policies"
SCHEDULES = "zeus.schedules"
METRIC_SOURCES = "zeus.metric_sources"


@dataclass(frozen=True)
class Extension:
    """An entry point of another distribution.

    Attributes:
        group: Name of the registry.
        name: Name in that registry.
        value: Where it is, "package.module:Name".
        distribution: Name and version of the distribution that declares it.
        problem: Why it is not used; empty if it is.
    """

    group: str
    name: str
    value: str
    distribution: str
    problem: str = ""

    def __str__(self) -> str:
        return f"`{self.name}` ({self.group}) of {self.distribution}"


class _Group:
    """The extensions of one registry, loaded."""

    def __init__(self) -> None:
        self.usable: dict[str, Any] = {}
        self.all: list[Extension] = []


_lock = threading.RLock()
_groups: dict[str, _Group] = {}
_points: dict[str, list[tuple[EntryPoint, str]]] = {}


def _reset_after_fork() -> None:
    # A thread that was loading extensions does not exist in the child.
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_reset_after_fork)


def extensions(
    group: str, own: Collection[str], usable: Callable[[str, Any], Any]
) -> dict[str, Any]:
    """Return the extensions of a registry that can be used, by name; loaded at the first call.

    Args:
        group: Name of the group of entry points.
        own: Names of the registry's own entries, which no extension may have.
        usable: Returns what is registered for a name and the object of its entry point; raises an
            `ExtensionError` if the object breaks a rule.
    """
    with _lock:
        found = _groups.get(group)
        if found is None:
            # Before anything is loaded: a module may consult the registry while it is imported.
            found = _groups[group] = _Group()
            for point, distribution in _entry_points(group):
                found.all.append(_loaded(found.usable, point, distribution, own, usable))
        return found.usable


def extension_names(group: str) -> tuple[str, ...]:
    """Return the names of a registry's extensions, usable or not; nothing is loaded."""
    with _lock:
        return tuple(dict.fromkeys(point.name for point, _ in _entry_points(group)))


def consulted(group: str) -> list[Extension]:
    """Return the extensions of a registry; empty if it was not consulted so far."""
    with _lock:
        return list(_groups[group].all) if group in _groups else []


def unused(group: str, why: str) -> list[Extension]:
    """Return the extensions of a registry that cannot be consulted."""
    return [
        Extension(group, point.name, point.value, distribution, why)
        for point, distribution in _entry_points(group)
    ]


def named_object(text: str) -> Any:
    """Return the object that "package.module:Name" names; modules here are found, too.

    Raises:
        ExtensionError: If there is none, or its module cannot be imported.
    """
    from importlib import import_module  # noqa: PLC0415

    module, _, name = text.partition(":")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        found = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # of code that is not ours
        raise ExtensionError(f"{text} cannot be imported: {_words(error)}") from error
    return found


def _entry_points(group: str) -> list[tuple[EntryPoint, str]]:
    if group not in _points:
        # Not needed by programs that consult no registry, and not cheap.
        from importlib.metadata import entry_points  # noqa: PLC0415

        found = [(point, _distribution(point)) for point in entry_points(group=group)]
        _points[group] = sorted(found, key=lambda each: (each[1], each[0].name))
    return _points[group]


def _distribution(point: EntryPoint) -> str:
    if point.dist is None:
        return "an unknown distribution"
    return f"{point.dist.name} {point.dist.version}"


def _loaded(
    used: dict[str, Any],
    point: EntryPoint,
    distribution: str,
    own: Collection[str],
    usable: Callable[[str, Any], Any],
) -> Extension:
    problem = ""
    try:
        if point.name in own:
            raise ExtensionError(
                f"its name must be none of Zeus's own ({', '.join(own)}), but is {point.name!r}"
            )
        if point.name in used:
            raise ExtensionError(
                f"its name must be its own, but another extension is called {point.name!r}, too"
            )
        used[point.name] = usable(point.name, point.load())
    except ExtensionError as error:
        problem = str(error)
    except (Exception, SystemExit) as error:  # of code that is not ours
        problem = f"loading {point.value} failed: {_words(error)}"
    extension = Extension(point.group, point.name, point.value, distribution, problem)
    if problem:
        logger.warning("the extension %s is not used: %s", extension, problem)
    return extension


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
