"""What comes from Zeus, where it is installed, and is not repeated here.

Zeus has the table of sensors that are published for real parts, and a model of sensors in Python.
Neither is needed by those who describe sensors themselves and ask only for what was really drawn.
"""

from __future__ import annotations

import importlib
import math
import shlex
from pathlib import Path
from typing import Any

from simulated_drivers._sensors import PARAMETERS, Sensor

_PROJECT = Path(__file__).resolve().parents[3]
_INSTALL = (
    f"pip install {shlex.quote(str(_PROJECT))}"
    if (_PROJECT / "src" / "zeus").is_dir()
    else "install the distribution zeus-energy"
)


def published(sensors: Any, name: str, similar: str) -> Any:
    """Return sensors, by the names that `ZEUS_SIMULATE_SENSORS` takes too.

    Args:
        sensors: Sensors, which are returned; the name of a preset; "part" for those published for
            the part, or "live-power" for its energy counter and power that is always fresh.
        name: Product name, which has the name of its part in it.
        similar: Preset for a product that has none.
    """
    if not isinstance(sensors, str):
        return sensors
    presets = _sensor_models().PRESETS
    if sensors in ("part", "live-power"):
        plain = name.lower().replace(" ", "")
        # "Quadro RTX 6000" has a preset of its own beside that of all RTX.
        part = presets[max((key for key in presets if key in plain), key=len, default=similar)]
        return part if sensors == "part" else part.with_live_power()
    if sensors not in presets:
        known = sorted(["part", "live-power", *presets])
        raise ValueError(f"sensors must be one of {known}, but got {sensors!r}")
    return presets[sensors]


def model(sensor: Sensor) -> Any:
    """Return Zeus's model of a sensor in a state file, which computes its readings."""
    values = {name: getattr(sensor, name) for name in PARAMETERS}
    if math.isnan(values["phase"]):
        values["phase"] = None
    return _sensor_models().Sensor(**values)


def _sensor_models() -> Any:
    try:
        return importlib.import_module("zeus.device._sensors")
    except ImportError as error:
        raise ModuleNotFoundError(
            "sensors by name, their readings and part-time counters need Zeus: "
            f"{_INSTALL}, or describe sensors as simulated_drivers.Sensors"
        ) from error
