"""Options of commands for the objectives that `zeus.frontier` has registered."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

from zeus.errors import FrontierError
from zeus.frontier import Objective
from zeus.frontier._base import Entry


def add_options(
    group: argparse._ActionsContainer, entries: Iterable[Entry], *, defaults: bool = False
) -> None:
    """Add an option for each objective with a value; what it sets is the objective.

    Args:
        group: Group of options.
        entries: Objectives.
        defaults: Whether an objective with a default is used if its option is not given.
    """
    for entry in entries:
        default = entry.default if defaults else ""
        if entry.options:
            group.add_argument(
                *entry.options,
                type=_reader(entry),
                default=entry.read(default) if default else None,
                metavar=entry.metavar,
                help=entry.help + (f" (default: {default})" if default else ""),
            )


def given(arguments: argparse.Namespace, entry: Entry) -> Objective | None:
    """Return the objective that its option gives."""
    name = entry.options[0].removeprefix("--").replace("-", "_")
    objective: Objective | None = getattr(arguments, name)
    return objective


def _reader(entry: Entry) -> Callable[[str], Objective]:
    def read(text: str) -> Objective:
        try:
            return entry.read(text)
        except FrontierError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read
