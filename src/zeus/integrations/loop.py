"""Zeus in a custom training loop, with any framework.

Wrap the loops over epochs and batches::

    from zeus.integrations.loop import epochs, steps

    for epoch in epochs(range(10)):
        for batch in steps(loader):
            train(batch)
        evaluate()

One batch is one step, and code between loops over `steps` does not count as training. Everything is
restored when the loop over `epochs` is left, also by `break` or an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from operator import is_
from typing import TypeVar

from zeus.integrations._epoch import Values
from zeus.integrations._run import Run, iterate_epochs, iterate_steps
from zeus.integrations._run import paused as run_paused
from zeus.integrations.tracker import Tracker
from zeus.monitor import ZeusMonitor
from zeus.optimizer.callback import Callback

T = TypeVar("T")

# The open runs, outermost first.
_runs: ContextVar[tuple[Run, ...]] = ContextVar("zeus_runs", default=())


def epochs(
    iterable: Iterable[T],
    *callbacks: Callback,
    monitor: ZeusMonitor | None = None,
    log: Callable[[Values], object] | None = None,
    tracker: Tracker | None = None,
) -> Iterator[T]:
    """Iterate over the epochs of a training run.

    Use it in a ``for`` statement: if a reference to the iterator is kept, a loop that is left early
    ends only when the iterator is deleted.

    Args:
        iterable: Epochs, yielded one by one.
        callbacks: Called at each event. If none are given, the power limit is optimized.
        monitor: Measures each epoch. Defaults to the monitor of the first callback that has one,
            or else to a new one.
        log: Called after each epoch with a dictionary: `zeus/epoch_time`, the seconds of training
            in it, and `zeus/epoch_energy`, its joules on all processes, if they could be measured.
            Of processes that are joined by `torch.distributed`, only the first one calls it.
        tracker: Gets time, energy, settings and savings of steps and epochs; see
            `zeus.integrations.tracker`.
    """
    run = Run(callbacks, monitor, tracker)
    with _entered(run):
        yield from iterate_epochs(run, iterable, log or _ignore)


def steps(
    iterable: Iterable[T],
    *callbacks: Callback,
    monitor: ZeusMonitor | None = None,
    log: Callable[[Values], object] | None = None,
    tracker: Tracker | None = None,
) -> Iterator[T]:
    """Iterate over the steps of an epoch.

    Args:
        iterable: Batches, yielded one by one; the body of the loop is a step.
        callbacks: The callbacks of the enclosing loop over `epochs`, or none for the innermost such
            loop. Without an enclosing loop, these steps are a run of one epoch.
        monitor: As for `epochs`; only for a run of one epoch.
        log: As for `epochs`; only for a run of one epoch.
        tracker: As for `epochs`; only for a run of one epoch.
    """
    run = _innermost(callbacks)
    if run is not None:
        yield from iterate_steps(run, iterable)
        return
    run = Run(callbacks, monitor, tracker)
    with _entered(run):
        for _ in iterate_epochs(run, (None,), log or _ignore):
            yield from iterate_steps(run, iterable)


@contextmanager
def paused(*callbacks: Callback) -> Iterator[None]:
    """Wrap code in a loop over `steps` that is not training: evaluation, a checkpoint.

    The step ends where the block begins, so use it after the step's work.

    Args:
        callbacks: The callbacks of the enclosing loop, or none for the innermost loop.
    """
    run = _innermost(callbacks)
    if run is None:
        yield
        return
    with run_paused(run):
        yield


@contextmanager
def _entered(run: Run) -> Iterator[None]:
    _runs.set((*_runs.get(), run))
    try:
        yield
    finally:
        _runs.set(tuple(other for other in _runs.get() if other is not run))


def _innermost(callbacks: tuple[Callback, ...]) -> Run | None:
    for run in reversed(_runs.get()):
        same = len(run.callbacks) == len(callbacks) and all(map(is_, run.callbacks, callbacks))
        if run.open and (same or not callbacks):
            return run
    return None


def _ignore(_: Values) -> None:
    pass
