"""Sections about a plan: where its energy goes, and the latest measured step beside it."""

from __future__ import annotations

import math

import pytest
from tests.optimizer.pipeline_frequency.running.rig import Training

from zeus.optimizer.pipeline_frequency.job._planning import plan
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines
from zeus.server.pages._pipeline_plan import place_energies, plan_section
from zeus.store import Store


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The inputs of a job that trained until it had a plan."""
    store = Store(f"sqlite:///{tmp_path_factory.mktemp('plan')}/jobs.db")
    pipelines = Pipelines(store)
    training = Training((1.0, 1.3), microbatches=4)
    training.connect(pipelines)
    training.until("following")
    inputs = pipelines.inputs("test")
    training.close()
    store.close()
    return inputs


def test_the_energy_of_a_pipeline_is_that_of_its_places(trained):
    planned = plan(trained)
    after = planned.solution.frontier.fastest.knob.execute().lasting(1.2 * planned.before.time)
    places = place_energies(planned.before, after)
    assert math.fsum(each.computing for each in places) == pytest.approx(after.computation_energy)
    assert math.fsum(each.waiting for each in places) == pytest.approx(after.waiting_energy)
    assert math.fsum(each.before for each in places) == pytest.approx(planned.before.energy)
    assert [(each.place, each.stages, each.computations) for each in places] == [
        (0, [0], 8),
        (1, [1], 8),
    ]
    # The second one is slower: all its computations are critical, and its clock stays.
    assert (places[1].critical, places[1].changes) == (8, 0)
    assert 0 < places[0].critical < 8
    assert places[0].changes > 0


def test_the_latest_measured_step_is_shown_with_what_it_is(trained):
    planned = plan(trained)
    followed = planned.solution.frontier.fastest.knob
    number = min(
        max(each.step for each in rank.measured.passages) for rank in trained.ranks.values()
    )
    shown = str(plan_section(planned, followed, 0, trained))
    assert f"Step {number}, measured" in shown
    assert "it ran while clocks were explored" in shown
    assert "No step of it was measured" in str(plan_section(planned, followed, 1, trained))
