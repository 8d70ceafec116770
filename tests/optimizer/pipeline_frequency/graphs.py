"""Small random pipelines, and other ways to solve them."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import linprog

from zeus.optimizer.pipeline_frequency import Option, Pipeline
from zeus.optimizer.pipeline_frequency._profile import useful

# Few distinct values, so that ties abound; fractions that binary numbers do not have.
times = st.integers(1, 40).map(lambda tenths: tenths / 10)
energies = st.integers(0, 60).map(lambda tenths: tenths / 10)


@st.composite
def options(draw, most=4):
    """What an operation may take; noisy and dominated options included."""
    count = draw(st.integers(1, most))
    return [Option(1000 + 15 * n, draw(times), draw(energies)) for n in range(count)]


@st.composite
def pipelines(draw, operations=6, most_options=4):
    """Any graph: operations on devices, on none, and of fixed time."""
    devices = draw(st.integers(1, 3))
    pipeline = Pipeline(
        devices,
        draw(st.sampled_from([0.0, 0.1, 0.7, 2.5])),
        tensor_parallel=draw(st.sampled_from([1, 1, 4])),
        data_parallel=draw(st.sampled_from([1, 1, 3])),
        name="a random pipeline",
    )
    pipeline.add_fixed("beginning", draw(times))  # so that all of it takes some time
    shared = draw(options(most_options))
    for number in range(1, 1 + draw(st.integers(1, operations))):
        device = draw(st.sampled_from([None, *range(devices)]))
        after = draw(st.sets(st.integers(0, number - 1), max_size=3))
        kind = draw(st.sampled_from(["own", "shared", "fixed"]))
        if kind == "fixed":
            pipeline.add_fixed("fixed", draw(times | st.just(0.0)), device=device, after=after)
        else:
            chosen = shared if kind == "shared" else draw(options(most_options))
            pipeline.add("work", chosen, device=device, after=after)
    return pipeline


def continuous_optimum(pipeline: Pipeline, deadline: float) -> float | None:
    """Least energy within a time if operations may mix their options, by HiGHS."""
    columns: list[tuple[int, float, float]] = []  # operation, seconds, cost
    for number, operation in enumerate(pipeline.operations):
        gpus = pipeline.gpus_of(operation)
        for option in operation.options:
            energy = pipeline.energy_of(operation, option)
            cost = energy - pipeline.blocking_power * gpus * option.time
            columns.append((number, option.time, cost))
    count, mixes = len(pipeline.operations), len(columns)
    # Mixes, starts, and the time of the whole, which may be less than the deadline.
    objective = [cost for _, _, cost in columns] + [0.0] * count
    objective.append(pipeline.blocking_power * pipeline.gpus)
    one, late = [], []
    for number, operation in enumerate(pipeline.operations):
        row = np.zeros(mixes + count + 1)
        row[:mixes] = [column[0] == number for column in columns]
        one.append(row)
        end = np.zeros(mixes + count + 1)
        end[:mixes] = [seconds if other == number else 0 for other, seconds, _ in columns]
        end[mixes + number] = 1
        end[-1] = -1
        late.append(end)
        for before in operation.after:
            wait = np.zeros(mixes + count + 1)
            wait[:mixes] = [seconds if other == before else 0 for other, seconds, _ in columns]
            wait[mixes + before] = 1
            wait[mixes + number] = -1
            late.append(wait)
    answer = linprog(
        objective,
        A_ub=np.array(late),
        b_ub=np.zeros(len(late)),
        A_eq=np.array(one),
        b_eq=np.ones(count),
        bounds=[(0, None)] * (mixes + count) + [(0, deadline)],
        method="highs",
    )
    return pipeline.data_parallel * answer.fun if answer.status == 0 else None


def all_plans(pipeline: Pipeline) -> list[tuple[float, float]]:
    """Time and energy of every combination of useful options."""
    choices = [
        useful(operation.options, 0.0 if operation.device is None else pipeline.blocking_power)
        for operation in pipeline.operations
    ]
    executions = map(pipeline.execute, itertools.product(*choices))
    return [(execution.time, execution.energy) for execution in executions]


def exact_frontier(pipeline: Pipeline) -> list[tuple[float, float]]:
    """Time and energy of every plan that no other beats, by enumeration without any bound.

    Operations are added one by one. Of all plans so far with the same ends of operations that
    others still wait for, and of the whole, the one of least cost is enough. Times should be
    multiples of a power of two, so that equal sums are equal numbers.
    """
    operations = pipeline.operations
    last = list(range(len(operations)))
    for number, operation in enumerate(operations):
        for other in operation.after:
            last[other] = number
    states: dict[tuple[float, ...], float] = {(0.0,): 0.0}
    places: dict[int, int] = {}  # of open operations in a state, after the end of the whole
    for number, operation in enumerate(operations):
        power = 0.0 if operation.device is None else pipeline.blocking_power
        kept = [other for other in [*places, number] if last[other] > number]
        following: dict[tuple[float, ...], float] = {}
        for state, cost in states.items():
            start = max((state[places[other]] for other in operation.after), default=0.0)
            for option in useful(operation.options, power):
                end = start + option.time
                ends = [end if other == number else state[places[other]] for other in kept]
                key = (max(state[0], end), *ends)
                total = cost + pipeline.energy_of(operation, option)
                total -= pipeline.blocking_power * pipeline.gpus_of(operation) * option.time
                if total < following.get(key, float("inf")):
                    following[key] = total
        states = following
        places = {other: place for place, other in enumerate(kept, 1)}
    waiting = pipeline.blocking_power * pipeline.gpus
    best: list[tuple[float, float]] = []
    for time, cost in sorted((state[0], cost) for state, cost in states.items()):
        energy = pipeline.data_parallel * (cost + waiting * time)
        if not best or energy < best[-1][1]:
            best.append((time, energy))
    return best
