"""The choice of a trial's configuration, with what it was worth when it was made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from zeus._rules import Number, Whole
from zeus.optimizer.batch_size.job import _values as values
from zeus.optimizer.batch_size.job._job_batch import OPTIMIZED, UNTOUCHED, Role

_Cost = Annotated[float, Number(0.0, 1e300)]
_Saving = Annotated[float, Number(-1e300, 1.0)]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Configuration of a trial. What is not known, or does not apply, is `None`.

    Attributes:
        batch_size: Batch size to train with, of all GPUs together.
        role: Purpose of the trial.
        power: As in `Choices`.
        threshold: Maximum cost in joules; `None` if there is no bound.
        expected_epochs: Expected epochs until convergence.
        restart_cost: As in `Choices`; `None` if infinite.
        against: Batch size that this one is compared with: the best known for an exploration, the
            default otherwise.
        saving: Expected saving compared with it, as a fraction of its cost; `saving_low` and
            `saving_high` are the ends of its 95 % interval.
        worth: What an exploration is expected to save over `horizon` later runs beyond what it
            costs, in runs of the best known batch size.
        horizon: Number of later runs over which it must pay off.
        risk: What the trial is expected to cost beyond a run of the best known, in such runs.
    """

    batch_size: values.BatchSize
    role: Role
    power: Annotated[int, Whole(UNTOUCHED, 2**53)] = OPTIMIZED
    threshold: _Cost | None = None
    expected_epochs: Annotated[float, Number(0.0, 1e308)] | None = None
    restart_cost: _Cost | None = None
    against: values.BatchSize | None = None
    saving: _Saving | None = None
    saving_low: _Saving | None = None
    saving_high: _Saving | None = None
    worth: Annotated[float, Number(-1e300, 1e300)] | None = None
    horizon: _Cost | None = None
    risk: _Cost | None = None
