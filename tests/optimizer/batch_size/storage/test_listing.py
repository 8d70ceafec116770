"""Lists of jobs: in every order, of some only, page by page, and summed up."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text
from tests.optimizer.batch_size.histories import spec

from zeus.errors import JobSpecError, RequestError, UnknownJobError
from zeus.optimizer.batch_size.api._commands import (
    SORTS,
    STATES,
    CreateJob,
    Decide,
    EndTrial,
    ListEpochs,
    ListJobs,
    ReportEpoch,
    ShowJob,
    ShowTrial,
    SumJobs,
    TagJob,
)
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.store import Store
from zeus.store._engine import open_engine, writing
from zeus.store._schema import upgrade


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def jobs(storage, clock):
    service = Jobs(Store(storage), clock)
    yield service
    service.close()


def run(
    jobs: Jobs, job: str, energy: float | None, metric: float = 0.95, gpu: str = "NVIDIA A40"
) -> str:
    """A trial of one epoch; one without the target fails."""
    trial = jobs.do(Decide(job=job, gpu=gpu, max_power=300.0)).trial
    jobs.do(ReportEpoch(trial=trial, epoch=1, time=10.0, energy=energy, metric=metric))
    if metric < 0.9:
        jobs.do(EndTrial(trial=trial, outcome="failed", note="no"))
    return trial


@pytest.fixture
def several(jobs, clock):
    """Jobs that differ in everything."""
    one_size = {"batch_sizes": (64,)}
    for name, tags in (("alpha", ("red", "blue")), ("beta", ("red",)), ("Gamma", ()), ("100%", ())):
        jobs.do(CreateJob(spec=spec(name, **one_size), tags=tags))
        clock.now += 10.0
    run(jobs, "alpha", 1000.0)
    clock.now += 100.0
    run(jobs, "beta", 3000.0)
    run(jobs, "beta", 500.0, 0.5, "Tesla V100")
    run(jobs, "beta", 700.0, 0.6, "Tesla V100")
    clock.now += 100.0
    jobs.do(Decide(job="Gamma", gpu="NVIDIA A40", max_power=300.0))
    return jobs


def names(jobs: Jobs, **asked) -> list[str]:
    return [job.name for job in jobs.do(ListJobs(**asked))]


@pytest.mark.parametrize("sort", SORTS)
def test_every_order_lists_every_job_once_and_unknown_last(several, sort):
    rising, falling = (names(several, sort=sort, reverse=reverse) for reverse in (False, True))
    assert sorted(rising) == sorted(falling) == sorted(["alpha", "beta", "Gamma", "100%"])
    paged = [name for skip in range(4) for name in names(several, sort=sort, skip=skip, most=1)]
    assert paged == rising
    if sort in ("saved", "wasted", "energy", "saved_time", "cost"):
        assert set(rising[:2]) == set(falling[:2]) == {"alpha", "beta"}


def test_orders(several):
    assert names(several, sort="wasted")[0] == "beta"
    assert names(several, sort="saved") == ["alpha", "beta", "100%", "Gamma"]
    assert names(several, sort="trouble")[0] == "beta"
    assert names(several, sort="updated")[0] == "Gamma"
    assert names(several, sort="created") == ["100%", "Gamma", "beta", "alpha"]
    assert names(several, sort="trials", most=1) == ["beta"]
    assert names(several, sort="running", most=1) == ["Gamma"]
    assert names(several, sort="gpu")[-2:] == ["beta", "100%"]
    assert names(several, sort="state")[:2] == ["alpha", "beta"]  # converged, failed


def test_filters(several, clock):
    assert names(several, text="A") == ["Gamma", "alpha", "beta"]
    assert names(several, text="%") == ["100%"]  # not a wildcard
    assert names(several, tag="red") == ["alpha", "beta"]
    assert names(several, tag="green") == []
    assert names(several, gpu="Tesla V100") == ["beta"]
    assert names(several, trouble=True) == ["beta"]
    by_state = {state: names(several, state=state) for state in STATES}
    assert {state: found for state, found in by_state.items() if found} == {
        "running": ["Gamma"],
        "converged": ["alpha"],
        "failed": ["beta"],
        "new": ["100%"],
    }
    assert names(several, since=clock.now) == ["Gamma"]
    assert names(several, until=clock.now - 1, tag="red") == ["alpha", "beta"]
    assert names(several, tag="red", sort="wasted", most=1) == ["beta"]
    assert names(several, scope="beta") == ["beta"]
    assert names(several, after="Gamma") == ["alpha", "beta"]
    assert names(several, after="beta", reverse=True) == ["alpha", "Gamma", "100%"]


def test_what_a_list_says_of_a_job(several):
    alpha, beta = several.do(ListJobs(tag="red"))
    assert (alpha.tags, alpha.state, alpha.gpu, alpha.gpus) == (
        ["blue", "red"], "converged", "NVIDIA A40", 1,
    )  # fmt: skip
    assert (alpha.energy, alpha.time, alpha.wasted, alpha.unmeasured) == (1000.0, 10.0, 0.0, 0)
    assert (alpha.saved_energy, alpha.default_energy, alpha.basis) == (0.0, 1000.0, "measured")
    assert beta.energy == 4200.0
    assert beta.wasted == 1200.0
    assert beta.saved_energy == -1200.0  # runs that miss the target count against it
    assert beta.trouble == (
        "target not reached by batch size 64 in the latest 2 recurrences; best metric 0.6"
    )
    new = several.do(ShowJob(job="100%"))
    assert (new.state, new.energy, new.saved_energy, new.batch_size) == ("", None, None, None)
    assert new.comparison == "no run has reached the target yet"


def test_totals(several):
    totals = several.do(SumJobs())
    assert (totals.jobs, totals.running, totals.trouble, totals.compared) == (4, 1, 1, 2)
    assert (totals.energy, totals.wasted) == (5200.0, 1200.0)
    assert (totals.saved_energy, totals.default_energy) == (-1200.0, 4000.0)
    some = several.do(SumJobs(state="new"))
    assert (some.jobs, some.energy, some.saved_energy, some.default_energy) == (1, 0.0, None, None)
    assert several.do(SumJobs(scope="alpha")).jobs == 1


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"sort": "luck"}, "`sort` must be one of name, saved, .*, but got 'luck'"),
        ({"state": "odd"}, "`state` must be one of running, .*, but got 'odd'"),
        ({"text": "a\0"}, "`text` must be printable"),
        ({"sort": "saved", "after": "x"}, "`after` is for lists sorted by name, .*use `skip`"),
        ({"most": 0}, "`1 <= most <= 1000` must hold"),
    ],
)
def test_a_list_that_cannot_be(jobs, asked, rule):
    with pytest.raises(RequestError, match=rule):
        jobs.do(ListJobs(**asked))


def test_tags_change_and_are_no_part_of_a_job(jobs):
    made = jobs.do(CreateJob(spec=spec(), tags=("b", "a")))
    assert made.tags == ["a", "b"]
    # The same job: what is there stays.
    assert jobs.do(CreateJob(spec=spec(), tags=("c",))).tags == ["a", "b"]
    assert jobs.do(TagJob(job="nightly", tags=("z", "a"))).tags == ["a", "z"]
    assert jobs.do(ShowJob(job="nightly")).tags == ["a", "z"]
    assert jobs.do(TagJob(job="nightly", tags=())).tags == []
    with pytest.raises(UnknownJobError):
        jobs.do(TagJob(job="none", tags=()))
    wrong: tuple[tuple[Any, str], ...] = (
        (["a", "a"], "`tags` must differ"),
        (["\n"], "`tags` must"),
        (["x" * 65], "at most 64 characters"),
        ([str(n) for n in range(33)], "at most 32 texts"),
        ("red", "must be a list of texts"),
    )
    for bad, rule in wrong:
        with pytest.raises(JobSpecError, match=rule):
            TagJob(job="nightly", tags=bad)


def test_a_trial_and_its_epochs(jobs):
    jobs.do(CreateJob(spec=spec(batch_sizes=(64,))))
    trial = jobs.do(Decide(job="nightly", gpu="NVIDIA A40", max_power=300.0)).trial
    for epoch, metric in enumerate((0.3, 0.7, 0.5), 1):
        jobs.do(
            ReportEpoch(
                trial=trial, epoch=epoch, time=10.0, energy=100.0, metric=metric, power_limit=200.0
            )
        )
    info = jobs.do(ShowTrial(trial=trial))
    assert (info.metric, info.best, info.epochs, info.state) == (0.5, 0.7, 3, "running")
    assert info.reason == "the default batch size"
    epochs = jobs.do(ListEpochs(trial=trial))
    assert [each.metric for each in epochs] == [0.3, 0.7, 0.5]
    assert (epochs[0].time, epochs[0].energy, epochs[0].power_limit) == (10.0, 100.0, 200.0)
    assert [each.epoch for each in jobs.do(ListEpochs(trial=trial, after=1, most=1))] == [2]
    for unknown in ("1-9", "9-1", "x"):
        with pytest.raises(UnknownJobError):
            jobs.do(ShowTrial(trial=unknown))


def test_an_older_store_is_counted_when_it_is_listed(storage, several, clock):
    listed = several.do(ListJobs())
    engine = open_engine(storage)
    with writing(engine) as connection:
        connection.execute(
            text(
                "UPDATE zeus_accounts SET tally = NULL, energy = NULL, saved_energy = NULL, "
                "wasted = NULL, trouble = '', comparison = ''"
            )
        )
    engine.dispose()
    again = Jobs(Store(storage), clock)
    assert again.do(ListJobs()) == listed
    again.close()


def test_an_older_schema_gets_accounts(storage):
    engine = open_engine(storage)
    with writing(engine) as connection:
        upgrade(connection, "0005")
        connection.execute(
            text(
                "INSERT INTO zeus_jobs (name, spec, created, updated, sequence, trials,"
                " recurrences, running) VALUES ('damaged', '{', 1, 1, 0, 0, 0, 0)"
            )
        )
    engine.dispose()
    jobs = Jobs(Store(storage))
    (info,) = jobs.do(ListJobs())
    assert info.damage
    (info,) = jobs.do(ListJobs(trouble=True))  # it was found to be
    assert info.trouble == "its record in the store is damaged and cannot be read"
    jobs.close()
