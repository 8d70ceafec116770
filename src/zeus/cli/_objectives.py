"""Options of commands for registered objectives: those of `zeus.frontier`, and of extensions."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterable
from typing import Any

from zeus._extensions import OBJECTIVES as OUTSIDE
from zeus._extensions import extensions
from zeus._rules import shown
from zeus.errors import ExtensionError, FrontierError
from zeus.frontier import Objective, ObjectiveEntry
from zeus.frontier import _base as registry
from zeus.frontier._base import OBJECTIVES

logger = logging.getLogger(__name__)


def all_objectives() -> list[ObjectiveEntry]:
    """Return the objectives of Zeus, then those that other distributions add."""
    names = [kind.__name__ for kind in OBJECTIVES]
    return [*OBJECTIVES.values(), *extensions(OUTSIDE, names, _usable).values()]


def entry_of(objective: Objective) -> ObjectiveEntry | None:
    """Return the entry of an objective's class or of a superclass; `None` for others."""
    others = {entry.kind: entry for entry in all_objectives()}
    return registry.entry_of(objective) or others.get(type(objective))


def add_options(
    group: argparse._ActionsContainer, entries: Iterable[ObjectiveEntry], *, defaults: bool = False
) -> None:
    """Add an option for each objective with a value; what it sets is the objective.

    Args:
        group: Group of options.
        entries: Objectives.
        defaults: Whether an objective with a default is used if its option is not given.
    """
    for entry in entries:
        if entry.options and entry.kind in OBJECTIVES:
            _add_option(group, entry, entry.default if defaults else "")
        elif entry.options:
            try:
                _add_option(group, entry, "")
            except argparse.ArgumentError as error:
                logger.warning("the objective %s is not offered: %s", entry.kind.__name__, error)


def _add_option(group: argparse._ActionsContainer, entry: ObjectiveEntry, default: str) -> None:
    group.add_argument(
        *entry.options,
        type=_reader(entry),
        default=entry.read(default) if default else None,
        metavar=entry.metavar,
        help=entry.help + (f" (default: {default})" if default else ""),
    )


def given(arguments: argparse.Namespace, entry: ObjectiveEntry) -> Objective | None:
    """Return the objective that its option gives."""
    name = entry.options[0].removeprefix("--").replace("-", "_")
    objective: Objective | None = getattr(arguments, name, None)
    return objective


def _usable(name: str, entry: Any) -> ObjectiveEntry:
    if not isinstance(entry, ObjectiveEntry):
        raise ExtensionError(f"it must be an ObjectiveEntry, but is {shown(entry)}")
    if entry.kind.__name__ != name:
        raise ExtensionError(
            f"the name of its class must be that of its entry point, but is {entry.kind.__name__!r}"
        )
    # Commands use only those of others that are asked for.
    if not entry.options or entry.default:
        raise ExtensionError("it must have an option, and no default")
    own = {option for each in OBJECTIVES.values() for option in each.options}
    for option in entry.options:
        if not option.startswith("--") or option in own:
            raise ExtensionError(
                f"its options must begin with -- and not be one of {', '.join(sorted(own))}, "
                f"but got {option!r}"
            )
    return entry


def _reader(entry: ObjectiveEntry) -> Callable[[str], Objective]:
    def read(text: str) -> Objective:
        try:
            return entry.read(text)
        except FrontierError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read
