"""When a training run stops, and with which outcome: one set of rules and words.

A run stops when it has reached its target, when no epoch is left, and before an epoch that would
take its cost above a threshold. After the first epoch of a batch size that was never measured, it
stops if the expected rest costs more than starting over with a known batch size.

Training processes ask after every epoch (`must_stop`), in which there may be no numpy. Replays ask
for many trials at once how many epochs are allowed (`allowed_epochs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# Tolerates rounding: a run that costs exactly the threshold may finish.
_ROUNDING = 1 + 1e-12


class Outcome(StrEnum):
    """How a run or a trial ended, if it did. Values are stored: they must not change."""

    RUNNING = "running"
    CONVERGED = "converged"  # the target was reached
    STOPPED = "stopped"  # another epoch would cost too much
    EXHAUSTED = "exhausted"  # no epoch is left; a trial of a job has failed then
    LEFT = "left"  # by the program
    FAILED = "failed"  # a trial ran out of epochs or crashed
    EXPIRED = "expired"  # a trial did not report within its lease
    CANCELLED = "cancelled"  # a trial was abandoned for reasons of its own

    @property
    def words(self) -> str:
        """The outcome as people read it."""
        return _WORDS.get(self, self.value)

    @property
    def of_trial(self) -> Outcome:
        """The outcome as it is recorded for a trial of a job."""
        return Outcome.FAILED if self is Outcome.EXHAUSTED else self


_WORDS = {
    Outcome.STOPPED: "stopped early",
    Outcome.EXHAUSTED: "all epochs done",
    Outcome.LEFT: "left by the program",
}


def word_of(state: str) -> str:
    """Return the words for an outcome's value; another state, such as "new", as it is."""
    try:
        return Outcome(state).words
    except ValueError:
        return state


TRIAL_OUTCOMES = (
    Outcome.CONVERGED,
    Outcome.STOPPED,
    Outcome.FAILED,
    Outcome.EXPIRED,
    Outcome.CANCELLED,
)
"""How a trial of a job may end."""


@dataclass(frozen=True)
class Stop:
    """The end of a run.

    Attributes:
        outcome: How it ended.
        reason: Why, in words.
    """

    outcome: Outcome
    reason: str


def reached(metric: float, target: float, *, higher_is_better: bool) -> bool:
    """Return whether a metric is at least as good as the target."""
    return metric >= target if higher_is_better else metric <= target


def better(one: float | None, other: float, *, higher_is_better: bool) -> float:
    """Return the better of two metrics, of which the first may be unknown."""
    if one is None:
        return other
    return max(one, other) if higher_is_better else min(one, other)


def exceeds(cost: float, threshold: float | None) -> bool:
    """Return whether a cost is above a threshold, if there is one."""
    return threshold is not None and cost > threshold * _ROUNDING


def must_stop(
    *,
    converged: bool,
    epochs: int,
    max_epochs: int,
    spent: float | None = None,
    epoch_cost: float | None = None,
    threshold: float | None = None,
    known: bool = True,
    expected_epochs: float | None = None,
    restart_cost: float | None = None,
) -> Stop | None:
    """Decide before its next epoch whether a run is over; `None` if it goes on.

    Args:
        converged: Whether the latest metric reached the target.
        epochs: Number of epochs so far.
        max_epochs: Maximum number of epochs.
        spent: Cost so far in joules; `None` if unknown.
        epoch_cost: Expected cost of the next epoch in joules; `None` if unknown.
        threshold: Maximum cost in joules; `None` if there is no bound.
        known: Whether the cost of an epoch was known before the run.
        expected_epochs: Expected epochs until convergence; `None` if unknown.
        restart_cost: Expected cost in joules of starting over with a known batch size; `None` if
            there is no such choice.
    """
    if converged:
        return Stop(Outcome.CONVERGED, f"the target was reached in epoch {epochs}")
    if epochs >= max_epochs:
        return Stop(Outcome.EXHAUSTED, f"the target was not reached within {max_epochs} epochs")
    if spent is None or epoch_cost is None:
        return None
    if threshold is not None and exceeds(spent + epoch_cost, threshold):
        return Stop(
            Outcome.STOPPED,
            f"epoch {epochs + 1} would take the cost to {spent + epoch_cost:.6g} J, "
            f"above {threshold:.6g} J",
        )
    if epochs > 1 or known or expected_epochs is None or restart_cost is None:
        return None
    rest = (expected_epochs - 1) * epoch_cost
    if rest <= restart_cost:
        return None
    return Stop(
        Outcome.STOPPED,
        f"the rest is expected to cost {rest:.6g} J, more than the "
        f"{restart_cost:.6g} J of starting over with a known batch size",
    )


def allowed_epochs(
    first_cost: Floats,
    epoch_cost: Floats,
    max_epochs: Floats,
    *,
    threshold: Floats,
    known: NDArray[np.bool_],
    expected_epochs: Floats,
    restart_cost: Floats,
) -> Floats:
    """Return the epochs after which runs stop that have not converged, as `must_stop` decides.

    The cost of the first epoch is known beforehand only for a batch size that was measured before;
    otherwise that epoch is always run.

    Args:
        first_cost: Cost of the first epoch in joules.
        epoch_cost: Cost of each later epoch in joules.
        max_epochs: Maximum number of epochs.
        threshold: Maximum cost in joules; infinite if there is no bound.
        known: As for `must_stop`.
        expected_epochs: As for `must_stop`; NaN if unknown.
        restart_cost: As for `must_stop`; infinite if there is no such choice.
    """
    import numpy as np  # noqa: PLC0415  (an extra)

    room = threshold * _ROUNDING - first_cost
    # Clipped at the maximum epochs, because an infinite threshold could not be divided.
    allowed = 1.0 + np.floor(np.minimum(room, max_epochs * epoch_cost) / epoch_cost)
    allowed = np.where(room >= 0, allowed, np.where(known, 0.0, 1.0))
    hopeless = (expected_epochs - 1) * epoch_cost > restart_cost
    allowed = np.where(hopeless & ~known, np.minimum(allowed, 1.0), allowed)
    bounded: Floats = np.minimum(allowed, max_epochs)
    return bounded
