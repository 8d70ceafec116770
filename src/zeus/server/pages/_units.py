"""Human-readable quantities: unit prefixes, three or four digits, and "unknown".

Each function takes SI units, and `None` for an unknown value, which is never shown as 0.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from zeus.drawing._markup import Markup, tag
from zeus.drawing._units import energy_unit, time_unit

UNKNOWN = "unknown"
NONE = "\u2013"  # where there is no value to know
_THIN = "\u202f"  # a narrow space that does not break
_SPACE = "\u00a0"  # another, between a number and its unit
_MINUS = "\u2212"


def digits(value: float, count: int = 4) -> str:
    """Format a number with `count` digits, without an exponent where possible."""
    if not math.isfinite(value):
        return "∞" if value > 0 else f"{_MINUS}∞"
    text = f"{value:.{count}g}"
    if "e" in text and 1e-4 <= abs(value) < 1e15:
        text = f"{value:.0f}"
    return text.replace("-", _MINUS) if "e" not in text else text


def grouped(number: int) -> str:
    """Format a count, with digits in groups of three from 10,000 on."""
    return f"{number:,}".replace(",", _THIN) if abs(number) >= 10_000 else str(number)


def joules(value: float | None, count: int = 4, *, like: float | None = None) -> str:
    """Format energy or cost in mJ to GJ, or in the unit that suits the value `like`."""
    if value is None:
        return UNKNOWN
    unit = energy_unit(abs(value if like is None else like))
    return f"{digits(value / unit.size, count)}{_SPACE}{unit.name}"


def kilowatt_hours(value: float) -> str:
    """Format energy in Wh or kWh."""
    hours = value / 3.6e6
    if abs(hours) >= 0.1:
        return f"{digits(hours, 3)}{_SPACE}kWh"
    return f"{digits(1e3 * hours, 3)}{_SPACE}Wh"


def total_joules(value: float | None, count: int = 3) -> str:
    """Format the energy of a whole run or job: in J, and in kWh as it is paid for."""
    if value is None or abs(value) < 3600:
        return joules(value, count)
    return f"{joules(value, count)} ({kilowatt_hours(value)})"


def aligned_joules(value: float, largest: float) -> str:
    """Format energy as one of a column: in one unit, with as many decimals as the largest."""
    unit = energy_unit(abs(largest))
    decimals = unit.decimals([abs(largest)])
    return f"{value / unit.size:.{decimals}f}{_SPACE}{unit.name}"


def seconds(value: float | None, count: int = 3) -> str:
    """Format a duration in µs to h, or days from two days on."""
    if value is None:
        return UNKNOWN
    if value >= 48 * 3600:
        return f"{digits(value / 86400, count)}{_SPACE}d"
    if value == 0:
        return f"0{_SPACE}s"
    unit = time_unit(value)
    return f"{digits(value / unit.size, count)}{_SPACE}{unit.name}"


def watts(value: float | None) -> str:
    """Format power in W, or kW from 10 kW on."""
    if value is None:
        return UNKNOWN
    return f"{digits(value / 1e3)}{_SPACE}kW" if value >= 10_000 else f"{digits(value)}{_SPACE}W"


def percent(share: float | None, *, signed: bool = False) -> str:
    """Format a fraction as a percentage; `signed` for changes."""
    if share is None:
        return UNKNOWN
    value = 100 * share
    # Adding 0 makes a rounded -0.0 a plain 0.
    decimals = 0 if abs(value) >= 99.95 else 1
    number = round(value, decimals) + 0
    text = f"{number:+.{decimals}f}" if signed else f"{number:.{decimals}f}"
    return f"{text.replace('-', _MINUS)}{_SPACE}%"


def counted(number: int, one: str, many: str = "") -> str:
    """Format a count with its noun: "1 trial", "2 trials"."""
    return f"{grouped(number)} {one if number == 1 else many or one + 's'}"


def listed(words: Iterable[str]) -> str:
    """Join words: "a, b and c"."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def instant(at: float | None) -> Markup:
    """Format a time in UTC; the script of the pages converts it to the local time zone."""
    if at is None:
        return tag("span", UNKNOWN)
    moment = time.gmtime(at)
    machine = time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)
    return tag("time", time.strftime("%Y-%m-%d %H:%M UTC", moment), datetime=machine)


def moment(at: float) -> str:
    """Format a time in UTC, as plain text."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


def ago(at: float, now: float) -> Markup:
    """Format a time relative to now; the exact time is shown on hover."""
    moment = time.gmtime(at)
    machine = time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)
    exact = time.strftime("%Y-%m-%d %H:%M:%S UTC", moment)
    return tag("time", _ago(max(now - at, 0.0)), datetime=machine, title=exact, data_ago=True)


def _ago(passed: float) -> str:
    if passed < 10:
        return "a moment ago"
    for size, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if passed >= 2 * size:
            return f"{counted(int(passed // size), name)} ago"
    return f"{int(passed)} seconds ago"
