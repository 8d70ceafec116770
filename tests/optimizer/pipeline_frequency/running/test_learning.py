"""What a rank learns from its steps, and when it reports that."""

from __future__ import annotations

import threading

import pytest
from tests.present import present

from zeus.clock import MonotonicClock
from zeus.monitor import ZeusMonitor
from zeus.optimizer.pipeline_frequency.job._messages import InstructionKind
from zeus.optimizer.pipeline_frequency.running._learning import (
    EXPLORED,
    PLANNED,
    REFERENCE,
    Learning,
)
from zeus.optimizer.pipeline_frequency.running._profiler import DEFAULT_LAG, Profiler
from zeus.optimizer.pipeline_frequency.running._step_record import StepRecorder
from zeus.testing import SimulatedNode
from zeus.testing._workload import simulated_driver

FORWARD, BACKWARD = InstructionKind("forward", 0), InstructionKind("backward", 0)
HIGHEST = 1410.0
LADDER = (HIGHEST, 1290.0, 1170.0, 1050.0)
PATIENCE = 120.0


class Learner:
    """A rank that trains at the highest clock, on a GPU with live sensors."""

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.slow = 1.0
        self.number = 0
        monitor = ZeusMonitor([0], cpu_indices=[], sync_execution_with=None, node=node)
        self.learning = Learning(monitor, 0, Profiler(LADDER, (FORWARD, BACKWARD)), 8)
        self.recorder = StepRecorder(monitor)

    def step(self, what: str = PLANNED, version: int = 1) -> float:
        """Train one step of 0.6 s; return its exact energy."""
        self.number += 1
        driver = simulated_driver(self.node.gpus[0])
        before = self.node.exact_energy()
        requests = [(self.node.clock.now() - 1.0, HIGHEST)] if self.number == 1 else []
        self.recorder.begin_step(self.number, exact=True)
        for kind in (FORWARD, BACKWARD) * 4:
            self.recorder.begin(kind)
            driver.set_load(0.9)
            self.node.sleep(self.slow * (0.05 if kind is FORWARD else 0.1))
            driver.set_load(0.0)
            self.recorder.end()
        record = present(self.recorder.end_step())
        self.learning.take(record, requests, what, version)
        return self.node.exact_energy() - before

    def explored(self) -> Learner:
        """Train until a first profile is there, and take it."""
        learning = self.learning
        learning.explore()
        for _ in range(40):
            if learning.pending is not None:
                break
            self.step(EXPLORED)
        assert learning.pending is not None
        learning.pending = None
        return self


@pytest.fixture
def learner():
    with SimulatedNode("a100", load=0.0, sensors="live-power") as node:
        yield Learner(node)


# --- exploring ------------------------------------------------------------------------------------


def test_exploring_ends_with_a_profile_to_report(learner):
    learning = learner.learning
    learning.explore()
    assert learning.explored == [HIGHEST] * 8
    steps = 0
    while learning.pending is None:
        assert len(present(learning.explored)) == 8
        learner.step(EXPLORED)
        steps += 1
        assert steps <= 40
    measured = present(learning.pending)
    assert (measured.revision, measured.urgent) == (1, False)
    assert learning.explored is None
    assert learning.durations[FORWARD, HIGHEST] == pytest.approx(0.05, rel=0.01)
    assert learning.lag == DEFAULT_LAG, "no clock has changed, so nothing is known of it"
    assert learning.trouble == ""


# --- sums of steps --------------------------------------------------------------------------------


def test_steps_are_added_up_with_the_energy_that_the_gpu_has_drawn(learner):
    joules = [learner.step() for _ in range(5)]
    learner.step(REFERENCE)
    report = learner.learning.report()
    assert report.version == 1
    assert (report.plan.steps, report.reference.steps, report.recent.steps) == (5, 1, 5)
    assert report.plan.time == pytest.approx(0.6)
    assert report.plan.span == pytest.approx(5 * 0.6)
    assert report.plan.energy == pytest.approx(joules[0], rel=0.01)
    assert report.plan.measured >= 4, "the latest may not be settled yet"


def test_another_plan_begins_from_zero_but_references_stay(learner):
    for _ in range(5):
        learner.step()
    learner.step(REFERENCE)
    learner.slow = 1.5
    learner.step(version=2)
    learner.step(version=2)
    report = learner.learning.report()
    assert report.version == 2
    assert (report.plan.steps, report.recent.steps, report.reference.steps) == (2, 2, 1)
    assert report.plan.time == pytest.approx(0.9)
    assert report.plan.measured <= 2, "energies of the plan before must not count"


def test_recent_steps_are_the_latest_eight(learner):
    for _ in range(10):
        learner.step()
    learner.slow = 1.02
    for _ in range(4):
        learner.step()
    report = learner.learning.report()
    assert report.plan.steps == 14
    assert report.recent.steps == 8
    assert report.recent.time == pytest.approx(0.6 * 1.01)


def test_a_step_that_is_neither_counts_nowhere(learner):
    learner.step("")
    report = learner.learning.report()
    assert (report.plan.steps, report.reference.steps, report.recent.steps) == (0, 0, 0)
    assert learner.learning.profiler.steps == 1


# --- later profiles -------------------------------------------------------------------------------


def test_more_precise_profiles_follow_at_growing_intervals(learner):
    learner.explored()
    sent = []
    for number in range(1, 61):
        learner.step()
        if learner.learning.pending is not None:
            sent.append((number, learner.learning.pending.revision))
            assert not learner.learning.pending.urgent
            learner.learning.pending = None
    assert sent == [(6, 2), (16, 3), (48, 4)]


def test_instructions_that_take_another_time_are_reported_at_once_and_refined_again(learner):
    learner.explored()
    for _ in range(20):
        learner.step()
    learner.learning.pending = None
    learner.slow = 1.2
    learner.step()
    measured = present(learner.learning.pending)
    assert measured.urgent
    assert measured.options[FORWARD][0].time == pytest.approx(0.06, rel=0.02)
    assert learner.learning.durations[BACKWARD, HIGHEST] == pytest.approx(0.12, rel=0.02)
    assert learner.learning.report().recent.steps == 0, "steps of before must not count"
    learner.learning.pending = None
    for _ in range(6):
        assert learner.learning.pending is None
        learner.step()
    assert not present(learner.learning.pending).urgent


def test_a_rank_that_has_not_explored_reports_no_profile(learner):
    """It follows the plan of others, from few clocks."""
    for _ in range(20):
        learner.step()
    learner.slow = 1.3
    learner.step()
    assert learner.learning.pending is None


# --- in real time ---------------------------------------------------------------------------------


def test_in_real_time_a_thread_learns_and_survives_what_cannot_be_evaluated():
    with SimulatedNode("a100", clock=MonotonicClock(), load=0.0) as node:
        learner = Learner(node)
        learning = learner.learning
        (thread,) = [each for each in threading.enumerate() if each.name == "zeus-profile"]
        # A kind that the profiler was not made for.
        record = learner.recorder
        record.begin_step(1, exact=True)
        for _ in range(2):
            record.begin(InstructionKind("unknown", 0))
            record.end()
        learning.take(present(record.end_step()), [(0.0, HIGHEST)], PLANNED, 1)
        learning.close()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert "unknown" in learning.trouble
