"""The most energy that any fixed plan of a pipeline saves where work varies.

Times of instructions are drawn for some iterations, and one linear program finds the durations
that take the least mean energy in all of them together, while their mean time stays within a limit.
Instructions may mix neighboring clocks, clocks change at once, and the iterations are known in
advance. So no plan with one clock for each instruction saves more, but by what the drawn iterations
are unlike others. Needs SciPy.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from zeus.optimizer.pipeline_frequency._pipeline import Operation, Pipeline
from zeus.optimizer.pipeline_frequency._profile import useful
from zeus.optimizer.pipeline_frequency._reserve import Variation, _Judge


def most_saved(pipeline: Pipeline, variation: Variation, slower: float) -> float:
    """Return the largest share of energy that a plan saves, in percent.

    Args:
        pipeline: The pipeline, with the true times and energies.
        variation: How times vary; its lag is not counted.
        slower: By how much mean iterations may take longer than at the highest clocks, in percent.
    """
    import numpy as np
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    operations = pipeline.operations
    judge = _Judge(pipeline, variation)
    before, factors = judge.at_highest_clocks(), judge._draw()
    iterations = factors.shape[1]
    hulls = [_hull(pipeline, operation) for operation in operations]
    # Unknown: how far each operation goes along each segment of its hull (seconds), when it ends in
    # each iteration, and when iterations end.
    segments = [
        (at, right[0] - left[0], (right[1] - left[1]) / (right[0] - left[0]))
        for at, hull in enumerate(hulls)
        for left, right in itertools.pairwise(hull)
    ]
    own: list[list[int]] = [[] for _ in operations]
    for number, (at, _, _) in enumerate(segments):
        own[at].append(number)
    ends = len(segments) + iterations * np.arange(len(operations) + 1)[:, None]
    ends = ends + np.arange(iterations)[None, :]
    entries: list[tuple[int, int, float]] = []
    limits: list[float] = []

    def at_most(terms: Sequence[tuple[int, float]], limit: float) -> None:
        entries.extend((len(limits), column, value) for column, value in terms)
        limits.append(limit)

    followed = {other for operation in operations for other in operation.after}
    for drawn in range(iterations):
        for at, operation in enumerate(operations):
            factor = float(factors[at, drawn])
            lasts = [(ends[at, drawn], -1.0), *((number, factor) for number in own[at])]
            for begin in [[(ends[other, drawn], 1.0)] for other in operation.after] or [[]]:
                at_most([*begin, *lasts], -factor * hulls[at][0][0])
            if at not in followed:
                at_most([(ends[at, drawn], 1.0), (ends[-1, drawn], -1.0)], 0.0)
    mean = [(int(column), 1 / iterations) for column in ends[-1]]
    at_most(mean, (1 + slower / 100) * before.time)
    rows, columns, values = zip(*entries, strict=True)
    waiting = pipeline.blocking_power * pipeline.gpus
    costs = np.zeros(ends[-1, -1] + 1)
    costs[: len(segments)] = [slope for _, _, slope in segments]
    costs[ends[-1]] = waiting / iterations
    bounds: list[tuple[float, float | None]] = [(0.0, length) for _, length, _ in segments]
    bounds += [(0.0, None)] * (len(costs) - len(segments))
    matrix: Any = coo_array((values, (rows, columns)), shape=(len(limits), len(costs)))
    found = linprog(costs, matrix.tocsr(), limits, bounds=bounds, method="highs-ipm")
    assert found.success, found.message
    energy = pipeline.data_parallel * (found.fun + sum(hull[0][1] for hull in hulls))
    return 100 * (1 - energy / before.energy)


def _hull(pipeline: Pipeline, operation: Operation) -> list[tuple[float, float]]:
    """Return the corners of the lower convex hull of seconds, and joules beyond waiting as long."""
    power = 0.0 if operation.device is None else pipeline.blocking_power
    corners: list[tuple[float, float]] = []
    for option in useful(operation.options, power):
        waiting = power * pipeline.gpus_of(operation) * option.time
        time, cost = option.time, pipeline.energy_of(operation, option) - waiting
        while len(corners) > 1:
            (time0, cost0), (time1, cost1) = corners[-2:]
            if (cost1 - cost0) * (time - time0) < (cost - cost0) * (time1 - time0):
                break
            corners.pop()
        corners.append((time, cost))
    return corners
