"""The data that pollers of sensors pass to the estimators of energy."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from zeus.errors import CapabilityError


class Method(StrEnum):
    """How an energy value was obtained."""

    COUNTER = "counter"
    INTEGRATED = "integrated"
    ESTIMATED = "estimated"
    UNAVAILABLE = "unavailable"


class Energy(NamedTuple):
    """Energy of a window, with its method and uncertainty.

    Attributes:
        joules: The energy; `None` if unavailable.
        method: How it was obtained.
        uncertainty: Joules; about 19 of 20 windows lie within. Covers what the sensors did not
            show, not their calibration.
        note: Why it is unavailable, or which fallback was used.
        shared: Joules of the uncertainty that all windows of the same name have in common, so that
            a mean over many of them does not reduce it.
    """

    joules: float | None
    method: Method
    uncertainty: float | None = None
    note: str = ""
    shared: float = 0.0


class SensorStatus(NamedTuple):
    """Which sensors of a GPU can be read, and the reasons if not.

    Attributes:
        counter: Whether there is an energy counter.
        power: Whether there is a power meter.
        averaged: Whether power is a mean over about a second, as there is no better meter.
        counter_note: Why there is no counter.
        trouble: Why the GPU currently does not respond at all.
    """

    counter: bool = True
    power: bool = True
    averaged: bool = False
    counter_note: str = ""
    trouble: CapabilityError | None = None


class Refresh(NamedTuple):
    """A change of a sensor's value. Instants in seconds of the monotonic clock.

    Attributes:
        low: The sensor was refreshed after this instant
        high: and before this one.
        since: The last poll that showed the previous value.
        polled: The poll that showed this value.
        value: Joules of a counter, watts of a power meter.
    """

    low: float
    high: float
    since: float
    polled: float
    value: float


class Poll(NamedTuple):
    """One poll: its instant and values.

    Attributes:
        instant: In seconds of the monotonic clock.
        joules: Value of the counter; NaN if not read.
        watts: Value of the power meter; NaN if not read.
    """

    instant: float
    joules: float
    watts: float
