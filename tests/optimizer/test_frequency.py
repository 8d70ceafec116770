"""The clock that is chosen during training: the same machinery on the second knob."""

from __future__ import annotations

import pytest
from tests.optimizer.support import Loop, clocks, excess, limits, monitor, truth, work
from tests.present import present

from zeus.device._base import ClockRange
from zeus.errors import KnobError
from zeus.optimizer import GlobalFrequencyOptimizer, GlobalPowerLimitOptimizer
from zeus.optimizer.power_limit import Energy, MaxSlowdownConstraint, Time, ZeusCost
from zeus.optimizer.training._knobs import ClockKnob
from zeus.testing import SimulatedNode

JOB = work(0.1, activity=0.9, compute_bound=0.5)


def decided(spec, objective, **options):
    node = SimulatedNode(spec)
    optimizer = GlobalFrequencyOptimizer(monitor(node), objective, **options)
    Loop(node, optimizer, JOB).until_decided()
    assert optimizer.trouble == ""
    return optimizer, node


@pytest.mark.parametrize(
    ("spec", "objective"),
    [
        ("v100", ZeusCost(0.5)),
        ("a100", Energy()),
        ("a40", MaxSlowdownConstraint(1.15)),
        ("mi250x", ZeusCost(0.3)),
    ],
)
def test_the_best_clock_is_chosen(spec, objective):
    optimizer, node = decided(spec, objective)
    true = truth(spec, JOB, clocks())
    chosen = optimizer.selection.point.knob
    assert excess(objective, chosen, true) <= 0.002
    for point in optimizer.frontier:
        assert point.time == pytest.approx(true.at(point.knob).time, rel=0.002)
        assert point.energy == pytest.approx(true.at(point.knob).energy, rel=0.02)
    gpu = node.gpus[0]
    lowest = min(gpu.supported_clocks().graphics)
    assert gpu.locked_graphics_clock() == ClockRange(lowest, chosen)
    assert gpu.power_limit() == gpu.power_limits().maximum, "the other knob is left alone"
    assert "MHz is chosen, against" in optimizer.report().headline()
    optimizer.close()
    assert gpu.locked_graphics_clock() is None


def test_the_lock_from_before_comes_back():
    node = SimulatedNode("v100x2")
    for gpu in node.gpus:
        gpu.driver.lock_graphics_clock(ClockRange(300, 1005))
    optimizer = GlobalFrequencyOptimizer(monitor(node), Time(), freq_step=150, raise_limit=True)
    Loop(node, optimizer, JOB).until_decided()
    report = optimizer.report()
    assert (present(report.chosen).knob, present(report.reference).knob) == (1380, 1005)
    assert present(report.time_change) < 0
    optimizer.close()
    for gpu in node.gpus:
        assert gpu.locked_graphics_clock() == ClockRange(300, 1005)


def test_a_lock_that_was_found_is_a_ceiling():
    node = SimulatedNode("v100")
    node.gpus[0].driver.lock_graphics_clock(ClockRange(300, 1005))
    optimizer = GlobalFrequencyOptimizer(monitor(node), Time(), freq_step=150)
    Loop(node, optimizer, JOB).until_decided()
    assert max(point.knob for point in present(optimizer.frontier)) == 1005
    assert "up to 1380 MHz" in str(optimizer.report())


def test_the_stride_is_obeyed():
    optimizer, _ = decided(
        "a100", lambda frontier: frontier.fastest, freq_step=300, warmup_steps=2, profile_steps=10
    )
    knobs = [point.knob for point in optimizer.frontier]
    assert knobs == list(ClockKnob(300).ladder(SimulatedNode("a100").gpus[0]))
    assert optimizer.profiling_steps == 1 + len(knobs) * 12
    with pytest.raises(KnobError, match="`freq_step > 0` must hold"):
        GlobalFrequencyOptimizer(monitor(SimulatedNode("a100")), freq_step=-75)


def test_both_knobs_keep_their_profiles_apart_in_one_file(tmp_path):
    path = tmp_path / "profiles.json"
    for kind in (GlobalPowerLimitOptimizer, GlobalFrequencyOptimizer):
        for spent in (True, False):
            node = SimulatedNode("v100")
            optimizer = kind(monitor(node), profile_path=path, job="a", batch_size=8)
            Loop(node, optimizer, JOB).until_decided()
            assert bool(optimizer.profiling_steps) == spent
            optimizer.close()
            assert limits(node) == [250]
