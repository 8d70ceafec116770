"""Checks: a value that was found, what the preset says, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from zeus.errors import CapabilityError, Reason


class Verdict(StrEnum):
    """What a check came to."""

    EXPECTED = "as expected"
    DIFFERENT = "different"
    MEASURED = "measured"  # there is nothing to compare with
    IMPOSSIBLE = "not possible here"


class Why(StrEnum):
    """Why a check was not possible, apart from obstacles of a device (`Reason`)."""

    NO_LOAD = "no load could be run"
    CONSTANT = "the reading did not change"
    NO_PERIOD = "refreshes are not periodic"
    FEW_POLLS = "too few polls"
    UNCLEAR = "the reading did not follow the load"
    UNCERTAIN = "too uncertain to compare"
    NOT_LEARNED = "not learned yet"
    NOT_REPORTED = "the driver does not report it"
    NOT_ASKED = "settings are changed with --knobs only"
    NO_EFFECT = "the load showed no effect"
    NOT_SET = "the setting could not be made"
    FAILED = "the check failed"
    FEW_VALUES = "there is only one setting"


class Quantity(NamedTuple):
    """How a value is compared with what is expected of it.

    Below `useful` of an uncertainty, agreement means something; above it, only a difference does.
    """

    unit: str = ""
    absolute: float = 0.0  # tolerance
    relative: float = 0.0  # tolerance, as a share of the expected value
    useful: float = math.inf  # uncertainty
    useful_share: float = 0.0  # the same as a share of the expected value, if that is more
    expected: float | None = None  # of all GPUs, whatever their model
    bound: int = 0  # 1: only more than expected is different; -1: only less


PRESENT, ABSENT = 1.0, 0.0

COUNTER, METER = "energy counter", "power meter"
COUNTER_PERIOD, COUNTER_LAG = "counter period", "counter lag"
COUNTER_SHARE, COUNTER_STEP = "counter time share", "counter resolution"
DECREASES, PHASE = "counter decreases", "counter phase"
POWER_PERIOD, POWER_WINDOW = "power period", "power window"
POWER_LAG, POWER_STEP = "power lag", "power resolution"
AVERAGE_WINDOW = "average power window"
AGREEMENT, IDLE_POWER = "counter against power", "idle power"
LEARNED_WINDOW, LEARNED_LAG = "learned power window", "learned power lag"
SHORT_COVERED, MIDDLE_COVERED = "50 ms windows covered", "500 ms windows covered"
LONG_COVERED = "5 s windows covered"
ADD_UP = "windows add up"
LOWEST_LIMIT, HIGHEST_LIMIT = "lowest power limit", "highest power limit"
DEFAULT_LIMIT = "default power limit"
LOWEST_CLOCK, HIGHEST_CLOCK, CLOCKS = "lowest clock", "highest clock", "number of clocks"
LIMIT_READBACK, LIMIT_EFFECT = "power limit readback", "power limit effect"
LIMIT_RESTORED = "power limit restored"
CLOCK_READBACK, CLOCK_EFFECT = "clock readback", "clock effect"
CLOCK_RESTORED = "clock restored"
REST = "other checks"
CPU_PERIOD, CPU_WRAP = "counter period", "counter range"
CPU_DECREASES, CPU_LOAD = "counter decreases", "power under load"

QUANTITIES: dict[str, Quantity] = {
    COUNTER: Quantity(),
    METER: Quantity(expected=PRESENT),
    COUNTER_PERIOD: Quantity("s", 5e-4, 0.03, 2e-3, 0.1),
    COUNTER_LAG: Quantity("s", 5e-3, 0.0, 0.02),
    COUNTER_SHARE: Quantity("", 0.1, 0.0, 0.25),
    COUNTER_STEP: Quantity("J"),
    DECREASES: Quantity(expected=0.0),
    PHASE: Quantity("s"),
    POWER_PERIOD: Quantity("s", 5e-4, 0.03, 2e-3, 0.1),
    POWER_WINDOW: Quantity("s", 3e-3, 0.1, 0.015, 0.3),
    POWER_LAG: Quantity("s", 5e-3, 0.0, 0.02),
    POWER_STEP: Quantity("W"),
    AVERAGE_WINDOW: Quantity("s", 3e-3, 0.1, 0.015, 0.3),
    AGREEMENT: Quantity("", 0.05, 0.0, 0.1, expected=1.0),
    IDLE_POWER: Quantity("W", 2.0, 0.25, 10.0, 0.25),
    # Learned responses are a choice from a list, and windows and lags that explain as much.
    LEARNED_WINDOW: Quantity("s", 0.01, 0.3, 0.03, 0.3),
    LEARNED_LAG: Quantity("s", 0.015, 0.0, 0.03),
    SHORT_COVERED: Quantity(expected=0.95, bound=-1),
    MIDDLE_COVERED: Quantity(expected=0.95, bound=-1),
    LONG_COVERED: Quantity(expected=0.95, bound=-1),
    ADD_UP: Quantity("", 2e-3, expected=0.0),
    LOWEST_LIMIT: Quantity("W", 1.0),
    HIGHEST_LIMIT: Quantity("W", 1.0),
    DEFAULT_LIMIT: Quantity("W", 1.0),
    LOWEST_CLOCK: Quantity("MHz"),
    HIGHEST_CLOCK: Quantity("MHz"),
    CLOCKS: Quantity(),
    LIMIT_READBACK: Quantity("s"),
    LIMIT_EFFECT: Quantity("s"),
    LIMIT_RESTORED: Quantity(expected=PRESENT),
    CLOCK_READBACK: Quantity("s"),
    # Published: 2 to 20 ms.
    CLOCK_EFFECT: Quantity("s", 5e-3, expected=0.02, bound=1),
    CLOCK_RESTORED: Quantity(expected=PRESENT),
    REST: Quantity(),
    CPU_WRAP: Quantity("J"),
    CPU_LOAD: Quantity("W"),
}


@dataclass(frozen=True)
class Check:
    """One value of a device, and the verdict about it.

    Attributes:
        name: Name of the quantity, a key of `QUANTITIES`.
        verdict: What it came to.
        value: What was found; `None` if nothing was.
        uncertainty: 19 of 20 true values lie within this distance of it.
        unit: Unit of both.
        preset: What was expected; `None` if nothing is known of this model.
        why: Why it was not possible: a member of `Why` or `Reason`.
        detail: More about that, perhaps in words of a driver, which are never shared.
    """

    name: str
    verdict: Verdict
    value: float | None = None
    uncertainty: float | None = None
    unit: str = ""
    preset: float | None = None
    why: str = ""
    detail: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it in the form of JSON."""
        return asdict(self)


