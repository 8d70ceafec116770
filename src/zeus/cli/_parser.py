"""Reading the words of the command line."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from typing import NoReturn

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
