"""How long each setting is looked at, for steps of a millisecond and of minutes."""

from __future__ import annotations

import random
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optimizer.jit.curves import Training, physical, sweep, visited
from tests.present import present

from zeus.errors import KnobError
from zeus.frontier import Energy, Objective, ZeusCost
from zeus.optimizer.jit._checks import checked_job, checked_lengths, positive
from zeus.optimizer.jit._segment import Segment
from zeus.optimizer.jit._segment_lengths import (
    LONGEST,
    PART,
    PRECISION,
    SETTLE,
    WARM_UP,
    SegmentLengths,
)

STEP_TIMES = [0.001, 0.01, 0.1, 1.0, 10.0, 300.0]


class Everything(Objective):
    """Wants to see every setting."""

    def select(self, frontier):
        raise NotImplementedError


def by_setting(training: Training) -> dict[float, list[Segment]]:
    return {
        setting: list(group)
        for setting, group in groupby(training.segments, key=lambda segment: segment.setting)
    }


def profile(curve, lengths=None, **options) -> Training:
    training = Training(curve, **options)
    training.run(sweep(curve, Everything(), lengths).run())
    return training


# --- Decided by itself --------------------------------------------------------------------------


@pytest.mark.parametrize("step_time", STEP_TIMES)
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.2])
def test_no_setting_takes_longer_than_it_may(step_time, noise):
    curve = physical("v100", step_time)
    training = profile(curve, noise=noise, ends=0.002)
    for setting, segments in list(by_setting(training).items())[1:]:
        step = curve.frontier().at(setting).time
        measured = sum(segment.steps for segment in segments if segment.measured)
        # Steps vary, and the length is set by those before; two of any length are allowed.
        assert measured * step <= max(LONGEST * 1.3, 2 * step), setting


@pytest.mark.parametrize("step_time", [0.001, 0.01, 0.1])
def test_windows_last_several_ticks_of_a_counter(step_time):
    curve = physical("v100", step_time)
    training = profile(curve)
    after_warm_up = [s for s in training.measured if s.setting != 250]
    assert len(after_warm_up) == 2 * 6
    for segment in after_warm_up:
        assert segment.steps * curve.frontier().at(segment.setting).time >= PART * 0.99


@pytest.mark.parametrize("step_time", STEP_TIMES)
def test_the_first_second_is_not_believed(step_time):
    cold = [5.0] * round(WARM_UP / 5 / step_time)
    curve = physical("v100", step_time)
    training = Training(curve, cold=cold)
    going_down = sweep(curve, Everything())
    training.run(going_down.run())
    assert going_down.points()[0].time == pytest.approx(curve.points[0].time, rel=1e-9)


@pytest.mark.parametrize("step_time", [0.001, 0.01, 0.1, 1.0])
def test_steps_after_a_change_are_passed_by(step_time):
    curve = physical("v100", step_time)
    for segments in list(by_setting(profile(curve)).values())[1:]:
        first = segments[0]
        assert not first.measured
        assert first.steps * curve.frontier().at(first.setting).time >= SETTLE
        assert all(segment.measured for segment in segments[1:])


def test_in_a_step_of_minutes_a_change_does_not_show():
    training = profile(physical("v100", 300.0))
    assert [segment.measured for segment in training.segments[1:]] == [True] * (
        len(training.segments) - 1
    )
    per_setting = [len(group) for group in by_setting(training).values()]
    assert per_setting[1:] == [1] * 6, "without noise, one step tells all"


def test_of_long_steps_as_many_are_measured_as_tell_their_noise():
    # From two of them, half a percent of noise could be ten; four tell, and two of each other.
    training = profile(physical("v100", 60.0), noise=0.005, rng=random.Random(4))
    first, *others = [
        sum(s.steps for s in segments if s.measured) for segments in by_setting(training).values()
    ]
    assert first == 1 + 4, "a step to warm up"
    assert others == [2] * 6


def test_without_noise_little_is_measured():
    training = profile(physical("v100", 0.01))
    for setting, segments in list(by_setting(training).items())[1:]:
        spent = sum(s.steps for s in segments if s.measured) * 0.01
        assert spent <= 2 * PART + 0.01, setting


