"""Plans by our solver beside recorded schedules."""

from __future__ import annotations

import numpy as np
import pytest
from tests.present import present
from tests.replay.pipelines import made_up

from zeus.optimizer.pipeline_frequency import solve
from zeus.replay.pipelines import compare_plans, fit_model, read_recording, splits
from zeus.replay.pipelines._planning import pipeline_of


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return read_recording(made_up.record(tmp_path_factory.mktemp("planned"), schedules=22))


def test_a_plan_takes_what_the_model_predicts_for_its_clocks(recording):
    model = fit_model(recording, [run.number for run in recording.planned])
    clocks = np.unique([run.clocks["forward"] for run in recording.planned])
    plans = solve(pipeline_of(model, recording.microbatches, clocks), plans=20).plans
    for plan in (plans[0], plans[-1]):
        scheduled = {kind: np.zeros((4, 16)) for kind in ("forward", "backward")}
        for operation, option in zip(plan.pipeline.operations, plan.options, strict=True):
            if operation.instruction in scheduled:
                at = operation.stage, operation.microbatch
                scheduled[operation.instruction][at] = option.frequency
        (predicted,) = model.predict([scheduled])
        assert predicted.time == pytest.approx(plan.time)
        assert predicted.energy == pytest.approx(plan.energy)


def test_cautious_links_are_slower_and_explain_the_same_times(recording):
    schedules = [run.clocks for run in recording.planned]
    model = fit_model(recording, [run.number for run in recording.planned])
    cautious = model.cautious(schedules)
    assert cautious.engine.links.sum() >= model.engine.links.sum()
    for one, other in zip(model.predict(schedules), cautious.predict(schedules), strict=True):
        assert other.time == pytest.approx(one.time, rel=6e-4)


def test_plans_use_only_clocks_within_the_range_that_ran(recording):
    model = fit_model(recording, [run.number for run in recording.planned])
    pipeline = pipeline_of(model, recording.microbatches, np.arange(600.0, 1800.0, 15.0))
    for operation in pipeline.operations:
        if operation.stage is not None:
            ran = model.curves[operation.stage, operation.instruction].clocks
            frequencies = [present(option.frequency) for option in operation.options]
            assert (min(frequencies), max(frequencies)) == (ran[0], ran[-1])


def test_a_comparison_has_the_bound_and_the_clocks_of_the_plan(recording):
    (split, *_) = splits(recording)
    known = [recording.runs[number].clocks for number in split.fitted]
    model = fit_model(recording, split.fitted).cautious(known)
    for each in compare_plans(recording, split):
        assert each.bound <= each.planned_energy * (1 + 1e-9)
        assert each.saved <= each.possible + 1e-9
        (predicted,) = model.predict([each.clocks])
        assert predicted.time == pytest.approx(each.planned_time)
        assert predicted.energy == pytest.approx(each.planned_energy)


@pytest.mark.parametrize(
    "name", ["a100-gpt3-xl-pp4-mb128", "a100-t5-3b-pp4-mb32", "a40-bert-huge-pp8-mb32"]
)
@pytest.mark.thorough(keep=1)
def test_plans_need_no_more_than_recorded_schedules(traces, name):
    path = traces / "pipelines" / f"{name}.tar.xz"
    if not path.exists():
        pytest.skip(f"there is no recording at {path}")
    recorded = read_recording(path)
    compared = compare_plans(recorded, splits(recorded)[0])
    assert min(each.saved for each in compared) >= -0.001
    assert all(each.planned_time <= each.time for each in compared)
