"""The linear program below every plan that keeps a cap of power.

Each operation may mix its options in any shares, run at any time at which those that it waits for
have ended, and draw at any moment whatever share it likes of what its mix draws. The variables are
the shares, the starts, and the time of the iteration, which is minimized. The cap is asked of
averages only: of each window from a time after the beginning to a time before the end, the energy
of all operations that lie in it in any schedule is at most what the cap allows in the window. (An
operation starts no earlier than the longest path to it takes at the fastest options, and ends no
later than the longest path from it allows.) Any plan that keeps the cap at every moment keeps all
of these, so none is faster than the solution.

A bound on the swing is a cap as well, above the most that the lowest power can be (`most_low`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from zeus.optimizer.pipeline_frequency import Pipeline
from zeus.optimizer.pipeline_frequency._power_cap import most_low
from zeus.optimizer.pipeline_frequency._total_power import excess_of


def least_time(pipeline: Pipeline, cap: float, swing: float = np.inf) -> float:
    """Return the least seconds of an iteration under a cap (W), by HiGHS."""
    cap = min(cap, most_low(pipeline) + swing)
    headroom = cap / pipeline.data_parallel - pipeline.blocking_power * pipeline.gpus
    count = len(pipeline.operations)
    mixes = [
        (number, option.time, option.time * excess_of(pipeline, operation, option))
        for number, operation in enumerate(pipeline.operations)
        for option in operation.options
    ]
    of_operation: list[list[int]] = [[] for _ in range(count)]
    for place, (number, _, _) in enumerate(mixes):
        of_operation[number].append(place)
    last = len(mixes) + count
    rows: list[dict[int, float]] = []
    limits: list[float] = []

    def after(number: int, then: int) -> None:
        """Let the operation end before a start, or before the end of the iteration."""
        row = {place: mixes[place][1] for place in of_operation[number]}
        rows.append({**row, len(mixes) + number: 1.0, then: -1.0})
        limits.append(0.0)

    for number, operation in enumerate(pipeline.operations):
        after(number, last)
        for other in operation.after:
            after(other, len(mixes) + number)
    heads, tails = paths(pipeline)
    for begin, end in windows(pipeline, heads, tails):
        if not any(map(lambda head, tail: head >= begin and tail >= end, heads, tails)):
            continue  # no path is that long, so that the window may end before it begins
        row = {last: -headroom}
        for place, (number, _, joules) in enumerate(mixes):
            inside = heads[number] >= begin and tails[number] >= end
            row[place] = joules if inside else min(joules, 0.0)
        rows.append(row)
        limits.append(-headroom * (begin + end))
    cells = [(n, column, value) for n, row in enumerate(rows) for column, value in row.items()]
    at, columns, values = zip(*cells, strict=True)
    answer = linprog(
        [0.0] * last + [1.0],
        A_ub=coo_matrix((values, (at, columns)), shape=(len(rows), last + 1)).tocsr(),
        b_ub=limits,
        A_eq=coo_matrix(
            (np.ones(len(mixes)), ([number for number, _, _ in mixes], range(len(mixes)))),
            shape=(count, last + 1),
        ).tocsr(),
        b_eq=np.ones(count),
        bounds=(0, None),
        method="highs",
    )
    assert answer.status == 0, answer.message
    return float(answer.fun)


def paths(pipeline: Pipeline) -> tuple[list[float], list[float]]:
    """Return the longest paths to and from each operation, at the fastest options."""
    operations = pipeline.operations
    shortest = [min(option.time for option in each.options) for each in operations]
    heads, tails = [0.0] * len(operations), [0.0] * len(operations)
    for number, operation in enumerate(operations):
        heads[number] = max((heads[n] + shortest[n] for n in operation.after), default=0.0)
    for number in range(len(operations) - 1, -1, -1):
        for other in operations[number].after:
            tails[other] = max(tails[other], tails[number] + shortest[number])
    return heads, tails


def windows(
    pipeline: Pipeline, heads: list[float], tails: list[float]
) -> Iterator[tuple[float, float]]:
    """Yield windows: from when a rank can begin at the earliest to when one can end at the latest.

    The second value of each is the distance from the end of the iteration.
    """
    first: dict[int, float] = {}
    final: dict[int, float] = {}
    for operation, head, tail in zip(pipeline.operations, heads, tails, strict=True):
        if operation.device is not None:
            first.setdefault(operation.device, head)
            final[operation.device] = tail
    for begin in {0.0, *first.values()}:
        for end in {0.0, *final.values()}:
            yield begin, end
