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
    """Energy of a window, with its method and uncertainty."""

    joules: float | None  # the energy; `None` if unavailable
    method: Method  # how it was obtained
    # Joules; about 19 of 20 windows lie within. Covers what the sensors did not show, not their
    # calibration.
    uncertainty: float | None = None
    note: str = ""  # why it is unavailable, or which fallback was used
    # Joules of the uncertainty that all windows of the same name have in common, so that a mean
    # over many of them does not reduce it
    shared: float = 0.0


class SensorStatus(NamedTuple):
    """Which sensors of a GPU can be read, and the reasons if not."""

    counter: bool = True  # whether there is an energy counter
    power: bool = True  # whether there is a power meter
    # Whether power is a mean over about a second, as there is no better meter
    averaged: bool = False
    counter_note: str = ""  # why there is no counter
    trouble: CapabilityError | None = None  # why the GPU currently does not respond at all


class Refresh(NamedTuple):
    """A change of a sensor's value. Instants in seconds of the monotonic clock."""

    low: float  # the sensor was refreshed after this instant
    high: float  # and before this one
    since: float  # the last poll that showed the previous value
    polled: float  # the poll that showed this value
    value: float  # joules of a counter, watts of a power meter


class Poll(NamedTuple):
    """One poll: its instant and values."""

    instant: float  # in seconds of the monotonic clock
    joules: float  # value of the counter; NaN if not read
    watts: float  # value of the power meter; NaN if not read
