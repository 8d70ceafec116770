"""Common parts of the replay commands: a progress bar and option parsers."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence

from zeus.cli._parser import UsageError
from zeus.cli._terminal import Console

POLICIES = ("default", "grid", "paper", "zeus")
_BAR = 30


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[float, str], None]]:
    """Show a progress bar on stderr if it is a terminal; yield a function that sets it."""
    console = Console(sys.stderr)
    shown = -1

    def show(share: float, what: str) -> None:
        nonlocal shown
        percent = int(share * 100)
        if console.can_be_steered and percent != shown:
            shown = percent
            console.write(f"\r{console.bar(share, _BAR)} {percent:3d} % {what}\x1b[K")

    try:
        yield show
    finally:
        if shown >= 0:
            console.write("\r\x1b[K")


def names(text: str, known: Sequence[str], what: str) -> list[str]:
    """Parse names separated by commas.

    Raises:
        UsageError: If a name is unknown.
    """
    found = list(dict.fromkeys(text.split(",")))
    wrong = [name for name in found if name not in known]
    if wrong:
        raise UsageError(f"unknown {what} {', '.join(wrong)}; available: {', '.join(known)}")
    return found


def share(text: str) -> float:
    """Parse a number from 0 to 1.

    Raises:
        argparse.ArgumentTypeError: If the text is anything else.
    """
    return _real(text, 0.0, 1.0)


def beta(text: str) -> float | None:
    """Parse the multiple of the lowest cost at which a run is stopped; `none` never stops one.

    Raises:
        argparse.ArgumentTypeError: If it is not above 1.
    """
    if text.strip().lower() == "none":
        return None
    value = _real(text, 1.0, 1e9)
    if value <= 1:
        raise argparse.ArgumentTypeError(f"must be more than 1, but got {text!r}")
    return value


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of integers within bounds, for `type=`."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"must be a whole number of at least {least}, but got {text!r}"
            )
        return value

    return read


def _real(text: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(
            f"must be a number from {least:g} to {most:g}, but got {text!r}"
        )
    return value
