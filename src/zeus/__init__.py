"""Zeus measures the energy that deep-learning work uses, and lowers it.

Names are resolved when first used, so that importing the package costs next to nothing::

    from zeus.monitor import ZeusMonitor
    from zeus.device import get_gpus
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeus._lazy import find_former_modules, lazy_names
from zeus._neighbour import warn_about_namesake

if TYPE_CHECKING:
    from zeus.device import get_cpus, get_gpus, get_soc
    from zeus.errors import ZeusError
    from zeus.integrations.pytorch import ZeusDataLoader
    from zeus.monitor import Measurement, PowerMonitor, TemperatureMonitor, ZeusMonitor

__version__ = "0.1.0"

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Measurement": "zeus.monitor",
        "PowerMonitor": "zeus.monitor",
        "TemperatureMonitor": "zeus.monitor",
        "ZeusDataLoader": "zeus.integrations.pytorch",
        "ZeusError": "zeus.errors",
        "ZeusMonitor": "zeus.monitor",
        "get_cpus": "zeus.device",
        "get_gpus": "zeus.device",
        "get_soc": "zeus.device",
    },
)

__all__ = [
    "Measurement",
    "PowerMonitor",
    "TemperatureMonitor",
    "ZeusDataLoader",
    "ZeusError",
    "ZeusMonitor",
    "__version__",
    "get_cpus",
    "get_gpus",
    "get_soc",
]

find_former_modules()
warn_about_namesake()
