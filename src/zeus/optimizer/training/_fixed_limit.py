"""A fixed power limit, or none at all: for runs whose limit is already decided."""

from __future__ import annotations

import logging

from zeus.errors import CapabilityError, KnobError
from zeus.monitor import ZeusMonitor
from zeus.optimizer.training._knob_controller import KnobController
from zeus.optimizer.training._knobs import PowerLimitKnob
from zeus.optimizer.training._step_optimizer import StepOptimizer

logger = logging.getLogger(__name__)


class FixedPowerLimit(StepOptimizer):
    """Holds one power limit on all GPUs of a monitor, from the first epoch to the end.

    Steps are not profiled.

    Args:
        monitor: Monitor of the GPUs.
        power_limit: Watts per GPU; `None` leaves the limits unchanged.

    Attributes:
        power_limit: As given.
        trouble: Why it could not be set; empty if it was.
    """

    def __init__(self, monitor: ZeusMonitor, power_limit: float | None) -> None:
        self.monitor = monitor
        self.power_limit = power_limit
        self.trouble = ""
        self._controller: KnobController | None = None
        self._begun = False

    def on_epoch_begin(self) -> None:
        """Set the limit, the first time."""
        if self._begun:
            return
        self._begun = True
        if self.power_limit is None:
            return
        try:
            simulated = bool(self.monitor.node.simulated)
            knob = PowerLimitKnob(25)  # the stride is not used here
            self._controller = KnobController(
                knob, self.monitor.gpus, simulated=simulated, on_takeover=self.close
            )
            self._controller.apply(self.power_limit)
        except (CapabilityError, KnobError, OSError) as error:
            self.trouble = str(error)
            self.close()
            logger.warning("the power limit stays as it was: %s", error)

    def values_to_log(self) -> dict[str, float]:
        """Return the power limit in force."""
        return {} if self._controller is None else self._controller.values_to_log()

    def close(self) -> None:
        """Restore the previous limits."""
        self._begun = True
        if self._controller is not None:
            self._controller.release()
