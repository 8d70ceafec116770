"""A job whose record is damaged takes nothing away from the others, and is named."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from sqlalchemy import text
from tests.cli.support import zeus_here
from tests.optimizer.batch_size.histories import spec
from tests.optimizer.pipeline_frequency.job.reports import registering
from tests.server.child import serving
from tests.server.test_serve import ask

from zeus.errors import DamagedJobError
from zeus.optimizer.batch_size.api._commands import (
    CreateJob,
    Decide,
    DeleteJob,
    ListJobs,
    ListTrials,
    ReportEpoch,
    ShowJob,
)
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.optimizer.pipeline_frequency.job._messages import RankPlace, Registration
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines
from zeus.store import Store
from zeus.store._engine import writing

GPU: dict[str, Any] = {"gpu": "NVIDIA A40", "max_power": 300.0}
EVIL = "\x1b]0;evil\x07"  # a terminal would take its title from this
# No text in any encoding; PostgreSQL lets nobody store such.
BYTES = f"CAST(x'7b22ff1bfe{EVIL.encode().hex()}' AS TEXT)"
SPECS = {
    "cut off": '\'{"name": "b\'',
    "another value": "'[1, 2]'",
    "another object": f"'{{\"{EVIL}\": 1}}'",
    "deep": f"'{'[' * 100_000}'",
    "bytes": BYTES,
}
EVENTS = {
    "cut off": "payload = '{\"request\": '",
    "another value": "payload = '7'",
    "another object": f"payload = '{{\"{EVIL}\": 1}}'",
    "another kind": f"kind = '{EVIL}'",
    "out of order": "trial = 7",
    "bytes": f"payload = {BYTES}",
}


def store_with(storage: str, *damage: str) -> None:
    """Three jobs with a trial each, and damage to the one amid."""
    store = Store(storage)
    jobs = Jobs(store)
    for name in ("a", "b", "c"):
        jobs.do(CreateJob(spec=spec(name)))
        jobs.do(Decide(job=name, **GPU, lease=1.0))
    with writing(store.engine) as connection:
        for statement in damage:
            assert connection.execute(text(statement.replace(":", "\\:"))).rowcount == 1
    jobs.close()


def is_clean(said: str) -> bool:
    return not re.search(r"[^\x20-\x7e\n…]", said)


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.thorough(keep=4)
def test_a_specification_that_cannot_be_read(storage, kind, capfd):
    if kind == "bytes" and not storage.startswith("sqlite"):
        pytest.skip("PostgreSQL stores no text that is none")
    store_with(storage, f"UPDATE zeus_jobs SET spec = {SPECS[kind]} WHERE name = 'b'")
    with serving(storage, complaints=True) as server:
        jobs = server.jobs()
        a, b, c = jobs.do(ListJobs())
        assert (a.name, b.name, c.name) == ("a", "b", "c")
        assert (a.damage, a.trials, c.damage, c.trials) == ("", 1, "", 1)
        assert b.damage.startswith("the record of job 'b' in the store is damaged and cannot be")
        assert is_clean(b.damage)
        for request in (
            lambda: jobs.do(ShowJob(job="b")),
            lambda: jobs.do(CreateJob(spec=spec("b"))),
            lambda: jobs.do(Decide(job="b", **GPU)),
            lambda: jobs.do(ReportEpoch(trial="2-1", epoch=1, time=1.0)),
        ):
            with pytest.raises(DamagedJobError, match="'b' in the store is damaged"):
                request()
        status, page = ask(server, "GET", "/jobs", Accept="text/html")
        assert status == 200
        assert page.count(b"its record in the store is damaged and cannot be read") == 1
        assert page.count(b'href="/jobs/') == 3
        status, page = ask(server, "GET", "/jobs/b", Accept="text/html")
        assert status == 500
        assert b"is damaged and cannot be read" in page
        done = zeus_here(capfd, "jobs", "list", "--server", server.url)
        assert (done.returncode, done.stderr) == (0, "")
        assert [line.split()[0] for line in done.stdout.splitlines()[1:4]] == ["a", "b", "c"]
        assert "the record of job 'b' in the store is damaged" in done.stdout
        assert is_clean(done.stdout)
        done = zeus_here(capfd, "jobs", "show", "b", "--server", server.url)
        assert done.returncode == 1
        assert done.stderr.startswith("zeus: error: the record of job 'b' in the store is damaged")
        # The others go on, and this one can be forgotten.
        assert jobs.do(Decide(job="a", **GPU)).recurrence == 2
        jobs.do(DeleteJob(job="b"))
        assert [job.name for job in jobs.do(ListJobs())] == ["a", "c"]


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_that_cannot_be_read(storage, kind):
    if kind == "bytes" and not storage.startswith("sqlite"):
        pytest.skip("PostgreSQL stores no text that is none")
    store_with(storage, f"UPDATE zeus_events SET {EVENTS[kind]} WHERE job = 2")
    jobs = Jobs(Store(storage))
    assert [job.name for job in jobs.do(ListJobs())] == ["a", "b", "c"]
    for request in (
        lambda: jobs.do(Decide(job="b", **GPU)),
        lambda: jobs.do(ReportEpoch(trial="2-1", epoch=1, time=1.0)),
    ):
        with pytest.raises(DamagedJobError, match="event 1 of its log") as told:
            request()
        assert is_clean(str(told.value))
        assert len(str(told.value)) < 600
    assert jobs.do(Decide(job="a", **GPU)).trial == "1-2"
    jobs.close()


def test_what_goes_into_the_log_is_escaped_and_short(storage):
    store_with(storage, f"UPDATE zeus_jobs SET spec = {SPECS['another object']} WHERE name = 'b'")
    with serving(storage, complaints=True) as server:
        with pytest.raises(DamagedJobError):
            server.jobs().do(ShowJob(job="b"))
        said = server.stop()
    (line,) = said.splitlines()
    assert "job 'b'" in line
    assert is_clean(line)
    assert len(line) < 600


def test_trials_of_a_damaged_job_expire_for_nobody_and_keep_nobody_from_it(storage):
    store_with(storage, "UPDATE zeus_jobs SET spec = 'nothing' WHERE name = 'b'")
    store = Store(storage)
    later = Jobs(store, lambda: 9e9)
    later.sweep()
    assert [later.do(ListTrials(job=name))[0].state for name in ("a", "c")] == [
        "expired",
        "expired",
    ]
    later.close()


def test_a_pipeline_job_that_cannot_be_read(storage):
    """The others are listed, planned and shown; this one is named."""
    store = Store(storage)
    pipelines = Pipelines(store)
    for name in ("a", "b", "c"):
        seat = RankPlace(0, 0, 0, 0, 1, 1, 1, 1)
        pipelines.do(registering(name, Registration("session", seat, "A100", (1410, 1200))))
    with writing(store.engine) as connection:
        connection.execute(text("UPDATE zeus_pipelines SET degrees = '[1,' WHERE name = 'b'"))
    pipelines.close()
    store.close()
    with serving(storage, complaints=True) as server:
        status, content = ask(server, "GET", "/api/pipelines")
        assert status == 200
        found = {job["name"]: job["status"] for job in json.loads(content)}
        assert sorted(found) == ["a", "b", "c"]
        assert "damaged" in found["b"]
        assert "damaged" not in found["a"] + found["c"]
        assert ask(server, "GET", "/api/pipelines/b")[0] == 500
        assert ask(server, "GET", "/api/pipelines/a")[0] == 200
        status, page = ask(server, "GET", "/pipelines", Accept="text/html")
        assert status == 200
        assert page.count(b'href="/pipelines/') == 3
