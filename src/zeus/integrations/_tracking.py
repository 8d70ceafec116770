"""Sends the values of a run to its tracker: of some steps, and of every epoch.

Values of steps are of this process, as sums over processes would make them wait for each other.
Values of epochs are of all processes. No error here stops the training.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from zeus.errors import RunError
from zeus.integrations._epoch import EPOCH_ENERGY, EPOCH_TIME, Values, known_energy
from zeus.integrations.tracker import Tracker
from zeus.monitor import Measurement
from zeus.monitor._sums import joined, since
from zeus.optimizer.callback import Callback
from zeus.optimizer.training._training_meter import TrainingMeter

logger = logging.getLogger(__name__)

_JOULES_PER_KWH = 3.6e6


class Tracking:
    """Counts steps and samples of consecutive runs, and logs values of them.

    Args:
        tracker: Gets the values; `None` only counts.

    Attributes:
        step: Number of steps done, as the user counts them.

    Raises:
        ValueError: If the tracker is not a `Tracker`.
    """

    def __init__(self, tracker: Tracker | None) -> None:
        if tracker is not None and not isinstance(tracker, Tracker):
            raise RunError(
                "`tracker` must be an object of zeus.integrations.tracker.Tracker, such as "
                f"MlflowTracker(), but got {tracker!r}"
            )
        self.step = 0 if tracker is None else tracker.first_step
        self._tracker = tracker
        self._logged = False
        # Since the last values of steps: the epochs that have ended, and this one until then.
        self._carried: Measurement | None = None
        self._before: Measurement | None = None
        self._steps = 0
        self._samples: int | None = 0
        self.begin(())

    def begin(self, callbacks: Iterable[Callback]) -> None:
        """Begin a run with these callbacks."""
        self._callbacks = tuple(callbacks)
        self._run_energy: float | None = 0.0
        self._batch: int | None = None  # samples counted in the open step
        self._epoch_samples: int | None = 0
        self._start_interval(None)

    # --- steps ------------------------------------------------------------------------------

    def count(self, samples: int | None) -> None:
        """Count the samples of a batch of the open step; `None` if unknown."""
        if samples is not None:
            self._batch = (self._batch or 0) + samples

    def step_end(self, meter: TrainingMeter, step: int | None, *, first: bool) -> None:
        """Count a step, and log the last ones if it is time to.

        Args:
            meter: Measures the epoch.
            step: Number of steps done according to the framework; `None` if it does not count.
            first: Whether this is the first process of the job.
        """
        self.step = self.step + 1 if step is None else step
        samples, self._batch = self._step_samples(), None
        self._steps += 1
        self._samples = _plus(self._samples, samples)
        self._epoch_samples = _plus(self._epoch_samples, samples)
        every = None if self._tracker is None else self._tracker.every
        if first and every is not None and self.step % every == 0:
            self._guarded(lambda: self._log_steps(meter))

    def _step_samples(self) -> int | None:
        if self._tracker is not None and self._tracker.samples is not None:
            return self._tracker.samples
        if self._batch is not None:
            return self._batch
        for callback in self._callbacks:  # of a recurring job, which decides it
            local = getattr(callback, "local_batch_size", None)
            if local is not None:
                return int(local * getattr(callback, "accumulation_steps", 1))
        return None

    def _log_steps(self, meter: TrainingMeter) -> None:
        now = meter.total(meter.peek())
        interval = self._interval(now)
        steps, samples = self._steps, self._samples
        self._start_interval(now)
        values = {"zeus/step_time": interval.time / steps}
        energy = known_energy(interval)
        if energy is not None:
            values["zeus/step_energy"] = energy / steps
            if interval.time > 0:
                values["zeus/power"] = energy / interval.time
            if samples:
                values["zeus/energy_per_sample"] = energy / samples
        self._log(values)

    def _interval(self, now: Measurement) -> Measurement:
        """Return the measurement since the last values of steps."""
        latest = now if self._before is None else since(now, self._before)
        return latest if self._carried is None else joined([self._carried, latest])

    def _start_interval(self, now: Measurement | None) -> None:
        self._carried, self._before = None, now
        self._steps = self._samples = 0

    # --- epochs -----------------------------------------------------------------------------

    def take_samples(self, epoch: Measurement | None) -> int | None:
        """Return the samples of the epoch that ends in this process; `None` if unknown.

        Args:
            epoch: Measurement of the epoch in this process, if there is one.
        """
        if self._steps and epoch is not None:
            self._carried = self._interval(epoch)
        self._before = None
        samples, self._epoch_samples = self._epoch_samples, 0
        return samples

    def epoch_end(self, epoch: Values, samples: int | None) -> None:
        """Log an epoch, in the first process.

        Args:
            epoch: Its time and energy, of all processes.
            samples: Its samples, of all processes; `None` if unknown.
        """
        self._guarded(lambda: self._log_epoch(epoch, samples))

    def _log_epoch(self, epoch: Values, samples: int | None) -> None:
        values = dict(epoch)
        energy, time = epoch.get(EPOCH_ENERGY), epoch[EPOCH_TIME]
        if energy is not None:
            if time > 0:
                values["zeus/epoch_power"] = energy / time
            if samples:
                values["zeus/epoch_energy_per_sample"] = energy / samples
        known = energy is not None and self._run_energy is not None
        self._run_energy = (self._run_energy or 0.0) + (energy or 0.0) if known else None
        if self._run_energy is not None:
            values["zeus/run_energy"] = self._run_energy
            values["zeus/run_energy_kwh"] = self._run_energy / _JOULES_PER_KWH
        self._log(values)

    # --- the tracker ------------------------------------------------------------------------

    def close(self) -> None:
        """End the run: the tracker writes out what is buffered."""
        if self._logged and self._tracker is not None:
            self._guarded(self._tracker.close)

    def _log(self, values: Values) -> None:
        assert self._tracker is not None
        for callback in self._callbacks:
            values |= {f"zeus/{name}": value for name, value in callback.values_to_log().items()}
        self._logged = True
        self._tracker.log(values, self.step)

    def _guarded(self, action: Callable[[], None]) -> None:
        if self._tracker is None:
            return
        try:
            action()
        except Exception as error:  # a tracker may raise anything
            logger.warning(
                "%s gets no further values, and training goes on: %s: %s",
                type(self._tracker).__name__,
                type(error).__name__,
                error,
                exc_info=error,
            )
            self._tracker = None


def samples_in(batch: Any) -> int | None:
    """Return the samples in a batch: the first dimension of its first array; `None` if none."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        return next(filter(None, map(samples_in, batch)), None)
    return None


def _plus(total: int | None, samples: int | None) -> int | None:
    return None if total is None or samples is None else total + samples
