"""Code shared by all integrations: a training run whose events are passed to callbacks in order.

Frameworks differ in which events they report, and when. A `Run` accepts them in any order and calls
the callbacks as `zeus.optimizer.Callback` promises: steps lie in epochs, every begin has an end,
pauses lie between steps, only `close` follows an error. It also measures the training time and
energy of each epoch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Self, TypeVar

from zeus.errors import MissingExtraError, RanksError, RunError
from zeus.integrations._epoch import Values, values_of
from zeus.integrations._tracking import Tracking, samples_in
from zeus.integrations._watch import Watch
from zeus.integrations.tracker import Tracker
from zeus.monitor import ZeusMonitor
from zeus.optimizer.callback import Callback
from zeus.optimizer.training._ranks import Ranks, torch_distributed
from zeus.optimizer.training._rendezvous import Rendezvous
from zeus.optimizer.training._training_meter import TrainingMeter

logger = logging.getLogger(__name__)

T = TypeVar("T")

_RANK_TIMEOUT = 600.0  # seconds to wait for the slowest process at the end of an epoch


@contextmanager
def needs(package: str, extra: str) -> Iterator[None]:
    """Wrap the import of a framework: if it is missing, the error shows how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != package:
            raise  # the framework is installed, one of its dependencies is not
        raise MissingExtraError(f"zeus.integrations.{extra}", extra) from error


