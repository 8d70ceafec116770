"""Pipeline jobs on a store: what outlives a restart, several at once, and who is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select, update
from tests.optimizer.pipeline_frequency.job.reports import (
    instructions,
    measured,
    registering,
    registration,
)
from tests.present import present

from zeus.errors import JobConflictError, PipelineError, UnknownJobError
from zeus.optimizer.pipeline_frequency._schedules import Shape, one_forward_one_backward
from zeus.optimizer.pipeline_frequency.api._answers import PipelineInfo
from zeus.optimizer.pipeline_frequency.api._commands import (
    DeletePipeline,
    Leave,
    ListPipelines,
    PutMeasurements,
    PutSequence,
    ReportProgress,
    ReportSteps,
    ReportStraggler,
    ReportTrouble,
    ShowFrontier,
    ShowHistory,
    ShowPipeline,
    ShowPlan,
)
from zeus.optimizer.pipeline_frequency.job._messages import (
    Instruction,
    StepReport,
    StepSums,
    Straggler,
)
from zeus.optimizer.pipeline_frequency.job._progress import Progress
from zeus.optimizer.pipeline_frequency.storage._presence import LEASE
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines
from zeus.store import Store
from zeus.store._tables import pipeline_histories

ORDERS = [instructions(steps, 2) for steps in one_forward_one_backward(Shape(2, 2, 4))]


class Time:
    """Seconds since 1970, as told."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def store(storage):
    store = Store(storage)
    yield store
    store.close()


def tell_all(api: Pipelines, degrees=(1, 2, 1), job: str = "test", run: str = "") -> list:
    """Let every rank tell everything; what each was answered last."""
    answers = []
    for rank in range(degrees[0] * degrees[1] * degrees[2]):
        who = registration(rank, degrees, f"session {rank}{run}")
        place = who.seat.pp_rank
        api.do(registering(job, who))
        api.do(PutSequence(job=job, rank=rank, session=who.session, instructions=ORDERS[place]))
        loads = {("forward", 0): 1.0 + 0.3 * place, ("backward", 0): 1.0 + 0.3 * place}
        answers.append(
            api.do(
                PutMeasurements(
                    job=job,
                    rank=rank,
                    session=who.session,
                    **measured(ORDERS[place], loads).to_dict(),
                )
            )
        )
    return answers


def test_everything_outlives_a_restart(store, storage, time):
    first = Pipelines(store, time)
    *_, last = tell_all(first, (2, 2, 1))
    assert last.state == "plan"
    first.do(ReportStraggler(job="test", straggler=Straggler(1, slowdown=1.2)))
    standings = [
        first.do(ShowPlan(job="test", rank=rank, session=f"session {rank}")) for rank in range(4)
    ]
    assert standings[0].clocks != standings[2].clocks, "the others take their time"
    again_store = Store(storage)
    again = Pipelines(again_store, time)
    assert [
        again.do(ShowPlan(job="test", rank=rank, session=f"session {rank}")) for rank in range(4)
    ] == standings
    assert again.do(ShowPipeline(job="test")) == first.do(ShowPipeline(job="test"))
    assert again.do(ShowFrontier(job="test")) == first.do(ShowFrontier(job="test"))
    assert again.events("test") == first.events("test")
    assert [event.kind for event in again.events("test")] == ["straggler", "plan"]
    assert again.waiting_for_plan() == []
    again_store.close()


class Interruption(Time):
    """Has something happen when the time is asked for next."""

    def __init__(self) -> None:
        super().__init__()
        self.happen: Callable[[], object] | None = None

    def __call__(self) -> float:
        happen, self.happen = self.happen, None
        if happen is not None:
            happen()
        return self.now


def test_who_registers_while_a_plan_is_made_does_not_leave_the_others_without(store):
    """What the plan was made of has changed then, although nothing else will be measured."""
    time = Interruption()
    asked: list[str] = []
    pipelines = Pipelines(store, time, plan_soon=asked.append)
    tell_all(pipelines, (1, 2, 1))
    for rank in (0, 1):
        who = registration(rank, (2, 2, 1), f"session {rank}")
        pipelines.do(registering("wide", who))
        pipelines.do(
            PutSequence(job="wide", rank=rank, session=who.session, instructions=ORDERS[rank])
        )
        pipelines.do(
            PutMeasurements(
                job="wide", rank=rank, session=who.session, **measured(ORDERS[rank]).to_dict()
            )
        )
    assert asked == ["test", "wide"]
    late = registration(2, (2, 2, 1), "session 2")
    time.happen = lambda: pipelines.do(registering("wide", late))
    pipelines.solve("wide")
    assert time.happen is None, "it did happen"
    assert pipelines.do(ShowPlan(job="wide", rank=0, session="session 0")).state == "plan"


