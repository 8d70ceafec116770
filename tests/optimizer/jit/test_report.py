"""What a run took, what it would have taken otherwise, and how sure that is."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from tests.present import present

from zeus.frontier import Energy, Frontier, Point
from zeus.optimizer.jit._report import Amount, Report, Spent, point_at, reference_point

HIGH = Point(250, 0.10, 20.0, 0.001, 0.4, 4)
MIDDLE = Point(200, 0.11, 18.0, 0.001, 0.3, 2)
LOW = Point(150, 0.14, 19.0, 0.001, 0.3, 2)
FRONTIER = Frontier([HIGH, MIDDLE, LOW], max_power=250)


def report(steps, *, profiling=None, time=None, energy=None, present=250, observing=False):
    """Of a run that took just what the profile says, unless told otherwise."""
    points = {None: FRONTIER.at(present) if present else HIGH, 250: HIGH, 200: MIDDLE, 150: LOW}
    if time is None:
        time = sum(count * points[knob].time for knob, count in steps.items())
    if energy is None:
        energy = sum(count * points[knob].energy for knob, count in steps.items())
    return Report.of(
        Spent(steps, profiling or {}, time, energy),
        FRONTIER,
        Energy().select(FRONTIER),
        present,
        observing=observing,
        unit="W",
    )


def test_a_run_at_the_reference_would_have_taken_what_it_took():
    told = report({None: 1000}, observing=True)
    run = present(told.as_run)
    assert (run.time, run.energy) == (pytest.approx(100), pytest.approx(20_000))
    assert run == Amount(run.time, run.energy)
    assert told.at_reference.time == pytest.approx(100)
    assert told.at_reference.energy == pytest.approx(20_000)
    # It was measured: what the profile leaves open about it does not matter.
    assert told.at_reference.energy_uncertainty == pytest.approx(0)
    assert told.at_chosen.time == pytest.approx(110)
    assert present(told.at_chosen).energy == pytest.approx(18_000)
    ratio = math.hypot(0.4 / 20, 0.3 / 18)
    assert present(told.at_chosen).energy_uncertainty == pytest.approx(18_000 * ratio)
    assert told.at_chosen.time_uncertainty == pytest.approx(110 * math.hypot(0.01, 0.001 / 0.11))


def test_the_run_is_ours_and_the_profile_of_all_gpus():
    # Four GPUs, of which this process has one, and a host that is slower than while profiling.
    told = report({None: 1000}, time=105, energy=5250, observing=True)
    assert told.at_chosen.time == pytest.approx(105 * 1.1)
    assert present(told.at_chosen).energy == pytest.approx(5250 * 0.9)


def test_steps_at_each_setting_count():
    told = report({250: 100, 200: 800, 150: 100}, profiling={250: 100, 200: 100, 150: 100})
    assert (told.steps, told.profiling_steps) == (1000, 300)
    assert told.at_reference.time == pytest.approx(100)
    assert told.at_chosen.time == pytest.approx(110)
    assert told.profiling.time == pytest.approx(100 * 0.01 + 100 * 0.04)
    assert told.profiling.energy == pytest.approx(100 * -2 + 100 * -1)


def test_uncertainties_hold():
    """Points that are off by what they state give figures that are off by what is stated."""
    rng = random.Random(0)
    steps = {250: 300, 200: 500, 150: 200}
    told = report(steps)
    true = {
        "reference": 1000 * HIGH.energy * told.as_run.energy,
        "chosen": 1000 * MIDDLE.energy * told.as_run.energy,
    }
    found: dict[str, list[float]] = {"reference": [], "chosen": []}
    for _ in range(4000):
        wrong = {
            p.knob: p.energy + rng.gauss(0, present(p.energy_uncertainty) / 1.96)
            for p in FRONTIER.points
        }
        modelled = sum(count * wrong[knob] for knob, count in steps.items())
        for name, knob in (("reference", 250), ("chosen", 200)):
            found[name].append(told.as_run.energy * 1000 * wrong[knob] / modelled)
    for name, amount in (("reference", told.at_reference), ("chosen", told.at_chosen)):
        spread = 1.96 * statistics.stdev(found[name])
        assert amount.energy_uncertainty == pytest.approx(spread, rel=0.1)
        assert true[name] / told.as_run.energy == pytest.approx(amount.energy, rel=1e-6)


def test_changes_are_relative_to_the_setting_from_before():
    told = report({None: 10})
    assert told.energy_change == pytest.approx(-0.1)
    assert told.time_change == pytest.approx(0.1)
    told = report({None: 10}, present=150)
    assert told.reference == LOW
    assert told.energy_change == pytest.approx(18 / 19 - 1)


def test_a_setting_between_measured_ones_is_known():
    assert present(point_at(FRONTIER, 225)).energy == pytest.approx(19)
    assert reference_point(FRONTIER, 225).time == pytest.approx(0.105)
    assert point_at(FRONTIER, 100) is None
    assert point_at(FRONTIER, {"V": 250}) is None
    assert point_at(FRONTIER, None) is None
    assert reference_point(FRONTIER, None) == HIGH


def test_before_a_profile_there_is_only_the_run():
    told = Report.of(Spent({None: 7}, {}, 3.5, 700.0), None, None, None, observing=True, unit="W")
    assert (told.steps, told.as_run) == (7, Amount(3.5, 700.0))
    assert told.reference is told.chosen is told.at_chosen is told.profiling is None
    assert told.energy_change is None
    assert told.headline() == ""
    assert str(told) == "7 steps in 3.5 s, 700 J; no profile, so nothing to compare with"


def test_energy_that_is_not_known_is_not_zero():
    told = report({None: 100}, energy=0)  # nothing else than a profile tells of energy
    assert present(told.at_chosen).energy == pytest.approx(1800)
    told = Report.of(
        Spent({None: 100}, {}, 10.0, None),
        FRONTIER,
        Energy().select(FRONTIER),
        250,
        observing=True,
        unit="W",
    )
    assert told.as_run is None
    assert present(told.at_chosen).energy == pytest.approx(1800)
    assert "0 J" not in str(told)


def test_lines_for_people():
    told = report({250: 100, 200: 900}, profiling={250: 100, 200: 50})
    text = str(told)
    assert text.startswith("200 W is chosen, against 250 W: energy -10.0% ± 2.6%, time +10.0%")
    assert "1000 steps in 109 s, 18.2 kJ\n" in text
    assert "at 250 W throughout: 100 s ± 1.2 s, 20 kJ ± 460 J\n" in text
    assert "at 200 W throughout: 110 s ± 140 ms, 18 kJ ± 51 J\n" in text
    assert text.endswith("profiling: 150 steps, +500 ms and -100 J against 250 W")
    assert "would be best" in report({None: 10}, observing=True).headline()


def test_mixed_models_are_told_apart():
    mixed = Frontier(
        [Point({"A": 300, "B": 400}, 1.0, 500.0), Point({"A": 200, "B": 300}, 1.1, 400.0)]
    )
    told = Report.of(
        Spent({None: 10}, {}, 10.0, 5000.0),
        mixed,
        Energy().select(mixed),
        {"A": 300, "B": 400},
        observing=True,
        unit="W",
    )
    assert told.headline().startswith("200 W (A), 300 W (B) would be best, against 300 W (A), 400")


def test_the_choice_itself_is_certain_about_itself():
    only = Frontier([HIGH])
    told = Report.of(
        Spent({None: 10}, {}, 1.0, 200.0),
        only,
        Energy().select(only),
        250,
        observing=False,
        unit="W",
    )
    assert "energy +0.0% ± 0.0%" in told.headline()
    assert present(told.at_chosen).energy_uncertainty == pytest.approx(0)
