"""A stated interval is a promise: the true savings of what is chosen lie in about 95 % of them."""

from __future__ import annotations

import numpy as np
import pytest

from zeus.optimizer.batch_size.job._job_batch import Role
from zeus.optimizer.batch_size.policies._zeus import ZeusPolicy
from zeus.replay._jobs import Job, replay
from zeus.replay._table import JobTable, job_table
from zeus.replay._traces import load_traces
from zeus.replay._workloads import WORKLOADS

SEEDS = range(901, 911)


class Appraising(ZeusPolicy):
    """Records what its choices are said to save.

    Attributes:
        said: Arm, the arm it is compared with, both ends of the interval, the role, and whether the
            arm has never converged before, for each choice with an interval.
    """

    def __init__(self) -> None:
        super().__init__()
        self.said: list[np.ndarray] = []

    def choose(self, state, rows, gpu, attempt):
        choices = super().choose(state, rows, gpu, attempt)
        found = self.appraise(state, rows, gpu, choices)
        new = state.weight[np.arange(len(state.lanes))[rows], choices.arm] == 0
        columns = (choices.arm, found.against, found.low, found.high, choices.role, new)
        self.said.append(np.stack(columns, axis=1)[np.isfinite(found.saving)])
        return choices


def covered(table: JobTable) -> tuple[np.ndarray, np.ndarray]:
    """For each choice: whether the truth is inside, and whether a new batch size was explored."""
    policy = Appraising()
    schedule = [0] * table.recurrences
    jobs = [Job(table.spec("zeus", seed=seed), [table], schedule, seed=seed) for seed in SEEDS]
    replay(jobs, policy=policy)
    arm, against, low, high, role, new = np.concatenate(policy.said).T
    cost = table.expected_epochs * table.epoch_cost.min(axis=1)
    saving = 1 - cost[arm.astype(int)] / cost[against.astype(int)]
    # The interval is about what a batch size costs if it reaches the target at all.
    possible = np.isfinite(saving)
    inside = (low <= saving) & (saving <= high)
    return inside[possible], ((role == Role.EXPLORE) & (new > 0))[possible]


@pytest.fixture(scope="module")
def found(traces):
    recorded = load_traces(traces / "nsdi23")
    return [covered(job_table(recorded, gpu, w)) for gpu in recorded.power for w in WORKLOADS]


def test_savings_of_new_batch_sizes_are_inside_their_intervals(found):
    inside = np.concatenate([inside[explored] for inside, explored in found])
    assert len(inside) > 300
    assert inside.mean() > 0.93
    pairs = [inside[explored].mean() for inside, explored in found if explored.any()]
    assert np.mean(pairs) > 0.93


def test_savings_of_what_is_known_are_inside_their_intervals(found):
    # What is chosen for being the cheapest was often lucky, too, so that these are a few less.
    inside = np.concatenate([inside[~explored] for inside, explored in found])
    assert inside.mean() > 0.9
