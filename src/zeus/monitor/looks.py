"""What passes between those who look at a GPU and those who work out what a window used."""

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
        uncertainty: Joules; about 19 of 20 windows lie within. Covers what the looks could not
            see, not the calibration of the vendor's sensor.
        note: Why it is unavailable, or which fallback was used.
    """

    joules: float | None
    method: Method
    uncertainty: float | None = None
    note: str = ""


class Senses(NamedTuple):
    """What can be seen of a GPU, and what stands in the way."""

    counter: bool = True
    power: bool = True
    averaged: bool = False
    counter_note: str = ""
    trouble: CapabilityError | None = None


class Look(NamedTuple):
    """One look: when it began, when the counter had been read, when power had been read.

    Instants in seconds; `None` for what was not read.
    """

    begun: float
    between: float
    ended: float
    joules: float | None
    watts: float | None
