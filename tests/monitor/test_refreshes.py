"""Where refreshes of sensors are taken to be, against where they were."""

from __future__ import annotations

import random

import pytest

from zeus.clock import VirtualClock
from zeus.device._sensors import COUNTER, POWER
from zeus.monitor._poller import GpuPoller
from zeus.testing import SimulatedNode
from zeus.testing._workload import simulated_driver


class Refreshes:
    """What a poller finds out: each value that is new."""

    def __init__(self):
        self.counter, self.power = [], []

    def take_counter(self, refresh):
        self.counter.append(refresh)

    def take_power(self, refresh):
        if not self.power or refresh.value != self.power[-1].value:
            self.power.append(refresh)

    def take_poll(self, poll):
        """Of no interest here."""

    take_status = take_poll


@pytest.mark.parametrize("late", [(0.0, 0.0), (0.1, 0.03), (0.2, 0.02), (0.05, 0.15)])
@pytest.mark.parametrize("part", ["v100", "a100"])
@pytest.mark.parametrize("seed", [2, 4])
def test_a_refresh_was_where_it_is_taken_to_be_however_late_polls_are(part, late, seed):
    """A poll on a busy host may show either of two refreshes; the period is not forgotten then."""
    share, seconds = late
    rng, clock = random.Random(seed), VirtualClock()
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
    for found, sensor, salt in (
        (refreshes.counter, driver.sensors.counter, driver._salt + COUNTER),
        (refreshes.power, driver.sensors.power, driver._salt + POWER),
    ):
        assert sensor is not None
        learned = [each for each in found if each.polled > end - 19.0]
        latest = [sensor.last_refresh(each.high + 1e-6, salt) for each in learned]
        wrong = sum(
            sensor.refresh(number, salt) < each.low - 1e-6
            for number, each in zip(latest, learned, strict=True)
        )
        assert wrong <= len(learned) / 500
    widths = sorted(each.high - each.low for each in refreshes.counter)
    assert driver.sensors.counter is not None
    assert widths[len(widths) // 2] < driver.sensors.counter.period / 15