def test_what_is_surely_worse_is_looked_at_briefly():
    # What takes half as much again is not the best, whether it takes 50.2 % more or 50.4 %.
    curve = physical("v100", 0.01, activity=1.2)
    going_down = sweep(curve, ZeusCost(0.5))
    training = Training(curve, noise=0.01, ends=0.002, rng=random.Random(2))
    training.run(going_down.run())
    points = going_down.points()
    best = ZeusCost(0.5).select(curve.frontier()).point.knob
    seconds = {
        setting: sum(s.steps for s in segments if s.measured) * curve.frontier().at(setting).time
        for setting, segments in by_setting(training).items()
    }
    assert points[-1].knob < best - 25
    assert seconds[points[-1].knob] < seconds[best] / 2
    assert present(points[-1].energy_uncertainty) <= 0.006 * points[-1].energy


def test_noise_that_one_setting_tells_serves_the_others():
    curve = physical("v100", 0.01)
    going_down = sweep(curve, Everything())
    training = Training(curve, noise=0.05, ends=0.001, rng=random.Random(3))
    training.run(going_down.run())
    first, *others = going_down.points()
    # Half a second would be known to 5 % / 7 = 0.7 %: all are looked at for long, with few windows.
    assert all(point.repeats <= 4 for point in others)
    for point in (first, *others):
        # Five seconds are the limit, and at 100 W they have half as many steps.
        assert present(point.time_uncertainty) <= 4 * PRECISION * point.time
        assert curve.frontier().at(point.knob).time == pytest.approx(point.time, rel=0.02)


def test_what_the_ends_of_windows_leave_open_is_made_small_by_length():
    curve = physical("v100", 0.01)
    going_down = sweep(curve, Everything())
    Training(curve, ends=0.005).run(going_down.run())
    for point in going_down.points():
        # What is left open counts twice: it also makes windows differ, as noise would.
        assert present(point.energy_uncertainty) <= 2 * PRECISION * point.energy


def test_unsteady_first_parts_are_dropped():
    # Warming up takes longer than a second, and gets faster all the time.
    curve = physical("v100", 0.01)
    for seconds in (1.5, 2.0, 4.0):
        count = round(seconds / 0.015)
        cold = [2.0 - step / count for step in range(count)]
        going_down = sweep(curve, Everything())
        Training(curve, cold=cold).run(going_down.run())
        assert going_down.points()[0].time == pytest.approx(curve.points[0].time, rel=0.01)


def test_a_setting_that_was_slower_than_a_lower_one_is_measured_again():
    # Twice as slow for three seconds, steadily: only the next setting tells that it was not warm.
    curve = physical("v100", 0.01)
    going_down = sweep(curve, Everything())
    training = Training(curve, cold=[2.0] * 150)
    training.run(going_down.run())
    for point, true in zip(going_down.points(), curve.points, strict=True):
        assert point.time == pytest.approx(true.time, rel=0.005)
    order = [setting for setting, _ in groupby(training.measured, key=lambda s: s.setting)]
    assert order[0] == 250
    assert order.count(250) == 2


def test_a_job_that_gets_faster_all_the_time_is_not_measured_for_ever():
    curve = physical("v100", 0.01, compute_bound=0.0)  # as fast at every limit
    cold = [3.0 - step / 5000 for step in range(10_000)]
    training = profile(curve, cold=cold)
    assert training.steps < 10_000


