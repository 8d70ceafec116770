"""The optimizer of a knob as loops use it: steps and epochs of all kinds, and its options."""

from __future__ import annotations

import pytest
from tests.optimizer.decisions import MEMORY_BOUND, check_points, decided
from tests.optimizer.support import Loop, excess, limits, monitor, truth, work
from tests.present import present

from zeus.errors import FrontierError, KnobError
from zeus.optimizer import GlobalPowerLimitOptimizer
from zeus.optimizer.power_limit import (
    Energy,
    ZeusCost,
)
from zeus.optimizer.training._knobs import PowerLimitKnob
from zeus.testing import SimulatedNode, Workload

TRUE = truth("v100", MEMORY_BOUND)


# --- Steps as they come -------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_very_short_epochs(epoch):
    workload = work(0.1, compute_bound=0.4)
    optimizer, _ = decided("v100", workload, epoch=epoch)
    true = truth("v100", workload)
    assert excess(ZeusCost(0.5), optimizer.selection.point.knob, true) <= 0.002
    check_points(optimizer, true)


@pytest.mark.parametrize("between", [5.0, 45.0, 3600.0])
def test_what_is_between_epochs_does_not_count(between):
    # An hour of evaluation at full load: longer than looks at the counters are kept.
    optimizer, node = decided("v100", MEMORY_BOUND, epoch=60, between=between)
    check_points(optimizer, TRUE)
    assert excess(ZeusCost(0.5), optimizer.selection.point.knob, TRUE) <= 0.002
    report = optimizer.report()
    assert report.as_run.time == pytest.approx(report.steps * 0.14, rel=0.3)
    optimizer.close()
    assert limits(node) == [250]


def test_windows_that_span_many_epochs_and_what_is_between():
    # Pieces of a window are further apart than looks at the counters are kept, and the GPU is idle
    # in between: each has to be worked out in time.
    node = SimulatedNode("v100", sensors="live-power")
    optimizer = GlobalPowerLimitOptimizer(monitor(node))
    workload = work(0.05, activity=1.0, compute_bound=0.3)
    loop = Loop(node, optimizer, workload, epoch=3)
    while not optimizer.decided:
        loop.epoch()
        node.sleep(5.0)
    true = truth("v100", workload)
    for point in present(optimizer.frontier):
        assert point.time == pytest.approx(true.at(point.knob).time, rel=1e-6)
        assert point.energy == pytest.approx(true.at(point.knob).energy, rel=0.03)


def test_pauses_within_an_epoch_do_not_count():
    node = SimulatedNode("v100")
    optimizer = GlobalPowerLimitOptimizer(monitor(node))
    loop = Loop(node, optimizer, MEMORY_BOUND)
    evaluation = Workload("evaluation", 20.0, 0.0, 1.0, 0.5)
    trained = 0.0
    optimizer.on_epoch_begin()
    for step in range(3000):
        if step % 70 == 35:
            optimizer.pause()
            evaluation.run(node.gpus)
            optimizer.resume()
        before = node.clock.now()
        loop.step()
        trained += node.clock.now() - before
        if optimizer.decided:
            break
    optimizer.on_epoch_end()
    check_points(optimizer, TRUE)
    assert present(optimizer.report().as_run).time == pytest.approx(trained, rel=1e-6)
    optimizer.close()


def test_a_loop_that_tells_of_steps_only():
    node = SimulatedNode("v100")
    with GlobalPowerLimitOptimizer(monitor(node)) as optimizer:
        loop = Loop(node, optimizer, MEMORY_BOUND)
        while not optimizer.decided:
            loop.step()
        check_points(optimizer, TRUE)
        for _ in range(100):
            loop.step()
        assert present(optimizer.report().as_run).time == pytest.approx(node.clock.now(), rel=1e-6)
    assert limits(node) == [250]


def test_a_report_amid_an_epoch_is_of_all_steps_so_far():
    node = SimulatedNode("v100")
    optimizer = GlobalPowerLimitOptimizer(monitor(node))
    loop = Loop(node, optimizer, MEMORY_BOUND)
    optimizer.on_epoch_begin()
    for _ in range(40):
        loop.step()
    report = optimizer.report()
    assert report.steps == 40
    assert present(report.as_run).time == pytest.approx(node.clock.now())
    assert present(report.as_run).energy == pytest.approx(node.exact_energy(), rel=0.02)
    assert report.chosen is None
    optimizer.close()


# --- As the user says ---------------------------------------------------------------------------


