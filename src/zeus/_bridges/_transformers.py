"""The power-limit optimizer as a callback of Hugging Face's trainer, in one object."""

from __future__ import annotations

from typing import Any

from zeus.integrations.transformers import ZeusCallback
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer


class HFGlobalPowerLimitOptimizer(ZeusCallback):
    """`ZeusCallback` with a `GlobalPowerLimitOptimizer`.

    Args:
        monitor: As for `GlobalPowerLimitOptimizer`, as are all other arguments.
        arguments: Its other arguments.
        keywords: Its other arguments.

    Attributes:
        optimizer: The optimizer.
    """

    def __init__(self, monitor: ZeusMonitor, *arguments: Any, **keywords: Any) -> None:
        self.optimizer = GlobalPowerLimitOptimizer(monitor, *arguments, **keywords)
        super().__init__(self.optimizer, monitor=monitor)
