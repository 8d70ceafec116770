"""Running jobs whose power must not swing by more than a bound, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from tests.optimizer.pipeline_frequency.running.rig import Training

from zeus.optimizer.pipeline_frequency.api._commands import SetObjective, ShowPipeline
from zeus.optimizer.pipeline_frequency.job._objective import PipelineObjective
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines
from zeus.store import Store

pytestmark = pytest.mark.slow  # whole trainings, in virtual time

LOADS = (1.0, 1.0, 1.2, 1.0)
MOMENT = 1e-4
WORLD: dict[str, Any] = {
    "microbatches": 6,
    "seconds": (0.03, 0.06),
    "sensors": "a100",
    "clock_lag": 0.01,
}


@pytest.fixture
def api(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/jobs.db")
    yield Pipelines(store)
    store.close()


def settled(api, **world):
    training = Training(LOADS, **{**WORLD, **world})
    training.connect(api)
    training.until("following", 40)
    training.iterate(14)  # to the end of step 24, a reference step
    return training


def swing(iteration):
    """Highest less lowest power.

    An instruction that begins when another ends, by the plan, may do so a moment earlier or later.
    """
    watts = [power for seconds, power in iteration.powers if seconds > MOMENT]
    return max(watts) - min(watts)


def outside(iteration, bound):
    """The least share of time in which power is outside of a band that is as wide as the bound."""
    lows = {watts for _, watts in iteration.powers}
    return min(
        sum(each for each, watts in iteration.powers if not low <= watts <= low + bound)
        for low in lows
    ) / sum(seconds for seconds, _ in iteration.powers)


def ask(api, **values):
    api.do(SetObjective(job="test", objective=PipelineObjective(**values)))
    return api.do(ShowPipeline(job="test"))["status"]


def test_the_swing_of_power_is_kept_and_no_step_runs_at_the_highest_clocks(api):
    base = Training(LOADS, **WORLD).iterate(3)[-1]
    assert sum(seconds for seconds, _ in base.powers) == pytest.approx(base.time)
    assert sum(each * watts for each, watts in base.powers) == pytest.approx(base.energy)
    bound = 0.5 * swing(base)
    training = settled(api)
    assert swing(training.iterate()[-1]) > 1.1 * bound  # by a plan without a bound
    assert ask(api, power_swing=bound) == "planned"
    training.iterate(2)
    assert any(each.standing.not_before for each in training.optimizers)
    steps = []
    for _ in range(52):  # past a reference step, which would run at the highest clocks
        versions = {each.standing.version for each in training.optimizers}
        (step,) = training.iterate()
        # In a step in which some ranks have the next plan already, power follows neither.
        if (
            versions == {each.standing.version for each in training.optimizers}
            and len(versions) < 2
        ):
            steps.append(step)
    assert len(steps) > 45
    # Powers are learned to a percent or so.
    # Times are, too: power is outside of the band for a tenth of a millisecond where one ends.
    assert max(outside(each, 1.02 * bound) for each in steps) < 5e-4
    assert max(each.time for each in steps) < 1.03 * base.time
    assert steps[-1].energy < base.energy
    assert ask(api) == "planned"
    training.iterate(2)
    assert not any(each.standing.not_before for each in training.optimizers)
    assert training.iterate()[-1].time == pytest.approx(base.time, rel=0.005)
    training.close()


@pytest.mark.thorough
def test_power_leaves_the_band_for_a_part_of_the_time_where_work_varies(api):
    world = {**WORLD, "variation": 0.05}
    base = Training(LOADS, **world).iterate(20)
    bound = 0.5 * swing(base[0])
    training = settled(api, variation=0.05)
    ask(api, power_swing=bound)
    training.iterate(2)
    steps = training.iterate(20)
    kept = sum(outside(each, 1.02 * bound) for each in steps) / 20
    before = sum(outside(each, 1.02 * bound) for each in base) / 20
    assert kept < 0.5 * before
    assert sum(map(swing, steps)) < 0.9 * sum(map(swing, base))
    training.close()


def test_a_swing_that_no_plan_keeps_is_refused_with_the_least_that_was_found(api):
    training = settled(api)
    status = ask(api, power_swing=1.0)
    assert "cannot plan" in status
    assert "the least found is" in status
    training.close()


def test_a_swing_is_refused_where_computations_are_shorter_than_a_change_of_clocks(api):
    training = settled(api, seconds=(0.006, 0.012), clock_lag=0.015)
    status = ask(api, power_swing=600.0)
    assert "must last longer than a clock takes to change" in status
    training.close()
