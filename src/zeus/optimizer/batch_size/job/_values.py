"""Validation of single values in a job's log, and the largest accepted values.

The bounds are far beyond any training run. They keep clients from filling the store, and values
in the range in which their sums and products stay finite.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from zeus.errors import JobLogError

MAX_NAME = 200  # characters of a name: of a job, a GPU model, a request
MAX_NOTE = 2_000  # characters
MAX_SECONDS = 1e9  # of one epoch
MAX_JOULES = 1e15  # of one epoch
MAX_WATTS = 1e9
MAX_METRIC = 1e150
MAX_GPUS = 1_000_000
MAX_BATCH_SIZE = 2**31 - 1
MAX_EPOCHS = 1_000_000
MAX_WINDOW = 1_000
MAX_ROUNDS = 1_000
MAX_POWER_LIMITS = 256
MIN_LEASE, MAX_LEASE = 1.0, 30 * 86400.0  # seconds
DEFAULT_LEASE = 600.0


def whole(name: str, value: Any, least: int = 0, most: int = 2**53) -> int:
    """Return the value as an int within bounds.

    Raises:
        JobLogError: If it is not; names the rule and the value.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise JobLogError(f"`{name}` must be a whole number, but got {name}={shown(value)}")
    number_ = int(value)
    if not least <= number_ <= most:
        rule = f"{least} <= {name} <= {most}"
        raise JobLogError(f"`{rule}` must hold, but got {name}={shown(value)}")
    return number_


def number(name: str, value: Any, *, most: float, least: float = 0.0, above: bool = False) -> float:
    """Return the value as a finite float within bounds.

    Args:
        name: Name of the value, for the error.
        value: The given value.
        most: Maximum.
        least: Minimum.
        above: Whether the value must be above `least`, not equal.

    Raises:
        JobLogError: If it is not; names the rule and the value.
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
    """Validate as `number`; `None`, for an unknown value, is accepted."""
    return None if value is None else number(name, value, most=most, least=least, above=above)


def text(name: str, value: Any, most: int = MAX_NAME, *, empty: bool = False) -> str:
    """Return the value as a text that can be printed and stored anywhere.

    Raises:
        JobLogError: If it is not; names the rule and the value.
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
    """Return the value as a printable text for users, truncated if too long."""
    if not isinstance(value, str):
        raise JobLogError(f"`note` must be a text, but got note={shown(value)}")
    kept = "".join(c if c.isprintable() or c == "\n" else "�" for c in value)
    return kept if len(kept) <= MAX_NOTE else kept[: MAX_NOTE - 1] + "…"


def shown(value: Any) -> str:
    """Return the value for an error message, truncated to 80 characters."""
    try:
        shown = repr(value)
    except ValueError:  # an int with more digits than Python converts
        shown = "a number of thousands of digits"
    return shown if len(shown) <= 80 else shown[:77] + "..."