def test_a_job_that_never_gets_steady_is_profiled_for_all_that():
    curve = physical("v100", 0.1)
    cold = [1.0 + (step // 7 % 2) for step in range(3000)]
    training = profile(curve, cold=cold)
    assert visited(training) == list(curve.knobs)
    assert training.steps < 3000


@given(
    st.sampled_from(STEP_TIMES),
    st.floats(0, 0.3),
    st.floats(0, 0.05),
    st.integers(0, 2**32),
)
@settings(max_examples=60)
def test_whatever_the_noise_it_ends(step_time, noise, ends, seed):
    curve = physical("v100", step_time)
    training = profile(curve, noise=min(noise, 0.3), ends=ends, rng=random.Random(seed))
    at_most = WARM_UP * 4 + (SETTLE + 2 * LONGEST) * 2 * len(curve.knobs)
    slowest = curve.points[-1].time
    assert sum(
        s.steps * curve.frontier().at(s.setting).time for s in training.segments
    ) <= at_most * 2 + slowest * (4 + 4 + 2 * len(curve.knobs))


# --- As the user says ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wait", "warmup", "steps"), [(1, 10, 40), (0, 0, 1), (7, 3, 5), (2, 0, 2)]
)
@pytest.mark.parametrize("step_time", [0.001, 300.0])
def test_given_lengths_are_obeyed_exactly(wait, warmup, steps, step_time):
    curve = physical("v100", step_time)
    training = profile(curve, SegmentLengths(wait, warmup, steps), noise=0.05)
    assert training.steps == wait + len(curve.knobs) * (warmup + steps)
    for number, segments in enumerate(by_setting(training).values()):
        passed = sum(s.steps for s in segments if not s.measured)
        assert passed == warmup + (wait if number == 0 else 0)
        assert sum(s.steps for s in segments if s.measured) == steps


def test_given_warmup_alone_is_obeyed_exactly():
    curve = physical("v100", 0.01)
    training = profile(curve, SegmentLengths(0, 3, None))
    first = training.segments[0]
    assert first.steps == 3, "no second of warming up before the first"
    for segments in list(by_setting(training).values())[1:]:
        assert (segments[0].steps, segments[0].measured) == (3, False)
    training = profile(curve, SegmentLengths(0, 0, None))
    assert training.segments[0] == Segment(1, 250), "how long a step is, has to be found out"
    assert all(segment.measured for segment in training.segments)


def test_given_profile_steps_alone_are_obeyed_exactly():
    curve = physical("v100", 0.01)
    training = profile(curve, SegmentLengths(0, None, 33))
    for segments in list(by_setting(training).values())[1:]:
        assert sum(s.steps for s in segments if s.measured) == 33
        step = curve.frontier().at(segments[0].setting).time
        assert segments[0].steps * step >= SETTLE


def test_given_wait_is_obeyed_exactly():
    for wait in (0, 1, 5):
        training = profile(physical("v100", 0.01), SegmentLengths(wait, None, None))
        waited = [s.steps for s in training.segments[:1] if not s.measured]
        assert waited == ([wait] if wait else [])


# --- Rules --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ((-1, None, None), r"`wait_steps >= 0` must hold, but got -1"),
        ((1, -2, None), r"`warmup_steps >= 0` must hold, but got -2"),
        ((1, None, 0), r"`profile_steps >= 1` must hold, but got 0"),
        ((1.5, None, None), r"`wait_steps` must be a whole number, but got 1.5"),
        ((True, None, None), r"`wait_steps` must be a whole number, but got True"),
        ((1, "3", None), r"`warmup_steps` must be a whole number, but got '3'"),
    ],
)
def test_wrong_lengths_are_told(values, told):
    with pytest.raises(KnobError, match=told):
        checked_lengths(*values)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (("", None, 1), r"`job` must be a name that is not empty, but got ''"),
        (("a", 0, 1), r"`batch_size >= 1` must hold, but got 0"),
        (("a", 1, 0), r"`job_steps >= 1` must hold, but got 0"),
        ((3, 1, 1), r"`job` must be a name"),
    ],
)
def test_wrong_words_about_the_job_are_told(values, told):
    with pytest.raises(KnobError, match=told):
        checked_job(*values)


@pytest.mark.parametrize("value", [0, -25, float("nan"), float("inf"), "25", True])
def test_wrong_strides_are_told(value):
    with pytest.raises(KnobError, match="`pl_step"):
        positive("pl_step", value)


def test_energy_rises_slower_than_it_can_be_told_without_ending_the_walk_too_soon():
    curve = physical("v100", 0.01)
    going_down = sweep(curve, Energy())
    training = Training(curve, noise=0.02, ends=0.005, rng=random.Random(1))
    training.run(going_down.run())
    best = min(curve.points, key=lambda point: point.energy).knob
    assert best in visited(training)
