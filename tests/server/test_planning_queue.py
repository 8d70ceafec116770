"""Whose job is planned next."""

from __future__ import annotations

import pytest
from tests.present import present

from zeus.server._planning_queue import SMALL_WORK, PlanningQueue


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def queue(time):
    return PlanningQueue(time)


def order(queue: PlanningQueue, **options) -> list[str]:
    """All that can be taken, in order."""
    found: list[str] = []
    while True:
        try:
            found.append(present(queue.take(timeout=0.0, **options)))
        except TimeoutError:
            return found
        queue.done(found[-1])


def test_the_quickest_of_a_tenant_comes_first_and_tenants_take_turns(queue):
    for number in (3, 1, 2):
        queue.put(f"a{number}", "a", number)
    queue.put("b", "b", 1_000)
    queue.put("c", "c", 2)
    assert order(queue) == ["a1", "c", "b", "a2", "a3"]
    queue.put("a4", "a", 1)
    queue.put("d", "d", 9_000_000)
    assert order(queue) == ["d", "a4"], "who had no turn yet has one"


def test_what_waits_for_long_comes_before_what_is_quick(queue, time):
    queue.put("large", "a", 1_000_000)
    time.now = 61.0
    queue.put("small", "a", 1)
    assert order(queue) == ["large", "small"]


def test_one_thread_is_there_for_small_ones_only(queue):
    queue.put("large", "a", SMALL_WORK + 1)
    queue.put("small", "b", SMALL_WORK)
    assert order(queue, small=True) == ["small"]
    assert order(queue) == ["large"]


def test_a_job_waits_once_and_is_planned_by_one_at_a_time(queue):
    queue.put("job", "a", 1)
    queue.put("job", "a", 1)
    assert queue.take(timeout=0.0) == "job"
    queue.put("job", "a", 1)
    assert order(queue) == [], "it is being planned"
    queue.done("job")
    assert order(queue) == ["job"], "what was told meanwhile is not lost"
    queue.close()
    assert queue.take() is None