class Run:
    """Consecutive training runs.

    Every method may be called at any time: events out of order are dropped or completed, and before
    `begin` and after `close` nothing happens.

    Args:
        callbacks: Called at each event. If none are given, each run gets a power-limit optimizer.
        monitor: Measures the epochs. Defaults to the monitor of the first callback that has one, or
            else to one of the run's own.
        tracker: Gets values of steps and epochs.

    Raises:
        ValueError: If a callback is not a `zeus.optimizer.Callback`, or the tracker not a
            `Tracker`.

    Attributes:
        callbacks: As given.
        left_early: Whether the loop over the steps of this epoch was left before its end.
    """

    def __init__(
        self,
        callbacks: Sequence[Callback],
        monitor: ZeusMonitor | None,
        tracker: Tracker | None = None,
    ) -> None:
        for callback in callbacks:
            if not isinstance(callback, Callback):
                raise RunError(
                    "callbacks must be objects of zeus.optimizer.Callback (pass a monitor as "
                    f"`monitor=...`), but got {callback!r}"
                )
        self.callbacks = tuple(callbacks)
        self.left_early = False
        self._monitor = monitor
        self._tracking = Tracking(tracker)
        self._resources: _Resources | None = None
        self._in_epoch = self._in_step = self._paused = False

    @property
    def open(self) -> bool:
        """Whether a run has begun and has not ended."""
        return self._resources is not None and self._resources.open

    @property
    def first(self) -> bool:
        """Whether this is the first process of the job, which logs for all."""
        return self._resources is None or self._resources.rank == 0

    def begin(self, frame: FrameType | None = None, steps_done: int | None = None) -> None:
        """Begin a run. An open run continues: frameworks may retry by themselves.

        Args:
            frame: Frame of the framework's training function, if the framework does not report
                exceptions: the run ends when that function has been left.
            steps_done: Number of steps before this run, if the framework counts them.
        """
        if steps_done is not None:
            self._tracking.step = steps_done
        if self._resources is None or not self._resources.keep_open():
            self._resources = _Resources(self.callbacks, self._monitor, self._tracking)
            self._in_epoch = self._in_step = self._paused = False
        if frame is not None:
            self._resources.watch(frame)

    def check_batch(self, samples: object) -> None:
        """Check that a framework trains with the share of a batch that a recurring job decided.

        Args:
            samples: Samples of this process in one step of the optimizer; anything but a whole
                number if the framework does not say.

        Raises:
            RunError: If it is another number.
        """
        for callback in self.callbacks:
            local = getattr(callback, "local_batch_size", None)
            if local is None or not isinstance(samples, int):
                continue
            steps = getattr(callback, "accumulation_steps", 1)
            if samples != local * steps:
                raise RunError(
                    "the job decided `local_batch_size * accumulation_steps == "
                    f"{local} * {steps}` for each process, but the framework trains with {samples} "
                    "samples in a step"
                )

    def epoch_begin(self) -> None:
        """Begin an epoch. An epoch that is still open ends first."""
        if not self.open:
            return
        self.epoch_end(report=False)
        self._in_epoch, self.left_early = True, False
        self._call_all("on_epoch_begin")
        self._opened.meter.begin()

    def step_begin(self) -> None:
        """Begin a step, or continue it with the next part of its batch."""
        if self._in_step or not self.open:
            return
        if not self._in_epoch:  # resumed from a checkpoint in the middle of one
            self.epoch_begin()
        self.resume()
        self._in_step = True
        for callback in self._opened.callbacks:
            callback.on_step_begin()

    def count_batch(self, samples: int | None) -> None:
        """Count the samples of a batch of the open step; `None` if unknown."""
        if self._in_step:
            self._tracking.count(samples)

    def step_end(self, step: int | None = None) -> None:
        """End the step.

        Args:
            step: Number of steps done, as the framework counts them; one more than before if it
                does not.
        """
        if not self._in_step or not self.open:
            return
        self._in_step = False
        for callback in self._opened.callbacks:
            callback.on_step_end()
        self._tracking.step_end(self._opened.meter, step, first=self.first)

    def pause(self) -> bool:
        """Pause: no training until `resume` or the next step.

        Returns:
            Whether training was going on before.
        """
        if self._paused or not self._in_epoch or not self.open:
            return False
        self.step_end()
        self._paused = True
        self._opened.meter.end()
        self._call_all("pause")
        return True

    def resume(self) -> None:
        """Continue training after a pause."""
        if not self._paused or not self.open:
            return
        self._paused = False
        self._call_all("resume")
        self._opened.meter.begin()

    def epoch_end(self, *, report: bool = True) -> Values:
        """End the epoch.

        Args:
            report: Whether to return its time and energy. Must be the same in all processes of the
                job.

        Returns:
            Values to log, by name.
        """
        if not self._in_epoch or not self.open:
            return {}
        self.step_end()
        self.resume()
        self._in_epoch = False
        self._opened.meter.end()
        self._call_all("on_epoch_end")
        values, samples = self._opened.take_values(report=report)
        if values and self.first:
            self._tracking.epoch_end(values, samples)
        return values

    def close(self) -> None:
        """End the run: callbacks restore what they changed. An open epoch or step is not ended."""
        if self._resources is not None:
            self._resources.close()

    @property
    def _opened(self) -> _Resources:
        assert self._resources is not None
        return self._resources

    def _call_all(self, event: str) -> None:
        for callback in self._opened.callbacks:
            getattr(callback, event)()


