"""Where refreshes of a sensor are taken to be, against where they were."""

from __future__ import annotations

import random

import pytest

from zeus.clock import VirtualClock
from zeus.device._sensors import COUNTER
from zeus.monitor._poller import GpuPoller
from zeus.testing import SimulatedNode
from zeus.testing._node import simulated_driver


class Refreshes:
    """What a poller finds out about the counter."""

    def __init__(self):
        self.found = []

    def take_counter(self, refresh):
        self.found.append(refresh)

    def take_power(self, refresh):
        """Of no interest here."""

    take_poll = take_status = take_power


@pytest.mark.parametrize("late", [(0.0, 0.0), (0.1, 0.03), (0.2, 0.02), (0.05, 0.15)])
@pytest.mark.parametrize("part", ["v100", "a100"])
def test_a_refresh_was_where_it_is_taken_to_be_however_late_polls_are(part, late):
    """A poll on a busy host may show either of two refreshes; the period is not forgotten then."""
    share, seconds = late
    rng, clock = random.Random(3), VirtualClock()
    node = SimulatedNode(part, clock=clock)
    driver = simulated_driver(node.gpus[0])
    refreshes = Refreshes()
    poller = GpuPoller(driver, clock, refreshes)
    poller.due = change = clock.now()
    end, busy = clock.now() + 20.0, False
    while clock.now() < end:
        at = max(poller.due, clock.now()) + rng.expovariate(5000)
        if rng.random() < share:
            at += rng.uniform(0.0, seconds)
        while change < at:
            clock.sleep(max(change - clock.now(), 0.0))
            busy = not busy
            driver.set_load(1.0 if busy else 0.0)
            change += rng.uniform(0.035, 0.06)
        clock.sleep(at - clock.now())
        poller.youngest = clock.now()
        poller.poll()
    sensor, salt = driver.sensors.counter, driver._salt + COUNTER
    assert sensor is not None
    learned = [each for each in refreshes.found if each.polled > end - 19.0]
    wrong = [
        each
        for each in learned
        if sensor.refresh(sensor.last_refresh(each.high + 1e-6, salt), salt) < each.low - 1e-6
    ]
    assert len(wrong) <= len(learned) / 500
    widths = sorted(each.high - each.low for each in learned)
    assert widths[len(widths) // 2] < sensor.period / 15
