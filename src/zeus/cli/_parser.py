"""Reading the words of the command line."""

from __future__ import annotations

import argparse
import difflib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from zeus.errors import ZeusError


class _HelpFormatter(argparse.HelpFormatter):
    """Wraps descriptions, but leaves examples as they are written."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class UsageError(ZeusError, ValueError):
    """The command line does not make sense."""


class Parser(argparse.ArgumentParser):
    """A parser that raises instead of ending the process, and takes option names in full only."""

    def __init__(self, *args: object, **options: object) -> None:
        options |= {"allow_abbrev": False, "formatter_class": _HelpFormatter}
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Raise a `UsageError` that says where help is."""
        raise UsageError(f"{message} (see `{self.prog} --help`)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Say what there is to choose from, and what comes nearest."""
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
        """Raise a `UsageError` about words that it does not take."""
        known = [text for action in self._actions for text in action.option_strings]
        hint = did_you_mean(words[0].partition("=")[0], known, "{}")
        self.error(f"`{self.prog}` takes no {' '.join(words)}{hint}")


def did_you_mean(word: str, known: Iterable[str], form: str) -> str:
    """What to add to an error about a word: the known one that is most like it, if one is."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean `{form.format(near[0])}`?" if near else ""


def add_action(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the word that says what a command is to do, so that errors about it name them all."""
    parser.add_argument("action", choices=names, metavar="|".join(names), help="what to do")


def indices(text: str) -> list[int]:
    """Read device numbers: "0,2", "0-3", or "none".

    Raises:
        argparse.ArgumentTypeError: If it is anything else.
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
    """Read how often or how many: 1 to a million.

    Raises:
        argparse.ArgumentTypeError: If it is anything else.
    """
    if not text.isdecimal() or not 1 <= int(text[:9]) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, but got {text!r}")
    return int(text)


def seconds_of_at_least(smallest: float) -> Callable[[str], float]:
    """A reader of a number of seconds with a lower bound, for `type=`."""

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
