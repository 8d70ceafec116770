"""Metrics of a training process: the optimizer's setting, savings, energy per step and sample."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zeus._rules import Number, Whole
from zeus.monitor import _ranks as ranks
from zeus.monitor._sums import gpu_energy
from zeus.optimizer.callback import Callback
from zeus.optimizer.training._training_meter import TrainingMeter
from zeus.telemetry._training_files import TrainingFile, TrainingState

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

    from zeus.monitor import ZeusMonitor

logger = logging.getLogger(__name__)

_KNOBS = {"W": "power_limit", "MHz": "graphics_clock"}


class TrainingTelemetry(Callback):
    """Publishes what a training process does, for `zeus export` on the same machine.

    Add it to the callbacks of the training loop, after the optimizer. Every few seconds, at the end
    of a step, the process writes one small file, which `zeus export` shows as metrics
    `zeus_training_...` for as long as the process lives; neither side needs any configuration.
    Every process of a job publishes its own GPUs. No error here stops the training.

    Args:
        monitor: Measures the GPUs of this process.
        optimizer: The optimizer whose setting and savings are published, if there is one.
        job: Name of the job, a label of the metrics.
        batch_size: Samples in a step of this process, for the energy per sample.
        period: Seconds between publications.
        meter: Publishes the same through OpenTelemetry, from a meter of the application.

    Raises:
        ValueError: If the batch size or the period is not positive.
    """

    def __init__(
        self,
        monitor: ZeusMonitor,
        optimizer: Callback | None = None,
        *,
        job: str = "",
        batch_size: int | None = None,
        period: float = 10.0,
        meter: Meter | None = None,
    ) -> None:
        if batch_size is not None:
            Whole(1).check("batch_size", batch_size, ValueError)
        Number(0, above=True).check("period", period, ValueError)
        self._meter = TrainingMeter(monitor, "telemetry")
        self._clock = monitor.node.clock
        self._optimizer = optimizer
        self._period = period
        self._process = os.getpid()
        self._file: TrainingFile | None = None
        self._closed = False
        self._steps = 0
        self._next = self._clock.now() + period
        #: What is published.
        self.state = TrainingState(job, ranks.local_rank()[0], energy=0.0, batch_size=batch_size)
        if meter is not None:
            from zeus.telemetry._opentelemetry import observe_training  # noqa: PLC0415  (an extra)

            observe_training(meter, lambda: self.state)

    def on_epoch_begin(self) -> None:
        """Begin an epoch."""
        self.resume()

    def on_step_begin(self) -> None:
        """Begin a step."""
        if not self._meter.open:
            self.resume()

    def on_step_end(self) -> None:
        """End a step, and publish if it is time."""
        self._steps += 1
        if self._clock.now() >= self._next and not self._closed:
            self._publish()

    def on_epoch_end(self) -> None:
        """End an epoch."""
        self.pause()

    def pause(self) -> None:
        """Pause: other work than training follows."""
        self._meter.end()

    def resume(self) -> None:
        """Continue training."""
        if not self._closed:
            self._meter.begin()

    def close(self) -> None:
        """Publish nothing any more."""
        self._closed = True
        self._meter.discard()
        if self._file is not None and os.getpid() == self._process:
            self._file.remove()
        self._file = None

    def _publish(self) -> None:
        self._next = self._clock.now() + self._period
        try:
            self._meter.restart()
            self.state = self._updated()
            if self._file is None:
                self._file = TrainingFile()
            self._file.write(self.state)
        except Exception as error:  # training goes on
            self._closed = True
            self._meter.discard()
            logger.warning("the metrics of this training process are not published: %s", error)

    def _updated(self) -> TrainingState:
        before, total = self.state, self._meter.total()
        energy, steps = gpu_energy(total), self._steps - before.steps
        known = energy is not None and before.energy is not None
        per_step = (energy - before.energy) / steps if known else None  # type: ignore[operator]
        size = before.batch_size
        return TrainingState(
            job=before.job,
            rank=before.rank,
            steps=self._steps,
            seconds=total.time,
            energy=energy,
            step_energy=per_step,
            step_seconds=(total.time - before.seconds) / steps,
            sample_energy=None if per_step is None or size is None else per_step / size,
            batch_size=size,
            **_setting(self._optimizer),
        )


def _setting(optimizer: Any) -> dict[str, Any]:
    """Return what an optimizer has chosen and saved; nothing before its choice."""
    with contextlib.suppress(AttributeError):  # not one that compares settings
        report = optimizer.report()
        if report.chosen is None:
            return {}
        found: dict[str, Any] = {
            "observing": bool(report.observing),
            "slowdown_ratio": report.time_change,
        }
        if report.energy_change is not None:
            found["saved_energy_ratio"] = -report.energy_change
        if report.as_run is not None and report.at_reference is not None:
            found["saved_energy"] = report.at_reference.energy - report.as_run.energy
        knob = _KNOBS.get(report.unit)
        setting = report.chosen.knob
        if knob is not None and not isinstance(setting, Mapping):  # several models have several
            found[knob] = float(setting)
        return found
    return {}
