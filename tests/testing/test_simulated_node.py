"""A simulated node stands in for the machine, keeps its own time and knows the true energy."""

from __future__ import annotations

import math

import pytest
from tests.present import present

from zeus.clock import MonotonicClock, VirtualClock
from zeus.device import Node, current_node, get_gpus
from zeus.monitor import ZeusMonitor
from zeus.testing import SimulatedNode


def test_it_stands_in_for_the_machine():
    outside = current_node()
    with SimulatedNode("v100x4") as node:
        assert current_node() is node
        assert len(get_gpus()) == 4
        assert ZeusMonitor().gpu_indices == [0, 1, 2, 3]
    assert current_node() is outside


def test_it_can_be_nested_and_entered_again():
    node = SimulatedNode("v100")
    with node, SimulatedNode("a40x2") as inner, node as again:
        assert again is node
        assert current_node() is node
        assert len(inner.gpus) == 2
    with node:
        assert current_node() is node


def test_an_exception_ends_the_block():
    outside = current_node()
    with pytest.raises(KeyError), SimulatedNode("v100"):
        raise KeyError
    assert current_node() is outside


def test_it_is_a_node_that_can_be_handed_over():
    node = SimulatedNode("a40x2", load=0.8)
    assert isinstance(node, Node)
    assert node.simulated == "a40x2"
    monitor = ZeusMonitor(node=node)
    before = [node.exact_energy(index) for index in (0, 1)]
    with monitor.window("w") as window:
        node.sleep(10)
    for index in (0, 1):
        exact = node.exact_energy(index) - before[index]
        assert present(window.measurement).gpu_energy[index] == pytest.approx(exact, rel=0.01)


def test_exact_energy_is_power_times_time():
    node = SimulatedNode("v100", load=1.0)
    power = node.gpus[0].instant_power()
    begun = node.exact_energy()
    node.sleep(0.0137)
    assert node.exact_energy(0) - begun == pytest.approx(power * 0.0137)
    with pytest.raises(ValueError, match="3"):
        node.exact_energy(3)


def test_nothing_runs_by_default_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("ZEUS_SIMULATE_LOAD", "1.0")
    node = SimulatedNode("v100")
    assert node.gpus[0].instant_power() == node.drivers[0].model.idle_power
    assert SimulatedNode("v100", load=0).gpus[0].instant_power() > 30


def test_two_nodes_can_share_a_clock():
    clock = VirtualClock(start=100.0)
    one, other = SimulatedNode("v100", clock=clock), SimulatedNode("a40", clock=clock)
    one.sleep(5)
    assert other.clock.now() == 105.0


def test_nodes_in_virtual_time_share_nothing_else():
    one, other = SimulatedNode("v100"), SimulatedNode("v100")
    with one.gpus[0].hold(power_limit=150):
        assert one.gpus[0].power_limit() == 150
        assert other.gpus[0].power_limit() == 250


def test_in_real_time():
    node = SimulatedNode("v100", clock=MonotonicClock(), load=1.0)
    begun, now = node.exact_energy(), node.clock.now()
    node.sleep(0.01)
    assert node.exact_energy() - begun >= 0.01 * 100
    assert node.clock.now() - now >= 0.01


@pytest.mark.parametrize("load", [-1, -0.1, 1.7, math.nan, math.inf])
def test_the_load_must_be_in_range(load):
    with pytest.raises(ValueError, match=r"0 <= load <= 1\.6.*" + str(load)):
        SimulatedNode("v100", load=load)


def test_an_unknown_gpu_lists_the_known_ones():
    with pytest.raises(ValueError, match="v100"):
        SimulatedNode("voodoo2")
