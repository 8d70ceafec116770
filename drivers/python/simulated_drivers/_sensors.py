"""Sensors of simulated GPUs: how they are described, and their place in a state file."""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

PARAMETERS = ("period", "phase", "window", "lag", "jitter", "noise", "gain", "part_time")
_SALTS_PER_SENSOR = 4
_PLACES = ("counter", "instant", "average")


class Sensor(ctypes.Structure):
    """How a power reading or an energy counter follows the power that is really drawn.

    Must mirror `struct sensor` in common/layout.h.
    """

    _fields_ = [*((name, ctypes.c_double) for name in PARAMETERS), ("salt", ctypes.c_uint64)]

    def __init__(
        self,
        *,
        period: float = 0.0,
        phase: float | None = None,
        window: float = 0.0,
        lag: float = 0.0,
        jitter: float = 0.0,
        noise: float = 0.0,
        gain: float = 1.0,
        part_time: float = 0.0,
    ) -> None:
        """Describe a sensor; all times are in seconds.

        Args:
            period: Time between refreshes; 0 for a sensor that is always fresh.
            phase: Offset of refreshes from multiples of the period, as a share of it; `None` for
                one that differs by GPU and sensor.
            window: Averaging time of a power reading.
            lag: Delay of the reading.
            jitter: Maximum random delay of a refresh, less than the period.
            noise: Standard deviation of a power reading, as a share of it.
            gain: Reading divided by true value.
            part_time: For a counter: time before each refresh whose mean power is taken for that
                of the whole period; 0 for one that counts all energy.
        """
        if (period and jitter >= period) or (part_time and not period):
            raise ValueError(
                f"`jitter < period` and a period with part_time must hold, but got "
                f"period={period!r}, jitter={jitter!r}, part_time={part_time!r}"
            )
        own = math.nan if phase is None else phase
        super().__init__(period, own, window, lag, jitter, noise, gain, part_time)


class Sensors(NamedTuple):
    """The sensors of one GPU: energy counter, instantaneous power and average power, if any."""

    counter: Sensor | None
    power: Sensor
    average: Sensor | None = None


def salt(index: int, place: str) -> int:
    """Return the seed of a sensor by GPU and place ("counter", "instant" or "average")."""
    return _SALTS_PER_SENSOR * (len(_PLACES) * index + _PLACES.index(place))


def describe(power: Any, sensors: Any, index: int) -> None:
    """Fill in the sensors of GPU `index`; one that it lacks must not be read.

    Args:
        power: The `Power` of the GPU, in a state file that is not in use yet.
        sensors: `Sensors`, or an object with the same attributes, such as Zeus's.
        index: Of the GPU.
    """
    given = (sensors.counter, sensors.power, sensors.average)
    for place, sensor in zip(_PLACES, given, strict=True):
        if sensor is not None:
            copy = Sensor(**{name: getattr(sensor, name) for name in PARAMETERS})
            setattr(power, place, copy)
        getattr(power, place).salt = salt(index, place)


def memory(sensor: Sensor) -> float:
    """Return for how many seconds a sensor may still show what was drawn."""
    return sensor.lag + max(sensor.window, sensor.part_time) + 2 * sensor.period