def test_who_could_not_take_part_and_leaves_makes_way_for_a_plan(store, time):
    pipelines = Pipelines(store, time)
    first = registration(2, (2, 2, 1), "session 2")
    pipelines.do(registering("test", first))
    pipelines.do(ReportTrouble(job="test", rank=2, session=first.session, message="no permission"))
    for rank in (0, 1):
        who = registration(rank, (2, 2, 1), f"session {rank}")
        pipelines.do(registering("test", who))
        pipelines.do(
            PutSequence(job="test", rank=rank, session=who.session, instructions=ORDERS[rank])
        )
        pipelines.do(
            PutMeasurements(
                job="test", rank=rank, session=who.session, **measured(ORDERS[rank]).to_dict()
            )
        )
    assert pipelines.do(ShowPlan(job="test", rank=0, session="session 0")).state != "plan"
    pipelines.do(Leave(job="test", rank=2, session=first.session))
    assert pipelines.do(ShowPlan(job="test", rank=0, session="session 0")).state == "plan"


def test_two_servers_on_one_store_agree(store, storage, time):
    other_store = Store(storage)
    here, there = Pipelines(store, time), Pipelines(other_store, time)
    tell_all(here, (2, 2, 1))
    before = there.do(ShowPlan(job="test", rank=0, session="session 0"))
    assert before.state == "plan"
    here.do(ReportStraggler(job="test", straggler=Straggler(1, slowdown=1.2)))
    # Who waits at the other one hears of it, too.
    after = there.do(
        ShowPlan(job="test", rank=0, session="session 0", version=before.version, wait=30.0)
    )
    assert after.version > before.version
    assert after == here.do(ShowPlan(job="test", rank=0, session="session 0"))
    other_store.close()


def test_who_waits_is_answered_when_something_changes(store, time):
    api = Pipelines(store, time)
    tell_all(api, (2, 2, 1))
    version = api.do(ShowPipeline(job="test"))["version"]
    heard = []
    waiting = threading.Thread(
        target=lambda: heard.append(
            api.do(ShowPlan(job="test", rank=0, session="session 0", version=version, wait=60.0))
        )
    )
    waiting.start()
    api.do(ReportStraggler(job="test", straggler=Straggler(1, slowdown=1.3)))
    waiting.join(30.0)
    assert heard[0].version == version + 1


def test_what_is_refused_leaves_no_trace(store, storage, time):
    api = Pipelines(store, time)
    tell_all(api)
    before = api.do(ShowPipeline(job="test"))
    with pytest.raises(JobConflictError):
        api.do(PutSequence(job="test", rank=0, session="another session", instructions=ORDERS[0]))
    with pytest.raises(PipelineError):
        api.do(
            PutSequence(job="test", rank=0, session="session 0", instructions=[Instruction("a\nb")])
        )
    with pytest.raises(PipelineError):
        api.do(ReportStraggler(job="test", straggler=Straggler(5, slowdown=1.2)))
    with pytest.raises(PipelineError):
        api.do(registering("a\0b", registration()))
    for name in ("nobody", "a\0b"):
        with pytest.raises(UnknownJobError):
            api.do(ShowPipeline(job=name))
    assert api.do(ShowPipeline(job="test")) == before
    assert Pipelines(store, time).do(ShowPipeline(job="test")) == before


def test_a_rank_that_says_nothing_is_lost_and_a_new_run_may_begin(store, time):
    api = Pipelines(store, time)
    tell_all(api, (2, 2, 1))
    api.do(ReportStraggler(job="test", straggler=Straggler(1, slowdown=1.2)))
    time.now += 0.9 * LEASE
    for rank in (0, 1):
        api.do(ShowPlan(job="test", rank=rank, session=f"session {rank}"))
    time.now += 0.2 * LEASE
    states = [rank["state"] for rank in api.do(ShowPipeline(job="test"))["ranks"]]
    assert states == ["measured", "measured", "lost", "lost"]
    assert api.numbers() == (1, 2)
    api.sweep()
    assert api.do(ShowPipeline(job="test"))["stragglers"] == [], (
        "nobody waits for a pipeline that is gone"
    )
    api.sweep()
    said = [event.message for event in api.events("test")]
    assert said[:2] == ["pipeline 1 is gone", "lost contact with ranks 2, 3"]
    assert len(said) == 4, "it is said once"
    time.now += 2 * LEASE
    tell_all(api, (1, 2, 1), run=" of the next run")
    job = api.do(ShowPipeline(job="test"))
    assert (job["dp_degree"], job["registered"], job["status"]) == (1, 2, "planned")


