"""The runs of a service: bounded, with all of their energy."""

from __future__ import annotations

import json

import pytest

from zeus.optimizer.serving.api._messages import BoundKept, BoundRecord, RunState, ServiceStart
from zeus.optimizer.serving.storage._runs import Run, Runs

BOUNDS = (BoundRecord("ttft", 99.0, 1.5), BoundRecord("tpot", 95.0, 0.1))


def run(number: int, *kept: BoundKept) -> Run:
    start = ServiceStart(session=f"run {number}", bounds=BOUNDS)
    state = RunState(energy=500.0, generated_tokens=100.0, bounds=kept)
    return Run(start, 1e9 + number, 1e9 + number, state=state)


def test_many_runs_are_few_and_all_of_the_energy():
    runs = Runs(run(0))
    for number in range(1, 80):
        runs = runs.followed(run(number))
    assert [each.began - 1e9 for each in runs.past] == list(range(78, 28, -1))
    totals = runs.totals
    assert (totals.runs, totals.energy, totals.tokens) == pytest.approx((80, 40_000.0, 8_000.0))
    assert runs.older.runs == 29


def test_they_are_the_same_after_a_round_trip():
    runs = Runs(run(1, BoundKept(1.2, 20.0, 0.005, 3, 2))).ended(2e9).followed(run(2))
    latest, past = json.dumps(runs.latest.to_dict()), json.dumps(runs.past_to_dict())
    assert Runs.from_dicts(json.loads(latest), json.loads(past)) == runs


def test_bounds_are_kept_by_requests():
    assert run(0).bounds_kept == (0, 0)
    assert run(0, BoundKept(), BoundKept(0.2, 100.0, 0.05)).bounds_kept == (1, 1)
    assert run(0, BoundKept(1.0, 100.0, 0.011), BoundKept(0.2, 100.0, 0.06)).bounds_kept == (2, 0)


def test_a_report_after_the_end_begins_again():
    runs = Runs(run(0)).ended(2e9)
    assert runs.latest.ended == 2e9
    assert runs.reported(3e9, RunState()).latest.ended is None
