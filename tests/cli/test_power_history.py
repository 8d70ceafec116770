"""Power over time: means of the monitor's samples, and gaps where there are none."""

from __future__ import annotations

import pytest

from zeus.cli._power_history import NodePower, PowerHistory
from zeus.testing import SimulatedNode


def sampled(*samples: tuple[float, float], **options: bool) -> PowerHistory:
    history = PowerHistory(**options)
    for instant, watts in samples:
        history.add(instant, watts)
    return history


def test_means_of_equal_times():
    history = sampled(*((at / 10, 100.0 + at // 10 * 10) for at in range(100)))
    assert history.means(9.95, 10.0, 10) == [
        pytest.approx(100.0 + 10 * second, abs=1.0) for second in range(10)
    ]


def test_edges_do_not_move_with_the_instant():
    history = sampled(*((at / 10, float(at % 37)) for at in range(200)))
    first, later = history.means(15.1, 10.0, 10), history.means(15.9, 10.0, 10)
    assert first[:-1] == later[:-1]


def test_what_was_not_sampled_is_unknown():
    history = sampled(
        *((at / 10, 50.0) for at in range(50, 60)), *((20 + at / 10, 80.0) for at in range(10))
    )
    means = history.means(20.5, 20.0, 20)
    assert [round(mean) if mean is not None else None for mean in means] == [
        *([None] * 4), 50, *([None] * 14), 80,
    ]  # fmt: skip


def test_the_highest_and_the_energy_of_all_samples():
    history = sampled((0.0, 100.0), (1.0, 300.0), (2.0, 100.0))
    assert history.highest == 300.0
    assert history.energy() == pytest.approx(400.0)
    assert history.mean(0.0, 99.0) == pytest.approx(200.0)


def test_a_late_sample_is_ignored():
    history = sampled((1.0, 100.0), (0.5, 900.0), (1.0, 900.0), (2.0, 100.0))
    assert history.highest == 100.0


def test_without_samples_nothing_is_known():
    history = PowerHistory()
    assert (history.highest, history.energy(), history.mean(0, 1)) == (None, None, None)
    assert history.means(5.0, 10.0, 4) == [None] * 4


def test_the_monitor_samples_between_two_frames():
    node = SimulatedNode("v100x2")
    power = NodePower(node, [0, 1])
    # One frame in five seconds: the graph still has every half second.
    node.clock.sleep(5.0)
    power.update()
    means = power.of(1).means(node.clock.now(), 4.0, 8)
    assert len([mean for mean in means if mean is not None]) >= 7
    power.stop()


def test_a_gpu_that_only_averages_has_a_graph_as_well():
    node = SimulatedNode("p100")
    power = NodePower(node, [0])
    node.clock.sleep(3.0)
    power.update()
    assert power.of(0).highest is not None
    power.stop()
