"""What recordings show of one sensor: its refreshes, its response, and the step of its values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from zeus.verify._load_pattern import SquareWave
from zeus.verify._recording import Poll, Recording
from zeus.verify._refresh_times import Refreshes, find_refreshes
from zeus.verify._response_fit import SHARES, Fit, Reading, fit_response

_MARGIN = 3e-4  # seconds around a refresh in which a poll may show either value
_LEAST_TIMING = 1e-4  # seconds by which instants are off in any case
_FEW = 8  # polls, or changes
_BLUR = 4.0  # by which a counter's share is less certain, at a poll per refresh
_BLOCK = 0.02  # seconds over which a quick counter's power is taken
_CLOSE = 0.15  # seconds after an edge in which a meter without a period is worth a reading
_EACH_POLL = 0.5  # share of polls with another value, above which a sensor is always fresh
_SURELY = 0.99  # share of the variance that a meter without refreshes must explain
_INSTANT = 2e-4  # seconds; no shorter window is distinguished from none
_UNITS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # of values, in which drivers may count
_ROUNDED = 1e-3  # of a unit, by which floats may be off


class SensorFit(NamedTuple):
    """What was found of one sensor; `None` for what its values do not show.

    `period` is 0 for one that is always fresh, as far as polls show.
    """

    period: float | None
    period_uncertainty: float
    refreshes: Refreshes | None
    response: Fit | None
    lag_uncertainty: float
    step: float | None
    changes: int


def fit_meter(
    burst: Recording | None, recording: Recording, wave: SquareWave, field: str
) -> SensorFit:
    """Return what was found of a power meter.

    Args:
        burst: Denser polls, for sensors that are refreshed every few milliseconds.
        recording: Polls under an irregular load, or without one.
        wave: The load in both of them.
        field: The meter's field in `Poll`.
    """
    values = recording.values(field)
    refreshes, timing, dense = _refreshes(burst, recording, field)
    step = value_step([value for _, value in values])
    fit, period, uncertainty = None, None, 0.0
    if refreshes is not None:
        readings = [Reading(at, value) for at, value in _latched(refreshes, values)]
        if dense:
            # Which refresh a poll shows is not known; half a period ago in the mean.
            readings = _fresh(values, wave, refreshes.period / 2)
            timing = math.hypot(timing, refreshes.period / 4)
        fit = fit_response(readings, wave, step or 0.0)
        period, uncertainty = refreshes.period, refreshes.period_uncertainty
    else:
        period, uncertainty = _quick_period(burst, recording, field)
        age = (period or 0.0) / 2
        fit = fit_response(_fresh(values, wave, age), wave, step or 0.0)
        if period is None and fit is not None:
            if fit.explained >= _SURELY:
                period, uncertainty = 0.0, poll_gap(burst or recording)
            else:
                fit = None  # a meter that is refreshed follows the load, too, but roughly
        timing = math.hypot(timing, age / 2, uncertainty)
    changes = len(recording.changes(field))
    fit = _blurred(fit, (0.0 if refreshes is None else refreshes.jitter / 4) + _INSTANT)
    return SensorFit(period, uncertainty, refreshes, fit, timing, step, changes)


def fit_counter(burst: Recording | None, recording: Recording, wave: SquareWave) -> SensorFit:
    """Return what was found of an energy counter; windows of its response are shares of time."""
    values = recording.values("joules")
    refreshes, timing, dense = _refreshes(burst, recording, "joules")
    period, uncertainty = None, 0.0
    points: list[tuple[float, float]] = []
    if refreshes is not None and not dense:
        period, uncertainty = refreshes.period, refreshes.period_uncertainty
        points = _latched(refreshes, values)
    else:
        period, uncertainty = _quick_period(burst, recording, "joules")
        if refreshes is not None:
            period, uncertainty = refreshes.period, refreshes.period_uncertainty
        if period is not None:
            timing = math.hypot(timing, max(period, uncertainty) / 4)
            points = _blocks(values, period / 2)
    step = value_step([value for _, value in values])
    readings = [
        Reading(now, (joules - before) / (now - then), now - then)
        for (then, before), (now, joules) in pairwise(points)
        if joules >= before and now - then < 1.5 * max(period or 0.0, 2 * _BLOCK)
    ]
    watts = (step or 0.0) / (period if period and period > _BLOCK else _BLOCK)
    fit = fit_response(readings, wave, watts, windows=SHARES)
    changes = len(recording.changes("joules"))
    if fit is not None and period is not None:
        # Jitter and polls are a larger part of a shorter period.
        jitter = 0.0 if refreshes is None else refreshes.jitter / refreshes.period / 2
        gap = poll_gap(recording)
        fit = _blurred(fit, jitter + _BLUR * (gap / max(period, gap)) ** 2)
    return SensorFit(period, uncertainty, refreshes, fit, timing, step, changes)


def _blurred(fit: Fit | None, more: float) -> Fit | None:
    """Return a fit whose window is known less well, because refreshes come at odd instants."""
    if fit is None:
        return None
    return fit._replace(window_uncertainty=math.hypot(fit.window_uncertainty, more))


def poll_gap(recording: Recording) -> float:
    """Return the usual seconds between polls, from begin to end."""
    polls = recording.polls
    return median(later.ended - earlier.begun for earlier, later in pairwise(polls))


def value_step(values: Sequence[float]) -> float | None:
    """Return the unit that all values are multiples of; `None` for values that do not change."""
    distinct = sorted(set(values))
    if len(distinct) < 3:
        return None
    for unit in _UNITS:
        counts = [value / unit for value in distinct]
        if all(abs(count - round(count)) < _ROUNDED for count in counts):
            return unit * math.gcd(*(round(count - counts[0]) for count in counts[1:]))
    return None


def _refreshes(
    burst: Recording | None, recording: Recording, field: str
) -> tuple[Refreshes | None, float, bool]:
    """Return the refreshes of a sensor.

    Also by how much their instants may be off in common, and whether only dense polls show them.
    """
    changes = recording.changes(field)
    # When during a poll the driver looked is not known.
    call = median(poll.ended - poll.begun for poll in recording.polls) / 2
    found, dense = find_refreshes(changes), False
    if found is None and burst is not None:
        found, dense = find_refreshes(burst.changes(field)), True
        if found is not None:
            usual = find_refreshes(changes, found.period)
            found, dense = (found, True) if usual is None else (usual, False)
    if found is None:
        return None, math.hypot(call, _LEAST_TIMING), False
    timing = math.hypot(found.phase_uncertainty, call, found.jitter / 4, _LEAST_TIMING)
    return found, timing, dense


def _quick_period(
    burst: Recording | None, recording: Recording, field: str
) -> tuple[float | None, float]:
    """Return the period, and its uncertainty, of a sensor that most polls show refreshed.

    The period is 0 if even the densest polls do; `None` if most do not.
    """
    if len(recording.changes(field)) <= _EACH_POLL * len(recording.values(field)):
        return None, 0.0
    if burst is None or len(burst.values(field)) < _FEW:
        return 0.0, poll_gap(recording)
    changes, gap = burst.changes(field), poll_gap(burst)
    if len(changes) > _EACH_POLL * len(burst.values(field)) or len(changes) < _FEW:
        return 0.0, gap
    return median(later.high - earlier.high for earlier, later in pairwise(changes)), gap


def _latched(
    refreshes: Refreshes, values: Sequence[tuple[Poll, float]]
) -> list[tuple[float, float]]:
    """Return instants and values of refreshes, whether they changed the value or not."""
    margin = refreshes.jitter / 2 + 2 * refreshes.phase_uncertainty + _MARGIN
    found: dict[int, float] = {}
    for poll, value in values:
        number = refreshes.number(poll.begun - margin)
        if poll.ended <= refreshes.at(number + 1) - margin:
            found.setdefault(number, value)
    return [(refreshes.at(number), value) for number, value in sorted(found.items())]


def _fresh(
    values: Sequence[tuple[Poll, float]], wave: SquareWave, age: float = 0.0
) -> list[Reading]:
    """Return readings of a meter that shows the power of each poll; more where load changed."""
    found = []
    for number, (poll, value) in enumerate(values):
        instant = (poll.begun + poll.ended) / 2
        recent = wave.seconds(instant) - wave.seconds(instant - _CLOSE)
        if 1e-6 < recent < _CLOSE - 1e-6 or number % 4 == 0:
            found.append(Reading(instant - age, value))
    return found


def _blocks(values: Sequence[tuple[Poll, float]], age: float) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    for poll, joules in values:
        instant = (poll.begun + poll.ended) / 2 - age
        if not points or instant - points[-1][0] >= _BLOCK:
            points.append((instant, joules))
    return points
