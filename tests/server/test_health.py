"""`/healthz` says no while nothing can be written, and ok again by itself."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sqlite3
import time
from pathlib import Path

import pytest
from tests.optimizer.batch_size.histories import spec
from tests.server.child import Server, serving
from tests.server.test_serve import ask

from zeus.errors import StorageError
from zeus.optimizer.batch_size.api._commands import CreateJob, Decide, ListJobs, ShowJob


def health(server: Server) -> tuple[int, str]:
    status, text = ask(server, "GET", "/healthz")
    return status, text.decode()


def until(server: Server, status: int) -> str:
    """What `/healthz` says once it answers so."""
    deadline = time.monotonic() + 120
    while (found := health(server))[0] != status:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found[1]


def reason(text: str) -> str:
    error = json.loads(text)["error"]
    assert error["kind"] == "StorageError"
    lead, _, why = error["message"].partition(": ")
    assert lead == "the store of this server is not writable"
    return why


def fill_disk(server: Server, most: int = 4096) -> None:
    """Let no file of the server grow any more, as on a full disk."""
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


def free_disk(server: Server) -> None:
    fill_disk(server, resource.RLIM_INFINITY)


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "jobs.db"


def test_a_full_disk(file):
    with serving(f"sqlite:///{file}", complaints=True) as server:
        jobs = server.jobs()
        jobs.do(CreateJob(spec=spec()))
        assert health(server) == (200, "ok\n")
        fill_disk(server)
        for number in range(5):
            with pytest.raises(StorageError):
                jobs.do(CreateJob(spec=spec(f"lost-{number}")))
        said = until(server, 503)
        assert reason(said) == "its disk is full or fails"
        assert str(file) not in said
        free_disk(server)
        assert until(server, 200) == "ok\n"
        jobs.do(CreateJob(spec=spec("kept")))
        # Finding out has left nothing behind.
        assert [job.name for job in jobs.do(ListJobs())] == ["kept", "nightly"]
    with contextlib.closing(sqlite3.connect(file)) as database:
        for table in ("zeus_jobs", "zeus_trials", "zeus_events"):
            found = database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            assert found == (2 if table == "zeus_jobs" else 0)


def test_a_file_that_is_gone(file):
    """Writes into a file that has no name any more would be lost, so they are refused."""
    with serving(f"sqlite:///{file}", complaints=True) as server:
        jobs = server.jobs()
        jobs.do(CreateJob(spec=spec()))
        elsewhere = file.with_suffix(".moved")
        file.rename(elsewhere)
        with pytest.raises(StorageError):
            jobs.do(CreateJob(spec=spec("lost")))
        assert reason(until(server, 503)) == "its file was removed or replaced"
        assert not file.exists()
        file.write_bytes(b"")  # another one is not the same
        with pytest.raises(StorageError):
            jobs.do(CreateJob(spec=spec("lost")))
        elsewhere.rename(file)
        until(server, 200)
        assert [job.name for job in jobs.do(ListJobs())] == ["nightly"]


def test_a_damaged_store(file):
    with serving(f"sqlite:///{file}", complaints=True) as server:
        jobs = server.jobs()
        jobs.do(CreateJob(spec=spec()))
        until(server, 200)
        # Everything, as by a disk that has lost it; and a word to those who have read it before.
        with contextlib.closing(sqlite3.connect(file)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with file.open("r+b") as content:
            content.write(os.urandom(file.stat().st_size))
        with pytest.raises(StorageError):
            jobs.do(CreateJob(spec=spec("lost")))
        assert reason(until(server, 503)) == "it is damaged"


def test_a_store_that_others_keep_locked(file):
    with serving(f"sqlite:///{file}", complaints=True) as server:
        until(server, 200)
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            assert reason(until(server, 503)) == "a write has not finished after 5 s"
            database.execute("ROLLBACK")
        until(server, 200)


def test_health_on_each_kind_of_store(storage):
    with serving(storage) as server:
        jobs = server.jobs()
        jobs.do(CreateJob(spec=spec()))
        before = jobs.do(ShowJob(job="nightly"))
        trial = jobs.do(Decide(job="nightly", gpu="A40", max_power=300.0)).trial
        for pause in (0.0, 2.1, 2.1):  # until it is asked again; nothing depends on how long
            time.sleep(pause)
            assert health(server) == (200, "ok\n")
        assert trial == "1-1"
        assert jobs.do(ShowJob(job="nightly")).trials == before.trials + 1
        jobs.do(CreateJob(spec=spec("next")))
        assert jobs.do(Decide(job="next", gpu="A40", max_power=300.0)).trial == "2-1"


def test_a_database_that_takes_no_writes(postgresql):
    import psycopg

    storage = postgresql.new_storage()
    schema = storage.rpartition("%3D")[2]
    with serving(storage, complaints=True) as server:
        until(server, 200)
        with psycopg.connect(postgresql.url, autocommit=True) as database:
            database.execute(f"ALTER TABLE {schema}.zeus_jobs RENAME TO gone")
            with pytest.raises(StorageError):
                server.jobs().do(CreateJob(spec=spec()))
            assert reason(until(server, 503)) == "it does not answer as it should"
            database.execute(f"ALTER TABLE {schema}.gone RENAME TO zeus_jobs")
        until(server, 200)
        server.jobs().do(CreateJob(spec=spec()))