def judged(
    name: str,
    value: float,
    uncertainty: float = 0.0,
    preset: float | None = None,
    detail: str = "",
) -> Check:
    """Return the check of a value that was found."""
    quantity = QUANTITIES[name]
    if preset is None:
        preset = quantity.expected
    verdict, why = _verdict(quantity, value, uncertainty, preset)
    return Check(name, verdict, value, uncertainty, quantity.unit, preset, why, detail)


def _verdict(
    quantity: Quantity, value: float, uncertainty: float, preset: float | None
) -> tuple[Verdict, str]:
    if preset is None:
        return Verdict.MEASURED, ""
    tolerance = quantity.absolute + quantity.relative * abs(preset) + 1e-9
    off = value - preset
    off = abs(off) if quantity.bound == 0 else off * quantity.bound
    if off > tolerance + uncertainty:
        return Verdict.DIFFERENT, ""
    if uncertainty > max(quantity.useful, quantity.useful_share * abs(preset)):
        return Verdict.IMPOSSIBLE, Why.UNCERTAIN
    return Verdict.EXPECTED, ""


def impossible(
    name: str, why: Why | CapabilityError, preset: float | None = None, detail: str = ""
) -> Check:
    """Return a check that was not possible."""
    quantity = QUANTITIES[name]
    if preset is None:
        preset = quantity.expected
    reason: Why | Reason
    if isinstance(why, CapabilityError):
        reason, detail = why.reason, str(why)
    else:
        reason = why
    return Check(
        name, Verdict.IMPOSSIBLE, unit=quantity.unit, preset=preset, why=reason, detail=detail
    )


def counts(checks: Iterable[Check]) -> dict[Verdict, int]:
    """Return how many checks came to each verdict."""
    found = dict.fromkeys(Verdict, 0)
    for check in checks:
        found[check.verdict] += 1
    return found
