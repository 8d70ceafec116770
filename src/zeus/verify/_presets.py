"""What is expected of a GPU, by its product name: published sensors, and the simulated part."""

from __future__ import annotations

import re
from typing import NamedTuple

from zeus.device._sensors import PRESETS, Sensors
from zeus.device._simulated_models import MODELS, GpuModel
from zeus.verify import _checks as names

#: Sensors by what a product's name contains, the most specific first.
_BY_NAME = (
    (r"\bp100\b", "p100"),
    (r"\bv100\b", "v100"),
    (r"\ba100\b|\ba800\b", "a100"),
    (r"\bh100\b|\bh800\b", "h100"),
    (r"\bquadro rtx [0-9]{4}\b", "rtx6000"),
    (r"\ba40\b", "a40"),
    (r"\brtx (?:[345]0[5-9]0|a[2-6]0*)\b", "rtx"),
    (r"\bmi250x?\b", "mi250x"),
    (r"\bmi300x\b", "mi300x"),
)


class Preset(NamedTuple):
    """What is expected of a GPU; `model` only if its name is exactly that of a simulated part."""

    key: str
    sensors: Sensors
    model: GpuModel | None

    def values(self) -> dict[str, float]:
        """Return the expected values, by the names of their checks."""
        sensors, power = self.sensors, self.sensors.power
        found = {
            names.COUNTER: names.ABSENT if sensors.counter is None else names.PRESENT,
            names.POWER_PERIOD: power.period,
            names.POWER_WINDOW: power.window,
            names.POWER_LAG: power.lag,
        }
        if (counter := sensors.counter) is not None:
            share = counter.part_time / counter.period if counter.part_time else 1.0
            found |= {
                names.COUNTER_PERIOD: counter.period,
                names.COUNTER_LAG: counter.lag,
                names.COUNTER_SHARE: share,
            }
        if sensors.average is not None:
            found[names.AVERAGE_WINDOW] = sensors.average.window
        if self.model is not None:
            found |= _of_model(self.model)
        return found


def _of_model(model: GpuModel) -> dict[str, float]:
    clocks = model.graphics_clocks()
    return {
        names.IDLE_POWER: model.idle_power,
        names.LOWEST_LIMIT: model.minimum_limit,
        names.HIGHEST_LIMIT: model.maximum_limit,
        names.DEFAULT_LIMIT: model.maximum_limit,
        names.LOWEST_CLOCK: clocks[-1],
        names.HIGHEST_CLOCK: clocks[0],
        names.CLOCKS: len(clocks),
    }


def preset_of(name: str) -> Preset | None:
    """Return what is expected of a GPU with this product name, if it is known."""
    words = name.lower().replace("-", " ")
    for pattern, key in _BY_NAME:
        if re.search(pattern, words):
            model = MODELS.get(key)
            exactly = model if model is not None and model.name == name else None
            return Preset(key, PRESETS[key], exactly)
    return None
