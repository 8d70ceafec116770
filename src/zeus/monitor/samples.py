"""What passes between those who poll sensors and those who estimate energy."""

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
    """Joules over a window, how they were obtained, and how far off they may be.

    Attributes:
        joules: `None` if unavailable.
        method: How.
        uncertainty: Joules; about 19 of 20 windows lie within. Covers what the sensors did not
            show, not their calibration.
        note: Why it is unavailable, or which fallback was used.
        shared: Joules of the uncertainty that all windows of the same name have in common, so that
            a mean over many of them does not get rid of it.
    """

    joules: float | None
    method: Method
    uncertainty: float | None = None
    note: str = ""
    shared: float = 0.0


class SensorStatus(NamedTuple):
    """Which sensors of a GPU can be read, and what stands in the way.

    Attributes:
        counter: Whether there is an energy counter.
        power: Whether there is a power meter.
        averaged: Whether power is a mean over about a second, for want of a better one.
        counter_note: Why there is no counter.
        trouble: What keeps the GPU from answering at all, now.
    """

    counter: bool = True
    power: bool = True
    averaged: bool = False
    counter_note: str = ""
    trouble: CapabilityError | None = None


class Refresh(NamedTuple):
    """A sensor shows another value than before. Instants in seconds of the monotonic clock.

    Attributes:
        low: The sensor was refreshed after this instant
        high: and before this one.
        since: When it was polled last while it showed the previous value.
        polled: When it was polled with this value.
        value: Joules of a counter, watts of a power meter.
    """

    low: float
    high: float
    since: float
    polled: float
    value: float


class Poll(NamedTuple):
    """The latest poll: its instant, and what it showed.

    Attributes:
        instant: In seconds.
        joules: By the counter; NaN if not read. `watts` likewise.
    """

    instant: float
    joules: float
    watts: float
