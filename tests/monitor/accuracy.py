"""The table of accuracy in docs/measuring.md, in virtual time: python -m tests.monitor.accuracy."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator

from tests.monitor.worlds import (
    Outcome,
    Scenario,
    in_turns,
    inside_only,
    irregular,
    measured,
    nested,
    periodic,
)

from zeus.device._sensors import PRESETS, Sensor, Sensors

STEPS = in_turns(forward=250.0, backward=320.0, update=120.0)
TURNS = in_turns(one=150.0, other=300.0)
SECOND_MEAN = Sensors(Sensor(period=0.1), Sensor(period=0.1, window=1.0))
LIVE_POWER = Sensors(Sensor(period=0.1), Sensor())
IN_STEP = Sensors(Sensor(period=0.1, phase=0.3), Sensor(period=0.1, phase=0.3, window=0.025))
INSIDE, LONGER = inside_only(0.05), inside_only(0.5)
A100, V100, P100 = PRESETS["a100"], PRESETS["v100"], PRESETS["p100"]
HELD_UP = 0.2, 0.02

Measured = tuple[list[float], list[float]]


def runs(
    scenario: Scenario,
    sensors: Sensors,
    held_up: tuple[float, float] = (0.0, 0.0),
    only: str = "",
) -> Measured:
    """Errors and stated uncertainties of three runs of a minute."""
    return joined(
        measured(scenario, sensors, seed=seed, until=60.0, held_up=held_up, only=only)
        for seed in (1, 2, 3)
    )


def repeating(seconds: float, number: int) -> Measured:
    """Of windows over loads that repeat every 5 ms to 2 s, a different time in each run."""

    def each() -> Iterator[Outcome]:
        for seed in range(1, number + 1):
            period = math.exp(random.Random(seed).uniform(math.log(0.005), math.log(2.0)))
            until = max(25.0, 8 * seconds)
            yield measured(periodic(seconds, period), A100, seed=seed, until=until)

    return joined(each())


def joined(outcomes: Iterator[Outcome]) -> Measured:
    errors: list[float] = []
    stated: list[float] = []
    for outcome in outcomes:
        errors += outcome.errors
        stated += outcome.uncertainties
    return errors, stated


def rows() -> Iterator[tuple[str, list[Measured]]]:
    yield "A100, 50 ms, load only inside", [runs(INSIDE, A100)]
    yield "A100, 50 ms, two names in turns", [runs(TURNS, A100)]
    yield "A100, 50 ms, forward, backward, update", [runs(STEPS, A100)]
    yield "A100, 50 ms, nested", [runs(nested, A100)]
    yield "A100, 500 ms, load only inside", [runs(LONGER, A100)]
    repeated = [repeating(1.0, 24), repeating(5.0, 16), repeating(14.0, 8)]
    yield "A100, 1 / 5 / 14 s over loads that repeat every 5 ms to 2 s", repeated
    yield "A100, 50 ms steps, one poll in five delayed by up to 20 ms", [runs(STEPS, A100, HELD_UP)]
    yield "V100, 50 ms, load only inside; steps", [runs(INSIDE, V100), runs(STEPS, V100)]
    yield "V100, 50 ms steps, one poll in five delayed by up to 20 ms", [runs(STEPS, V100, HELD_UP)]
    yield "power a mean over a second, 50 ms steps", [runs(STEPS, SECOND_MEAN)]
    yield "counter and power refreshed at the same instants, 50 ms steps", [runs(STEPS, IN_STEP)]
    yield "MI300X, 50 ms steps", [runs(STEPS, PRESETS["mi300x"])]
    live = [runs(INSIDE, LIVE_POWER), runs(TURNS, LIVE_POWER)]
    yield "a live power meter, 50 ms, load only inside; in turns", live
    uncounted = [
        runs(STEPS, P100),
        runs(LONGER, P100),
        runs(irregular(5.0, 0.09), P100, only="long"),
    ]
    yield (
        "P100 (no counter), 50 ms steps; 0.5 s, load only inside; 5 s of windows and pauses",
        uncounted,
    )


def cells(errors: list[float], stated: list[float]) -> tuple[str, str, str]:
    """Median and 19 of 20 of the errors, how many are covered, and the median of what is stated."""
    ordered = sorted(errors)
    covered = sum(error <= bound for error, bound in zip(errors, stated, strict=True))
    percent = [100 * ordered[int(share * len(ordered))] for share in (0.5, 0.95)]
    return (
        " / ".join(f"{each:.2g}" if each >= 1 else f"{each:.2f}" for each in percent),
        f"{100 * covered / len(errors):.0f}",
        f"{100 * statistics.median(stated):.2g}",
    )


if __name__ == "__main__":
    for name, found in rows():
        error, covered, stated = (
            "; ".join(each) for each in zip(*(cells(*one) for one in found), strict=True)
        )
        print(f"| {name} | {error} % | {covered} % | ±{stated} % |", flush=True)