class _Resources:
    """Resources of a run while it lasts: callbacks, a monitor, a watch."""

    def __init__(
        self, callbacks: Sequence[Callback], monitor: ZeusMonitor | None, tracking: Tracking
    ) -> None:
        self._end = ExitStack()  # runs every cleanup, even if one of them fails
        self._end.callback(tracking.close)
        if monitor is None:
            monitor = next(filter(None, map(_monitor_of, callbacks)), None)
        if monitor is None:
            monitor = self._end.enter_context(ZeusMonitor())
        if not callbacks:
            from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer  # noqa: PLC0415

            callbacks = (GlobalPowerLimitOptimizer(monitor),)
        self.callbacks = tuple(callbacks)
        for callback in reversed(self.callbacks):
            self._end.callback(callback.close)
        self._tracking = tracking
        tracking.begin(self.callbacks)
        self.open = True
        self._rendezvous = Rendezvous("Zeus callback", _RANK_TIMEOUT)
        self._ranks: Ranks | None = None
        self._reporting = True
        self.meter = TrainingMeter(monitor, "epoch", logged=True)
        self._watch: Watch | None = None
        # Two threads may try to end the run; the second one waits until the first is done.
        self._lock = threading.RLock()

    @property
    def rank(self) -> int:
        """Rank of this process in the job; 0 where processes are not joined."""
        if self._ranks is not None:
            return self._ranks.rank
        distributed = torch_distributed()
        return 0 if distributed is None else int(distributed.get_rank())

    def take_values(self, *, report: bool) -> tuple[Values, int | None]:
        """Return what all processes of the job have measured since the last call.

        Returns:
            Values to log, and the number of samples that all processes have trained on; `None` if
            unknown.
        """
        epoch = self.meter.take()
        samples = self._tracking.take_samples(epoch)
        if not (report and self._reporting):
            return {}, None
        try:
            if self._ranks is None:
                self._ranks = self._rendezvous.join()
            # Also by a process without measurements: the others wait for it.
            shared = self._ranks.share((epoch, samples))
        except RanksError as error:
            self._reporting = False
            logger.warning("time and energy of epochs are no longer logged: %s", error)
            return {}, None
        measured = [each for each, _ in shared if each is not None]
        counts = [count for _, count in shared]
        total = None if None in counts else sum(counts)
        return (values_of(measured) if measured else {}), total

    def watch(self, frame: FrameType) -> None:
        """End the run when a function that the calling thread is running has been left."""
        self._watch = Watch(frame, self._left)

    def keep_open(self) -> bool:
        """Return whether the run is still open, and stop watching its function."""
        with self._lock:
            self._unwatch()
            return self.open

    def close(self) -> None:
        """End the run and restore everything."""
        with self._lock:
            if not self.open:
                return
            self.open = False
            self._unwatch()
            self.meter.discard()
            self._end.close()

    def _left(self, watch: Watch) -> None:
        with self._lock:
            if watch is self._watch:  # else a new run has begun in the meantime
                self.close()

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None


def _monitor_of(callback: Callback) -> ZeusMonitor | None:
    monitor = getattr(callback, "monitor", None)
    return monitor if isinstance(monitor, ZeusMonitor) else None


class Integration:
    """The part of a `ZeusCallback` that all frameworks share.

    As a context manager it is closed at the end of the ``with`` block, also by an exception.
    """

    def __init__(
        self,
        *callbacks: Callback,
        monitor: ZeusMonitor | None = None,
        tracker: Tracker | None = None,
    ) -> None:
        super().__init__()
        self._run = Run(callbacks, monitor, tracker)

    def close(self) -> None:
        """Restore what was changed for the run. The end of training does so by itself."""
        self._run.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- custom loops ---------------------------------------------------------------------------


def iterate_epochs(run: Run, epochs: Iterable[T], log: Callable[[Values], object]) -> Iterator[T]:
    """Yield epochs and report them to a run. The run ends when the loop is left.

    An epoch that is left together with its unfinished steps is not logged: a generator cannot
    distinguish `break` from an exception, after which other processes may not reach its end.
    """
    run.begin()
    try:
        for epoch in epochs:
            run.epoch_begin()
            try:
                yield epoch
            except GeneratorExit:
                _log(run, run.epoch_end(report=not run.left_early), log)
                raise
            _log(run, run.epoch_end(), log)
    finally:
        run.close()


def iterate_steps(
    run: Run, batches: Iterable[T], complete: Callable[[], bool] = lambda: True
) -> Iterator[T]:
    """Yield batches and report the steps to a run. Between such loops the run is paused.

    Args:
        run: The run that gets the reports.
        batches: One per step, or several.
        complete: Called after each batch; returns whether it was the last one of its step.
    """
    try:
        for batch in batches:
            run.step_begin()
            run.count_batch(samples_in(batch))
            yield batch
            if complete():
                run.step_end()
    except GeneratorExit:
        run.left_early = True
        raise
    finally:
        run.pause()


@contextmanager
def paused(run: Run) -> Iterator[None]:
    """Pause a run for the duration of a ``with`` block."""
    training = run.pause()
    try:
        yield
    finally:
        if training:
            run.resume()


def _log(run: Run, values: Values, log: Callable[[Values], object]) -> None:
    if values and run.first:
        log(values)
