"""Times of links and of the tail, from the times of whole iterations.

They are chosen so that the engine takes the recorded time in every schedule. A link that is never
on the critical path does not show in these; a weak prior then decides, and no prediction for
similar schedules depends on it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from zeus.replay.pipelines._engine import Engine, Executor
from zeus.replay.pipelines._least_squares import least_squares
from zeus.replay.pipelines._recording import Array

_NOISE = 5e-4  # relative, of an iteration's time
# Seconds, and the standard deviation of the logarithm: what is likely of clusters in general.
_LINK = (0.005, 1.5)
_TAIL = (0.05, 1.0)
_SLOW = 0.05  # seconds of a link between machines, from which a search starts
_RISES = (0.016, 0.008, 0.004, 0.002, 0.001)  # seconds, by which links are slowed in turn


def fit_links(
    execute: Executor, loads: Array, forward: Array, backward: Array, times: Array
) -> Engine:
    """Fit the times of links and tail.

    Args:
        execute: The iteration.
        loads: Seconds of a load, by stage.
        forward: Seconds by stage, schedule and microbatch.
        backward: Likewise.
        times: Seconds of an iteration, by schedule.
    """
    count = len(loads) - 1
    expected = np.log([*[_LINK[0]] * count, _TAIL[0]])
    spread = np.array([*[_LINK[1]] * count, _TAIL[1]])
    scale = 1 / (times * _NOISE)

    def residuals(logs: Array) -> tuple[Array, Array]:
        values = np.exp(logs)
        engine = Engine(values[:-1], loads, float(values[-1]))
        predicted, passed = execute(engine, forward, backward)
        slopes = np.column_stack([passed, np.ones(len(times))]) * values * scale[:, None]
        return (
            np.concatenate([(predicted - times) * scale, (logs - expected) / spread]),
            np.concatenate([slopes, np.diag(1 / spread)]),
        )

    # The longest of several paths counts, so there are local minima: each link may be the slow one.
    starts = [expected]
    for link in range(count):
        start = expected.copy()
        start[link] = np.log(_SLOW)
        starts.append(start)
    logs, _ = min((least_squares(residuals, start) for start in starts), key=lambda each: each[1])
    values = np.exp(logs)
    return Engine(values[:-1], loads, float(values[-1]))


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
