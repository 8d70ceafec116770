"""The section about past plans: a table, and charts over time."""

from __future__ import annotations

from zeus.optimizer.pipeline_frequency.storage._history import History, PlanPeriod
from zeus.optimizer.pipeline_frequency.storage._step_series import StepPoint
from zeus.server.pages._pipeline_history import history_section
from zeus.server.pages._units import joules, seconds

KNOWN = PlanPeriod(7, 50_000.0, (1.0, 4000.0), 5, 1.1, 4, 4200.0)
SOME = PlanPeriod(5, 0.0, None, 3, 1.2, 1, 1050.0)


def test_past_plans_say_whose_energy_is_known():
    assert history_section(History(), 4, 0.0) is None
    shown = str(history_section(History([KNOWN, SOME]), 4, 60_000.0))
    assert f">{joules(4200.0)}</td>" in shown
    assert f">{joules(1050.0, like=4200.0)} of 1 rank</td>" in shown
    assert "<svg" not in shown, "nothing over time"


def test_step_time_and_energy_are_drawn_over_time_with_changes_of_plans():
    points = [
        StepPoint(1000.0 * n, 1000.0 * n + 900.0, 5 + n // 50, 40.0, 1.2 - 0.001 * n, 4, energy)
        for n in range(100)
        for energy in [None if n == 3 else 4400.0 - n]
    ]
    shown = str(history_section(History([KNOWN, SOME], None, points), 4, 1e5))
    assert shown.count('<svg class="wide"') == 2
    assert "hours since 1970-01-01 00:00 UTC" in shown
    assert shown.count("another plan comes into force") == 2
    assert f"1970-01-01 00:16 UTC: {seconds(1.199, 4)}, mean of 40 steps" in shown
    assert shown.count("mean of 40 steps") == 2 * (100 + 99), "wide and narrow; one energy unknown"


def test_there_is_no_chart_of_hardly_any_points():
    points = [StepPoint(float(n), n + 0.5, 7, 5.0, 1.0, 4, 4000.0) for n in range(2)]
    shown = str(history_section(History([KNOWN], None, points), 4, 1e5))
    assert "<svg" not in shown