def test_a_restarted_server_gives_ranks_time_to_be_heard_of(store, time):
    tell_all(Pipelines(store, time))
    time.now += 10 * LEASE
    again = Pipelines(store, time)
    assert again.do(ShowPipeline(job="test"))["alive"] == 2
    time.now += 1.1 * LEASE
    assert again.do(ShowPipeline(job="test"))["alive"] == 0


def test_orders_that_do_not_fit_are_told_to_everybody_until_they_do(store, time):
    api = Pipelines(store, time)
    api.do(registering("test", registration(0)))
    api.do(registering("test", registration(1)))
    short = ORDERS[1][:2]
    api.do(PutSequence(job="test", rank=0, session="session 0", instructions=ORDERS[0]))
    api.do(PutSequence(job="test", rank=1, session="session 1", instructions=short))
    api.do(
        PutMeasurements(job="test", rank=0, session="session 0", **measured(ORDERS[0]).to_dict())
    )
    answer = api.do(
        PutMeasurements(job="test", rank=1, session="session 1", **measured(short).to_dict())
    )
    assert (answer.state, "stage 1 has 1 and stage 0 has 4" in answer.message) == (
        "cannot plan",
        True,
    )
    assert api.do(ShowPlan(job="test", rank=0, session="session 0")).state == "cannot plan"
    assert api.do(ShowFrontier(job="test"))["points"] == []
    api.do(PutSequence(job="test", rank=1, session="session 1", instructions=ORDERS[1]))
    assert api.do(ShowPlan(job="test", rank=0, session="session 0")).state == "wait"
    assert (
        api.do(
            PutMeasurements(
                job="test", rank=1, session="session 1", **measured(ORDERS[1]).to_dict()
            )
        ).state
        == "plan"
    )


def test_jobs_are_listed_and_forgotten(store, time):
    api = Pipelines(store, time)
    for name in ("one", "two"):
        tell_all(api, job=name)
    assert [job["name"] for job in api.do(ListPipelines())] == ["one", "two"]
    api.do(DeletePipeline(job="one"))
    assert [job["name"] for job in api.do(ListPipelines())] == ["two"]
    with pytest.raises(UnknownJobError, match="no pipeline job 'one'"):
        api.do(DeletePipeline(job="one"))
    with pytest.raises(UnknownJobError):
        api.do(ShowPlan(job="one", rank=0, session="session 0"))
    tell_all(api, job="one")
    assert api.do(ShowPipeline(job="one"))["version"] == 2


def test_progress_is_that_of_ranks_that_measure_now(store, time):
    api = Pipelines(store, time)
    for rank in (0, 1):
        who = registration(rank)
        api.do(registering("test", who))
        api.do(PutSequence(job="test", rank=rank, session=who.session, instructions=ORDERS[rank]))

    def report(rank: int, *progress: Any) -> None:
        of: dict[str, Any] = {"job": "test", "rank": rank, "session": f"session {rank}"}
        answer = api.do(ReportProgress(**of, progress=Progress(*progress)))
        assert answer.state == "measure"

    assert api.do(ShowPipeline(job="test"))["progress"] == ""
    report(0, 5, 6, 4, 6, 8.0)
    report(1, 4, 9, 3, 6, 8.0)
    found = api.do(ShowPipeline(job="test"))
    assert found["progress"] == "measuring, step 5 of about 9, about 40 seconds left"
    assert api.do(ListPipelines())[0]["progress"] == found["progress"]
    assert found["ranks"][0]["measuring"] == {
        "steps": 5,
        "expected_steps": 6,
        "clocks": 4,
        "expected_clocks": 6,
        "seconds_left": 8.0,
    }
    loads = {("forward", 0): 1.0, ("backward", 0): 1.0}
    reported = measured(ORDERS[1], loads).to_dict()
    api.do(PutMeasurements(job="test", rank=1, session="session 1", **reported))
    found = api.do(ShowPipeline(job="test"))
    assert found["progress"] == "measuring, step 6 of about 6, about 8 seconds left"
    assert found["ranks"][1]["measuring"] is None
    time.now += 2 * LEASE
    assert api.do(ShowPipeline(job="test"))["progress"] == "", "a lost rank measures nothing"


