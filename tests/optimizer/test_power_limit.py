"""The power limit that is chosen during training, against the truth of the simulated GPUs."""

from __future__ import annotations

import pytest
from tests.optimizer.decisions import MEMORY_BOUND, check_points, decided
from tests.optimizer.support import excess, limits, truth, work
from tests.present import present

from zeus.device._simulated_models import MODELS
from zeus.frontier import Objective, Selection
from zeus.optimizer.power_limit import (
    Deadline,
    Energy,
    EnergyBudget,
    MaxSlowdownConstraint,
    PowerCap,
    Time,
    ZeusCost,
)

# --- The choice ---------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", [work(0.1), MEMORY_BOUND], ids=["compute", "memory"])
@pytest.mark.parametrize("spec", MODELS)
def test_every_gpu(spec, workload):
    objective = ZeusCost(0.5)
    optimizer, node = decided(spec, workload, objective, epoch=50)
    true = truth(spec, workload)
    assert excess(objective, optimizer.selection.point.knob, true) <= 0.002
    check_points(optimizer, true)
    assert limits(node) == [optimizer.selection.point.knob]
    optimizer.close()
    assert limits(node) == [MODELS[spec].maximum_limit]


@pytest.mark.parametrize(
    ("spec", "step_time", "epoch"),
    [
        ("v100", 0.001, 500),
        ("a100", 0.005, 100),
        ("a40", 0.02, 30),
        ("h100", 1.0, 7),
        ("a100", 20.0, 3),
        ("v100", 300.0, 2),
        ("p100", 300.0, 1),
    ],
)
def test_steps_of_a_millisecond_and_of_minutes(spec, step_time, epoch):
    workload = work(step_time, activity=1.0, compute_bound=0.4)
    # How long to stay is what is tested: what sensors add to it is not.
    optimizer, _ = decided(spec, workload, epoch=epoch, sensors="live-power")
    true = truth(spec, workload)
    assert excess(ZeusCost(0.5), optimizer.selection.point.knob, true) <= 0.002
    check_points(optimizer, true)
    report = optimizer.report()
    assert report.profiling_steps == optimizer.profiling_steps
    at_the_maximum = report.profiling_steps * true.fastest.time
    assert report.profiling.time <= 0.2 * at_the_maximum


@pytest.mark.parametrize("spec", ["v100", "a100", "h100", "mi300x"])
def test_steps_with_gaps(spec):
    # Kernels, then a wait for the host: 30 % of every step at static power. A step takes as long
    # as the sensors of most parts take to be refreshed, the worst that there is.
    workload = work(0.1, compute_bound=0.6, host_share=0.3)
    optimizer, _ = decided(spec, workload, ZeusCost(0.7), epoch=37)
    true = truth(spec, workload)
    assert excess(ZeusCost(0.7), optimizer.selection.point.knob, true) <= 0.02
    for point in present(optimizer.frontier):
        assert point.time == pytest.approx(true.at(point.knob).time, rel=0.002)
        assert point.energy == pytest.approx(
            true.at(point.knob).energy, rel=0.03, abs=point.energy_uncertainty
        )


class LeastEnergyDelay(Objective):
    """The user's own: energy times delay, which falls and rises like the others."""

    def select(self, frontier):
        chosen = min(frontier, key=self.product)
        return Selection(chosen, cost=self.product(chosen))

    @staticmethod
    def product(point):
        return point.energy * point.time


class Slowest:
    """Only the least that an objective must have."""

    def select(self, frontier):
        return Selection(max(frontier, key=lambda point: point.time))


TRUE = truth("v100", MEMORY_BOUND)
STEPS = 2000


@pytest.mark.parametrize(
    "objective",
    [
        Energy(),
        Time(),
        ZeusCost(0.5),
        ZeusCost(0.9, world_size=4),
        ZeusCost(0.0),
        ZeusCost(1.0),
        MaxSlowdownConstraint(1.1),
        MaxSlowdownConstraint(factor=1.0),
        Deadline(STEPS * TRUE.at(150).time * 1.01),
        Deadline(1.0),  # nothing is that fast
        EnergyBudget(STEPS * TRUE.at(200).energy * 1.01),
        EnergyBudget(1.0),  # nothing is that frugal
        PowerCap(160),
        LeastEnergyDelay(),
    ],
    ids=lambda objective: type(objective).__name__,
)
def test_every_objective(objective):
    optimizer, node = decided("v100", MEMORY_BOUND, objective, job_steps=STEPS)
    chosen, best = optimizer.selection, objective.select(TRUE.scaled(STEPS))
    assert chosen.feasible == best.feasible
    if chosen.point.knob != best.point.knob:
        assert excess(objective, chosen.point.knob, TRUE.scaled(STEPS)) <= 0.002
        assert chosen.tie
    assert limits(node) == [chosen.point.knob]
    assert chosen.cost == pytest.approx(best.cost, rel=0.02)
    optimizer.close()


def test_functions_and_little_classes_choose_as_well():
    optimizer, _ = decided("v100", MEMORY_BOUND, lambda frontier: frontier.least_energy)
    assert optimizer.selection.point.knob == Energy().select(TRUE).point.knob
    assert [point.knob for point in optimizer.frontier] == [250, 225, 200, 175, 150, 125, 100]
    optimizer, _ = decided("v100", MEMORY_BOUND, Slowest())
    assert optimizer.selection.point.knob == 100


def test_the_default_is_the_cost_of_the_paper_with_equal_weights():
    optimizer, _ = decided("v100", MEMORY_BOUND)
    assert optimizer.objective == ZeusCost(0.5)


def test_a_limit_that_the_job_does_not_feel_is_not_chosen():
    light = work(0.1, activity=0.3)
    optimizer, _ = decided("v100", light, Energy())
    assert {225, 200, 175} & {point.knob for point in optimizer.frontier} == set()
    assert optimizer.selection.point.knob in (250, Energy().select(truth("v100", light)).point.knob)
