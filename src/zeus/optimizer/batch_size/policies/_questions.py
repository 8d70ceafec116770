"""Decisions of policies, of one job or of many at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zeus.optimizer.batch_size.job._choice import Choice
from zeus.optimizer.batch_size.job._job_batch import ALL, Role
from zeus.optimizer.batch_size.job._share import nearest_shared
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.policies._base import Appraisals, Policy, State
from zeus.optimizer.batch_size.policies._policy_state import likeness


@dataclass(frozen=True, eq=False)
class Question:
    """A decision that a policy is asked for.

    Attributes:
        spec: The job.
        policy: Its policy.
        state: The state to decide from, as `Policy.prepared` returns it.
        gpu: Index of the GPU model there.
        attempt: 0 for a new recurrence, more for a retry within one.
        tried: Attempts so far that count for the policy.
        sizes: Batch sizes to choose from.
        replicas: Number of processes that share the batch.
    """

    spec: JobSpec
    policy: Policy
    state: State
    gpu: int
    attempt: int
    tried: int
    sizes: Sequence[int]
    replicas: int


def answered(questions: Sequence[Question]) -> list[Choice]:
    """Return the decision for each of several jobs; those that are alike are decided together."""
    groups: dict[Any, list[int]] = {}
    for number, question in enumerate(questions):
        key = likeness(question.policy, question.state)
        groups.setdefault(key, []).append(number)
    found: dict[int, Choice] = {}
    for numbers in groups.values():
        choices = _answered([questions[number] for number in numbers])
        found.update(zip(numbers, choices, strict=True))
    return [found[number] for number in range(len(questions))]


def _answered(group: Sequence[Question]) -> list[Choice]:
    policy, state = group[0].policy, State.joined([each.state for each in group])
    gpu = np.array([each.gpu for each in group])
    choices = policy.choose(state, ALL, gpu, np.array([each.tried for each in group]))
    # A policy may go by a state that it has made for other replicas.
    sizes = [
        nearest_shared(each.spec.batch_sizes[arm], each.sizes, each.replicas)
        for each, arm in zip(group, choices.arm.tolist(), strict=True)
    ]
    arms = [each.spec.batch_sizes.index(size) for each, size in zip(group, sizes, strict=True)]
    choices = replace(choices, arm=np.array(arms))
    worth = _worth(group, policy.appraise(state, ALL, gpu, choices))
    rows = zip(
        choices.role.tolist(),
        choices.power.tolist(),
        choices.threshold.tolist(),
        choices.expected_epochs.tolist(),
        choices.restart_cost.tolist(),
        strict=True,
    )
    return [
        _choice(each, size, *row, **more)
        for each, size, row, more in zip(group, sizes, rows, worth, strict=True)
    ]


def _choice(  # noqa: PLR0917  (the columns of `Choices`)
    question: Question,
    size: int,
    role: int,
    power: int,
    threshold: float,
    epochs: float,
    restart: float,
    **worth: Any,
) -> Choice:
    # A run is stopped in favor of another batch size. Where there is none, as in a hyperparameter
    # search, its cost is unbounded.
    alone = len(question.spec.batch_sizes) == 1
    return Choice(
        batch_size=size,
        role=Role.DEFAULT if role == Role.RETRY and not question.attempt else Role(role),
        power=power,
        threshold=None if alone else finite(threshold),
        expected_epochs=finite(epochs),
        restart_cost=None if alone else finite(restart),
        **worth,
    )


def _worth(group: Sequence[Question], found: Appraisals | None) -> list[dict[str, Any]]:
    """Return what choices are worth, as fields of `Choice`."""
    if found is None:
        return [{}] * len(group)
    columns = (found.saving, found.low, found.high, found.worth, found.horizon, found.risk)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    names = ("saving", "saving_low", "saving_high", "worth", "horizon", "risk")
    return [
        {"against": each.spec.batch_sizes[arm], **dict(zip(names, map(finite, row), strict=True))}
        for each, arm, row in zip(group, found.against.tolist(), rows, strict=True)
    ]


def finite(value: float) -> float | None:
    """Return a number, or `None` if it is infinite or unknown."""
    return value if math.isfinite(value) else None
