"""Sensors of simulated GPUs, as `zeus.device.sensors` describes them, in a state file.

Zeus is needed to describe sensors and to work out what they show, but not to control what a GPU
draws: whoever does only that may run where Zeus is not installed.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zeus.device.sensors import Sensor, Sensors

_DOUBLES = ("period", "phase", "window", "lag", "jitter", "noise", "gain", "part_time")
_SALTS_PER_SENSOR = 4
_PLACES = ("counter", "instant", "average")


class SensorState(ctypes.Structure):
    """Must mirror `struct sensor` in common/layout.h."""

    _fields_ = [*((name, ctypes.c_double) for name in _DOUBLES), ("salt", ctypes.c_uint64)]


def resolve(sensors: Sensors | str | None) -> Sensors:
    """Sensors, by the name of a preset too.

    By default, the counter is refreshed every 100 ms and power is live: kinder than any real GPU.
    """
    from zeus.device.sensors import PRESETS, Sensor, Sensors

    if sensors is None:
        return Sensors(Sensor(period=0.1), Sensor(), Sensor(window=1.0))
    if not isinstance(sensors, str):
        return sensors
    if sensors not in PRESETS:
        raise ValueError(f"sensors must be one of {sorted(PRESETS)}, but got {sensors!r}")
    return PRESETS[sensors]


def salt(index: int, place: str) -> int:
    """What tells the sensor in a place ("counter", "instant", "average") of a GPU from others."""
    return _SALTS_PER_SENSOR * (len(_PLACES) * index + _PLACES.index(place))


def describe(power: Any, sensors: Sensors, index: int) -> None:
    """Fill in the sensors of GPU `index`; where it lacks one, nobody may ask."""
    from zeus.device.sensors import scatter

    given = {"counter": sensors.counter, "instant": sensors.power, "average": sensors.average}
    for place, sensor in given.items():
        state = getattr(power, place)
        state.salt = salt(index, place)
        if sensor is not None:
            for name in _DOUBLES:
                setattr(state, name, getattr(sensor, name) or 0.0)
            state.phase = scatter(0, state.salt) if sensor.phase is None else sensor.phase


def model(state: SensorState) -> Sensor:
    """The sensor again."""
    from zeus.device.sensors import Sensor

    return Sensor(**{name: getattr(state, name) for name in _DOUBLES})


def memory(state: SensorState) -> float:
    """For how many seconds a sensor may still show what was drawn."""
    return state.lag + max(state.window, state.part_time) + 2 * state.period
