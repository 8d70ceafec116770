"""Energies on the sensors that GPUs really have, against the truth, with the stated uncertainty."""

from __future__ import annotations

import pytest
from tests.monitor.worlds import (
    Outcome,
    Scenario,
    in_turns,
    inside_only,
    measured,
    nested,
    periodic,
)

from zeus.device.sensors import PRESETS, Sensor, Sensors
from zeus.monitor.credibility import Credibility
from zeus.monitor.edges import WindowEdges
from zeus.monitor.refreshes import RefreshModel

STEPS = in_turns(forward=250.0, backward=320.0, update=120.0)
TURNS = in_turns(one=150.0, other=300.0)
SECOND_MEAN = Sensors(Sensor(period=0.1), Sensor(period=0.1, window=1.0))
LIVE_POWER = Sensors(Sensor(period=0.1), Sensor())


def outcome(scenario: Scenario, sensors: Sensors, seeds: int = 3, **options: float) -> Outcome:
    """Of several runs together."""
    errors: list[float] = []
    uncertainties: list[float] = []
    for seed in range(1, seeds + 1):
        run = measured(scenario, sensors, seed=seed, **options)
        errors += run.errors
        uncertainties += run.uncertainties
    return Outcome(errors, uncertainties, run.estimator)


@pytest.mark.parametrize(
    ("scenario", "preset", "median", "most"),
    [
        pytest.param(inside_only(0.05), "a100", 0.005, 0.04, id="a100-inside"),
        pytest.param(TURNS, "a100", 0.01, 0.06, id="a100-turns"),
        pytest.param(STEPS, "a100", 0.03, 0.15, id="a100-steps"),
        pytest.param(nested, "a100", 0.015, 0.08, id="a100-nested"),
        pytest.param(inside_only(0.5), "a100", 0.001, 0.01, id="a100-long"),
        pytest.param(STEPS, "a40", 0.03, 0.15, id="a40-steps"),
    ],
)
def test_short_windows_on_a_meter_that_is_refreshed_every_100_ms(scenario, preset, median, most):
    found = outcome(scenario, PRESETS[preset])
    assert found.percentile(0.5) <= median
    assert found.percentile(0.95) <= most
    assert found.coverage >= 0.92


@pytest.mark.parametrize(
    ("scenario", "median", "most"),
    [(inside_only(0.05), 0.005, 0.015), (STEPS, 0.015, 0.04)],
    ids=["inside", "steps"],
)
def test_short_windows_on_a_meter_that_is_refreshed_every_20_ms(scenario, median, most):
    found = outcome(scenario, PRESETS["v100"], seeds=2, until=20.0, pause=0.005)
    assert found.percentile(0.5) <= median
    assert found.percentile(0.95) <= most
    assert found.coverage >= 0.92


def test_training_steps_on_a_mean_over_a_second():
    found = outcome(STEPS, SECOND_MEAN, seeds=2)
    assert found.percentile(0.5) <= 0.03
    assert found.percentile(0.95) <= 0.15
    assert found.coverage >= 0.92


@pytest.mark.parametrize("period", [0.1, 0.0333, 0.4])
def test_long_windows_over_a_load_that_repeats_in_step_with_the_meter(period):
    """The meter shows one side of the load only; the counter is not doubted for that."""
    found = outcome(periodic(14.0, period), PRESETS["a100"], seeds=2, until=120.0)
    assert max(found.errors) <= 0.01


@pytest.mark.parametrize(
    ("scenario", "sensors", "pause", "expected"),
    [
        (STEPS, PRESETS["a100"], 0.0125, (0.025, 0.0, False)),
        (STEPS, PRESETS["a40"], 0.0125, (0.1, 0.0, False)),
        (STEPS, PRESETS["v100"], 0.005, (0.02, 0.01, False)),
        (STEPS, SECOND_MEAN, 0.0125, (1.0, 0.0, False)),
        (TURNS, LIVE_POWER, 0.0125, (1e-5, 0.0, True)),
    ],
    ids=["a100", "a40", "v100", "second", "live"],
)
def test_how_the_meter_responds_is_found_out(scenario, sensors, pause, expected):
    found = measured(scenario, sensors, seed=4, until=25.0, pause=pause)
    response = found.estimator.response
    assert response.best == expected
    assert (response.latched, response.live) == (not expected[2], expected[2])


def test_a_gain_of_the_power_meter_is_found_out():
    sensors = Sensors(Sensor(period=0.1), Sensor(period=0.1, window=0.025, gain=1.05))
    found = outcome(STEPS, sensors, seeds=2)
    assert found.estimator.response.gain == pytest.approx(1.05, abs=0.02)
    assert found.percentile(0.5) <= 0.03
    assert found.coverage >= 0.92


def test_refreshes_that_jitter():
    sensors = Sensors(
        Sensor(period=0.1, jitter=0.0025), Sensor(period=0.1, window=0.025, jitter=0.0025)
    )
    found = outcome(STEPS, sensors, seeds=2)
    assert found.percentile(0.5) <= 0.03
    assert found.percentile(0.95) <= 0.15
    assert found.coverage >= 0.92


# --- parts ----------------------------------------------------------------------------------------


def test_edges_make_segments():
    edges = WindowEdges()
    edges.begin("epoch 1", 1.0)
    edges.begin("step", 2.0)
    edges.end("step", 3.0)
    edges.begin("step", 3.0)
    edges.end("step", 4.0)
    edges.end("epoch 1", 5.0)
    pieces = edges.pieces(0.5, 4.5)
    assert [(p.names, p.begin, p.end) for p in pieces] == [
        ((), 0.5, 1.0),
        (("epoch #",), 1.0, 2.0),
        (("epoch #", "step"), 2.0, 3.0),
        (("epoch #", "step"), 3.0, 4.0),
        (("epoch #",), 4.0, 4.5),
    ]
    assert len({p.segment for p in pieces}) == 5
    edges.forget(3.5)
    assert [p.segment for p in edges.pieces(3.5, 4.5)] == [p.segment for p in pieces[3:]]


def test_refreshes_are_located_better_than_they_are_polled():
    model = RefreshModel()
    for number in range(200):
        instant = 0.03 + 0.1 * number
        poll = 0.0127 * (instant // 0.0127)
        for _ in range(6):
            model.unchanged()
        low, high = model.observe(poll, poll + 0.0127)
        assert low <= instant <= high
    assert high - low < 0.004
    assert model.period == pytest.approx(0.1, rel=1e-3)


def test_a_counter_that_was_not_believed_is_forgiven():
    credibility = Credibility()
    for _ in range(100):
        credibility.compare(0.1, 100.0, 250.0)
    assert "counts 4.00 times" in credibility.note
    for _ in range(400):
        credibility.compare(0.1, 25.0, 250.0)
    assert credibility.note == ""
