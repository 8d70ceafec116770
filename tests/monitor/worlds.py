"""Loads whose exact energy is known, windows around them, and GPUs that are polled meanwhile."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from zeus.device.sensors import Sensors
from zeus.monitor.edges import WindowEdges
from zeus.monitor.estimator import EnergyEstimator
from zeus.monitor.looks import Energy, Look

LIMIT = 400.0
"""Watts."""


class Load:
    """Power that is drawn, in steps."""

    def __init__(self, idle: float = 60.0) -> None:
        self._instants, self._watts, self._joules = [-1e3], [idle], [-1e3 * idle]

    def set(self, instant: float, watts: float) -> None:
        self._joules.append(self.joules(instant))
        self._instants.append(instant)
        self._watts.append(watts)

    def joules(self, instant: float) -> float:
        at = bisect_right(self._instants, instant) - 1
        return self._joules[at] + self._watts[at] * (instant - self._instants[at])

    def watts(self, instant: float) -> float:
        return self._watts[bisect_right(self._instants, instant) - 1]


class Window(NamedTuple):
    name: str
    begin: float
    end: float


Scenario = Callable[[random.Random, float], tuple[Load, list[Window]]]


def length(rng: random.Random, seconds: float) -> float:
    return seconds * rng.uniform(0.8, 1.2)


def inside_only(seconds: float) -> Scenario:
    """Load inside windows, none between them."""

    def made(rng: random.Random, until: float) -> tuple[Load, list[Window]]:
        load, windows, now = Load(), [], 1.0
        while now < until:
            load.set(now, 60.0)
            now += length(rng, seconds) * rng.uniform(0.5, 2.0)
            end = now + length(rng, seconds)
            load.set(now, 300.0)
            windows.append(Window("step", now, end))
            now = end
        return load, windows

    return made


def in_turns(**watts: float) -> Scenario:
    """Windows of these names, back to back."""

    def made(rng: random.Random, until: float) -> tuple[Load, list[Window]]:
        load, windows, now = Load(), [], 1.0
        while now < until:
            for name, level in watts.items():
                end = now + length(rng, 0.05)
                load.set(now, level)
                windows.append(Window(name, now, end))
                now = end
        return load, windows

    return made


def nested(rng: random.Random, until: float) -> tuple[Load, list[Window]]:
    """Windows in windows."""
    load, windows, now = Load(), [], 1.0
    while now < until:
        begin = now
        load.set(now, 150.0)
        now += length(rng, 0.02)
        inner = now
        load.set(now, 320.0)
        now += length(rng, 0.05)
        windows.append(Window("inner", inner, now))
        load.set(now, 150.0)
        now += length(rng, 0.02)
        windows.append(Window("outer", begin, now))
        load.set(now, 60.0)
        now += length(rng, 0.04)
    return load, windows


def periodic(seconds: float, period: float) -> Scenario:
    """Long windows over a load that repeats, whatever windows do."""

    def made(rng: random.Random, until: float) -> tuple[Load, list[Window]]:
        load, windows = Load(), []
        now = 0.5 + rng.random() * period
        while now < until:
            load.set(now, 300.0)
            load.set(now + 0.3 * period, 80.0)
            now += period
        now = 2.0
        while now + 1.2 * seconds < until:
            end = now + length(rng, seconds)
            windows.append(Window("long", now, end))
            now = end + rng.uniform(0.1, 0.4)
        return load, windows

    return made


class Outcome(NamedTuple):
    """Of windows after the first quarter of a run, which is for learning: shares of the truth."""

    errors: list[float]
    uncertainties: list[float]
    estimator: EnergyEstimator

    def percentile(self, share: float) -> float:
        return sorted(self.errors)[int(share * len(self.errors))]

    @property
    def coverage(self) -> float:
        both = zip(self.errors, self.uncertainties, strict=True)
        return sum(error <= stated for error, stated in both) / len(self.errors)


def measured(
    scenario: Scenario, sensors: Sensors, *, seed: int, until: float = 40.0, pause: float = 0.0125
) -> Outcome:
    """Poll a GPU with these sensors and ask for the energy of each window some time after it."""
    rng = random.Random(seed)
    load, windows = scenario(rng, until)
    assert sensors.counter is not None
    edges = WindowEdges()
    estimator = EnergyEstimator(edges, LIMIT)
    happenings: list[tuple[float, int, Window | None]] = []
    for window in windows:
        happenings += [(window.end, 0, window), (window.begin, 1, window)]
        happenings.append((window.end + 0.3, 3, window))
    now = 0.5
    while now < until + 1:
        happenings.append((now, 2, None))
        now += pause * rng.uniform(0.6, 1.4)
    errors: list[float] = []
    uncertainties: list[float] = []
    for instant, kind, about in sorted(happenings, key=lambda each: each[:2]):
        if about is None:
            counter = sensors.counter.energy(load.joules, instant + 2e-5, 16 * seed)
            power = sensors.power.power(load.joules, instant + 6e-5, 16 * seed + 8, load.watts)
            times = instant, instant + 4e-5, instant + 8e-5
            estimator.take(Look(*times, round(counter, 3), round(power, 3)))
        elif kind == 1:
            edges.begin(about.name, instant)
        elif kind == 0:
            edges.end(about.name, instant)
        else:
            truth = load.joules(about.end) - load.joules(about.begin)
            energy: Energy = estimator.energy(about.begin, about.end)
            assert energy.joules is not None
            assert energy.uncertainty is not None
            errors.append(abs(energy.joules / truth - 1))
            uncertainties.append(energy.uncertainty / truth)
    begin = len(errors) // 4
    return Outcome(errors[begin:], uncertainties[begin:], estimator)
