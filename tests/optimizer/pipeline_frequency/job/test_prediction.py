"""What plans are expected to do, alone and beside a straggler."""

from __future__ import annotations

import pytest
from tests.optimizer.pipeline_frequency.job.reports import complete, instructions

from zeus.optimizer.pipeline_frequency._schedules import Shape, one_forward_one_backward
from zeus.optimizer.pipeline_frequency.job._messages import Straggler
from zeus.optimizer.pipeline_frequency.job._objective import PipelineObjective
from zeus.optimizer.pipeline_frequency.job._planning import plan
from zeus.optimizer.pipeline_frequency.job._prediction import predict


@pytest.fixture(scope="module")
def planned():
    orders = [instructions(steps, 3) for steps in one_forward_one_backward(Shape(3, 3, 5))]
    return plan(complete(orders, loads=(1.0, 1.2, 0.9), degrees=(2, 3, 1)))


def points(planned, stragglers, objective=None):
    return [planned.point(stragglers, number, None, objective) for number in range(2)]


def test_without_stragglers_it_is_the_plan_against_the_highest_clocks(planned):
    fastest = planned.solution.frontier.fastest
    found = predict(planned, points(planned, {}), {}, None)
    assert (found.time, found.energy) == pytest.approx((fastest.time, fastest.energy))
    assert found.energy_before == pytest.approx(planned.before.energy)
    assert found.slowdown == pytest.approx(0.0, abs=1e-9)
    assert found.saved == pytest.approx(1 - fastest.energy / planned.before.energy)


def test_an_objective_takes_its_time(planned):
    objective = PipelineObjective(max_slowdown=1.1)
    found = predict(planned, points(planned, {}, objective), {}, None)
    assert 0.05 < found.slowdown <= 0.1 + 1e-6
    assert found.saved > predict(planned, points(planned, {}), {}, None).saved
    assert found.energy_before == pytest.approx(planned.before.energy), "nothing waits longer"


def test_beside_a_straggler_both_sides_wait_for_it(planned):
    stragglers = {1: Straggler(1, slowdown=1.2)}
    found = predict(planned, points(planned, stragglers), stragglers, None)
    pace = 1.2 * planned.before.time
    assert (found.time, found.time_before) == pytest.approx((pace, pace))
    assert found.energy_before == pytest.approx(planned.before.lasting(pace).energy)
    each = [point.knob.execute().lasting(pace).energy for point in points(planned, stragglers)]
    assert found.energy == pytest.approx(sum(each) / 2)
