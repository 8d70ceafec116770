"""Energies of intervals as sensors have shown them, against the exact energy of the GPU."""

from __future__ import annotations

import math
import random

import pytest

from zeus.monitor import ZeusMonitor
from zeus.testing import SimulatedNode
from zeus.testing._workload import simulated_driver


class Ran:
    """A GPU whose load changes all the time, and what its sensors showed meanwhile."""

    def __init__(self, sensors: str, until: float = 12.0, seed: int = 1) -> None:
        draws = random.Random(seed)
        with SimulatedNode("a100x2", load=0.0, sensors=sensors) as node:
            self.monitor = ZeusMonitor([1], cpu_indices=[], sync_execution_with=None, node=node)
            self.instants, self.joules = [0.0], [node.exact_energy(1)]
            driver = simulated_driver(node.gpus[1])
            while node.clock.now() < until:
                name = draws.choice(["forward", "backward"])
                self.monitor.begin_window(name)
                driver.set_load(0.5 if name == "forward" else 0.9)
                self._pass(node, draws.uniform(0.01, 0.06))
                driver.set_load(0.0)
                self.monitor.end_window(name, cancel=True)
                if draws.random() < 0.3:
                    self._pass(node, draws.uniform(0.01, 0.1))
            self.monitor.catch_up()
            self.end = node.clock.now()

    def _pass(self, node: SimulatedNode, seconds: float) -> None:
        node.sleep(seconds)
        self.instants.append(node.clock.now())
        self.joules.append(node.exact_energy(1))

    def exact(self, instant: float) -> float:
        """Joules until then, in truth: power is constant between two instants."""
        at = max(number for number, each in enumerate(self.instants) if each <= instant)
        if at + 1 == len(self.instants):
            return self.joules[at]
        share = (instant - self.instants[at]) / (self.instants[at + 1] - self.instants[at])
        return self.joules[at] + share * (self.joules[at + 1] - self.joules[at])


@pytest.fixture(scope="module", params=["a100", "a40", "v100", "live-power"])
def ran(request):
    return Ran(request.param)


def test_each_is_the_energy_of_its_interval_within_its_variance(ran):
    found = ran.monitor.integrals(1, 1.0, ran.end)
    assert len(found) >= 20
    errors = []
    for each in found:
        truth = ran.exact(each.end) - ran.exact(each.begin)
        assert each.variance > 0
        errors.append((each.joules - truth) / math.sqrt(each.variance))
    inside = sum(abs(error) <= 3 for error in errors)
    assert inside >= 0.95 * len(errors)


def test_intervals_of_two_calls_are_those_of_one(ran):
    """Each is returned once, by the instant at which it ends; a live meter's are cut there."""
    middle = ran.end / 2
    whole = ran.monitor.integrals(1, 1.0, ran.end)
    halves = ran.monitor.integrals(1, 1.0, middle) + ran.monitor.integrals(1, middle, ran.end)
    assert math.fsum(each.joules for each in halves) == pytest.approx(
        math.fsum(each.joules for each in whole), rel=0.01
    )


def test_only_those_that_end_in_time(ran):
    for each in ran.monitor.integrals(1, 3.0, 4.0):
        assert 3.0 < each.end <= 4.0


def test_a_gpu_that_is_not_measured_has_none(ran):
    with pytest.raises(ValueError, match="0 is not in list"):
        ran.monitor.integrals(0, 0.0, 1.0)
