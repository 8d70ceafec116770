"""Rules for single values in a job's log, and the largest that are accepted.

The bounds are far beyond any training run. They keep what anybody may send from filling the store
or leaving the range in which sums and products of these numbers stay finite.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from zeus.errors import JobLogError

MOST_NAME = 200  # characters of a name: of a job, a GPU model, a request
MOST_NOTE = 2_000  # characters
MOST_SECONDS = 1e9  # of one epoch
MOST_JOULES = 1e15  # of one epoch
MOST_WATTS = 1e9
MOST_METRIC = 1e150
MOST_GPUS = 1_000_000
MOST_BATCH_SIZE = 2**31 - 1
MOST_EPOCHS = 1_000_000
MOST_WINDOW = 1_000
MOST_ROUNDS = 1_000
MOST_POWER_LIMITS = 256
LEAST_LEASE, MOST_LEASE = 1.0, 30 * 86400.0  # seconds
DEFAULT_LEASE = 600.0


def whole(name: str, value: Any, least: int = 0, most: int = 2**53) -> int:
    """The value as an int within bounds.

    Raises:
        JobLogError: If it is not one; names the rule and the value.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise JobLogError(f"`{name}` must be a whole number, but got {name}={shown(value)}")
    number_ = int(value)
    if not least <= number_ <= most:
        rule = f"{least} <= {name} <= {most}"
        raise JobLogError(f"`{rule}` must hold, but got {name}={shown(value)}")
    return number_


def number(name: str, value: Any, *, most: float, least: float = 0.0, above: bool = False) -> float:
    """The value as a finite float within bounds.

    Args:
        name: What it is called.
        value: What was given.
        most: Largest that is accepted.
        least: Smallest that is accepted.
        above: Whether `least` itself is not.

    Raises:
        JobLogError: If it is not one; names the rule and the value.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise JobLogError(f"`{name}` must be a number, but got {name}={shown(value)}")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not least <= result <= most or (above and result == least):
        rule = f"{least:g} {'<' if above else '<='} {name} <= {most:g}"
        raise JobLogError(f"`{rule}` must hold, but got {name}={shown(value)}")
    return result


def optional_number(
    name: str, value: Any, *, most: float, least: float = 0.0, above: bool = False
) -> float | None:
    """The same, or `None` for what is not known."""
    return None if value is None else number(name, value, most=most, least=least, above=above)


def text(name: str, value: Any, most: int = MOST_NAME, *, empty: bool = False) -> str:
    """The value as a text that can be printed and stored anywhere.

    Raises:
        JobLogError: If it is not one; names the rule and the value.
    """
    if not isinstance(value, str):
        raise JobLogError(f"`{name}` must be a text, but got {name}={shown(value)}")
    if not (value.strip() or (empty and not value)):
        raise JobLogError(f"`{name}` must not be empty, but got {name}={shown(value)}")
    if len(value) > most:
        raise JobLogError(f"`{name}` must have at most {most} characters, but got {len(value)}")
    if not value.isprintable():
        raise JobLogError(f"`{name}` must be printable, but got {name}={shown(value)}")
    return value


def note(value: Any) -> str:
    """The value as words for people: lines that can be printed, cut where they get too long."""
    if not isinstance(value, str):
        raise JobLogError(f"`note` must be a text, but got note={shown(value)}")
    kept = "".join(c if c.isprintable() or c == "\n" else "�" for c in value)
    return kept if len(kept) <= MOST_NOTE else kept[: MOST_NOTE - 1] + "…"


def shown(value: Any) -> str:
    """The value in an error, which must not get as long as what somebody sends."""
    try:
        shown = repr(value)
    except ValueError:  # an int with more digits than Python is willing to print
        shown = "a number of thousands of digits"
    return shown if len(shown) <= 80 else shown[:77] + "..."
