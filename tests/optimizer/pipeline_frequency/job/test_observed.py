"""Steps as all ranks measured them, whatever the clocks of their machines."""

from __future__ import annotations

import pytest
from tests.present import present

from zeus.optimizer.pipeline_frequency import Option, Pipeline, build, solve
from zeus.optimizer.pipeline_frequency.job._messages import StepTimes
from zeus.optimizer.pipeline_frequency.job._observed import observed_step


def passages(execution, offsets, number=7):
    """The steps as each place would report them by a clock that is ahead."""
    found = []
    for place, offset in enumerate(offsets):
        own = [
            (start + offset, start + option.time + offset)
            for operation, option, start in zip(
                execution.pipeline.operations, execution.options, execution.starts, strict=True
            )
            if operation.device == place
        ]
        begins, ends = zip(*own, strict=True)
        found.append([StepTimes(number, begins, ends)])
    return found


@pytest.mark.parametrize("blocking", [False, True])
def test_clocks_that_do_not_agree_are_aligned(profile, blocking):
    pipeline = build(profile, "1f1b", 6, 80.0, communication=0.01, blocking_messages=blocking)
    truth = solve(pipeline, 30).plans[0].execute()
    offsets = [1000.0 * place - 3.7 for place in range(pipeline.devices)]
    number, seen = present(observed_step(pipeline, passages(truth, offsets)))
    assert number == 7
    assert seen.time == pytest.approx(truth.time, abs=1e-9)
    for operation, start, option, begin, known in zip(
        pipeline.operations, seen.starts, seen.options, truth.starts, truth.options, strict=True
    ):
        if operation.device is not None:
            assert start == pytest.approx(begin, abs=1e-9)
            assert option.time == pytest.approx(known.time, abs=1e-9)
            assert (option.frequency, option.energy) == (None, 0.0)


def test_the_latest_step_that_all_places_have_counts(profile):
    pipeline = build(profile, "1f1b", 4, 80.0)
    truth, offsets = pipeline.at_highest_frequency(), [0.0] * pipeline.devices
    early, late = passages(truth, offsets, 3), passages(truth, offsets, 4)
    both = [[*one, *two] for one, two in zip(early, late, strict=True)]
    assert present(observed_step(pipeline, both))[0] == 4
    both[1].pop()
    assert present(observed_step(pipeline, both))[0] == 3
    both[1].pop()
    assert observed_step(pipeline, both) is None


def test_a_step_that_cannot_be_drawn_is_none():
    pipeline = Pipeline(2, 80.0)
    first = pipeline.add("forward", [Option(1000, 1.0, 1.0)], device=0)
    pipeline.add("forward", [Option(1000, 1.0, 1.0)], device=1, after=[first])
    one_way = [[StepTimes(1, (0.0,), (1.0,))], [StepTimes(1, (1.0,), (2.0,))]]
    assert observed_step(pipeline, one_way) is None, "clocks cannot be aligned"
    pipeline.add("backward", [Option(1000, 1.0, 1.0)], device=0, after=[1])
    assert observed_step(pipeline, one_way) is None, "an instruction is missing"
    nothing = [[StepTimes(1, (0.0, 0.0), (0.0, 0.0))], [StepTimes(1, (0.0,), (0.0,))]]
    assert observed_step(pipeline, nothing) is None, "it takes no time"
