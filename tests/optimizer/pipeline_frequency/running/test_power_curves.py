"""Power of instructions that are shorter than a refresh of the sensor, against known curves."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest
from tests.optimizer.pipeline_frequency.running.curves import (
    ASKED,
    BACKWARD,
    FORWARD,
    HIGHEST,
    VISITED,
    WAITING,
    Errors,
    watts,
)
from tests.present import present

from zeus.optimizer.pipeline_frequency import Profile
from zeus.optimizer.pipeline_frequency.running._power_curves import Load, PowerCurves

ACTIVITIES = {FORWARD: 0.8, BACKWARD: 0.9}
BETWEEN = 120.0
"""Watts between steps, where an optimizer step runs, say."""


def power(load: Load) -> float:
    """Watts of a load, in truth."""
    if load.kind is None:
        return WAITING if load.in_step else BETWEEN
    return watts(ACTIVITIES[load.kind])(load.clock / HIGHEST)


def running(draws: random.Random, seconds: float) -> Iterator[tuple[Load, float]]:
    """Run steps of slots at one clock each, of 100 ms or more, and wait at times."""
    pairs = max(2, math.ceil(0.1 / (3 * seconds)))
    while True:
        for _ in range(8):
            clock = draws.choice(VISITED)
            for kind, times in ((FORWARD, 1), (BACKWARD, 2)) * pairs:
                yield Load(kind, True, clock), times * seconds * draws.uniform(0.9, 1.1)
                if draws.random() < 0.3:
                    yield Load(None, True, clock), seconds * draws.uniform(0.2, 2.0)
        yield Load(None, False, HIGHEST), 4 * seconds


def learned(
    seed: int, seconds: float, refreshes: int = 80, period: float = 0.1, noise: float = 0.005
) -> PowerCurves:
    """From refreshes of a counter, each of which covers several instructions or a part of one."""
    draws, curves = random.Random(seed), PowerCurves(ACTIVITIES, HIGHEST)
    loads = running(draws, seconds)
    load, left = next(loads)
    for _ in range(refreshes):
        covered: dict[Load, float] = {}
        room = period
        while room > 0:
            some = min(left, room)
            covered[load] = covered.get(load, 0.0) + some
            room -= some
            left -= some
            if left <= 0:
                load, left = next(loads)
        joules = math.fsum(power(each) * length for each, length in covered.items())
        deviation = noise * joules
        curves.add(covered, joules + draws.gauss(0, deviation), deviation**2)
    return curves


@pytest.mark.parametrize(
    ("seconds", "median", "most"), [(0.003, 0.015, 0.07), (0.02, 0.01, 0.03), (0.06, 0.01, 0.03)]
)
def test_known_powers_are_found_with_an_uncertainty_that_covers(seconds, median, most):
    """From eight seconds of refreshes every 100 ms, at six clocks; asked at all clocks between.

    Where every refresh covers dozens of forwards and backwards alike, the two are hardly told
    apart.
    """
    found = Errors()
    for seed in range(25):
        curves = learned(seed, seconds)
        for kind, activity in ACTIVITIES.items():
            for clock in ASKED:
                truth = watts(activity)(clock / HIGHEST)
                found.add(curves.power(kind, clock), truth, curves.uncertainty(kind, clock))
    assert found.median <= median
    assert found.most <= most
    assert found.coverage >= 0.9
    assert found.scale <= 1.2


@pytest.mark.parametrize("seconds", [0.003, 0.02, 0.06])
def test_waiting_is_told_apart_from_what_runs_beside_it(seconds):
    for seed in range(10):
        assert learned(seed, seconds).waiting() == pytest.approx(WAITING, rel=0.05)


def test_the_energy_of_an_interval_is_the_sum_of_its_parts():
    curves = learned(1, 0.02)
    draws = random.Random(99)
    loads = running(draws, 0.02)
    some = [next(loads) for _ in range(400)]
    parts = [
        (curves.power(load.kind, load.clock) if load.kind else curves.waiting(), length)
        for load, length in some
        if load.kind or load.in_step
    ]
    stated = math.fsum(present(each) * length for each, length in parts)
    truth = math.fsum(power(load) * length for load, length in some if load.kind or load.in_step)
    assert stated == pytest.approx(truth, rel=0.01)


def test_kinds_that_draw_different_power_are_told_apart_although_every_refresh_covers_both():
    differences = []
    for seed in range(10):
        curves = learned(seed, 0.02)
        one, other = (present(curves.power(kind, HIGHEST)) for kind in (FORWARD, BACKWARD))
        differences.append(other - one)
    truth = watts(0.9)(1.0) - watts(0.8)(1.0)
    assert sum(differences) / len(differences) == pytest.approx(truth, rel=0.3)


def test_what_was_never_seen_is_unknown():
    curves = PowerCurves([FORWARD], HIGHEST)
    assert len(curves) == 0
    assert curves.power(FORWARD, HIGHEST) is None
    assert curves.uncertainty(FORWARD, HIGHEST) == math.inf
    assert curves.waiting() is None
    curves.add({Load(FORWARD, True, HIGHEST): 0.1}, 30.0, 0.01)
    assert len(curves) == 1
    assert curves.power(FORWARD, HIGHEST) == pytest.approx(300.0, rel=0.02)
    assert curves.waiting() is None, "it never waited"


def test_an_interval_without_length_says_nothing():
    curves = PowerCurves([FORWARD], HIGHEST)
    curves.add({}, 0.0, 0.01)
    curves.add({Load(FORWARD, True, HIGHEST): 0.0}, 0.0, 0.01)
    assert len(curves) == 0


def test_a_refresh_known_less_precisely_counts_less():
    curves = PowerCurves([FORWARD], HIGHEST)
    load = {Load(FORWARD, True, HIGHEST): 0.1}
    for _ in range(10):
        curves.add(load, 30.0, 0.01)
        curves.add(load, 40.0, 100.0)
    assert curves.power(FORWARD, HIGHEST) == pytest.approx(300.0, rel=0.02)


def test_what_was_long_ago_is_dropped():
    curves = PowerCurves([FORWARD], HIGHEST)
    for joules in (20.0, 30.0):
        for _ in range(600):
            curves.add({Load(FORWARD, True, HIGHEST): 0.1}, joules, 0.01)
    assert len(curves) == 600
    assert curves.power(FORWARD, HIGHEST) == pytest.approx(300.0, rel=0.01)


@pytest.mark.parametrize("name", ["bloom+a40", "gpt3-175b+a100_sxm"])
def test_recorded_stages_are_predicted_at_clocks_that_were_not_visited(traces, name):
    """Eight refreshes each with 1 % of noise, at clocks as an exploration visits them.

    The recorded powers themselves scatter around any smooth curve, so the stated uncertainty,
    which is that of the curve, is not compared with their distance from it.
    """
    profile = Profile.read(traces / "perseus" / "stage_profile" / f"{name}_bf16.csv")
    found = Errors()
    for key, options in profile.items():
        draws = random.Random(repr(key))
        powers = {present(option.frequency): option.energy / option.time for option in options}
        highest = max(powers)
        shares = (1, 0.95, 0.9, 0.83, 0.76, 0.7, 0.63)
        visited = {min(powers, key=lambda clock: abs(clock - by * highest)) for by in shares}
        curves = PowerCurves([FORWARD], highest)
        for clock in sorted(visited):
            for _ in range(8):
                joules = 0.1 * powers[clock] * (1 + 0.01 * draws.gauss(0, 1))
                curves.add({Load(FORWARD, True, clock): 0.1}, joules, (0.01 * joules) ** 2)
        for clock, truth in powers.items():
            if clock >= min(visited) and clock not in visited:
                found.add(curves.power(FORWARD, clock), truth, 1.0)
    assert len(found.errors) > 300
    assert found.median <= 0.01
    assert found.most <= 0.03
