"""Levels of power: what is learned, against the truth; conditioning, against linear algebra."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.present import present

from zeus.monitor._edges import Piece
from zeus.monitor._levels import _MAX_LEVELS, Integral, Levels, Ripple, conditioned

MAX_POWER = 400.0
FORWARD, BACKWARD, IDLE = ("forward",), ("backward",), ()
WATTS = {FORWARD: 250.0, BACKWARD: 320.0, IDLE: 60.0}


def told(pieces, joules, variance=1e-6):
    return Integral(pieces, joules, variance)


def truth(pieces):
    return sum(WATTS[piece.names] * (piece.end - piece.begin) for piece in pieces)


def course(count, length=0.1, names=(FORWARD, BACKWARD)):
    """Segments of these names in turns."""
    return [
        Piece(number, names[number % len(names)], number * length, (number + 1) * length)
        for number in range(count)
    ]


def taught(segments, width):
    """Levels that were told of every so many segments together."""
    levels = Levels(MAX_POWER)
    for first in range(0, len(segments) - width + 1, width):
        pieces = segments[first : first + width]
        levels.learn(told(pieces, truth(pieces)))
    return levels


# --- what is learned ------------------------------------------------------------------------------


def test_nothing_is_known_of_a_name_that_was_never_seen():
    assert Levels(MAX_POWER).level(FORWARD) is None


@pytest.mark.parametrize("width", [1, 3], ids=["one segment each", "several together"])
def test_levels_come_to_what_is_drawn(width):
    levels = taught(course(90), width)
    for names in (FORWARD, BACKWARD):
        watts, variance = levels.level(names)
        assert watts == pytest.approx(WATTS[names], rel=0.01)
        assert variance < (0.05 * MAX_POWER) ** 2


def test_a_change_of_power_is_followed_within_some_refreshes():
    levels = taught(course(60, names=(FORWARD,)), 1)
    for number in range(60, 66):
        piece = Piece(number, FORWARD, number * 0.1, (number + 1) * 0.1)
        levels.learn(told([piece], 150.0 * 0.1))
    assert present(levels.level(FORWARD))[0] == pytest.approx(150.0, rel=0.05)


def test_segments_that_differ_are_known_to_differ():
    noise = random.Random(1)
    same, other = Levels(MAX_POWER), Levels(MAX_POWER)
    for piece in course(200, names=(FORWARD,)):
        same.learn(told([piece], 250.0 * 0.1))
        other.learn(told([piece], noise.gauss(250.0, 40.0) * 0.1))
    assert present(same.level(FORWARD))[1] < 5.0**2
    assert 25.0**2 < present(other.level(FORWARD))[1] < 60.0**2


def test_the_name_that_was_not_used_for_longest_makes_way():
    levels = Levels(MAX_POWER)
    for number in range(_MAX_LEVELS + 1):
        piece = Piece(number, (f"window {number}",), float(number), number + 1.0)
        levels.learn(told([piece], 100.0 + number))
    assert levels.level(("window 0",)) is None
    for number in range(1, _MAX_LEVELS + 1):
        assert present(levels.level((f"window {number}",)))[0] == pytest.approx(
            100.0 + number, rel=0.02
        )


def test_more_names_than_are_kept_may_occur_together():
    """As in one refresh of an interleaved pipeline, whose kinds run at several clocks."""
    count = _MAX_LEVELS + 8
    names: list[tuple[str, ...]] = [(f"window {number}",) for number in range(count)]
    watts = dict(zip(names, (100.0 + 5 * number for number in range(count)), strict=True))
    levels = Levels(MAX_POWER)
    for number in range(200):
        at = 5 * number % count
        some = [
            Piece(5 * number + more, names[at + more], 5.0 * number + more, 5.0 * number + more + 1)
            for more in range(5)
        ]
        levels.learn(told(some, sum(watts[piece.names] for piece in some)))
    every = [Piece(9999 + at, each, 9999.0 + at, 10000.0 + at) for at, each in enumerate(names)]
    levels.learn(told(every, sum(watts.values())))
    refreshes = [every[at : at + 5] for at in range(0, count, 5)]
    joules = [sum(watts[piece.names] for piece in pieces) for pieces in refreshes]
    measured = [told(pieces, each) for pieces, each in zip(refreshes, joules, strict=True)]
    found = conditioned(levels.snapshot(), measured, [*refreshes, every])
    assert [each.mean for each in found] == pytest.approx([*joules, sum(joules)], rel=1e-3)


def test_names_that_are_in_use_do_not_make_way_for_each_other():
    levels = Levels(MAX_POWER)
    everything = course(_MAX_LEVELS + 1, names=[(f"window {at}",) for at in range(99)])
    levels.add_names(everything)
    places = {levels.index_of(piece.names) for piece in everything}
    assert places == set(range(_MAX_LEVELS + 1))
    assert len(levels.terms(everything).lengths) == _MAX_LEVELS + 1
    # Later ones take the places of all that exceed.
    levels.add_names([Piece(99, IDLE, 99.0, 100.0)])
    assert len(levels.terms([Piece(99, IDLE, 99.0, 100.0)]).weights) == _MAX_LEVELS


def test_a_copy_learns_for_itself():
    levels = taught(course(60, names=(FORWARD,)), 1)
    before = levels.level(FORWARD)
    copy = levels.snapshot()
    copy.learn(told([Piece(99, FORWARD, 9.9, 10.0)], 40.0))
    copy.add_names([Piece(100, IDLE, 10.0, 10.1)])
    assert copy.level(FORWARD) != before
    assert levels.level(FORWARD) == before
    assert levels.level(IDLE) is None


def test_an_energy_is_the_less_certain_the_longer_its_segment():
    levels = taught(course(60, names=(FORWARD,)), 1)
    lengths = (0.01, 0.1, 1.0)
    variances = [levels.ripple(FORWARD, length) for length in lengths]
    assert variances == sorted(variances)
    # As a share of the energy, it is the other way round.
    shares = [levels.ripple(FORWARD, length) / length**2 for length in lengths]
    assert shares == sorted(shares, reverse=True)


def test_ripples_are_learned_from_what_is_off():
    calm, lively = Levels(MAX_POWER), Levels(MAX_POWER)
    for levels, watts in ((calm, 0.1), (lively, 30.0)):
        for _ in range(100):
            levels.learn_fast(FORWARD, watts, 0.1)
            levels.learn_slow(FORWARD, watts, 0.1, noise=0.01)
    assert calm.ripple(FORWARD, 0.1) < lively.ripple(FORWARD, 0.1)


# --- levels that may be one -----------------------------------------------------------------------


def test_levels_that_cannot_be_told_apart_count_as_one():
    levels = Levels(MAX_POWER)
    for number, (names, joules) in enumerate([(FORWARD, 25.0), (BACKWARD, 25.2)]):
        piece = Piece(number, names, number * 0.1, (number + 1) * 0.1)
        levels.learn(told([piece], joules, variance=1.0))
    apart = abs(present(levels.level(FORWARD))[0] - present(levels.level(BACKWARD))[0])
    levels.shrink([levels.index_of(FORWARD), levels.index_of(BACKWARD)])
    assert apart > 0
    assert present(levels.level(FORWARD))[0] == pytest.approx(present(levels.level(BACKWARD))[0])


def test_levels_that_differ_for_sure_stay_apart():
    levels = taught(course(90), 1)
    before = [levels.level(names)[0] for names in (FORWARD, BACKWARD)]
    levels.shrink([levels.index_of(FORWARD), levels.index_of(BACKWARD)])
    assert [levels.level(names)[0] for names in (FORWARD, BACKWARD)] == pytest.approx(
        before, rel=0.01
    )


# --- conditioning ---------------------------------------------------------------------------------


def spans(draw_seed):
    """Some integrals and targets over the same segments, which overlap in any way."""
    rng = random.Random(draw_seed)
    segments = course(12, names=(FORWARD, BACKWARD, IDLE))

    def cut(begin, end):
        return [
            piece._replace(begin=max(piece.begin, begin), end=min(piece.end, end))
            for piece in segments
            if piece.begin < end and piece.end > begin
        ]

    def random_cut():
        begin = rng.uniform(0.0, 1.0)
        return cut(begin, begin + rng.uniform(0.02, 0.2))

    integrals = []
    for _ in range(rng.randint(1, 6)):
        pieces = random_cut()
        joules = truth(pieces) * rng.uniform(0.9, 1.1)
        integrals.append(told(pieces, joules, variance=rng.uniform(0.01, 2.0)))
    return integrals, [random_cut() for _ in range(3)]


@given(st.integers(0, 10**6))
def test_it_is_the_posterior_of_linear_algebra(seed):
    integrals, targets = spans(seed)
    levels = taught(course(30, names=(FORWARD, BACKWARD, IDLE)), 1)
    found = conditioned(levels.snapshot(), integrals, targets)

    # The same, by inverting the covariance of everything, with levels shrunk alike.
    prior = levels.snapshot()
    everything = [*(one.pieces for one in integrals), *targets]
    for pieces in everything:
        prior.add_names(pieces)
    prior.shrink({prior.index_of(piece.names) for pieces in everything for piece in pieces})
    sizes = [prior.terms(pieces) for pieces in everything]
    covariance = np.array([[one.covariance(other) for other in sizes] for one in sizes])
    assert covariance == pytest.approx(covariance.T)
    count = len(integrals)
    noise = np.diag([one.variance for one in integrals])
    gain = covariance[count:, :count] @ np.linalg.inv(covariance[:count, :count] + noise)
    expected = np.array([size.expected for size in sizes])
    surprise = np.array([one.joules for one in integrals]) - expected[:count]
    means = np.array([size.expected for size in sizes[count:]]) + gain @ surprise
    variances = np.diag(covariance[count:, count:] - gain @ covariance[:count, count:])
    assert [each.mean for each in found] == pytest.approx(means.tolist(), rel=1e-6, abs=1e-6)
    assert [each.variance for each in found] == pytest.approx(
        variances.tolist(), rel=1e-5, abs=1e-5
    )
    for each in found:
        assert 0 <= each.shared <= each.variance


@given(st.integers(0, 10**6))
def test_what_short_intervals_add_up_to_does_not_contradict_a_long_one(seed):
    """As where a counter ticks every millisecond, and power is a mean over thirty."""
    rng = random.Random(seed)
    ends = [0.0]
    while ends[-1] < 0.06:
        ends.append(ends[-1] + 1e-3 * rng.choice([1, 1, 2, 3, 9]))
    ticks = [[Piece(0, FORWARD, *tick)] for tick in pairwise(ends)]
    begins = [rng.uniform(0.0, 0.03) for _ in range(5)]
    means = [[Piece(0, FORWARD, begin, begin + 0.03)] for begin in begins]
    levels = Levels(MAX_POWER)
    sizes = [levels.terms(pieces) for pieces in (*ticks, *means)]
    covariance = np.array([[one.covariance(other) for other in sizes] for one in sizes])
    assert min(np.linalg.eigvalsh(covariance)) > -1e-9 * np.trace(covariance)

    integrals = [told(pieces, truth(pieces), variance=1e-8) for pieces in ticks]
    integrals += [told(pieces, truth(pieces), variance=1e-4) for pieces in means]
    target = [Piece(0, FORWARD, 0.0105, 0.0333)]
    (found,) = conditioned(levels, integrals, [target])
    assert found.mean == pytest.approx(truth(target), rel=0.01)
    assert abs(found.mean - truth(target)) <= 3 * found.variance**0.5 + 1e-3


def test_what_was_measured_itself_is_known():
    pieces = [Piece(0, FORWARD, 0.0, 0.1)]
    (found,) = conditioned(Levels(MAX_POWER), [told(pieces, 31.0, variance=0.01)], [pieces])
    assert found.mean == pytest.approx(31.0, abs=0.1)
    assert found.variance == pytest.approx(0.01, rel=0.01)


def test_no_time_takes_no_energy():
    (found,) = conditioned(Levels(MAX_POWER), [told([Piece(0, FORWARD, 0.0, 0.1)], 25.0)], [[]])
    assert found == (0.0, 0.0, 0.0)


def test_a_window_within_a_tick_is_known_by_its_level():
    """Four fifths of a tick of the counter are idle, and what it has counted fits the levels."""
    levels = taught(course(60, names=(IDLE, FORWARD)), 1)
    idle, window = Piece(100, IDLE, 10.0, 10.08), Piece(101, FORWARD, 10.08, 10.1)
    (found,) = conditioned(levels, [told([idle, window], truth([idle, window]))], [[window]])
    assert found.mean == pytest.approx(WATTS[FORWARD] * 0.02, rel=0.03)
    assert abs(found.mean - WATTS[FORWARD] * 0.02) <= 2 * found.variance**0.5


def test_a_name_of_which_nothing_is_known_is_like_what_is_around_it():
    levels = taught(course(60, names=(IDLE,)), 1)
    idle, window = Piece(100, IDLE, 10.0, 10.08), Piece(101, FORWARD, 10.08, 10.1)
    (found,) = conditioned(levels, [told([idle, window], 100.0 * 0.1)], [[window]])
    assert found.mean == pytest.approx(100.0 * 0.02, rel=0.1)


# --- ripples --------------------------------------------------------------------------------------


def test_a_name_without_data_has_the_ripple_of_the_others():
    ripple = Ripple(start=4.0)
    assert ripple.variance(FORWARD) == 4.0
    for _ in range(200):
        ripple.add(FORWARD, 100.0)
    assert ripple.variance(FORWARD) == pytest.approx(100.0, rel=0.05)
    assert ripple.variance(BACKWARD) == pytest.approx(100.0, rel=0.05)
    for _ in range(200):
        ripple.add(BACKWARD, 1.0)
    assert ripple.variance(BACKWARD) < 25.0
    ripple.forget(BACKWARD)
    assert ripple.variance(BACKWARD) < 2.0  # that of all, of late


def test_an_outlier_does_not_outweigh_what_was_learned():
    ripple = Ripple(start=1.0)
    for _ in range(100):
        ripple.add(FORWARD, 1.0)
    ripple.add(FORWARD, 1e9)
    assert ripple.variance(FORWARD) < 10.0


def test_a_variance_is_never_negative():
    ripple = Ripple(start=1.0)
    for _ in range(100):
        ripple.add(FORWARD, -5.0)
    assert ripple.variance(FORWARD) == 0.0
