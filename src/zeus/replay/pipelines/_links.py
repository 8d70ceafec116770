"""Times of links and of the tail, from the times of whole iterations and the slack of schedules.

They are chosen so that the engine takes the recorded time in every schedule. A link that is never
on the critical path does not show in these. But a planner slows whatever has slack, so in a planned
schedule a computation that runs above its lowest clock has none; and a slow link is what makes
stages beside it run faster than their neighbors. So links are also chosen such that those
computations have little slack, unless there are no such links: then the schedules were not planned
that way, and a weak prior decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from zeus.replay.pipelines._engine import Engine, Executor
from zeus.replay.pipelines._least_squares import least_squares
from zeus.replay.pipelines._recording import Array

_NOISE = 5e-4  # relative, of an iteration's time
_ODD = 10.0  # times the noise: larger errors count in proportion, not squared
_FEW_ODD = 0.2  # of the runs: as many at most are left out at last
_SLACK = 0.1  # of a microbatch's computations: slack that plans have as they run
_FEW = 8.0  # computations above their lowest clock whose slack weighs half
# Seconds, and the standard deviation of the logarithm: what is likely of clusters in general.
_LINK = (0.005, 1.5)
_TAIL = (0.05, 1.0)
_SLOW = 0.05  # seconds of a link between machines, from which a search starts
_STARTS = 3  # searches; the others start from worse
_RISES = (0.016, 0.008, 0.004, 0.002, 0.001)  # seconds, by which links are slowed in turn

_Residuals = Callable[[Array], tuple[Array, Array]]


def fit_links(
    execute: Executor,
    loads: Array,
    forward: Array,
    backward: Array,
    times: Array,
    *,
    fast: Mapping[str, Array],
) -> Engine:
    """Fit the times of links and tail.

    Args:
        execute: The iteration.
        loads: Seconds of a load, by stage.
        forward: Seconds by stage, schedule and microbatch.
        backward: Likewise.
        times: Seconds of an iteration, by schedule.
        fast: Whether each "forward" and "backward" ran above its lowest clock, likewise.
    """
    count = len(loads) - 1
    expected = np.log([*[_LINK[0]] * count, _TAIL[0]])
    spread = np.array([*[_LINK[1]] * count, _TAIL[1]])
    scale = 1 / (times * _NOISE)
    number = np.asarray(sum(each.sum(2) for each in fast.values()))
    allowed = _SLACK * float(forward.mean() + backward.mean())
    weight = np.sqrt(number / (number + _FEW)) / allowed

    def of_times(logs: Array) -> tuple[Array, Array]:
        engine = _engine(logs, loads)
        return completed(logs, *execute(engine, forward, backward))

    def completed(logs: Array, predicted: Array, passed: Array) -> tuple[Array, Array]:
        slopes = np.column_stack([passed, np.ones(len(times))]) * np.exp(logs) * scale[:, None]
        errors, slopes = _tempered((predicted - times) * scale, slopes)
        return (
            np.concatenate([errors, (logs - expected) / spread]),
            np.concatenate([slopes, np.diag(1 / spread)]),
        )

    def of_both(logs: Array) -> tuple[Array, Array]:
        found = execute.slack(_engine(logs, loads), forward, backward, fast)
        residuals, slopes = completed(logs, found.times, found.passed)
        slacks = found.slopes * np.exp(logs[:-1]) * weight[:, :, None]
        return (
            np.concatenate([residuals, (found.means * weight).ravel()]),
            np.concatenate([slopes, np.pad(slacks.reshape(-1, count), ((0, 0), (0, 1)))]),
        )

    # The longest of several paths counts, so there are local minima: each link may be the slow one.
    starts = [expected]
    for link in range(count):
        start = expected.copy()
        start[link] = np.log(_SLOW)
        starts.append(start)
    residuals = of_both
    logs = _best(of_both, starts)
    slacks = of_both(logs)[0][len(times) + count + 1 :]
    if slacks @ slacks > np.count_nonzero(slacks):
        residuals = of_times
        logs = _best(of_times, starts)
    odd = abs(of_times(logs)[0][: len(times)]) > _ODD
    if 0 < odd.mean() <= _FEW_ODD:
        scale[odd] = 0.0
        logs, _ = least_squares(residuals, logs)
    return _engine(logs, loads)


def _tempered(errors: Array, slopes: Array) -> tuple[Array, Array]:
    """Return errors whose squares are Huber's loss, so that one odd run does not decide a fit."""
    large = np.maximum(abs(errors), _ODD)
    tempered = np.sqrt(2 * _ODD * large - _ODD**2)
    odd = abs(errors) > _ODD
    return (
        np.where(odd, np.sign(errors) * tempered, errors),
        np.where(odd, _ODD / tempered, 1.0)[:, None] * slopes,
    )


def _engine(logs: Array, loads: Array) -> Engine:
    values = np.exp(logs)
    return Engine(values[:-1], loads, float(values[-1]))


def _best(residuals: _Residuals, starts: list[Array]) -> Array:
    """Return the parameters of least squares, searched from the best starts."""

    def squares(logs: Array) -> float:
        found, _ = residuals(logs)
        return float(found @ found)

    promising = sorted(starts, key=squares)[:_STARTS]
    found = (least_squares(residuals, start) for start in promising)
    return min(found, key=lambda each: each[1])[0]


def slowest_links(execute: Executor, engine: Engine, forward: Array, backward: Array) -> Engine:
    """Return an engine of equal times whose links are as slow as they may be.

    An iteration passes a link at its beginning and at its end at least, so a slower link is made up
    for by the one that is passed most often. Links are slowed in turn, each until some iteration
    takes longer than before, beyond noise.

    Args:
        execute: The iteration.
        engine: From `fit_links`.
        forward: Seconds by stage, schedule and microbatch.
        backward: Likewise.
    """
    before, passed = execute(engine, forward, backward)
    busiest = int(passed.mean(0).argmax())
    for rise in _RISES:
        rising = set(range(len(engine.links))) - {busiest}
        while rising:
            for link in sorted(rising):
                links = engine.links.copy()
                links[link] += rise
                times, passed = execute(replace(engine, links=links), forward, backward)
                links[busiest] -= (times - before).mean() / max(passed[:, busiest].mean(), 1.0)
                slower = replace(engine, links=links)
                changes = execute(slower, forward, backward)[0] / before - 1
                if links[busiest] >= 0 and (abs(changes) <= _NOISE).all():
                    engine = slower
                else:
                    rising.remove(link)
    return engine
