"""What a store says about decisions: why each was made, in numbers and in words."""

from __future__ import annotations

import contextlib

from tests.optimizer.batch_size.histories import spec
from tests.optimizer.batch_size.storage.test_service import GPU, clock, jobs, whole_log

from zeus.optimizer.batch_size.api._answers import Decision, Verdict
from zeus.optimizer.batch_size.api._commands import Decide, ListTrials, ReportEpoch
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.store import Store

__all__ = ["clock", "jobs"]  # fixtures

EPOCHS = {16: 9, 32: 6, 64: 5, 128: 5, 256: 8}


def run(jobs: Jobs, decision: Decision) -> Verdict:
    """Run a trial whose larger batch sizes have cheaper epochs."""
    size = decision.batch_size
    for epoch in range(1, EPOCHS[size] + 1):
        metric = 0.95 if epoch == EPOCHS[size] else 0.1
        report = ReportEpoch(
            trial=decision.trial, epoch=epoch, time=1.0, energy=100.0 + 6400 / size, metric=metric
        )
        verdict = jobs.do(report)
        if not verdict.go_on:
            break
    return verdict


def test_every_decision_keeps_what_it_was_worth(jobs, storage):
    found = []
    for night in range(12):
        found.append(jobs.do(Decide(job="nightly", request=f"night {night}", **GPU)))
        run(jobs, found[-1])
    log = [event for event in whole_log(jobs) if event["kind"] == "decided"]
    explored = [event for event in log if event["role"] == "explore"]
    assert found[0].reason == "the default batch size"
    assert explored
    for event in explored:
        assert event["saving_low"] <= event["saving"] <= event["saving_high"] <= 1
        assert event["against"] in spec().batch_sizes
    first = found[explored[0]["trial"] - 1]
    assert first.reason.startswith(f"explore {first.batch_size}: expected ")
    assert " % cheaper than 64 (95 %: " in first.reason
    best = [each for each in found if each.role == "exploit"][-1]
    assert f"{best.batch_size} is the cheapest known" in best.reason
    kept = {trial.trial: trial.reason for trial in jobs.do(ListTrials(job="nightly"))}
    assert kept == {each.trial: each.reason for each in found}
    # Another process that opens the store says the same.
    with contextlib.closing(Jobs(Store(storage))) as again:
        request = f"night {first.recurrence - 1}"
        assert again.do(Decide(job="nightly", request=request, **GPU)) == first
