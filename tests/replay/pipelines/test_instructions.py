"""The recorded engine's order of instructions."""

from __future__ import annotations

from itertools import pairwise

import pytest

from zeus.errors import TraceError
from zeus.replay.pipelines._instructions import Kind, instructions, program, shape_of


@pytest.mark.parametrize(
    ("stages", "microbatches", "lengths"),
    [
        (4, 128, [518, 520, 518, 516]),
        (8, 256, [1034, 1040, 1038, 1036, 1034, 1032, 1030, 1028]),
    ],
)
def test_lengths_are_those_that_were_recorded(stages, microbatches, lengths):
    assert [len(instructions(s, stages, microbatches)) for s in range(stages)] == lengths
    assert shape_of(lengths) == (stages, microbatches)
    assert shape_of(lengths * 2) == (stages, microbatches)


def test_other_lengths_are_refused():
    with pytest.raises(TraceError, match=r"518, 520, 518, 517"):
        shape_of([518, 520, 518, 517])


@pytest.mark.parametrize("stage", range(4))
def test_a_stage_warms_up_then_alternates(stage):
    kinds = [
        each.kind
        for each in instructions(stage, 4, 8)
        if each.kind in (Kind.FORWARD, Kind.BACKWARD)
    ]
    assert kinds[: 4 - stage] == [Kind.FORWARD] * (4 - stage)
    middle = kinds[4 - stage : len(kinds) - (3 - stage)]
    assert middle[0] is Kind.BACKWARD
    assert all(one is not other for one, other in pairwise(middle))


def test_the_program_has_every_computation_after_what_it_needs():
    stages, microbatches = 4, 6
    done = set()
    exchanges = [0] * (stages - 1)
    for step in program(stages, microbatches):
        if step.kind is Kind.EXCHANGE:
            exchanges[step.stage] += 1
        elif step.kind is Kind.FORWARD:
            if step.stage > 0:
                assert (Kind.FORWARD, step.stage - 1, step.microbatch) in done
        elif step.kind is Kind.BACKWARD:
            assert (Kind.FORWARD, step.stage, step.microbatch) in done
            if step.stage < stages - 1:
                assert (Kind.BACKWARD, step.stage + 1, step.microbatch) in done
        done.add((step.kind, step.stage, step.microbatch))
    computations = [each for each in done if each[0] in (Kind.FORWARD, Kind.BACKWARD)]
    assert len(computations) == 2 * stages * microbatches
    for stage in range(stages):
        expected = instructions(stage, stages, microbatches)
        met = sum(e.kind is Kind.EXCHANGE and e.index == stage for e in expected)
        assert stage == stages - 1 or exchanges[stage] == met
