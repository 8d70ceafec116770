"""Jobs on a store: many at once, in one batch and from several services, and hostile values."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optimizer.batch_size.histories import spec
from tests.optimizer.batch_size.storage.test_service import (
    GPU,
    _event,
    clock,
    jobs,
    outcome,
    whole_log,
)

from zeus.errors import JobLogError, StorageError, TokenError, UnknownJobError
from zeus.optimizer.batch_size.api._answers import Decision
from zeus.optimizer.batch_size.api._commands import (
    CreateJob,
    Decide,
    DeleteJob,
    EndTrial,
    ListJobs,
    ReportEpoch,
)
from zeus.optimizer.batch_size.job import _values as values
from zeus.optimizer.batch_size.job._events import Decided, event_from
from zeus.optimizer.batch_size.policies._job_state import JobState
from zeus.optimizer.batch_size.storage import writing_jobs
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.store import Store

__all__ = ["clock", "jobs"]  # fixtures

# --- many at once -------------------------------------------------------------------------------


def test_commands_of_one_batch_do_not_disturb_each_other(jobs):
    same = Decide(job="nightly", request="r", **GPU)
    first, again, unknown, refused, created, begun = jobs.execute(
        [
            same,
            same,
            Decide(job="nobody", request="r", **GPU),
            Decide(job="nightly", request="bad", gpu="", max_power=1.0),
            CreateJob(spec=spec("new")),
            Decide(job="new", request="r", **GPU),
        ]
    )
    assert first == again
    assert isinstance(unknown, UnknownJobError)
    assert isinstance(refused, JobLogError)
    assert created.name == begun.job == "new"
    report = ReportEpoch(trial=first.trial, epoch=1, time=1.0, metric=0.99)
    answers = jobs.execute(
        [report, report, DeleteJob(job="new"), EndTrial(trial=begun.trial, outcome="x")]
    )
    assert answers[0] == answers[1]
    assert answers[0].outcome == "converged"
    assert isinstance(answers[3], UnknownJobError)
    assert [info.name for info in jobs.do(ListJobs())] == ["nightly"]
    assert len(whole_log(jobs)) == 3


def test_a_batch_is_answered_as_its_commands_one_by_one(storage, tmp_path):
    """Whatever the mixture: decisions of many jobs, some of them twice, retried and repeated."""
    chance = random.Random(5)
    together, alone = (
        Jobs(Store(storage), lambda: 2e9),
        Jobs(Store(f"sqlite:///{tmp_path}/alone.db"), lambda: 2e9),
    )
    names = [f"job {number}" for number in range(12)]
    for number, name in enumerate(names):
        policy = ("zeus", "zeus", "zeus", "paper")[number % 4]
        for service in (together, alone):
            service.do(CreateJob(spec=spec(name, policy=policy, max_epochs=3)))
    running: list[str] = []
    for turn in range(25):
        commands: list[Any] = []
        for name in chance.choices(names, k=8):
            run = f"{name} {turn % 3}" if chance.random() < 0.3 else None
            replicas = chance.choice([None, None, 2, 3])  # of which the last cannot share
            request = f"{turn // 2} {chance.randrange(2)}"
            commands.append(Decide(job=name, **GPU, request=request, run=run, replicas=replicas))
        for trial in running:
            metric = chance.choice([0.1, 0.5, 0.95])
            report: dict[str, Any]
            report = {"epoch": chance.choice([1, 1, 2, 3]), "time": 1.0, "metric": metric}
            energy = chance.uniform(100, 200)
            commands.append(ReportEpoch(trial=trial, energy=energy, **report))
        chance.shuffle(commands)
        answers = together.execute(commands)
        expected = [alone.execute([command])[0] for command in commands]
        assert list(map(repr, answers)) == list(map(repr, expected))
        begun = [each.trial for each in answers if isinstance(each, Decision)]
        running = sorted({*running, *begun})[-20:]
    assert sum(info.trials for info in together.do(ListJobs())) > 60
    for name in names:
        assert whole_log(together, name) == whole_log(alone, name)
    together.close()
    alone.close()


def test_a_scope_is_for_one_job(jobs):
    jobs.do(CreateJob(spec=spec("other")))
    mine, theirs = (
        jobs.do(Decide(job="nightly", **GPU)).trial,
        jobs.do(Decide(job="other", **GPU)).trial,
    )
    answers = jobs.execute(
        [
            EndTrial(scope="nightly", trial=mine, outcome="failed"),
            EndTrial(scope="nightly", trial=theirs, outcome="failed"),
            EndTrial(scope="nightly", trial="999-1", outcome="failed"),
            DeleteJob(scope="nightly", job="other"),
            DeleteJob(scope="nightly", job="unheard of"),
            CreateJob(scope="nightly", spec=spec("third")),
            Decide(scope="nightly", job="other", request="r", **GPU),
            CreateJob(scope="nightly", spec=spec("nightly")),
        ]
    )
    assert [type(answer) for answer in answers[1:7]] == [TokenError] * 6
    assert answers[0].outcome == "failed"
    assert answers[7].name == "nightly"
    assert [info.name for info in jobs.do(ListJobs())] == ["nightly", "other"]
    assert outcome(jobs, 1, "other") == "running"


def test_a_bug_in_one_job_does_not_hurt_others(jobs, storage):
    # As a store would look that something else has written to.
    store = Store(storage)
    with writing_jobs(store) as transaction:
        transaction._connection.exec_driver_sql(
            "UPDATE zeus_jobs SET spec = '{\"name\": 1}', sequence = 5 WHERE name = 'nightly'"
        )
    jobs = Jobs(store)
    jobs.do(CreateJob(spec=spec("fine")))
    broken, fine = jobs.execute(
        [Decide(job=name, request="r", **GPU) for name in ("nightly", "fine")]
    )
    assert isinstance(broken, Exception)
    assert fine.batch_size == 64
    jobs.close()


def test_a_failing_store_leaves_no_trace_in_memory(jobs, storage):
    trial = jobs.do(Decide(job="nightly", **GPU)).trial
    other = Store(storage)
    with writing_jobs(other) as transaction:
        transaction._connection.exec_driver_sql(
            "ALTER TABLE zeus_events RENAME COLUMN payload TO hidden"
        )
    report: dict[str, Any] = {"time": 1.0, "metric": 0.1}
    with pytest.raises(StorageError):
        jobs.do(ReportEpoch(trial=trial, epoch=1, **report))
    with writing_jobs(other) as transaction:
        transaction._connection.exec_driver_sql(
            "ALTER TABLE zeus_events RENAME COLUMN hidden TO payload"
        )
    other.close()
    assert jobs.do(ReportEpoch(trial=trial, epoch=1, **report)).go_on
    assert [event["kind"] for event in whole_log(jobs)] == ["decided", "epoch"]


def test_several_services_on_one_store_decide_as_one(storage):
    """As several servers do: each has a memory of its own, and the log is still one story."""
    services = [Jobs(Store(storage)) for _ in range(3)]
    for service in services:
        service.do(CreateJob(spec=spec(max_epochs=12)))
    failed: list[Exception] = []
    barrier = threading.Barrier(6)

    def live(number: int) -> None:
        chance = random.Random(number)
        barrier.wait()
        try:
            for turn in range(5):
                service = chance.choice(services)
                request = f"{number} {turn}"
                decision = service.do(Decide(job="nightly", **GPU, request=request))
                for epoch in range(1, 13):
                    service = chance.choice(services)
                    metric = 0.95 if chance.random() < 0.3 else 0.1
                    report: dict[str, Any]
                    report = {"epoch": epoch, "time": 1.0, "energy": 200.0, "metric": metric}
                    verdict = service.do(ReportEpoch(trial=decision.trial, **report))
                    again = chance.choice(services).do(ReportEpoch(trial=decision.trial, **report))
                    assert again == verdict
                    if not verdict.go_on:
                        break
        except Exception as error:
            failed.append(error)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(live, range(6)))
    assert failed == []
    log = whole_log(services[0])
    assert [event["sequence"] for event in log] == list(range(1, len(log) + 1))
    # The log obeys all its rules, and every decision in it is the one that follows from it.
    events = [event_from(_event(record)) for record in log]
    brain = JobState(spec(max_epochs=12))
    for event in events:
        if isinstance(event, Decided):
            choice = brain.decide(event.model, event.attempt)
            assert choice.batch_size == event.batch_size
            assert choice.threshold == event.threshold
        brain.apply(event)
    assert brain.log.trials == 30
    assert not brain.log.open
    for service in services:
        service.close()


# --- hostile values -----------------------------------------------------------------------------

extreme = st.one_of(
    st.floats(0, values.MAX_JOULES), st.sampled_from([0.0, 5e-324, 1e-300, values.MAX_JOULES])
)


@settings(max_examples=30)
@given(
    policy=st.sampled_from(["zeus", "paper", "grid", "default"]),
    reports=st.lists(
        st.tuples(
            st.floats(5e-324, values.MAX_SECONDS),
            st.none() | extreme,
            st.none() | st.floats(-values.MAX_METRIC, values.MAX_METRIC),
            st.none() | st.floats(5e-324, values.MAX_WATTS),
        ),
        min_size=1,
        max_size=25,
    ),
    max_power=st.floats(5e-324, values.MAX_WATTS),
    eta=st.floats(0, 1),
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_whatever_is_reported_there_is_a_next_decision(
    tmp_path_factory, policy, reports, max_power, eta
):
    where = tmp_path_factory.mktemp("hostile") / "jobs.db"
    jobs = Jobs(Store(f"sqlite:///{where}"))
    jobs.do(CreateJob(spec=spec(policy=policy, eta_knob=eta, max_epochs=4)))
    epoch, trial = 0, None
    for time, energy, metric, power_limit in reports:
        if trial is None:
            decision = jobs.do(Decide(job="nightly", gpu="g", max_power=max_power))
            assert decision.batch_size in spec().batch_sizes
            epoch, trial = 0, decision.trial
        epoch += 1
        verdict = jobs.do(
            ReportEpoch(
                trial=trial,
                epoch=epoch,
                time=time,
                energy=energy,
                metric=metric,
                power_limit=power_limit,
            )
        )
        if not verdict.go_on:
            trial = None
    assert jobs.do(Decide(job="nightly", gpu="g", max_power=max_power)).batch_size
    jobs.close()
