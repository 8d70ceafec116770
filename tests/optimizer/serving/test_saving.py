"""What is said to be saved, beside the same traffic at the highest clock."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.optimizer.serving.worlds import V100, default_run, ladder, poisson
from tests.present import present

from zeus.frontier import All, LatencyBound
from zeus.optimizer.serving._bounds import bounds_of
from zeus.optimizer.serving._controller import Controller
from zeus.optimizer.serving._report import Forecast, ServingReport
from zeus.testing import Traffic, simulate_serving


def stated_and_true(traffic: Traffic) -> tuple[float, float, float]:
    """The savings that a report states, measured and predicted, and the true one."""
    default = default_run(V100, traffic)
    objective = All(
        *(
            LatencyBound(f"{name} p99", 2 * (default.percentile(name, 99) or 1.0))
            for name in ("ttft", "tpot")
        )
    )
    report = ServingReport(bounds_of(objective))

    def control(_: int):
        controller = Controller(ladder(), objective)
        decision = controller.first()
        while True:
            interval = yield decision
            decision = controller.decide(replace(interval, busy={}, oldest_wait=None))
            report.add(interval)
            watts = controller.forecast()
            if watts is not None:
                highest, chosen = (each * interval.seconds for each in watts)
                report.predicted(Forecast(highest, chosen, interval.energy or 0.0, highest))

    found = simulate_serving(V100, traffic, controller=control)
    true = 1 - found.energy / default.energy
    return present(report.measured_saving), present(report.predicted_saving), true


@pytest.mark.parametrize(
    "traffic",
    [
        poisson(0.5, 1800, seed=9),
        poisson(2.0, 900),
        pytest.param(poisson(1.0, 900), marks=pytest.mark.thorough),
        pytest.param(poisson(0.3, 900), marks=pytest.mark.thorough),
        pytest.param(poisson(3.0, 900, seed=7), marks=pytest.mark.thorough),
        pytest.param(Traffic.bursts(0.3, 3, 1800, seed=3), marks=pytest.mark.thorough),
        pytest.param(
            Traffic.bursts(0.5, 2, 3600, every=900, length=200, seed=8), marks=pytest.mark.thorough
        ),
    ],
    ids=str,
)
def test_stated_savings_are_near_the_truth(traffic):
    measured, predicted, true = stated_and_true(traffic)
    # Most is that the prediction of how much longer tokens take is too high.
    assert abs(measured - true) < 0.065
    assert abs(predicted - true) < 0.075


def test_nothing_is_measured_where_nothing_is_known():
    report = ServingReport(bounds_of(LatencyBound("ttft p99", 1.5)))
    assert (report.predicted_saving, report.measured_saving) == (None, None)
    report.predicted(Forecast(300.0, 200.0))  # without an energy
    assert (report.predicted_saving, report.measured_saving) == (pytest.approx(1 / 3), None)
    report.predicted(Forecast(300.0, 200.0, 240.0, 300.0))
    assert report.measured_saving == pytest.approx(0.2)
    assert "20.0% less energy than is predicted" in "\n".join(report.lines("MHz"))
    report.predicted(Forecast(300.0, 200.0, 480.0, 300.0))
    assert "20.0% more energy than is predicted" in "\n".join(report.lines("MHz"))


def test_while_nothing_is_changed_nothing_is_saved():
    report = ServingReport(bounds_of(LatencyBound("ttft p99", 1.5)), observe=True)
    report.predicted(Forecast(300.0, 200.0, 310.0, 300.0))
    assert report.predicted_saving == pytest.approx(1 / 3)
    assert report.measured_saving is None
    assert report.to_dict()["measured_saving"] is None
