"""Several processes on one simulated GPU: power, true energies, and usage as drivers show it."""

from __future__ import annotations

import pytest

from zeus.clock import MonotonicClock
from zeus.device._base import ProcessUsage
from zeus.device._simulated import SimulatedGpuDriver, build
from zeus.device._simulated_state import IDLE, MAX_PROCESSES
from zeus.errors import SimulationError
from zeus.testing import SimulatedNode


def busy_power(driver: SimulatedGpuDriver, activity: float) -> float:
    return driver.model.busy_power(driver.relative_clock(activity), activity)


@pytest.fixture
def node() -> SimulatedNode:
    return SimulatedNode("a100")


def test_processes_take_turns_and_waiting_is_idle(node):
    (driver,) = node.drivers
    model = driver.model
    driver.set_process_load(11, 0.9, 0.5)
    driver.set_process_load(12, 0.3, 0.25)
    node.sleep(8)
    above_idle = 0.25 * (model.static_power - model.idle_power) / 2
    first = 0.5 * busy_power(driver, 0.9) + above_idle
    second = 0.25 * busy_power(driver, 0.3) + above_idle
    assert driver.process_energy(11) == pytest.approx(8 * first)
    assert driver.process_energy(12) == pytest.approx(8 * second)
    assert driver.idle_energy() == pytest.approx(8 * 0.25 * model.idle_power)
    assert driver.utilization() == pytest.approx(0.75)


@pytest.mark.parametrize("part", ["v100", "a100", "h100", "mi300x"])
def test_energies_of_processes_and_idle_add_up(part):
    node = SimulatedNode(part)
    (driver,) = node.drivers
    for second, (pid, activity, share) in enumerate(
        [(1, 0.9, 0.7), (2, 0.4, 0.9), (1, 0.0, 1.0), (3, 1.0, 0.1), (2, IDLE, 1.0), (1, IDLE, 1.0)]
    ):
        driver.set_process_load(pid, activity, share)
        if second == 3:
            driver.set_power_limit(driver.model.minimum_limit)
        node.sleep(0.7 + second / 10)
    divided = sum(map(driver.process_energy, (1, 2, 3))) + driver.idle_energy()
    assert divided == pytest.approx(driver.exact_energy(), rel=1e-9)


def test_processes_that_want_too_much_get_less_in_proportion(node):
    (driver,) = node.drivers
    driver.set_process_load(1, 0.5, 1.0)
    driver.set_process_load(2, 0.5, 0.5)
    node.sleep(6)
    assert driver.process_energy(1) == pytest.approx(2 * driver.process_energy(2))
    assert driver.utilization() == pytest.approx(1)
    assert driver.idle_energy() == 0


def test_processes_are_listed_until_they_end(node):
    (driver,) = node.drivers
    driver.set_process_load(1, 0.5)
    driver.set_process_load(2, 0.0)
    assert [process.pid for process in driver.processes()] == [1, 2]
    driver.set_process_load(1, IDLE)
    assert [process.pid for process in driver.processes()] == [2]
    node.sleep(1)
    assert driver.exact_energy() == pytest.approx(driver.model.static_power)


def test_only_so_many_processes(node):
    (driver,) = node.drivers
    for pid in range(1, MAX_PROCESSES + 1):
        driver.set_process_load(pid, 0.5, 0.1)
    with pytest.raises(SimulationError, match="at most 8 processes"):
        driver.set_process_load(100, 0.5)
    driver.set_process_load(3, IDLE)
    driver.set_process_load(100, 0.5)
    assert 3 not in [process.pid for process in driver.processes()]


def test_other_processes_of_this_user_see_the_same_loads():
    ours, other = (build("v100", MonotonicClock(), None)[0] for _ in range(2))
    ours.set_load(IDLE)
    ours.set_process_load(1, 0.5, 0.6)
    assert [process.pid for process in other.processes()] == [1]
    assert other.utilization() == pytest.approx(0.6)
    assert other.process_energy(1) > 0


# Usage.


def test_nvidia_samples_are_periodic_whole_percent_and_means_since_the_last(node):
    (driver,) = node.drivers
    driver.set_process_load(1, 0.9, 0.333)
    driver.set_process_load(2, 0.9, 0.002)
    node.sleep(2)
    first = driver.process_usage(0.5)
    assert first.shares == {1: 0.33}  # nothing of one that rounds to 0
    assert first.begin == 0.5
    assert 2 - 1 / 6 <= first.end <= 2
    assert driver.process_usage(first.end) == ProcessUsage(first.end, first.end)
    driver.set_process_load(1, 0.0)
    driver.set_process_load(2, 0.9, 1.0)
    node.sleep(first.end - 2 + 1 / 6 + 1e-6)
    second = driver.process_usage(first.end)
    assert second.end == pytest.approx(first.end + 1 / 6)
    ran = (second.end - 2) / (second.end - second.begin)
    assert second.shares[2] == pytest.approx(ran, abs=0.005)


def test_nvidia_has_no_samples_of_an_idle_gpu(node):
    (driver,) = node.drivers
    driver.set_process_load(1, 0.0)
    node.sleep(5)
    assert driver.process_usage(1.0) == ProcessUsage(1.0, 1.0)


def test_amd_adds_up_the_time_of_each_process():
    node = SimulatedNode("mi300x")
    (driver,) = node.drivers
    driver.set_process_load(1, 0.9, 0.333)
    assert driver.process_usage(0.0) == ProcessUsage(0.0, 0.0)  # nothing to compare with
    node.sleep(1)
    driver.set_process_load(2, 0.9, 0.5)
    node.sleep(1)
    used = driver.process_usage(0.0)
    assert (used.begin, used.end) == (0, 2)
    assert used.shares == {1: pytest.approx(0.333), 2: pytest.approx(0.25)}
    node.sleep(1)
    driver.process_usage(1.0)  # another caller
    node.sleep(1)
    assert driver.process_usage(2.0).shares[2] == pytest.approx(0.5)


def test_the_load_of_the_gpu_itself_is_this_process(node):
    import os

    (driver,) = node.drivers
    driver.set_load(0.8, 0.4)
    driver.set_process_load(7, 0.8, 0.4)
    node.sleep(1)
    assert driver.process_usage(0.0).shares == {7: 0.4, os.getpid(): 0.4}
