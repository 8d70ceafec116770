"""A job as JSON: everything that is known of it."""

from __future__ import annotations

import json

from tests.server.pages.asking import ask

from zeus.optimizer.batch_size.api._commands import (
    ListTrials,
    ShowJob,
    ShowLog,
    ShowProfiles,
)

JOB = "/jobs/nightly-bert"


def test_everything_as_json(site):
    answer = ask(site.server, f"{JOB}/export.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-disposition"].startswith("attachment")
    found = json.loads(answer.text)
    jobs = site.life.jobs
    assert found["job"] == jobs.do(ShowJob(job="nightly-bert")).to_dict()
    assert found["trials"] == [each.to_dict() for each in jobs.do(ListTrials(job="nightly-bert"))]
    assert found["profiles"] == [
        each.to_dict() for each in jobs.do(ShowProfiles(job="nightly-bert"))
    ]
    assert found["log"] == jobs.do(ShowLog(job="nightly-bert", most=1_000))
