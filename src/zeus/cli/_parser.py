"""Parsing the command line."""

from __future__ import annotations

import argparse
import difflib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from zeus.errors import ZeusError


class _HelpFormatter(argparse.HelpFormatter):
    """Wraps descriptions, but keeps the line breaks of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class UsageError(ZeusError, ValueError):
    """The command line is invalid."""


class Parser(argparse.ArgumentParser):
    """A parser that raises instead of exiting, and does not accept abbreviated options."""

    def __init__(self, *args: object, **options: object) -> None:
        options |= {"allow_abbrev": False, "formatter_class": _HelpFormatter}
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Raise a `UsageError` that refers to `--help`."""
        raise UsageError(f"{message} (see `{self.prog} --help`)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """List the choices in the error, and suggest the closest one."""
        choices = action.choices
        if choices is None or action.nargs == argparse.PARSER or value in choices:
            super()._check_value(action, value)
            return
        known = [str(choice) for choice in choices]
        raise argparse.ArgumentError(
            action,
            f"must be one of {', '.join(known)}, but got {value!r}"
            + did_you_mean(str(value), known, "{}"),
        )

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """Raise a `UsageError` about unknown arguments."""
        known = [text for action in self._actions for text in action.option_strings]
        hint = did_you_mean(words[0].partition("=")[0], known, "{}")
        self.error(f"`{self.prog}` takes no {' '.join(words)}{hint}")


def did_you_mean(word: str, known: Iterable[str], form: str) -> str:
    """Return a hint for an error about a word: the most similar known word, if any."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean `{form.format(near[0])}`?" if near else ""


def add_action(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the action argument of a command; errors about it list all actions."""
    parser.add_argument("action", choices=names, metavar="|".join(names), help="action")


def indices(text: str) -> list[int]:
    """Parse device indices: "0,2", "0-3", or "none".

    Raises:
        argparse.ArgumentTypeError: If the text is anything else.
    """
    if text.strip().lower() == "none":
        return []
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise argparse.ArgumentTypeError(
                f"must be numbers such as 0,1 or 0-3, or `none`, but got {text!r}"
            )
        found += range(first, last + 1)
    return found


def count(text: str) -> int:
    """Parse a count from 1 to a million.

    Raises:
        argparse.ArgumentTypeError: If the text is anything else.
    """
    if not text.isdecimal() or not 1 <= int(text[:9]) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, but got {text!r}")
    return int(text)


def seconds_of_at_least(smallest: float) -> Callable[[str], float]:
    """Return a parser of seconds with a minimum, for `type=`."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not smallest <= value < math.inf:
            raise argparse.ArgumentTypeError(
                f"must be at least {smallest:g} seconds, but got {text!r}"
            )
        return value

    return read
