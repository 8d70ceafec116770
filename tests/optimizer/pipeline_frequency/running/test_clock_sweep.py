"""The walk down the clocks, without any device."""

from __future__ import annotations

import random

import pytest
from tests.present import present

from zeus.optimizer.pipeline_frequency.job._messages import InstructionKind
from zeus.optimizer.pipeline_frequency.running._clock_sweep import (
    FIRST_STEPS,
    MAX_STEPS,
    ClockSweep,
)

FORWARD, BACKWARD = InstructionKind("forward", 0), InstructionKind("backward", 0)
LADDER = tuple(range(1400, 300, -100))


def energy(clock: float, best: float) -> float:
    """Least at one clock, and more on both sides of it."""
    return 10.0 + ((clock - best) / 100) ** 2


def walked(
    walk: ClockSweep, best: dict[InstructionKind, float], noise: float = 0.0, seed: int = 1
) -> ClockSweep:
    """To the end, three instructions of each kind per step."""
    draws = random.Random(seed)
    for _ in range(1000):
        if walk.done or walk.trouble:
            return walk
        clock = walk.clock
        for kind, where in best.items():
            for _ in range(3):
                joules = energy(clock, where) + draws.gauss(0, noise)
                walk.add(kind, 100.0 / clock, joules, 2 * noise)
        walk.end_of_step()
    raise AssertionError("the walk does not end")


def test_it_ends_one_clock_after_the_energy_of_the_last_kind_has_risen():
    walk = walked(ClockSweep(LADDER, [FORWARD, BACKWARD]), {FORWARD: 1200, BACKWARD: 1000})
    options = walk.options()
    assert [option.frequency for option in options[FORWARD]] == [1400, 1300, 1200, 1100, 1000, 900]
    assert options[BACKWARD][4].energy == pytest.approx(10.0)
    assert options[FORWARD][0].time == pytest.approx(100 / 1400)
    assert walk.steps == 5 + FIRST_STEPS


def test_noise_is_not_taken_for_a_rise_and_is_averaged_away():
    for seed in range(5):
        walk = walked(ClockSweep(LADDER, [FORWARD]), {FORWARD: 900}, noise=0.4, seed=seed)
        measured = walk.options()[FORWARD]
        assert present(measured[-1].frequency) < 900
        best = min(measured, key=lambda option: option.energy)
        assert abs(present(best.frequency) - 900) <= 100
        assert len(measured) < walk.steps <= MAX_STEPS * len(measured)


def test_what_a_whole_step_has_more_or_less_is_not_taken_for_a_rise():
    """All instructions of a step differ alike: looking at more of them would not help."""
    ladder = tuple(range(1400, 300, -30))

    def reached(seed: int) -> float:
        draws = random.Random(seed)
        walk = ClockSweep(ladder, [FORWARD])
        while not walk.done:
            joules = (50 + energy(walk.clock, 900)) * (1 + draws.gauss(0, 0.015))
            for _ in range(12):
                walk.add(FORWARD, 100.0 / walk.clock, joules * (1 + draws.gauss(0, 0.002)), 0.0)
            walk.end_of_step()
        assert walk.steps <= MAX_STEPS * len(walk.options()[FORWARD])
        return min(present(option.frequency) for option in walk.options()[FORWARD])

    assert max(map(reached, range(10))) < 900


def test_a_small_rise_must_be_seen_twice():
    def clocks(energies: list[float]) -> int:
        walk = ClockSweep(LADDER, [FORWARD], steps_per_clock=1)
        for joules in energies:
            walk.add(FORWARD, 0.1, joules, 0.02)
            walk.end_of_step()
            if walk.done:
                break
        return len(walk.options()[FORWARD])

    assert clocks([12.0, 11.0, 11.05, 10.5, 10.0, 10.05, 10.06, 10.07]) == 7
    assert clocks([12.0, 11.0, 11.01, 11.02, 11.4, 11.5]) == 5  # by far more: once is enough


def test_gpus_that_compute_together_measure_equally_long():
    walk = walked(ClockSweep(LADDER, [FORWARD], steps_per_clock=3), {FORWARD: 1200}, noise=0.0)
    assert walk.steps == 3 * len(walk.options()[FORWARD])


def test_a_hiccup_does_not_count():
    walk = ClockSweep((1400,), [FORWARD], steps_per_clock=1)
    for seconds in (0.1, 0.1, 0.1, 9.0):
        walk.add(FORWARD, seconds, 100 * seconds, 0.0)
    walk.end_of_step()
    (option,) = walk.options()[FORWARD]
    assert (option.time, option.energy) == (pytest.approx(0.1), pytest.approx(10.0))


def test_what_takes_its_time_has_one_option_without_a_clock():
    kinds = [FORWARD, InstructionKind("communication", 0)]
    walk = ClockSweep(LADDER[:2], kinds)
    for seconds in (0.3, 0.3, 0.3, 0.1):
        walk.add(FORWARD, 0.1, 10.0, 0.0)
        walk.add(kinds[1], seconds, 1.0, 0.9)
        walk.end_of_step()
    assert walk.done
    (option,) = walk.options()[kinds[1]]
    assert (option.frequency, option.time) == (None, 0.1)  # the rest was waiting


def test_a_meter_that_knows_nothing_is_a_trouble_and_not_a_measurement():
    walk = ClockSweep(LADDER, [FORWARD])
    for _ in range(MAX_STEPS):
        assert walk.trouble == ""
        walk.add(FORWARD, 0.1, 10.0, 9.0)
        walk.end_of_step()
    assert "must be known to 25 %, but forward takes 10 J, give or take 3.18 J" in walk.trouble
    assert walk.options()[FORWARD] == ()


def test_it_does_not_slow_training_down_beyond_any_use():
    walk = ClockSweep(tuple(range(1400, 100, -100)), [FORWARD])
    while not walk.done:
        walk.add(FORWARD, 100.0 / walk.clock, walk.clock, 0.0)  # the slower the less, for ever
        walk.end_of_step()
    assert walk.options()[FORWARD][-1].frequency == 600


def test_a_step_without_all_kinds_does_not_count():
    walk = ClockSweep(LADDER, [FORWARD, BACKWARD])
    walk.add(FORWARD, 0.1, 1.0, 0.0)
    walk.add(InstructionKind("evaluation", 0), 0.1, 1.0, 0.0)
    walk.end_of_step()
    assert (walk.steps, walk.clock) == (0, 1400)
