"""The rules of a pipeline job: who may say what, and what follows."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.optimizer.pipeline_frequency.job.reports import complete, measured, registration

from zeus.errors import JobConflictError, PipelineError, UnknownJobError
from zeus.optimizer.pipeline_frequency import Option
from zeus.optimizer.pipeline_frequency.job._job import PipelineJob
from zeus.optimizer.pipeline_frequency.job._messages import (
    Instruction,
    InstructionKind,
    Measured,
    StepTimes,
    Straggler,
)

F, B = Instruction("forward"), Instruction("backward")


def everybody(_: int) -> bool:
    return True


def nobody(_: int) -> bool:
    return False


@pytest.fixture
def job():
    return complete([[F, B], [F, B]])


# --- places ---------------------------------------------------------------------------------------


def test_registering_again_takes_the_place_and_withdraws_the_plan(job):
    job.deploy("a plan", 4.0)
    version = job.version
    job.register(registration(0, session="another"), 5.0, everybody)
    assert not job.planned
    assert job.version > version
    assert job.waits_for() == "rank 0 to measure"
    with pytest.raises(JobConflictError, match="registered again by another process"):
        job.put_sequence(0, "session 0", [F, B], 6.0)
    job.put_sequence(0, "another", [F, B], 6.0)
    job.put_measurements(0, "another", measured([F, B]), 6.0)
    assert job.wants_plan()


def test_the_same_process_may_register_as_often_as_it_likes(job):
    before = job.changes, job.version
    job.register(registration(0), 5.0, everybody)
    assert (job.changes, job.version) == before


def test_a_run_after_the_end_of_another_begins_with_nothing(job):
    job.put_straggler(Straggler(0, slowdown=1.5), 4.0)
    job.register(registration(1, session="tomorrow"), 9.0, nobody)
    assert set(job.ranks) == {1}
    assert job.stragglers == {}
    assert job.status() == "waits for rank 0 to register"


def test_another_shape_is_refused_while_somebody_runs_and_taken_after(job):
    other = registration(0, (2, 2, 1), "other")
    with pytest.raises(JobConflictError, match=r"\(1, 2, 1\), but rank 0 says \(2, 2, 1\)"):
        job.register(other, 5.0, everybody)
    job.register(other, 5.0, nobody)
    assert job.degrees == (2, 2, 1)


def test_two_ranks_cannot_have_one_place(job):
    wrong = registration(1, session="wrong")
    wrong = replace(wrong, seat=replace(wrong.seat, pp_rank=0))
    with pytest.raises(PipelineError, match="and so does rank 0"):
        job.register(wrong, 5.0, everybody)


def test_who_is_not_registered_is_unknown(job):
    with pytest.raises(UnknownJobError, match="rank 7 of pipeline job 'test'"):
        job.put_sequence(7, "session 7", [F, B], 5.0)


# --- nonsense -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (Option(1410, -0.1, 30.0), "`1e-09 <= time of forward"),
        (Option(1410, 5e-324, 30.0), "`1e-09 <= time of forward"),
        (Option(1410, 0.1, -30.0), "`0 <= energy of forward"),
        (Option(1410, math.nan, 30.0), "time of forward <= 1e.06` must hold, but got nan"),
        (Option(1410, 0.1, math.inf), "energy of forward <= 1e.09` must hold, but got inf"),
        (Option(1405, 0.1, 30.0), "got 1405 MHz for forward"),
        (Option(None, 0.1, 30.0), "got None MHz for forward"),
    ],
)
def test_measurements_that_cannot_be(job, option, said):
    wrong = Measured(
        {**measured([F, B]).options, InstructionKind("forward", 0): (option,)}, None, 1
    )
    before = job.ranks[0].measured
    with pytest.raises(PipelineError, match=said):
        job.put_measurements(0, "session 0", wrong, 5.0)
    assert job.ranks[0].measured is before


def test_measurements_of_other_instructions_than_those_of_the_step(job):
    with pytest.raises(PipelineError, match="lacks backward and has in addition none"):
        job.put_measurements(0, "session 0", measured([F]), 5.0)
    with pytest.raises(PipelineError, match="has in addition evaluation"):
        job.put_measurements(0, "session 0", measured([F, B, Instruction("evaluation")]), 5.0)


@pytest.mark.parametrize(
    ("passage", "said"),
    [
        (StepTimes(3, (0.0,), (1.0,)), "of 2 in step 3 1 begin and 1 end"),
        (StepTimes(3, (0.0, 2.0), (1.0,)), "2 begin and 1 end"),
        (StepTimes(3, (0.0, 0.5), (1.0, 2.0)), "one after the other, but do not in step 3"),
    ],
)
def test_instants_that_cannot_be(job, passage, said):
    good = measured([F, B])
    assert Measured.from_dict(good.to_dict()) == good
    with pytest.raises(PipelineError, match=said):
        job.put_measurements(0, "session 0", replace(good, passages=(passage,)), 5.0)


def test_a_step_without_instructions_or_with_too_many_kinds(job):
    with pytest.raises(PipelineError, match="1 to 10000 instructions, but got 0"):
        job.put_sequence(0, "session 0", [], 5.0)
    many = [Instruction(f"kind {number}") for number in range(65)]
    with pytest.raises(PipelineError, match="at most 64 kinds of instructions, but got 65"):
        job.put_sequence(0, "session 0", many, 5.0)
    with pytest.raises(PipelineError, match="`name` must be printable"):
        job.put_sequence(0, "session 0", [Instruction("a\0b")], 5.0)


def test_a_straggler_must_be_a_pipeline_of_the_job(job):
    with pytest.raises(PipelineError, match="`0 <= dp_rank < 1` must hold, but got dp_rank=1"):
        job.put_straggler(Straggler(1, slowdown=1.2), 5.0)


# --- what follows ---------------------------------------------------------------------------------


def test_what_is_told_twice_changes_nothing(job):
    before = job.changes, job.version
    job.put_sequence(0, "session 0", [F, B], 5.0)
    job.put_measurements(0, "session 0", measured([F, B]), 5.0)
    job.put_straggler(Straggler(0, healthy=True), 5.0)
    assert (job.changes, job.version) == before


def test_one_rank_in_trouble_is_enough(job):
    job.put_trouble(1, "session 1", "no permission to set\nclocks", 5.0)
    assert job.status() == "cannot plan: rank 1 cannot take part: no permission to set clocks"
    assert not job.wants_plan()


def test_who_gets_into_trouble_later_does_not_stop_the_others(job):
    job.deploy("a plan", 4.0)
    job.put_trouble(1, "session 1", "the driver is gone", 5.0)
    assert job.planned
    assert job.status() == "planned, without rank 1"


def test_a_plan_needs_every_place_of_one_pipeline_only():
    job = PipelineJob("test", (2, 2, 1), 0.0, 0.0)
    for rank in range(4):
        job.register(registration(rank, (2, 2, 1)), 1.0, everybody)
        job.put_sequence(rank, f"session {rank}", [F, B], 1.0)
    for rank in (0, 3):
        assert not job.wants_plan()
        job.put_measurements(rank, f"session {rank}", measured([F, B]), 2.0)
    assert job.wants_plan()


def test_what_a_rank_reports_after_a_drift_counts_although_others_have_nothing_new(job):
    """Few steps showed the first correction, so it may be wrong until the others report again."""

    def report(rank: int, revision: int, *, urgent: bool = False) -> bool:
        found = replace(measured([F, B]), revision=revision, urgent=urgent)
        job.put_measurements(rank, f"session {rank}", found, 5.0)
        return job.wants_plan()

    job.deploy("a plan", 4.0)
    assert not report(0, 2)
    assert report(0, 3, urgent=True)
    job.deploy("a plan", 6.0)
    assert report(0, 4)
    job.deploy("a plan", 7.0)
    job.put_straggler(Straggler(0, slowdown=1.2), 8.0)
    assert not report(0, 5), "its recovery is found from steps under plans of equal time"
    assert [event.kind for event in job.happenings].count("drift") == 1


def test_a_late_replica_does_not_undo_the_plan():
    job = complete([[F, B], [F, B]], degrees=(2, 2, 1))
    job.deploy("a plan", 4.0)
    version = job.version
    job.put_sequence(3, "session 3", [F, F, B, B], 5.0)
    job.put_sequence(3, "session 3", [F, B], 5.0)
    job.put_measurements(3, "session 3", measured([F, B]), 5.0)
    assert job.planned
    assert job.version == version


def test_a_pipeline_that_is_gone_makes_nobody_wait():
    job = complete([[F, B], [F, B]], degrees=(2, 2, 1))
    job.put_straggler(Straggler(1, slowdown=1.5), 4.0)
    version = job.version
    job.forget_gone_stragglers(5.0, lambda rank: rank in (0, 1, 3))
    assert job.stragglers
    job.forget_gone_stragglers(6.0, lambda rank: rank in (0, 1))
    assert job.stragglers == {}
    assert job.version == version + 1
