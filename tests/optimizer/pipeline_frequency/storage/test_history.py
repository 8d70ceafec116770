"""Steps by plan and their energy, from sums that ranks report again and again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.present import present

from zeus.optimizer.pipeline_frequency.job._messages import StepReport, StepSums
from zeus.optimizer.pipeline_frequency.storage._history import History, PlanHistory, RankReport


def sums(steps: int, seconds: float = 2.0, joules: float = 100.0) -> StepSums:
    total = seconds * steps
    return StepSums(steps, total, seconds * total, total, steps, joules * steps)


def report(version: int, steps: int, references: int = 0, **each: float) -> StepReport:
    return StepReport(version, sums(steps, **each), sums(references, joules=150.0), StepSums())


def take(
    history: PlanHistory, rank: int, report: StepReport, at: float, session: str = "first"
) -> None:
    history.take(RankReport(rank, session, report, at))


def test_each_plan_has_its_steps_and_all_count_once():
    history = PlanHistory()
    assert history.summary() == History()
    for rank in (0, 1):
        for steps in (3, 10):
            take(history, rank, report(2, steps, 1), 50.0 + steps)
        take(history, rank, report(4, 5, 2, seconds=3.0, joules=80.0), 90.0)
    history.expect(4, 2.9, 155.0)
    found = history.summary()
    latest, first = found.periods
    assert (latest.version, latest.since, latest.steps, latest.ranks) == (4, 90.0, 5, 2)
    assert (latest.time, latest.energy) == pytest.approx((3.0, 160.0))
    assert (latest.planned, first.planned) == ((2.9, 155.0), None)
    assert (first.since, first.steps, first.time, first.energy) == (53.0, 10, 2.0, 200.0)
    energy = present(found.energy)
    assert energy.joules == pytest.approx(2 * (10 * 100 + 5 * 80 + 2 * 150))
    assert (energy.since, energy.steps) == (53.0, 17)


def test_a_rank_that_starts_again_loses_nothing():
    history = PlanHistory()
    take(history, 0, report(2, 10, 3), 1.0)
    take(history, 0, report(2, 2, 0), 2.0, "again")
    take(history, 0, report(2, 4, 1), 3.0, "again")
    take(history, 0, report(2, 3, 1), 4.0, "again")  # an older one that comes late
    found = history.summary()
    assert found.periods[0].steps == 14
    assert present(found.energy).joules == pytest.approx(14 * 100 + 4 * 150)


def test_of_many_plans_the_energy_stays():
    history = PlanHistory()
    for version in range(1, 301):
        take(history, 0, report(version, 1), float(version))
    found = history.summary()
    assert [each.version for each in found.periods] == list(range(300, 200, -1))
    assert present(found.energy).joules == pytest.approx(300 * 100)
    take(history, 0, report(7, 1), 400.0)  # a report that comes late
    assert len(history.summary().periods) == 100


def test_a_plan_without_steps_has_no_period():
    history = PlanHistory()
    take(history, 0, report(2, 0), 1.0)
    history.expect(2, 1.0, 1.0)
    assert history.summary() == History()


def test_steps_that_explored_count_as_energy_only():
    history = PlanHistory()
    take(history, 0, replace(report(2, 10), explored=sums(6, joules=120.0)), 1.0)
    found = history.summary()
    assert found.periods[0].steps == 10
    energy = present(found.energy)
    assert (energy.joules, energy.steps) == pytest.approx((10 * 100 + 6 * 120, 16))


def test_it_is_the_same_after_a_round_trip_and_goes_on():
    history = PlanHistory()
    for version in range(1, 6):
        for rank in (0, 1):
            take(history, rank, report(version, 4, version), 100.0 * version + rank)
        history.expect(version, 1.0, 2.0)
    again = PlanHistory.from_dict(json.loads(json.dumps(history.to_dict())))
    assert again.summary() == history.summary()
    for each in (history, again):
        take(each, 0, report(5, 9, 6), 700.0)
        take(each, 1, report(5, 2, 0), 701.0, "again")
    assert again.summary().periods == history.summary().periods
    assert again.summary().energy == history.summary().energy