def report_steps(api: Pipelines, steps: int, *, rank: int = 0, references: int = 1) -> None:
    """A rank tells of steps of 2 s and 100 J under the plan, and reference steps of 150 J."""
    version = api.do(ShowPipeline(job="test"))["version"]

    def sums(count: int, joules: float) -> StepSums:
        return StepSums(count, 2.0 * count, 4.0 * count, 2.0 * count, count, joules * count)

    report = StepReport(version, sums(steps, 100.0), sums(references, 150.0), StepSums())
    api.do(ReportSteps(job="test", rank=rank, session=f"session {rank}", report=report))


def test_the_history_outlives_a_restart_and_goes_on(store, storage, time):
    api = Pipelines(store, time)
    tell_all(api)
    for steps in (5, 10, 15):
        report_steps(api, steps)
        time.now += 10.0
    api.close()
    before = api.do(ShowHistory(job="test"))
    assert before["periods"][0]["steps"] == 15
    assert before["periods"][0]["planned"] is not None
    assert before["energy"] == {"since": 1000.0, "joules": 15 * 100 + 150.0, "steps": 16}
    other = Store(storage)
    again = Pipelines(other, time)
    assert again.do(ShowHistory(job="test")) == before
    report_steps(again, 20)
    found = again.do(ShowHistory(job="test"))
    assert found["periods"][0]["steps"] == 20
    assert present(found["energy"])["joules"] == 20 * 100 + 150.0, "each step counts once"
    assert [each["steps"] for each in found["points"]] == [10, 5, 5]
    again.do(DeletePipeline(job="test"))
    tell_all(again)
    assert again.do(ShowHistory(job="test")) == {"periods": [], "points": [], "energy": None}
    other.close()


def test_two_servers_on_one_store_write_one_history(store, storage, time):
    """Ranks may report now to one and now to the other."""
    other = Store(storage)
    servers = Pipelines(store, time), Pipelines(other, time)
    tell_all(servers[0])
    for steps in range(1, 41):
        for rank in (0, 1):
            report_steps(servers[(steps + rank) % 2], steps, rank=rank)
        time.now += 2.0
    for server in servers:
        server.close()
    for server in servers:
        found = server.do(ShowHistory(job="test"))
        assert (found["periods"][0]["steps"], found["periods"][0]["ranks"]) == (40, 2)
        assert present(found["energy"])["joules"] == 2 * (40 * 100 + 150.0)
    other.close()


def test_a_damaged_history_is_kept_and_the_job_goes_on(store, time, caplog):
    api = Pipelines(store, time)
    tell_all(api)
    report_steps(api, 5)
    api.close()
    with store.writing() as connection:
        connection.execute(update(pipeline_histories).values(record="{}"))
    again = Pipelines(store, time)
    report_steps(again, 6)
    again.close()
    assert again.do(ShowHistory(job="test"))["periods"][0]["steps"] == 6
    assert "cannot be read" in caplog.text
    with store.reading() as connection:
        assert connection.execute(select(pipeline_histories.c.record)).scalar() == "{}"


def test_a_large_job_gets_a_first_plan_while_the_rest_is_planned(store, time):
    seen: list[PipelineInfo] = []

    def look(job: str) -> None:
        seen.append(api.do(ShowPipeline(job=job)))

    api = Pipelines(store, time, changed=look, planning_seconds=20.0)
    orders = [instructions(steps, 2) for steps in one_forward_one_backward(Shape(2, 2, 501))]
    for rank, order in enumerate(orders):
        who = registration(rank)
        api.do(registering("test", who))
        api.do(PutSequence(job="test", rank=rank, session=who.session, instructions=order))
        loads = {("forward", 0): 1.0 + 0.3 * rank, ("backward", 0): 1.0 + 0.3 * rank}
        reported = measured(order, loads).to_dict()
        answer = api.do(PutMeasurements(job="test", rank=rank, session=who.session, **reported))
    first, last = seen
    assert (first["status"], last["status"]) == ("planned", "planned")
    assert first["progress"] == "planning the rest"
    assert api.do(ShowPipeline(job="test"))["progress"] == ""
    assert (answer.state, answer.version) == ("plan", last["version"])
    assert last["version"] == first["version"] + 1
    messages = [each.message for each in api.events("test") if each.kind == "plan"]
    assert [message.startswith("a first plan") for message in messages] == [False, True]
