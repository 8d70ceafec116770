"""Zeus measures the energy that deep-learning work uses, and lowers it.

Names are resolved when first used, so that importing the package costs next to nothing::

    from zeus.monitor import ZeusMonitor
    from zeus.device import get_gpus
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from zeus._neighbour import warn_about_namesake

if TYPE_CHECKING:
    from zeus.device import get_cpus, get_gpus, get_soc
    from zeus.monitor import Measurement, ZeusMonitor

__version__ = "0.1.0"

_HOME = {
    "Measurement": "zeus.monitor",
    "ZeusMonitor": "zeus.monitor",
    "get_cpus": "zeus.device",
    "get_gpus": "zeus.device",
    "get_soc": "zeus.device",
}

__all__ = [
    "Measurement",
    "ZeusMonitor",
    "__version__",
    "get_cpus",
    "get_gpus",
    "get_soc",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


warn_about_namesake()
