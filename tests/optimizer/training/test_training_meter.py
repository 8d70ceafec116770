"""Windows of training, added up."""

from __future__ import annotations

import pytest
from tests.present import present

from zeus.monitor import ZeusMonitor
from zeus.monitor._sums import gpu_energy, since
from zeus.optimizer.training._training_meter import TrainingMeter
from zeus.testing import SimulatedNode


@pytest.fixture
def node():
    return SimulatedNode("v100x2")


@pytest.fixture
def meter(node):
    return TrainingMeter(ZeusMonitor(node=node))


def train(node, meter, seconds=2.0):
    meter.begin()
    node.sleep(seconds)
    meter.end()


def test_windows_add_up_without_the_work_between_them(node, meter):
    begin = node.exact_energy(0) + node.exact_energy(1)
    train(node, meter)
    trained = node.exact_energy(0) + node.exact_energy(1) - begin
    node.sleep(100.0)
    train(node, meter)
    total = meter.total()
    assert total.time == pytest.approx(4.0)
    assert gpu_energy(total) == pytest.approx(2 * trained, rel=0.01)
    assert {reading.key for reading in total.readings} == {gpu.key for gpu in node.gpus}


def test_more_windows_than_are_kept(node, meter):
    for _ in range(120):
        train(node, meter, 0.1)
    assert meter.total().time == pytest.approx(12.0)


def test_nothing_measured_yet_is_zero_on_each_gpu(meter):
    assert meter.total().gpu_energy == {0: 0.0, 1: 0.0}
    assert meter.take() is None


def test_without_a_gpu_energy_is_unknown(node):
    assert gpu_energy(TrainingMeter(ZeusMonitor([], node=node)).total()) is None


def test_differences_of_totals_are_never_negative(node, meter):
    train(node, meter, 0.37)
    before = meter.total()
    node.sleep(5.0)  # by now the energies of the first window would be final
    assert gpu_energy(since(meter.total(), before)) == 0.0


def test_the_open_window_counts_when_asked(node, meter):
    train(node, meter)
    meter.begin()
    node.sleep(3.0)
    assert meter.total().time == pytest.approx(2.0)
    assert meter.total(meter.peek()).time == pytest.approx(5.0)
    meter.restart()
    assert meter.total().time == pytest.approx(5.0)


def test_a_discarded_window_does_not_count(node, meter):
    meter.begin()
    node.sleep(1.0)
    meter.discard()
    assert not meter.open
    assert meter.total().time == 0.0


def test_a_lost_window_makes_the_energy_unknown_until_the_sum_is_taken(node, meter):
    train(node, meter)
    meter.begin()
    meter._monitor.reset_windows()
    meter.end()
    train(node, meter)
    assert gpu_energy(meter.total()) is None
    assert "were reset" in meter.lost
    assert gpu_energy(meter.take()) is None
    train(node, meter)
    assert present(gpu_energy(meter.take())) > 0


def test_a_closed_monitor_does_not_stop_training(node, meter):
    train(node, meter)
    meter._monitor.close()
    train(node, meter)
    assert not meter.open
    assert gpu_energy(meter.total()) is None