def test_given_lengths_and_steps_are_obeyed():
    optimizer, _ = decided(
        "v100",
        MEMORY_BOUND,
        lambda frontier: frontier.fastest,
        wait_steps=3,
        warmup_steps=10,
        profile_steps=40,
        pl_step=50,
    )
    assert [point.knob for point in optimizer.frontier] == [250, 200, 150, 100]
    assert optimizer.profiling_steps == 3 + 4 * (10 + 40)


def test_the_published_order_of_arguments():
    node = SimulatedNode("v100")
    optimizer = GlobalPowerLimitOptimizer(monitor(node), Energy(), 2, 5, 20, 75, None)
    Loop(node, optimizer, MEMORY_BOUND, epoch=200).until_decided()
    assert optimizer.profiling_steps <= 2 + 3 * (5 + 20)
    assert {point.knob for point in present(optimizer.frontier)} <= {250, 175, 100}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"pl_step": 0}, "`pl_step > 0` must hold, but got 0"),
        ({"pl_step": "25"}, "`pl_step` must be a number, but got '25'"),
        ({"rank_timeout": -1}, "`rank_timeout > 0` must hold"),
        ({"profile_steps": 0}, "`profile_steps >= 1` must hold"),
        ({"job_steps": 0}, "`job_steps >= 1` must hold"),
    ],
)
def test_wrong_values_are_told_at_once(wrong, told):
    with pytest.raises(KnobError, match=told):
        GlobalPowerLimitOptimizer(monitor(SimulatedNode("v100")), **wrong)


def test_what_cannot_choose_is_told_at_once():
    for nonsense in (ZeusCost, 3, "energy"):
        with pytest.raises(FrontierError, match="an objective must"):
            GlobalPowerLimitOptimizer(monitor(SimulatedNode("v100")), nonsense)


# --- Several GPUs -------------------------------------------------------------------------------


def test_several_gpus_of_one_process_are_summed_with_the_maximum_power_of_all():
    # With the maximum power of one GPU, time would weigh a quarter, and a lower limit would win.
    optimizer, node = decided("v100x4", MEMORY_BOUND)
    true = truth("v100x4", MEMORY_BOUND)
    check_points(optimizer, true)
    chosen = optimizer.selection.point.knob
    assert excess(ZeusCost(0.5), chosen, true) <= 0.002
    assert optimizer.frontier.max_power == 1000
    mistaken = min(true, key=lambda point: 0.5 * point.energy + 0.5 * 250 * point.time)
    assert mistaken.knob < chosen, "the mistake would show"
    assert limits(node) == [chosen] * 4
    optimizer.close()
    assert limits(node) == [250] * 4


def test_some_gpus_of_a_node():
    node = SimulatedNode("v100x4")
    optimizer = GlobalPowerLimitOptimizer(monitor(node, [1, 3]))
    Loop(node, optimizer, MEMORY_BOUND, gpus=node.gpus.select([1, 3])).until_decided()
    chosen = present(optimizer.selection).point.knob
    assert limits(node) == [250, chosen, 250, chosen]
    assert present(optimizer.frontier).max_power == 500
    optimizer.close()
    assert limits(node) == [250] * 4


def test_mixed_models_get_one_limit_per_model():
    spec = "v100x2,a40"
    optimizer, node = decided(spec, MEMORY_BOUND, ZeusCost(0.5))
    knob = optimizer.selection.point.knob
    assert sorted(knob) == ["NVIDIA A40 (simulated)", "Tesla V100-PCIE-32GB (simulated)"]
    for gpu in node.gpus:
        assert gpu.power_limit() == knob[f"{gpu.name} (simulated)"]
    assert optimizer.frontier.max_power == 800
    true = {}
    check = SimulatedNode(spec)
    for rung in range(9):
        setting = {}
        for gpu in check.gpus:
            ladder = PowerLimitKnob(25).ladder(gpu)
            setting[gpu.index] = ladder[min(rung, len(ladder) - 1)]
            gpu.driver.set_power_limit(setting[gpu.index])
        time = max(MEMORY_BOUND.step_time(gpu) for gpu in check.gpus)
        before = sum(check.exact_energy(gpu.index) for gpu in check.gpus)
        MEMORY_BOUND.run(check.gpus)
        energy = sum(check.exact_energy(gpu.index) for gpu in check.gpus) - before
        true[tuple(setting.values())] = 0.5 * energy + 0.5 * 800 * time
    chosen = tuple(gpu.power_limit() for gpu in node.gpus)
    assert true[chosen] <= 1.002 * min(true.values())
    optimizer.close()
    assert limits(node) == [gpu.power_limits().maximum for gpu in node.gpus]
