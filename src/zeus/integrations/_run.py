"""What all integrations share: one run of training, told to callbacks in their order.

Frameworks differ in what they tell, and when. A `Run` takes it as it comes and calls the callbacks
as `zeus.optimizer.Callback` promises: steps lie in epochs, what was begun is ended, pauses lie
between steps, nothing but `close` follows an error. It also measures the training of each epoch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Self, TypeVar

from zeus.errors import MissingExtraError, RanksError, RunError, WindowError
from zeus.integrations._epoch import Values, joined, values_of
from zeus.integrations._watch import Watch
from zeus.monitor import Measurement, ZeusMonitor
from zeus.optimizer.callback import Callback
from zeus.optimizer.jit.ranks import Ranks, job_ranks

logger = logging.getLogger(__name__)

T = TypeVar("T")

_RANK_TIMEOUT = 600.0  # seconds to wait for the slowest process at the end of an epoch


@contextmanager
def needs(package: str, extra: str) -> Iterator[None]:
    """Around the import of a framework: its absence is told with the line that mends it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != package:
            raise  # the framework is there, something that it needs is not
        raise MissingExtraError(f"zeus.integrations.{extra}", extra) from error


class Run:
    """Runs of training, one after the other.

    Every method may be called at any time: what does not fit is left out or completed, and before
    `begin` and after `close` nothing happens.

    Args:
        callbacks: Are told. Without any, each run gets an optimizer of the power limit.
        monitor: Measures the epochs. By default that of the first callback that has one, or else
            one of the run's own.

    Raises:
        ValueError: If a callback is not one.

    Attributes:
        callbacks: As given.
        left_early: Whether the steps of this epoch were left before their end.
    """

    def __init__(self, callbacks: Sequence[Callback], monitor: ZeusMonitor | None) -> None:
        for callback in callbacks:
            if not isinstance(callback, Callback):
                raise RunError(
                    "callbacks must be objects of zeus.optimizer.Callback (and a monitor be named: "
                    f"monitor=...), but got {callback!r}"
                )
        self.callbacks = tuple(callbacks)
        self.left_early = False
        self._monitor = monitor
        self._means: _Means | None = None
        self._in_epoch = self._in_step = self._paused = False

    @property
    def open(self) -> bool:
        """Whether it has begun and is not over."""
        return self._means is not None and self._means.open

    def begin(self, frame: FrameType | None = None) -> None:
        """A run begins. One that did not end goes on: frameworks may try again by themselves.

        Args:
            frame: Of the framework's function that trains, if the framework does not tell about
                exceptions: the run is over when that function was left.
        """
        if self._means is None or not self._means.go_on():
            self._means = _Means(self.callbacks, self._monitor)
            self._in_epoch = self._in_step = self._paused = False
        if frame is not None:
            self._means.watch(frame)

    def epoch_begin(self) -> None:
        """An epoch begins. One that did not end does so now."""
        if not self.open:
            return
        self.epoch_end(report=False)
        self._in_epoch, self.left_early = True, False
        self._tell("on_epoch_begin")
        self._opened.start_measuring()

    def step_begin(self) -> None:
        """A step begins, or goes on with the next part of its batch."""
        if self._in_step or not self.open:
            return
        if not self._in_epoch:  # resumed from a checkpoint in the middle of one
            self.epoch_begin()
        self.resume()
        self._in_step = True
        for callback in self._opened.callbacks:
            callback.on_step_begin()

    def step_end(self) -> None:
        """The step has ended."""
        if not self._in_step or not self.open:
            return
        self._in_step = False
        for callback in self._opened.callbacks:
            callback.on_step_end()

    def pause(self) -> bool:
        """Something else than training follows, up to `resume` or the next step.

        Returns:
            Whether it was training before.
        """
        if self._paused or not self._in_epoch or not self.open:
            return False
        self.step_end()
        self._paused = True
        self._opened.stop_measuring()
        self._tell("pause")
        return True

    def resume(self) -> None:
        """Training goes on."""
        if not self._paused or not self.open:
            return
        self._paused = False
        self._tell("resume")
        self._opened.start_measuring()

    def epoch_end(self, *, report: bool = True) -> Values:
        """The epoch has ended.

        Args:
            report: Whether to say what it took. Every process of a job must do the same.

        Returns:
            What to log.
        """
        if not self._in_epoch or not self.open:
            return {}
        self.step_end()
        self.resume()
        self._in_epoch = False
        self._opened.stop_measuring()
        self._tell("on_epoch_end")
        return self._opened.take_values(report=report)

    def close(self) -> None:
        """The run is over: callbacks put back what they changed. What is open is not ended."""
        if self._means is not None:
            self._means.close()

    @property
    def _opened(self) -> _Means:
        assert self._means is not None
        return self._means

    def _tell(self, event: str) -> None:
        for callback in self._opened.callbacks:
            getattr(callback, event)()


