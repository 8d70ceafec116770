"""Simulated GPUs that take time to change their clock, as real ones do."""

from __future__ import annotations

import pytest

from zeus.device._base import ClockRange
from zeus.errors import SimulationError
from zeus.testing import SimulatedNode, Workload

LAG = 0.015
WORK = Workload("forward", gpu_time=0.04, activity=0.8, compute_bound=1.0)
LOW = 600


def ask(node: SimulatedNode, clock: int | None) -> None:
    """Ask for a clock, or for the highest again."""
    node.drivers[0].lock_graphics_clock(ClockRange(clock, clock) if clock else None)


def steady(lock: int | None) -> tuple[float, float]:
    """Seconds and joules of one step at a clock."""
    with SimulatedNode("a100") as node:
        ask(node, lock)
        before = node.exact_energy()
        time = WORK.run(node.gpus)
        return time, node.exact_energy() - before


def test_a_step_after_a_change_runs_at_the_old_clock_at_first():
    (fast, much), (slow, little) = steady(None), steady(LOW)
    with SimulatedNode("a100", clock_lag=LAG) as node:
        ask(node, LOW)
        before = node.exact_energy()
        time = WORK.run(node.gpus)
        energy = node.exact_energy() - before
        done = LAG / fast
        assert time == pytest.approx(LAG + (1 - done) * slow)
        assert energy == pytest.approx(done * much + (1 - done) * little)
        # From then on the clock is there.
        assert WORK.run(node.gpus) == pytest.approx(slow)
        assert WORK.step_time(node.gpus[0]) == pytest.approx(slow)


def test_a_change_that_is_asked_for_ahead_is_there_in_time():
    slow, little = steady(LOW)
    with SimulatedNode("a100", clock_lag=LAG) as node:
        ask(node, LOW)
        node.sleep(LAG)
        before = node.exact_energy()
        assert WORK.run(node.gpus) == pytest.approx(slow)
        assert node.exact_energy() - before == pytest.approx(little)


def test_a_change_of_mind_on_the_way_keeps_the_clock_in_force():
    fast, _ = steady(None)
    with SimulatedNode("a100", clock_lag=LAG) as node:
        ask(node, LOW)
        node.sleep(LAG / 2)
        ask(node, None)
        assert WORK.run(node.gpus) == pytest.approx(fast)


def test_meters_and_counters_see_the_change_when_it_comes():
    with SimulatedNode("a100", load=0.8, sensors="live", clock_lag=LAG) as node:
        gpu = node.gpus[0]
        high = gpu.instant_power()
        ask(node, LOW)
        assert gpu.instant_power() == high
        node.sleep(0.9 * LAG)
        assert gpu.instant_power() == high
        node.sleep(0.2 * LAG)
        assert gpu.instant_power() < 0.9 * high


def test_many_steps_lose_the_lag_only_once():
    (fast, _), (slow, _) = steady(None), steady(LOW)
    with SimulatedNode("a100", clock_lag=LAG) as node:
        ask(node, LOW)
        time = WORK.run(node.gpus, steps=1000)
    assert time == pytest.approx(1000 * slow - (slow - fast) * LAG / fast)


@pytest.mark.parametrize("value", ["-0.1", "2", "soon"])
def test_a_lag_out_of_range_is_refused(monkeypatch, value):
    monkeypatch.setenv("ZEUS_SIMULATE_CLOCK_LAG", value)
    with pytest.raises(SimulationError, match=r"ZEUS_SIMULATE_CLOCK_LAG must be seconds within"):
        SimulatedNode("a100")


def test_the_variable_is_the_default(monkeypatch):
    monkeypatch.setenv("ZEUS_SIMULATE_CLOCK_LAG", "0.015")
    slow, _ = steady(None)
    with SimulatedNode("a100") as node:
        ask(node, LOW)
        assert slow < WORK.run(node.gpus) < 3 * slow
    with pytest.raises(ValueError, match="clock_lag"):
        SimulatedNode("a100", clock_lag=2.0)
