"""When a reference step is due after a drift."""

from __future__ import annotations

import time

import pytest

from zeus.optimizer.pipeline_frequency.job._messages import StepTimes
from zeus.optimizer.pipeline_frequency.storage._histories import Histories
from zeus.optimizer.pipeline_frequency.storage._steps import ReportedSteps
from zeus.store import Store


@pytest.fixture
def steps(tmp_path):
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    yield ReportedSteps(Histories(store, time.monotonic))
    store.close()


def passage(step: int, seconds: float = 0.9) -> list[StepTimes]:
    begins = (10.0, 10.0 + seconds / 2)
    return [StepTimes(step, begins, (begins[1], 10.0 + seconds))]


def test_some_steps_after_a_drift_a_reference_is_due(steps):
    assert steps.reference("job") is None
    steps.drift("job", passage(40))
    assert steps.reference("job") == 43
    assert steps.reference("other") is None


def test_another_drift_before_that_postpones_it(steps):
    for step in (40, 41, 42):
        steps.drift("job", passage(step))
    assert steps.reference("job") == 45


def test_drifts_that_come_often_do_not_make_all_steps_references(steps):
    found = set()
    for step in range(40, 200, 5):
        steps.drift("job", passage(step))
        found.add(steps.reference("job"))
    assert found == set(range(43, 204, 10))


def test_short_steps_leave_time_to_plan(steps):
    steps.drift("job", passage(400, 0.05))
    assert steps.reference("job") == 440


def test_without_times_of_steps_and_without_the_job_there_is_none(steps):
    steps.drift("job", [])
    assert steps.reference("job") is None
    steps.drift("job", passage(40))
    steps.drop("job")
    assert steps.reference("job") is None