class _Means:
    """What a run has while it lasts: callbacks, a monitor, a watch."""

    def __init__(self, callbacks: Sequence[Callback], monitor: ZeusMonitor | None) -> None:
        self._end = ExitStack()  # does all that is to be done, whatever of it fails
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
        self.open = True
        self._monitor = monitor
        self._ranks: Ranks | None = None
        self._reporting = True
        self._window: object | None = None
        self._pieces: list[Measurement] = []
        self._watch: Watch | None = None
        # Two threads may want to end the run; the second one waits until all is done.
        self._lock = threading.RLock()

    def start_measuring(self) -> None:
        """Training goes on."""
        with suppress(WindowError):  # the monitor is closed, which is no reason to stop training
            self._window = self._monitor.open_scope("epoch", True)

    def stop_measuring(self) -> None:
        """What follows is not training."""
        window, self._window = self._window, None
        piece = None if window is None else self._monitor.close_scope(window, True, False)
        if piece is not None:  # else somebody has reset the monitor's windows
            # Worked out now: what that needs is not kept for as long as evaluation may take.
            self._pieces.append(Measurement.of(piece.time, piece.readings))

    def take_values(self, *, report: bool) -> Values:
        """What was measured since the last time, by all processes of the job."""
        pieces, self._pieces = self._pieces, []
        if not (report and self._reporting):
            return {}
        try:
            if self._ranks is None:
                self._ranks = job_ranks(_RANK_TIMEOUT)
            # Also by a process that has nothing to say: the others wait for it.
            said = self._ranks.share(joined(pieces) if pieces else None)
        except RanksError as error:
            self._reporting = False
            logger.warning("time and energy of epochs are not logged any further: %s", error)
            return {}
        epochs = [epoch for epoch in said if epoch is not None]
        return values_of(epochs) if epochs else {}

    def watch(self, frame: FrameType) -> None:
        """End the run when a function was left that the calling thread is running."""
        self._watch = Watch(frame, self._left)

    def go_on(self) -> bool:
        """Whether there is still a run to go on with; it is not watched any more."""
        with self._lock:
            self._unwatch()
            return self.open

    def close(self) -> None:
        """Put everything back."""
        with self._lock:
            if not self.open:
                return
            self.open = False
            self._unwatch()
            window, self._window = self._window, None
            if window is not None:
                self._monitor.close_scope(window, False, True)
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
    """The part of a `ZeusCallback` that is the same for all frameworks.

    As a ``with`` block it closes itself, whatever ends the block.
    """

    def __init__(self, *callbacks: Callback, monitor: ZeusMonitor | None = None) -> None:
        super().__init__()
        self._run = Run(callbacks, monitor)

    def close(self) -> None:
        """Put back what was changed for the run. The end of training does so by itself."""
        self._run.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- loops of one's own ---------------------------------------------------------------------


def walk_epochs(run: Run, epochs: Iterable[T], log: Callable[[Values], object]) -> Iterator[T]:
    """Hand out epochs, and tell a run about them. When they are left, the run is over.

    An epoch whose steps were left half-way along with it is not logged: a generator cannot tell
    `break` from an exception, after which other processes may not come to its end.
    """
    run.begin()
    try:
        for epoch in epochs:
            run.epoch_begin()
            try:
                yield epoch
            except GeneratorExit:
                _log(run.epoch_end(report=not run.left_early), log)
                raise
            _log(run.epoch_end(), log)
    finally:
        run.close()


def walk_steps(
    run: Run, batches: Iterable[T], complete: Callable[[], bool] = lambda: True
) -> Iterator[T]:
    """Hand out batches, and tell a run about the steps. Between such loops is a pause.

    Args:
        run: Is told.
        batches: One per step, or several.
        complete: Asked after each batch: whether it was the last one of its step.
    """
    try:
        for batch in batches:
            run.step_begin()
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
    """Around what is not training."""
    training = run.pause()
    try:
        yield
    finally:
        if training:
            run.resume()


def _log(values: Values, log: Callable[[Values], object]) -> None:
    if values:
        log(values)
