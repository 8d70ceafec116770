"""What a store says about targets that nothing reaches: when to stop trying."""

from __future__ import annotations

from typing import Any

from tests.optimizer.batch_size.histories import spec
from tests.optimizer.batch_size.storage.test_service import GPU, clock, jobs

from zeus.optimizer.batch_size.api._answers import Decision, Verdict
from zeus.optimizer.batch_size.api._commands import (
    CreateJob,
    Decide,
    EndTrial,
    RenewTrial,
    ReportEpoch,
    ShowJob,
)
from zeus.optimizer.batch_size.job._events import Ended, event_from
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.store import Store

__all__ = ["clock", "jobs"]  # fixtures


def miss(jobs: Jobs, decision: Decision, metric: float = 0.5) -> Verdict:
    """Run a trial that reports one epoch and gives up."""
    jobs.do(ReportEpoch(trial=decision.trial, epoch=1, time=1.0, energy=9.0, metric=metric))
    return jobs.do(EndTrial(trial=decision.trial, outcome="failed", note="gave up"))


def test_a_target_out_of_reach_is_not_tried_again_in_the_same_night(jobs):
    attempts = []
    for night in range(5):
        before, number, verdict = None, 0, Verdict(True, None, "")
        while verdict.retry and number < 5:
            decision = jobs.do(Decide(job="nightly", retry_of=before, **GPU))
            verdict = miss(jobs, decision, 0.5 + night / 100)
            before, number = decision.trial, number + 1
        attempts.append(number)
        assert verdict.outcome == "failed"
        again = jobs.do(RenewTrial(trial=decision.trial))  # as a launcher asks
        assert again == verdict
    assert attempts == [5, 5, 2, 1, 1]
    assert verdict.reason == (
        "gave up; no further attempt in this recurrence: target not reached by any batch size in "
        "the latest 5 recurrences; best metric 0.54"
    )
    assert jobs.do(ShowJob(job="nightly")).trouble == verdict.reason.rpartition(": ")[2]
    # It is advice: who retries in spite of it may.
    retried = jobs.do(Decide(job="nightly", retry_of=decision.trial, **GPU))
    assert retried.attempt == 1
    jobs.do(ReportEpoch(trial=retried.trial, epoch=1, time=1.0, energy=9.0, metric=0.95))
    decision = jobs.do(Decide(job="nightly", **GPU))
    assert miss(jobs, decision) == Verdict(False, "failed", "gave up")


def test_a_repeated_report_gets_the_advice_of_the_first_time(jobs, storage, clock):
    jobs.do(CreateJob(spec=spec("other", max_epochs=1)))
    report: dict[str, Any] = {"epoch": 1, "time": 1.0, "energy": 9.0, "metric": 0.5}
    first = []
    for _ in range(6):
        trial = jobs.do(Decide(job="other", **GPU)).trial
        first.append((trial, jobs.do(ReportEpoch(trial=trial, **report))))
    assert [verdict.retry for _, verdict in first] == [True] * 3 + [False] * 3
    good = jobs.do(Decide(job="other", **GPU)).trial
    assert jobs.do(ReportEpoch(trial=good, **{**report, "metric": 0.95})).outcome == "converged"
    restarted = Jobs(Store(storage), clock)
    for service in (jobs, restarted):
        for trial, verdict in first:
            assert service.do(ReportEpoch(trial=trial, **report)) == verdict
            assert service.do(RenewTrial(trial=trial)) == verdict
            assert service.do(EndTrial(trial=trial, outcome="failed")) == verdict
    restarted.close()


def test_an_end_that_was_stored_without_advice_gives_none():
    record = {"kind": "ended", "trial": 1, "at": 1.0, "outcome": "failed", "note": "gave up"}
    ended = event_from(record)
    assert isinstance(ended, Ended)
    assert ended.advice == ""


def test_an_interrupted_trial_says_nothing_about_retries(jobs):
    jobs.do(CreateJob(spec=spec("other")))
    decision = jobs.do(Decide(job="other", **GPU))
    ended = jobs.do(EndTrial(trial=decision.trial, outcome="cancelled", note="exit code 1"))
    assert ended == Verdict(False, "cancelled", "exit code 1")


def test_an_older_server_says_nothing_about_retries():
    said = Verdict.from_dict({"go_on": False, "outcome": "failed", "reason": "no"})
    assert said.retry
