"""Energies on the sensors that GPUs really have, against the truth, with the stated uncertainty."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import pytest
from tests.monitor.accuracy import IN_STEP, LIVE_POWER, SECOND_MEAN, STEPS, TURNS
from tests.monitor.worlds import (
    Load,
    Outcome,
    Scenario,
    Window,
    inside_only,
    irregular,
    length,
    measured,
    nested,
    periodic,
)
from tests.present import present

from zeus.device._sensors import PRESETS, Sensor, Sensors
from zeus.monitor._credibility import Credibility
from zeus.monitor._edges import WindowEdges
from zeus.monitor._refreshes import RefreshModel
from zeus.monitor._response import Response

JITTER = Sensors(Sensor(period=0.1, jitter=0.0025), Sensor(period=0.1, window=0.025, jitter=0.0025))


def outcome(scenario: Scenario, sensors: Sensors, seeds: int = 3, **options: Any) -> Outcome:
    """Of several runs together."""
    errors: list[float] = []
    uncertainties: list[float] = []
    for seed in range(1, seeds + 1):
        run = measured(scenario, sensors, seed=seed, **options)
        errors += run.errors
        uncertainties += run.uncertainties
    return Outcome(errors, uncertainties, run.estimator, run.energies)


@pytest.mark.parametrize(
    ("scenario", "preset", "median", "most"),
    [
        pytest.param(inside_only(0.05), "a100", 0.005, 0.04, id="a100-inside"),
        pytest.param(TURNS, "a100", 0.01, 0.06, id="a100-turns"),
        pytest.param(STEPS, "a100", 0.03, 0.15, id="a100-steps"),
        pytest.param(nested, "a100", 0.015, 0.08, id="a100-nested"),
        pytest.param(inside_only(0.5), "a100", 0.001, 0.005, id="a100-long"),
        pytest.param(STEPS, "a40", 0.03, 0.15, id="a40-steps"),
        pytest.param(inside_only(0.05), "v100", 0.005, 0.015, id="v100-inside"),
        pytest.param(STEPS, "v100", 0.015, 0.04, id="v100-steps"),
        pytest.param(STEPS, SECOND_MEAN, 0.03, 0.15, id="second-steps"),
        pytest.param(inside_only(0.05), LIVE_POWER, 0.0004, 0.004, id="live-inside"),
        pytest.param(TURNS, LIVE_POWER, 0.0004, 0.004, id="live-turns"),
        pytest.param(STEPS, "mi300x", 0.005, 0.02, id="mi300x-steps"),
        pytest.param(STEPS, JITTER, 0.03, 0.15, id="jitter"),
        pytest.param(STEPS, IN_STEP, 0.03, 0.15, id="in-step"),
    ],
)
@pytest.mark.thorough(keep=5)
def test_short_windows_on_the_sensors_of_real_gpus(scenario, preset, median, most):
    """What is aimed at, by sensor, and the promise of the stated uncertainty."""
    sensors = PRESETS[preset] if isinstance(preset, str) else preset
    found = outcome(scenario, sensors, until=60.0)
    assert found.percentile(0.5) <= median
    assert found.percentile(0.95) <= most
    assert found.coverage >= 0.92


@pytest.mark.parametrize("held_up", [(0.2, 0.02), (0.5, 0.01)])
@pytest.mark.parametrize(
    "sensors",
    [PRESETS["a100"], PRESETS["v100"], IN_STEP, JITTER],
    ids=["a100", "v100", "in-step", "jitter"],
)
@pytest.mark.thorough(keep=3)
def test_short_windows_while_a_busy_host_holds_polls_up(sensors, held_up):
    """Where each poll shows a refresh, because there are few, the sensor is not fresh for that."""
    found = outcome(STEPS, sensors, held_up=held_up)
    assert found.percentile(0.5) <= 0.03
    assert found.percentile(0.95) <= 0.15
    assert found.coverage >= 0.92


@pytest.mark.parametrize(
    ("seconds", "runs", "median", "most"),
    [(1.0, 24, 0.005, 0.035), (5.0, 16, 0.0015, 0.008), (14.0, 8, 0.0005, 0.0035)],
)
def test_long_windows_over_loads_that_repeat_whatever_windows_do(seconds, runs, median, most):
    """Periods of 5 ms to 2 s: what lies between two ticks of the counter is not to be seen."""
    errors, stated = [], []
    for seed in range(1, runs + 1):
        period = math.exp(random.Random(seed).uniform(math.log(0.005), math.log(2.0)))
        until = max(25.0, 8 * seconds)
        found = measured(periodic(seconds, period), PRESETS["a100"], seed=seed, until=until)
        errors += found.errors
        stated += found.uncertainties
    covered = sum(error <= bound for error, bound in zip(errors, stated, strict=True))
    errors.sort()
    assert errors[len(errors) // 2] <= median
    assert errors[int(0.95 * len(errors))] <= most
    assert covered >= 0.9 * len(errors)


@pytest.mark.parametrize("period", [0.1, 0.0333, 0.4])
def test_long_windows_over_a_load_that_repeats_in_step_with_the_meter(period):
    """The meter shows one side of the load only; the counter is not doubted for that."""
    found = outcome(periodic(14.0, period), PRESETS["a100"], seeds=2, until=120.0)
    assert max(found.errors) <= 0.01


def test_a_gpu_without_a_counter_says_how_little_is_known():
    """Nothing tells how late its power meter is."""
    found = outcome(STEPS, PRESETS["p100"], seeds=2, until=20.0)
    assert found.percentile(0.5) <= 0.15
    assert found.coverage >= 0.92


@pytest.mark.parametrize(
    "power",
    [
        pytest.param(PRESETS["p100"].power, id="p100"),
        pytest.param(Sensor(period=0.02, window=0.02, lag=0.05), id="late"),
        pytest.param(Sensor(period=0.05, window=0.05, jitter=0.002), id="jitter"),
        pytest.param(Sensor(period=0.1, window=0.1, lag=0.03, noise=0.01), id="slow"),
        pytest.param(Sensor(), id="live"),
    ],
)
@pytest.mark.parametrize("held_up", [(0.0, 0.0), (0.2, 0.02)], ids=["", "held-up"])
def test_long_windows_over_an_irregular_load_without_a_counter(power, held_up):
    """Every reading counts, at the instant when the meter was refreshed, whenever it was polled."""
    errors, covered = [], []
    for seed in range(1, 5):
        scenario = irregular(5.0, 0.09)
        found = measured(
            scenario, Sensors(None, power), seed=seed, until=30.0, held_up=held_up, only="long"
        )
        errors += found.errors
        covered += [e <= u for e, u in zip(found.errors, found.uncertainties, strict=True)]
    if power.period:  # what a live meter shows depends on when it is polled
        assert statistics.median(errors) <= 0.005
    assert sorted(errors)[int(0.9 * len(errors))] <= 0.03
    assert sum(covered) >= 0.92 * len(covered)


def test_a_gpu_without_a_counter_is_polled_densely_after_power_was_constant():
    """Nothing but its power shows that a load begins."""

    def made(rng: random.Random, until: float) -> tuple[Load, list[Window]]:
        load, windows, now = Load(), [], 1.0
        while now < until:
            load.set(now, 60.0)
            now += rng.uniform(2.0, 3.0)
            load.set(now, 300.0)
            end = now + length(rng, 0.5)
            windows.append(Window("step", now, end))
            now = end
        return load, windows

    found = outcome(made, PRESETS["p100"], until=60.0)
    assert found.percentile(0.5) <= 0.05
    assert found.percentile(0.95) <= 0.1
    assert found.coverage >= 0.92


@pytest.mark.parametrize(
    ("scenario", "sensors", "expected"),
    [
        (STEPS, PRESETS["a100"], (0.025, 0.0)),
        (STEPS, PRESETS["a40"], (0.1, 0.0)),
        (STEPS, PRESETS["v100"], (0.02, 0.01)),
        (STEPS, SECOND_MEAN, (1.0, 0.0)),
        (TURNS, LIVE_POWER, (1e-5, 0.0)),
    ],
    ids=["a100", "a40", "v100", "second", "live"],
)
def test_how_the_meter_responds_is_found_out(scenario, sensors, expected):
    response = measured(scenario, sensors, seed=4, until=30.0).estimator.response
    assert (response.best.window, response.best.lag) == expected
    assert response.best.instant == (sensors is LIVE_POWER)


def test_a_response_that_was_kept_for_another_meter_is_given_up():
    wrong = Response({"best": [0.1, 0.05, False]})
    found = measured(STEPS, PRESETS["a100"], seed=4, until=40.0, response=wrong)
    assert (found.estimator.response.best.window, found.estimator.response.best.lag) == (0.025, 0.0)


def test_a_gain_of_the_power_meter_is_found_out():
    sensors = Sensors(Sensor(period=0.1), Sensor(period=0.1, window=0.025, gain=1.05))
    found = outcome(STEPS, sensors, seeds=2)
    assert found.estimator.response.gain == pytest.approx(1.05, abs=0.02)
    assert found.percentile(0.5) <= 0.03
    assert found.coverage >= 0.92


def test_windows_that_tile_a_span_add_up_to_it():
    """No joule counts twice, and none is lost."""
    found = measured(STEPS, PRESETS["a100"], seed=2)
    windows = found.energies[len(found.energies) // 4 :]
    for first in range(0, len(windows) - 60, 60):
        tiles = windows[first : first + 60]
        whole = found.estimator.energy(tiles[0][0].begin, tiles[-1][0].end)
        if tiles[0][0].begin < found.estimator.last_poll.instant - 14:
            continue  # forgotten
        total = sum(present(energy.joules) for _, energy in tiles)
        bounds = [present(energy.uncertainty) for energy in (whole, *(each for _, each in tiles))]
        bound = math.hypot(*bounds)
        assert total == pytest.approx(whole.joules, abs=bound)
        assert bound < 0.01 * total


def test_asked_at_once_more_is_uncertain_than_in_the_end():
    at_once = measured(STEPS, PRESETS["a100"], seed=3, ask=0.0)
    final = measured(STEPS, PRESETS["a100"], seed=3)
    assert at_once.coverage >= 0.9
    assert statistics.median(at_once.uncertainties) > statistics.median(final.uncertainties)


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


def test_a_setting_ends_however_many_names_there_were_meanwhile():
    edges = WindowEdges()
    edges.change_setting("setting 200", 1.0)
    for number in range(3000):
        edges.begin(f"epoch {number}", 2.0 + number)
        edges.end(f"epoch {number}", 2.5 + number)
    assert {p.names for p in edges.pieces(2.0, 3.0)} == {
        ("epoch #", "setting 200"),
        ("setting 200",),
    }
    edges.change_setting("setting 100", 4000.0)
    assert [p.names for p in edges.pieces(4001.0, 4002.0)] == [("setting 100",)]
    edges.change_setting("", 5000.0)
    assert [p.names for p in edges.pieces(5001.0, 5002.0)] == [()]


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
