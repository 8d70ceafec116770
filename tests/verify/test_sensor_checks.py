"""What is found of sensors is true, whatever they are, and what differs from a preset is named."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
from tests.verify.worlds import (
    by_name,
    different,
    node_of,
    presets,
    report_of,
    sensors_found,
    unpublished,
)

from zeus.device._base import implausible
from zeus.device._sensors import PRESETS, Sensor
from zeus.device._simulated_models import MODELS
from zeus.verify import _checks as names
from zeus.verify._checks import Check, Verdict, Why
from zeus.verify._load_pattern import Segment
from zeus.verify._presets import preset_of
from zeus.verify._recording import Sensors, record
from zeus.verify._sensor_checks import Lengths, check_sensors

A100 = PRESETS["a100"]


@cache
def found(seed: int) -> dict[str, Check]:
    node = node_of(unpublished(seed), name="NVIDIA X1", pausing=seed if seed % 3 == 0 else 0)
    return by_name(sensors_found(node).checks)


def truths(seed: int) -> Iterator[tuple[str, float]]:
    sensors = unpublished(seed)
    counter, power = sensors.counter, sensors.power
    assert counter is not None
    yield names.COUNTER_PERIOD, counter.period
    # Refreshes that are late by up to the jitter are so in the mean, by half of it.
    yield names.COUNTER_LAG, counter.lag
    yield (
        names.COUNTER_SHARE,
        counter.part_time / counter.period if counter.part_time else 1.0,
    )
    yield names.POWER_PERIOD, power.period
    yield names.POWER_WINDOW, power.window
    yield names.POWER_LAG, power.lag


@pytest.mark.thorough(keep=2)
@pytest.mark.parametrize("seed", range(1, 25))
def test_sensors_that_nobody_published_are_found(seed):
    checks, truth = found(seed), dict(truths(seed))
    for name in (names.COUNTER_PERIOD, names.POWER_PERIOD):
        assert checks[name].value == pytest.approx(truth[name], rel=0.005), name
    for name in (names.COUNTER_LAG, names.POWER_LAG):
        assert checks[name].value == pytest.approx(truth[name], abs=0.004), name
    assert checks[names.POWER_WINDOW].value == pytest.approx(
        truth[names.POWER_WINDOW], rel=0.15, abs=0.005
    )
    assert {checks[name].verdict for name in truth} <= {Verdict.MEASURED, Verdict.IMPOSSIBLE}


@pytest.mark.thorough
def test_uncertainties_cover_the_truth():
    covered = []
    for seed in range(1, 61):
        checks = found(seed)
        for name, truth in truths(seed):
            check = checks[name]
            if check.value is not None:
                assert check.uncertainty is not None
                covered.append(abs(check.value - truth) <= check.uncertainty)
    assert len(covered) > 300
    assert sum(covered) / len(covered) > 0.92


@pytest.mark.thorough(keep=2)
@pytest.mark.parametrize("part", MODELS)
def test_parts_with_published_sensors_are_as_expected(part):
    found = sensors_found(node_of(part=part), presets(part))
    verdicts = {check.name: check.verdict for check in found.checks}
    unknown = {name for name, verdict in verdicts.items() if verdict is Verdict.IMPOSSIBLE}
    # A counter that is refreshed every millisecond does not show whether it samples.
    assert unknown <= ({names.COUNTER_SHARE} if part.startswith("mi") else set())
    assert Verdict.DIFFERENT not in verdicts.values()
    expected = names.POWER_WINDOW, names.POWER_LAG, names.POWER_PERIOD, names.IDLE_POWER
    assert {verdicts[name] for name in expected} == {Verdict.EXPECTED}


OTHERS = {
    "another window": (replace(A100, power=Sensor(period=0.1, window=0.1)), {names.POWER_WINDOW}),
    "another period": (
        replace(A100, power=Sensor(period=0.05, window=0.025)),
        {names.POWER_PERIOD},
    ),
    "a lag": (
        replace(A100, power=Sensor(period=0.1, window=0.025, lag=0.04)),
        {names.POWER_LAG},
    ),
    "no counter": (replace(A100, counter=None), {names.COUNTER}),
    "a late counter": (replace(A100, counter=Sensor(period=0.1, lag=0.03)), {names.COUNTER_LAG}),
    "a part-time counter": (
        replace(A100, counter=Sensor(period=0.1, part_time=0.03)),
        {names.COUNTER_SHARE},
    ),
    "a counter wrong by a factor": (
        replace(A100, counter=Sensor(period=0.1, gain=3.0)),
        {names.AGREEMENT, names.IDLE_POWER},
    ),
    "a live meter": (
        replace(A100, power=Sensor()),
        {names.POWER_PERIOD, names.POWER_WINDOW},
    ),
}


@pytest.mark.thorough(keep=3)
@pytest.mark.parametrize("world", OTHERS)
def test_what_differs_from_the_preset_is_named_and_nothing_else(world):
    sensors, differs = OTHERS[world]
    checks = sensors_found(node_of(sensors), presets("a100")).checks
    assert {check.name for check in checks if check.verdict is Verdict.DIFFERENT} == differs


def test_a_noisy_host_changes_no_verdict():
    device = report_of(node_of(pausing=4))
    assert different(device) == set()
    checks = by_name(device.checks)
    assert checks[names.POWER_WINDOW].verdict is Verdict.EXPECTED
    assert checks[names.SHORT_COVERED].verdict is Verdict.EXPECTED


def test_an_idle_gpu_shows_refreshes_of_its_counter_and_says_what_it_does_not_show():
    node = node_of()
    node.drivers[0].set_load(0.5)  # steady, and not ours
    lengths = Lengths(idle=1.0, burst=0.2, load=3.0)
    checks = by_name(check_sensors(node.gpus[0], node.clock, None, presets("a100"), lengths).checks)
    assert checks[names.COUNTER_PERIOD].verdict is Verdict.EXPECTED
    assert checks[names.AGREEMENT].verdict is Verdict.EXPECTED
    assert checks[names.POWER_PERIOD].why == Why.CONSTANT
    for name in (names.POWER_WINDOW, names.POWER_LAG, names.COUNTER_LAG):
        assert (checks[name].verdict, checks[name].why) == (Verdict.IMPOSSIBLE, Why.NO_LOAD)


def test_a_load_of_somebody_else_is_not_taken_for_ours(monkeypatch):
    node = node_of()
    driver, rng = node.drivers[0], random.Random(1)
    usual = driver.set_load
    # Another program's kernels drown ours.
    monkeypatch.setattr(driver, "set_load", lambda *_: usual(rng.uniform(0.0, 1.0)))
    checks = by_name(sensors_found(node).checks)
    assert checks[names.POWER_WINDOW].why == Why.UNCLEAR
    assert checks[names.COUNTER_LAG].why == Why.UNCLEAR


def test_a_counter_that_is_reset_is_counted(monkeypatch):
    node = node_of()
    driver, usual = node.drivers[0], node.drivers[0].energy
    late = lambda: usual() - (1e6 if node.clock.now() > 8 else 0)  # noqa: E731
    monkeypatch.setattr(driver, "energy", late)
    check = by_name(sensors_found(node).checks)[names.DECREASES]
    assert (check.verdict, check.value) == (Verdict.DIFFERENT, 1.0)


def test_a_bad_value_now_and_then_costs_only_itself(monkeypatch):
    node = node_of()
    driver, usual, polls = node.drivers[0], node.drivers[0].instant_power, iter(range(10**9))

    def reading() -> float:
        if next(polls) % 7 == 0:
            raise implausible("power", "-1 W")
        return usual()

    monkeypatch.setattr(driver, "instant_power", reading)
    clock = node.clock
    found = record(
        Sensors(node.gpus[0], clock), clock, 2e-3, [Segment(1.0, on=False)], rng=random.Random(1)
    )
    assert "watts" not in found.missing
    assert 0.8 < len(found.values("watts")) / len(found.polls) < 0.9


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA B300", None),
        ("NVIDIA H100 PCIe", "h100"),
        ("NVIDIA GeForce RTX 4090", "rtx"),
        ("NVIDIA RTX A6000", "rtx"),
        ("Quadro RTX 6000", "rtx6000"),
        *((model.name, key) for key, model in MODELS.items()),
    ],
)
def test_models_are_known_by_name(name, key):
    found = preset_of(name)
    assert (found and found.key) == key
    # Limits and clocks are those of one board, sensors those of a chip.
    exactly = key in MODELS and MODELS[key].name == name
    assert bool(found and found.model) == exactly
