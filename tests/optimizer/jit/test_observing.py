"""Observer mode: nothing stays changed, and what is said about the rest is what would have been."""

from __future__ import annotations

import logging

import pytest
from tests.optimizer.support import Loop, limits, monitor, work

from zeus.optimizer import GlobalPowerLimitOptimizer
from zeus.optimizer.power_limit import Energy, MaxSlowdownConstraint, Time, ZeusCost
from zeus.testing import SimulatedNode

JOB = work(0.1, activity=1.0, compute_bound=0.4)


def train(before, objective=None, *, epochs=6, spec="v100", observe=True, workload=JOB, **options):
    """A run of some epochs that begins with these limits, and what it really took."""
    node = SimulatedNode(spec)
    for gpu, watts in zip(node.gpus, before, strict=True):
        gpu.driver.set_power_limit(watts)
    optimizer = GlobalPowerLimitOptimizer(monitor(node), objective, observe=observe, **options)
    loop = Loop(node, optimizer, workload).epochs(epochs)
    return optimizer, node, loop


def what_it_takes(watts, steps, spec="v100", workload=JOB):
    """Seconds and joules of so many steps under this limit, as a run really takes them."""
    node = SimulatedNode(spec)
    for gpu in node.gpus:
        gpu.driver.set_power_limit(watts)
    for _ in range(steps // 100):
        workload.run(node.gpus, 100)
    return node.clock.now(), sum(node.exact_energy(gpu.index) for gpu in node.gpus)


@pytest.mark.parametrize("before", [250, 200, 187.5, 120])
@pytest.mark.parametrize("objective", [ZeusCost(0.5), Time()], ids=repr)
@pytest.mark.thorough(keep=3)
def test_what_would_have_been_is_what_is(before, objective, caplog):
    with caplog.at_level(logging.WARNING):
        optimizer, node, loop = train([before], objective)
    assert caplog.records == [], "nothing has drifted"
    assert limits(node) == [before]
    report = optimizer.report()
    assert report.observing
    assert report.reference.knob == before
    chosen = report.chosen.knob
    for amount, watts in ((report.at_reference, before), (report.at_chosen, chosen)):
        time, energy = what_it_takes(watts, loop.steps)
        assert abs(amount.time - time) <= amount.time_uncertainty + 0.002 * time
        assert abs(amount.energy - energy) <= amount.energy_uncertainty + 0.004 * energy
        assert amount.energy_uncertainty <= 0.02 * energy
    assert "would be best" in str(report)
    optimizer.close()
    assert limits(node) == [before]


def test_most_of_the_run_goes_on_at_the_limit_from_before():
    optimizer, _, loop = train([187.5], epochs=10)
    report = optimizer.report()
    assert report.profiling_steps < loop.steps / 2
    time, energy = what_it_takes(187.5, loop.steps)
    assert report.as_run.time == pytest.approx(time, rel=0.05)
    assert report.as_run.energy == pytest.approx(energy, rel=0.05)


def test_a_limit_from_before_that_the_walk_did_not_reach_is_measured_too():
    optimizer, node, _ = train([120], MaxSlowdownConstraint(1.02), epochs=4, raise_limit=True)
    knobs = [point.knob for point in optimizer.frontier]
    assert knobs[0] == 250
    assert knobs[-1] == 120
    assert optimizer.selection.point.knob > 200
    assert optimizer.report().reference.repeats > 0
    assert limits(node) == [120]


def test_without_observing_the_report_compares_with_the_limit_from_before_as_well():
    optimizer, node, loop = train(
        [120], MaxSlowdownConstraint(1.02), observe=False, raise_limit=True
    )
    report = optimizer.report()
    assert report.reference.knob == 120
    assert report.time_change < -0.1, "faster than before"
    time, energy = what_it_takes(120, loop.steps)
    assert report.at_reference.time == pytest.approx(time, rel=0.005)
    assert report.at_reference.energy == pytest.approx(energy, rel=0.01)
    assert limits(node) == [report.chosen.knob]


@pytest.mark.parametrize(
    ("before", "activity", "said"),
    [(200, 1.0, "up to 20% less time"), (240, 0.5, "W per GPU and would hardly feel them")],
)
def test_the_limit_that_was_found_is_a_ceiling(before, activity, said):
    light = work(0.1, activity=activity, compute_bound=0.4)
    optimizer, node, _ = train([before], Time(), observe=False, workload=light)
    assert max(point.knob for point in optimizer.frontier) == before
    assert limits(node) == [before]
    (untried,) = (line for line in optimizer.report().lines() if "were not tried" in line)
    assert f"above the previous {before} W" in untried
    assert "up to 250 W" in untried
    assert said in untried


def test_nothing_is_said_where_nothing_was_left_out():
    optimizer, _, _ = train([250], Time())
    assert "not tried" not in str(optimizer.report())


def test_gpus_that_were_not_set_alike_get_that_back(caplog):
    with caplog.at_level(logging.WARNING):
        optimizer, node, _ = train([250, 150], ZeusCost(0.5), spec="v100x2")
        assert limits(node) == [250, 150]
        assert optimizer.report().reference.knob == 150, "the lower one sets the pace"
    assert caplog.records == [], "no drift is made of that"
    optimizer.close()
    assert limits(node) == [250, 150]


def test_of_several_gpus_energies_add_up():
    optimizer, _, loop = train([250, 250], Energy(), spec="v100x2")
    report = optimizer.report()
    time, energy = what_it_takes(250, loop.steps, "v100x2")
    assert report.at_reference.time == pytest.approx(time, rel=0.005)
    assert report.at_reference.energy == pytest.approx(energy, rel=0.01)


def test_what_profiling_took_is_told():
    optimizer, node, loop = train([250], Energy(), observe=False)
    report = optimizer.report()
    time, energy = what_it_takes(250, loop.steps)
    chosen_time, chosen_energy = what_it_takes(report.chosen.knob, loop.steps)
    rest = 1 - report.profiling_steps / loop.steps
    # What the run took = the reference + what profiling took more + what the rest took more.
    assert node.clock.now() == pytest.approx(
        time + report.profiling.time + rest * (chosen_time - time), rel=0.005
    )
    assert sum(map(node.exact_energy, range(1))) == pytest.approx(
        energy + report.profiling.energy + rest * (chosen_energy - energy), rel=0.01
    )
