"""Zeus in a training loop of one's own, whatever the framework.

The loops over epochs and batches go through it::

    from zeus.integrations.loop import epochs, steps

    for epoch in epochs(range(10)):
        for batch in steps(loader):
            train(batch)
        evaluate()

One batch is one step, what lies between loops over `steps` is not training, and everything is put
back when the loop over `epochs` is left, be it by `break` or by an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from operator import is_
from typing import TypeVar

from zeus.integrations._epoch import Values
from zeus.integrations._run import Run, walk_epochs, walk_steps
from zeus.integrations._run import paused as run_paused
from zeus.monitor import ZeusMonitor
from zeus.optimizer.callback import Callback

T = TypeVar("T")

# The runs that the program is in, outermost first.
_runs: ContextVar[tuple[Run, ...]] = ContextVar("zeus_runs", default=())


def epochs(
    iterable: Iterable[T],
    *callbacks: Callback,
    monitor: ZeusMonitor | None = None,
    log: Callable[[Values], object] | None = None,
) -> Iterator[T]:
    """Go through the epochs of a training run.

    Use it in a ``for`` statement: if its iterator is kept elsewhere, a loop that is left early is
    over only when that iterator is gone.

    Args:
        iterable: Epochs, handed out one by one.
        callbacks: Are told what happens. Without any, the power limit is optimized.
        monitor: Measures each epoch. By default that of the first callback that has one, or else
            one of its own.
        log: Called after each epoch with a dictionary: `zeus/epoch_time`, the seconds of training
            in it, and `zeus/epoch_energy`, its joules, if they could be measured.
    """
    run = Run(callbacks, monitor)
    with _entered(run):
        yield from walk_epochs(run, iterable, log or _ignore)


def steps(
    iterable: Iterable[T],
    *callbacks: Callback,
    monitor: ZeusMonitor | None = None,
    log: Callable[[Values], object] | None = None,
) -> Iterator[T]:
    """Go through the steps of an epoch.

    Args:
        iterable: Batches, handed out one by one; the body of the loop is a step.
        callbacks: Those of the loop over `epochs` around this one, or none to mean them. Without
            such a loop, these steps are a run of one epoch.
        monitor: As for `epochs`; only for a run of one epoch.
        log: Likewise.
    """
    run = _innermost(callbacks)
    if run is not None:
        yield from walk_steps(run, iterable)
        return
    run = Run(callbacks, monitor)
    with _entered(run):
        for _ in walk_epochs(run, (None,), log or _ignore):
            yield from walk_steps(run, iterable)


@contextmanager
def paused(*callbacks: Callback) -> Iterator[None]:
    """Around what is not training but lies in a loop over `steps`: evaluation, a checkpoint.

    The step ends with it, so it is best done after the step's work.

    Args:
        callbacks: Those of the loop around it, or none to mean them.
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
