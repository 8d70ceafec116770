"""Sums over trials: the same whether events are followed or rows are counted."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from sqlalchemy import text
from tests.optimizer.batch_size.histories import A40, random_history, spec
from tests.present import present

from zeus.frontier import Frontier, Point
from zeus.optimizer.batch_size.api._answers import ProfileInfo
from zeus.optimizer.batch_size.job._events import Event, Profiled
from zeus.optimizer.batch_size.policies._job_state import JobState
from zeus.optimizer.batch_size.storage import Changes, reading_jobs, writing_jobs
from zeus.optimizer.batch_size.storage._cache import CachedJob
from zeus.optimizer.batch_size.storage._job_transaction import JobTransaction
from zeus.optimizer.batch_size.storage._load import recalled
from zeus.optimizer.batch_size.storage._tally import Tally, ends_of
from zeus.store import Store
from zeus.store._engine import writing


def written(store: Store, events: list[Event], policy: str) -> Tally:
    """Write a history as a store does; return the tally that followed it."""
    with writing_jobs(store) as transaction:
        row = present(transaction.add_job(spec(policy=policy), at=1.0))
        job = JobTransaction(row, CachedJob(JobState(row.spec), 0, Tally()))
        for event in events:
            job.take(event)
        changes = Changes()
        job.collect(changes, now=2.0)
        transaction.write(changes)
    return job.known.tally


def sums(tally: Tally) -> dict:
    return {gpu: pytest.approx(asdict(known)) for gpu, known in tally.gpus.items()}


@pytest.mark.parametrize("seed", range(6))
def test_events_that_were_followed_and_rows_that_are_counted_give_the_same(tmp_path, seed):
    policy = ("zeus", "paper")[seed % 2]
    events = random_history(spec(policy=policy), seed, 400)
    store = Store(f"sqlite:///{tmp_path}/jobs.db")
    followed = written(store, events, policy)
    assert sum(known.trials for known in followed.gpus.values()) > 20
    assert any(known.unmeasured for known in followed.gpus.values())

    with reading_jobs(store) as view:
        stored = recalled(view, present(view.job("nightly"))).tally
    assert stored == followed  # from the account of the job
    with writing(store.engine) as connection:
        connection.execute(text("UPDATE zeus_accounts SET tally = NULL"))
    with reading_jobs(store) as view:
        counted = recalled(view, present(view.job("nightly"))).tally
    store.close()
    assert {gpu: asdict(known) for gpu, known in counted.gpus.items()} == sums(followed)
    assert counted.sequence == followed.sequence == len(events)


@pytest.mark.parametrize("damage", ["{}", "7", '{"gpus": [["A40", 1, {}]]}', "{", "é"])
def test_a_tally_that_cannot_be_read_is_counted_again(tmp_path, damage):
    store = Store(f"sqlite:///{tmp_path}/jobs.db")
    followed = written(store, random_history(spec(), 1, 100), "zeus")
    with writing(store.engine) as connection:
        connection.execute(text("UPDATE zeus_accounts SET tally = :it"), {"it": damage})
    with reading_jobs(store) as view:
        counted = recalled(view, present(view.job("nightly"))).tally
    store.close()
    assert {gpu: asdict(known) for gpu, known in counted.gpus.items()} == sums(followed)


def test_a_tally_survives_json():
    tally = Tally()
    brain = JobState(spec())
    for number, event in enumerate(random_history(spec(), 3, 80), 1):
        tally.apply(brain.spec, event, brain.apply(event))
        tally.sequence = number
    record = json.loads(json.dumps(tally.to_dict()))
    assert Tally.from_dict(record, 80) == tally


def profile(limit: float | None, *points: Point) -> ProfileInfo:
    frontier = Frontier(points, knob_unit="W", max_power=300.0).to_dict() if points else None
    return ProfileInfo(A40.name, 1, 64, 1.0, None, None, limit, frontier)


def test_full_power_is_the_highest_limit_of_the_profile():
    points = Point(100, 4.0, 300.0), Point(200, 2.5, 350.0), Point(300, 2.0, 500.0)
    assert ends_of(profile(200.0, *points)) == [350.0, 2.5, 500.0, 2.0]
    assert ends_of(profile(300.0, *points)) == [500.0, 2.0, 500.0, 2.0]
    assert ends_of(profile(150.0, *points)) is None  # which was not measured
    assert ends_of(profile(None, *points)) is None
    assert ends_of(profile(200.0)) is None
    assert ends_of(profile(200.0, Point("low", 1.0, 1.0))) is None


def test_only_profiles_of_the_default_count():
    tally, job = Tally(), spec()
    frontier = present(profile(200.0, Point(200, 1.0, 150.0)).frontier)
    for size, changes in ((32, False), (64, True), (64, False)):
        event = Profiled(
            trial=0, at=1.0, gpu=A40.name, batch_size=size, power_limit=200.0, frontier=frontier
        )
        assert tally.apply(job, event, None) is changes
    assert tally.gpus[A40].profile == [150.0, 1.0, 150.0, 1.0]
