"""Messages of pipeline jobs: what cannot be is refused, and what is sent comes back from JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from tests.optimizer.pipeline_frequency.job.reports import measured, registration

from zeus.errors import PipelineError, ServerError
from zeus.optimizer.pipeline_frequency.job._messages import (
    MAX_MEGAHERTZ,
    Directive,
    Instruction,
    InstructionKind,
    Measured,
    RankPlace,
    Registration,
    StepTimes,
    Straggler,
    sequence_from,
)

F, B = Instruction("forward"), Instruction("backward", chunk=1)


def by_json(message):
    """What arrives at the other side."""
    return json.loads(json.dumps(message.to_dict()))


# --- what cannot be -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((0, 0, 0, 0, 1, 2, 1, 3), "dp_degree \\* pp_degree \\* tp_degree == world_size"),
        ((2, 0, 0, 0, 1, 2, 1, 2), "`0 <= rank < 2` must hold, but got rank=2"),
        ((0, 0, 2, 0, 1, 2, 1, 2), "`0 <= pp_rank < 2` must hold"),
        ((0, 0, 0, -1, 1, 2, 1, 2), "`0 <= tp_rank < 1` must hold"),
        ((0, 0, 0.0, 0, 1, 2, 1, 2), "`pp_rank` must be a whole number"),
        ((0, 0, 0, 0, 0, 2, 1, 0), "each 1 or more"),
    ],
)
def test_places_that_cannot_be(numbers, said):
    with pytest.raises(PipelineError, match=said):
        RankPlace(*numbers)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({}, "exactly one of"),
        ({"slowdown": 1.2, "healthy": True}, "exactly one of"),
        ({"slowdown": 0.9}, "`1 <= slowdown"),
        ({"slowdown": math.nan}, "`1 <= slowdown <= 1000` must hold, but got nan"),
        ({"iteration_time": -1.0}, "`1e-09 <= iteration_time"),
    ],
)
def test_stragglers_that_cannot_be(words, said):
    with pytest.raises(PipelineError, match=said):
        Straggler(0, **words)


@pytest.mark.parametrize("row", [[1, 2, 3], ["forward", "0"], ["forward", 0, 1.5], ["f", None]])
def test_instructions_that_cannot_be(row):
    with pytest.raises(PipelineError, match=r"must be \[name, chunk, microbatch, stage\], but got"):
        sequence_from([row])


def test_columns_that_do_not_match():
    record = measured([F, B]).to_dict()
    record["options"][0]["times"].pop()
    with pytest.raises(PipelineError, match="must match in number, but got 4, 3, 4 for forward"):
        Measured.from_dict(record)


def test_a_kind_that_is_told_twice():
    record = measured([F, B]).to_dict()
    record["options"].append(record["options"][1])
    with pytest.raises(PipelineError, match="but got backward of chunk 1 twice"):
        Measured.from_dict(record)


GOOD = Directive(3, "plan", "why", (1410.0, None), 1.5, 900.0).to_dict()


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {**GOOD, "version": "three"},
        {**GOOD, "clocks": 5},
        {**GOOD, "clocks": ["fast"]},
        {**GOOD, "clocks": [0.0]},
        {**GOOD, "clocks": [MAX_MEGAHERTZ + 1]},
        {**GOOD, "clocks": [math.nan]},
    ],
    ids=str,
)
def test_an_answer_that_makes_no_sense_is_an_error_of_the_server(answer):
    with pytest.raises(ServerError, match="the server's response is invalid"):
        Directive.from_dict(answer)


# --- what comes back ------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", range(8))
def test_a_registration_comes_back(rank):
    sent = replace(registration(rank, (2, 2, 2)), blocking_power=80.0, note="a run")
    assert Registration.from_dict(by_json(sent)) == sent
    assert sent.seat.degrees == (2, 2, 2)
    assert sent.seat.place == (rank // 4, rank // 2 % 2, rank % 2)


def test_measurements_come_back():
    times = StepTimes(7, (0.0, 1.0), (0.5, 1.5))
    sent = replace(measured([F, B]), passages=(times,))
    assert Measured.from_dict(by_json(sent)) == sent
    record = by_json(sent)
    del record["passages"]  # of a client that does not know them
    assert Measured.from_dict(record).passages == ()


@pytest.mark.parametrize(
    "sent",
    [
        Directive(1, "measure"),
        Directive(2, "cannot plan", "too large"),
        Directive(3, "plan", "", (1410.0, None, 1200.0), 1.5, 900.0),
        Directive(4, "plan", "", (), 1.5, 900.0),
        Directive(5, "plan", "", (1410.0,), 1.5, 900.0, reference=31),
        Directive(5, "plan", "", (1410.0, 1200.0), 1.5, 9.0, True, not_before=(0.0, 0.25)),
    ],
    ids=str,
)
def test_a_directive_comes_back(sent):
    assert Directive.from_dict(by_json(sent)) == sent


def test_a_sequence_comes_back():
    sent = (F, B, Instruction("forward", 0, 3, 2))
    assert sequence_from(json.loads(json.dumps(sent))) == sent


# --- in words -------------------------------------------------------------------------------------


def test_kinds_and_stragglers_in_words():
    assert str(InstructionKind("forward", 0)) == "forward"
    assert str(B.kind) == "backward of chunk 1"
    assert str(Straggler(2, slowdown=1.25)) == "pipeline 2 takes 1.25 times as long"
    assert str(Straggler(2, iteration_time=3.5)) == "pipeline 2 takes 3.5 s per iteration"
    assert str(Straggler(2, healthy=True)) == "pipeline 2 is healthy"
