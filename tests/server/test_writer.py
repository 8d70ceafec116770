"""The thread that writes: what it does while nobody asks for it."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.optimizer.batch_size.histories import spec

from zeus.optimizer.batch_size.api._commands import CreateJob, Decide, ListTrials, ShowJob
from zeus.optimizer.batch_size.storage import writing_jobs
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.server import _writer as writer_module
from zeus.server._writer import Writer
from zeus.store import Store

GPU: dict[str, Any] = {"gpu": "NVIDIA A40", "max_power": 300.0}


def test_leases_end_however_busy_others_are(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "_SWEEP_PERIOD", 0.05)
    now = 1000.0
    jobs = Jobs(Store(f"sqlite:///{tmp_path}/jobs.db"), lambda: now)
    for name in ("forgotten", "busy"):
        jobs.do(CreateJob(spec=spec(name)))
    jobs.do(Decide(job="forgotten", **GPU, lease=10.0))
    now += 11.0

    async def ask() -> None:
        writer = Writer(jobs)
        writer.start()
        turn = 0
        while jobs.do(ShowJob(job="forgotten")).running:
            turn += 1
            await writer.do(Decide(job="busy", request=str(turn), **GPU))
        await asyncio.to_thread(writer.stop)

    asyncio.run(asyncio.wait_for(ask(), 120))
    assert jobs.do(ListTrials(job="forgotten"))[0].state == "expired"
    jobs.close()


def test_a_job_that_cannot_be_read_keeps_nobody_else_from_writing(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "_SWEEP_PERIOD", 0.0)  # after every command
    now = 1000.0
    store = Store(f"sqlite:///{tmp_path}/jobs.db")
    jobs = Jobs(store, lambda: now)
    for name in ("broken", "good"):
        jobs.do(CreateJob(spec=spec(name)))
    jobs.do(Decide(job="broken", **GPU, lease=10.0))
    with writing_jobs(store) as transaction:
        broken = "UPDATE zeus_jobs SET spec = 'nonsense' WHERE name = 'broken'"
        transaction._connection.exec_driver_sql(broken)
    later = Jobs(store, lambda: now + 11.0)

    async def ask() -> None:
        writer = Writer(later)
        writer.start()
        for turn in range(3):
            await writer.do(Decide(job="good", request=str(turn), **GPU))
        await asyncio.to_thread(writer.stop)

    asyncio.run(asyncio.wait_for(ask(), 120))
    assert later.do(ShowJob(job="good")).trials == 3
    later.close()
