"""Profiling takes no more than its share of a run whose length is known."""

from __future__ import annotations

import pytest
from tests.optimizer.support import Loop, excess, limits, monitor, truth, work
from tests.present import present

from zeus.errors import KnobError
from zeus.frontier import Time, ZeusCost
from zeus.optimizer import GlobalPowerLimitOptimizer
from zeus.testing import SimulatedNode

JOB = work(0.05, activity=1.0, compute_bound=0.3)
AFTER_DECISION = 300
"""Steps, after which those of a run are all alike."""


def trained(run_steps: int, **options) -> tuple[GlobalPowerLimitOptimizer, SimulatedNode]:
    node = SimulatedNode("v100")
    optimizer = GlobalPowerLimitOptimizer(monitor(node), run_steps=run_steps, **options)
    loop = Loop(node, optimizer, JOB)
    optimizer.on_epoch_begin()
    after = 0
    while loop.steps < run_steps and after < AFTER_DECISION:
        loop.step()
        after += optimizer.decided
    optimizer.on_epoch_end()
    return optimizer, node


@pytest.mark.parametrize("share", [0.02, 0.05, 0.5])
@pytest.mark.parametrize("run_steps", [50, 400, 1000, 2000, 8000])
def test_never_more_than_its_share(run_steps, share):
    optimizer, node = trained(run_steps, max_profile_share=share)
    assert optimizer.profiling_steps <= share * run_steps
    if optimizer.decided:
        assert limits(node) == [present(optimizer.selection).point.knob]
    else:
        assert f"a run of {run_steps} steps is too short" in optimizer.trouble
        assert limits(node) == [250]
        assert optimizer.report().as_run is not None, "the run itself is measured"
        assert str(optimizer.report()).endswith("nothing to compare with")


def test_a_long_run_is_profiled_as_one_of_unknown_length():
    optimizer, _ = trained(20_000)
    assert optimizer.trouble == ""
    true = truth("v100", JOB)
    assert excess(ZeusCost(0.5), present(optimizer.selection).point.knob, true) <= 0.01


def test_a_profile_that_was_cut_short_chooses_among_what_it_knows():
    optimizer, _ = trained(2000)
    assert 2 <= len(present(optimizer.frontier)) < 7
    known = ZeusCost(0.5).select(present(optimizer.frontier)).point.knob
    assert present(optimizer.selection).point.knob == known


def test_where_the_first_limit_is_the_best_one_is_enough():
    optimizer, _ = trained(2000, optimum_selector=Time())
    assert optimizer.trouble == ""
    assert present(optimizer.selection).point.knob == 250


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"run_steps": 0}, "`run_steps >= 1` must hold, but got 0"),
        ({"run_steps": 1.5}, "`run_steps` must be a whole number, but got 1.5"),
        ({"max_profile_share": 0}, "`max_profile_share > 0` must hold, but got 0"),
        ({"max_profile_share": 2}, "`max_profile_share <= 1` must hold, but got 2"),
    ],
)
def test_wrong_values_are_told(options, told):
    with SimulatedNode("v100") as node, pytest.raises(KnobError, match=told):
        GlobalPowerLimitOptimizer(monitor(node), **options)
