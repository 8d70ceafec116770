"""Sensors of simulated GPUs, as `zeus.device._sensors` describes them, in a state file.

Zeus is needed to describe sensors and to work out what they show, but not to control what a GPU
draws: whoever does only that may run where Zeus is not installed.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zeus.device._sensors import Sensor, Sensors

_DOUBLES = ("period", "phase", "window", "lag", "jitter", "noise", "gain", "part_time")
_SALTS_PER_SENSOR = 4
_PLACES = ("counter", "instant", "average")


class SensorState(ctypes.Structure):
    """Must mirror `struct sensor` in common/layout.h."""

    _fields_ = [*((name, ctypes.c_double) for name in _DOUBLES), ("salt", ctypes.c_uint64)]


def resolve(sensors: Sensors | str, name: str, relative: str) -> Sensors:
    """Sensors, by the names that `ZEUS_SIMULATE_SENSORS` takes too.

    Args:
        sensors: as they are; a preset by its name; "part" for what is published of the part, or
            "live-power" for its energy counter and power that is always fresh.
        name: of the product; the part is told by it.
        relative: the preset for a product that has none.
    """
    from zeus.device._sensors import LIVE_POWER, PART_SENSORS, PRESETS

    if not isinstance(sensors, str):
        return sensors
    if sensors in (PART_SENSORS, LIVE_POWER):
        plain = name.lower().replace(" ", "")
        # "Quadro RTX 6000" has a preset of its own beside that of all RTX.
        part = PRESETS[max((key for key in PRESETS if key in plain), key=len, default=relative)]
        return part if sensors == PART_SENSORS else part.with_live_power()
    if sensors not in PRESETS:
        known = sorted([PART_SENSORS, LIVE_POWER, *PRESETS])
        raise ValueError(f"sensors must be one of {known}, but got {sensors!r}")
    return PRESETS[sensors]


def salt(index: int, place: str) -> int:
    """What tells the sensor in a place ("counter", "instant", "average") of a GPU from others."""
    return _SALTS_PER_SENSOR * (len(_PLACES) * index + _PLACES.index(place))


def describe(power: Any, sensors: Sensors, index: int) -> None:
    """Fill in the sensors of GPU `index`; where it lacks one, nobody may ask."""
    from zeus.device._sensors import scatter

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
    from zeus.device._sensors import Sensor

    return Sensor(**{name: getattr(state, name) for name in _DOUBLES})


def memory(state: SensorState) -> float:
    """For how many seconds a sensor may still show what was drawn."""
    return state.lag + max(state.window, state.part_time) + 2 * state.period
