"""A controller with the GPUs that it controls: measures energies, sets knobs, and gives them back.

Nothing here may stop a service: an error of a GPU ends in one warning and the previous setting,
and is tried again later.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Protocol

from zeus.clock import Clock
from zeus.device import Gpu
from zeus.errors import CapabilityError, KnobError
from zeus.monitor import Measurement, ZeusMonitor
from zeus.optimizer.serving._controller import Controller
from zeus.optimizer.serving._group import GpuGroup
from zeus.optimizer.serving._interval import Decision, ServingInterval, ServingSetting
from zeus.optimizer.serving._report import Forecast, ServingReport

logger = logging.getLogger(__name__)

_WINDOW = "zeus serving"
_PAUSE = 30  # intervals until a GPU that refused a setting is tried again


class IntervalListener(Protocol):
    """Is sent what a controller does; must neither wait nor raise."""

    def note(
        self,
        interval: ServingInterval,
        held: ServingSetting,
        decision: Decision,
        forecast: Forecast | None,
        trouble: str,
    ) -> None:
        """Take an interval.

        Args:
            interval: The interval.
            held: The setting in it; where settings are not carried out, the one that would be.
            decision: What was decided after it.
            forecast: What is predicted of it, if anything is.
            trouble: Why settings are not carried out; empty if they are.
        """


class Steering:
    """Decides after each interval, and holds what was decided.

    Args:
        monitor: Measures the GPUs.
        controller: Decides.
        prefill: GPUs that process prompts.
        decode: GPUs that generate tokens; often the same.
        observe: Whether to change nothing.

    Attributes:
        listener: Is sent every interval.
    """

    def __init__(
        self,
        monitor: ZeusMonitor,
        controller: Controller,
        prefill: GpuGroup,
        decode: GpuGroup,
        *,
        observe: bool = False,
    ) -> None:
        self.controller = controller
        self.report = ServingReport(controller.bounds, observe=observe)
        self.observe = observe
        self.decision = controller.first()
        self.trouble = ""
        self.listener: IntervalListener | None = None
        self._monitor = monitor
        self._prefill = prefill
        self._decode = decode
        self._paused = 0
        self._highest = ServingSetting(controller.ladder[0], controller.ladder[0])
        self._measuring = False

    @property
    def clock(self) -> Clock:
        """The clock of the GPUs' node."""
        return self._monitor.node.clock

    @property
    def gpus(self) -> list[Gpu]:
        """The GPUs."""
        return list(self._monitor.gpus)

    # --- energy -----------------------------------------------------------------------------

    def begin_interval(self) -> None:
        """Begin to measure."""
        self._monitor.begin_window(_WINDOW, sync_execution=False, restart=True)
        self._measuring = True

    def measured(self) -> tuple[float | None, float]:
        """Return joules of all GPUs since `begin_interval`, their uncertainty, and begin again."""
        if not self._measuring:
            self.begin_interval()
            return None, 0.0
        taken: Measurement = self._monitor.end_window(_WINDOW, sync_execution=False)
        self.begin_interval()
        gpus = [reading for reading in taken.readings if reading.domain == "gpu"]
        energies = [reading.energy for reading in gpus]
        if not energies or None in energies:
            return None, 0.0
        return sum(filter(None, energies)), sum(each.uncertainty or 0.0 for each in gpus)

    def busy(self, seconds: float) -> dict[str, float]:
        """Return the busy seconds of each phase by the utilization of its GPUs.

        Args:
            seconds: Length of the interval.

        Returns:
            Nothing where both phases run on the same GPUs, or a utilization is 0 or not known.
        """
        if self._prefill is self._decode:
            return {}
        found = {}
        for phase, group in (("prefill", self._prefill), ("decode", self._decode)):
            try:
                shares = [gpu.utilization() for gpu in group.gpus]
            except (CapabilityError, OSError):
                return {}
            # Both at once count as one after the other, which is how phases are modelled.
            found[phase] = seconds * min(1.0, sum(shares) / len(shares)) / 2
        return found if all(found.values()) else {}

    # --- decisions --------------------------------------------------------------------------

    def decide(self, interval: ServingInterval) -> Decision:
        """Learn from an interval and hold the setting for the next."""
        interval = replace(interval, setting=self._in_force())
        held = self.decision.setting
        if interval.setting is not None and not self.observe:
            held = interval.setting
        self.report.add(interval)
        self.report.held(interval.begin, self.decision)  # the first setting is no decision's result
        try:
            self.decision = self.controller.decide(interval)
        except (ArithmeticError, ValueError) as error:
            logger.warning("the serving controller could not decide, and begins again: %r", error)
            self.trouble = repr(error)
            self.decision = self.controller.first()
        forecast = self._forecast(interval)
        if forecast is not None:
            self.report.predicted(forecast)
        self._apply()
        self.report.held(interval.end, self.decision)
        if self.listener is not None:
            self.listener.note(interval, held, self.decision, forecast, self.trouble)
        return self.decision

    def _forecast(self, interval: ServingInterval) -> Forecast | None:
        watts = self.controller.forecast()
        if watts is None:
            return None
        highest, chosen = (each * interval.seconds for each in watts)
        if interval.energy is None:
            return Forecast(highest, chosen)
        return Forecast(highest, chosen, interval.energy, highest)

    def use(self, phase: str) -> None:
        """Set what was decided for a phase, where one group of GPUs does both."""
        setting = self.decision.setting
        if not self.observe and self._prefill is self._decode and setting.prefill != setting.decode:
            self._set(self._prefill, setting.prefill if phase == "prefill" else setting.decode)

    def release(self) -> None:
        """Restore the previous settings."""
        self._prefill.release()
        self._decode.release()

    def close(self) -> None:
        """Restore the previous settings and stop measuring."""
        self.release()
        if self._measuring:
            self._measuring = False
            self._monitor.end_window(_WINDOW, sync_execution=False)

    def _in_force(self) -> ServingSetting | None:
        """Return the setting in force, if it is not the one that was decided."""
        groups = (self._prefill, self._decode)
        if self.observe or any(group.overridden for group in groups):
            return self._highest
        if all(group.setting is not None for group in groups):
            return None
        highest = self._highest.prefill
        return ServingSetting(self._prefill.setting or highest, self._decode.setting or highest)

    def _apply(self) -> None:
        if self.observe:
            return
        if self._paused:
            self._paused -= 1
            return
        setting = self.decision.setting
        if self._prefill is not self._decode:
            self._set(self._prefill, setting.prefill)
        self._set(self._decode, setting.decode)

    def _set(self, group: GpuGroup, value: float) -> None:
        if group.setting is None and value == self.controller.ladder[0]:
            return  # it is in force without a hold
        try:
            group.set(value)
            self.trouble = ""
        except (CapabilityError, KnobError, OSError) as error:
            self._paused = _PAUSE
            if not self.trouble:
                logger.warning(
                    "the setting %g is refused, the previous one is used meanwhile: %s",
                    value,
                    error,
                )
            self.trouble = str(error)
