"""Policies for many jobs at once: updates that wait for each other, and states joined for a call.

A call of a policy takes hardly longer for a hundred jobs than for one. So what the events of a job
mean for its policy is kept as a list, and carried out before the state is read next, for all jobs
of a batch together. The result for a job is the same, to the last digit, as if it had been updated
alone and at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from inspect import isclass
from operator import attrgetter
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from zeus.optimizer.batch_size.job._job_batch import ALL, Arrays, JobBatch, Rows, Trials
from zeus.optimizer.batch_size.policies._base import FirstEpochs, Policy, State


@dataclass(eq=False)
class PolicyState:
    """State of a policy for one job, and the updates that it still lacks.

    Attributes:
        policy: The policy.
        state: Its state before the updates.
        updates: Arguments of `Policy.noted` and `Policy.ended`, in the order of their events.
    """

    policy: Policy
    state: State
    updates: list[FirstEpochs | Trials] = field(default_factory=list)

    @property
    def current(self) -> State:
        """The state after all updates."""
        update_all([self])
        return self.state


def update_all(states: Iterable[PolicyState]) -> None:
    """Carry out the updates of all states, of those that are alike together."""
    groups: dict[Any, list[PolicyState]] = {}
    for each in states:
        if each.updates:
            groups.setdefault(likeness(each.policy, each.state), []).append(each)
    for group in groups.values():
        _update(group)


def _update(group: Sequence[PolicyState]) -> None:
    """Carry out the updates of states that are alike, turn by turn."""
    policy, state = group[0].policy, State.joined([each.state for each in group])
    turn = 0
    while waiting := [row for row, each in enumerate(group) if len(each.updates) > turn]:
        given = [(row, group[row].updates[turn]) for row in waiting]
        notes = {row: each for row, each in given if isinstance(each, FirstEpochs)}
        trials = {row: each for row, each in given if isinstance(each, Trials)}
        if notes:
            policy.noted(state, _rows(notes, group), FirstEpochs.joined([*notes.values()]))
        if trials:
            policy.ended(state, _rows(trials, group), Trials.joined([*trials.values()]))
        turn += 1
    if len(group) > 1:
        for row, each in enumerate(group):
            for mine, theirs in zip(arrays(each.state), arrays(state), strict=True):
                mine[0] = theirs[row]
    for each in group:
        each.updates.clear()


def _rows(chosen: Collection[int], group: Sequence[PolicyState]) -> Rows:
    return ALL if len(chosen) == len(group) else np.array([*chosen])


_SHAPE = attrgetter("shape")


def likeness(policy: Policy, state: State) -> Any:
    """Return a key of states that can be joined: those of the same policy and shape."""
    return policy, tuple(map(_SHAPE, arrays(state)))


def arrays(state: State) -> tuple[NDArray[Any], ...]:
    """Return the arrays of a state, without those of the specification, in a fixed order."""
    kind: Any = type(state)  # which can be hashed, though its instances cannot
    found: tuple[NDArray[Any], ...] = _getter(kind)(state)
    return found


@cache
def _getter(kind: Any) -> Any:
    names = _names(kind)
    return attrgetter(*names) if len(names) > 1 else lambda state: (getattr(state, *names),)


def _names(kind: type[Arrays]) -> list[str]:
    names: list[str] = []
    for name, hint in get_type_hints(kind).items():
        if isclass(hint) and issubclass(hint, Arrays):
            inner = [] if issubclass(hint, JobBatch) else _names(hint)
            names += [f"{name}.{each}" for each in inner]
        else:
            names.append(name)
    return names
