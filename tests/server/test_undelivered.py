"""What a server cannot take keeps no other run from being served."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from tests.optimizer.batch_size.clients import job, run
from tests.server.child import serving
from tests.server.proxy import failing

from zeus.optimizer.batch_size.api._commands import CreateJob, Decide, ListTrials, ShowLog
from zeus.optimizer.batch_size.running._run_report import RunReport
from zeus.optimizer.batch_size.running._spool import Spool


def left_behind(
    url: str, name: str, request: str, at: float, trial: str | None = None
) -> RunReport:
    """What a run has kept: three epochs, the last of which reaches the target."""
    notes = RunReport(
        place=url, spec=job(name), gpu="V100", gpus=1, max_power=250.0, batch_size=32, at=at,
        request=request, trial=trial,
    )  # fmt: skip
    for metric in (0.1, 0.2, 0.95):
        notes.note_epoch(10.0, 1500.0, metric)
    return notes


def test_one_report_that_the_server_fails_at_keeps_nobody_from_being_served(tmp_path, caplog):
    spool, poisoned = Spool(), True

    def fails(path: str, body: bytes) -> bool:
        return poisoned and path == "/api/trials/1-1/epochs" and json.loads(body)["epoch"] == 2

    with (
        serving(f"sqlite:///{tmp_path}/jobs.db") as server,
        failing(server, fails) as url,
        caplog.at_level(logging.WARNING),
    ):
        jobs = server.jobs()
        jobs.do(CreateJob(spec=job("poisoned")))
        question: dict[str, Any] = {"gpu": "V100", "max_power": 250.0, "default": True}
        trial = jobs.do(Decide(job="poisoned", request="bad", **question)).trial
        assert trial == "1-1"
        spool.save(left_behind(url, "poisoned", "bad", 1.0, trial))
        spool.save(left_behind(url, "poisoned", "good", 2.0))
        spool.save(left_behind(url, "other", "fine", 3.0))

        # Others of this machine are served, and what was left behind is delivered.
        assert run(None, job("served"), server_url=url).decision.trial
        assert [(each.epochs, each.state) for each in jobs.do(ListTrials(job="other"))] == [
            (3, "converged")
        ]
        states = [(each.epochs, each.state) for each in jobs.do(ListTrials(job="poisoned"))]
        assert states == [(3, "converged"), (1, "running")]
        assert f"trial '{trial}' is not delivered" in caplog.text

        # It is kept, with a pause, and delivered in order once the server takes it.
        (path,) = spool.directory.glob("*.json")
        assert run(None, job("served"), server_url=url).decision.trial
        assert caplog.text.count("is not delivered") == 1
        poisoned = False
        later = Spool(now=lambda: time.time() + 120.0)
        assert later.deliver(jobs, url, within=60.0) == 1
        assert not path.exists()
        reported = [
            each["epoch"] for each in jobs.do(ShowLog(job="poisoned")) if each["kind"] == "epoch"
        ]
        assert reported == [1, 1, 2, 3, 2, 3]
        assert jobs.do(ListTrials(job="poisoned"))[-1].state == "converged"
