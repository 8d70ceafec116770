"""Loads whose exact energy is known, windows around them, and GPUs that are polled meanwhile."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from zeus.device._base import unsupported
from zeus.device._sensors import Sensors
from zeus.errors import CapabilityError
from zeus.monitor._edges import WindowEdges
from zeus.monitor._estimator import EnergyEstimator
from zeus.monitor._poller import GpuPoller
from zeus.monitor._response import Response
from zeus.monitor._samples import Energy

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


def irregular(seconds: float, period: float) -> Scenario:
    """Long windows full of short ones, whose load comes and goes with them."""

    def made(rng: random.Random, until: float) -> tuple[Load, list[Window]]:
        load, windows = Load(), []
        now, start = 1.0, 1.0
        while now < until:
            for name, watts in (("load", 250.0), ("pause", 30.0)):
                load.set(now, watts)
                end = now + length(rng, period / 2)
                windows.append(Window(name, now, end))
                now = end
            if now - start > seconds:
                windows.append(Window("long", start, now))
                start = now
        return load, windows

    return made


class Outcome(NamedTuple):
    """Of windows after the first quarter of a run, which is for learning: shares of the truth."""

    errors: list[float]
    uncertainties: list[float]
    estimator: EnergyEstimator
    energies: list[tuple[Window, Energy]]

    def percentile(self, share: float) -> float:
        return sorted(self.errors)[int(share * len(self.errors))]

    @property
    def coverage(self) -> float:
        both = zip(self.errors, self.uncertainties, strict=True)
        return sum(error <= stated for error, stated in both) / len(self.errors)


class HandClock:
    """Time that a test moves."""

    virtual = False

    def __init__(self) -> None:
        self.instant = 0.0

    def now(self) -> float:
        return self.instant


class SensedGpu:
    """A GPU with these sensors, as far as a poller needs it; a driver call takes 40 µs."""

    meter_period = None

    def __init__(self, load: Load, sensors: Sensors, clock: HandClock, salt: int) -> None:
        self._load, self._sensors, self._clock, self._salt = load, sensors, clock, salt
        self.polls = 0

    def sample(self) -> tuple[float | CapabilityError, float | CapabilityError]:
        self.polls += 1
        self._clock.instant += 2e-5
        now, load, sensors = self._clock.instant, self._load, self._sensors
        counter: float | CapabilityError = unsupported("energy counter")
        if sensors.counter is not None:
            counter = round(sensors.counter.energy(load.joules, now, self._salt), 3)
        power = round(sensors.power.power(load.joules, now, self._salt + 8, load.watts), 3)
        self._clock.instant += 2e-5
        return counter, power

    def energy(self) -> float:
        counter = self.sample()[0]
        if isinstance(counter, CapabilityError):
            raise counter
        return counter

    def instant_power(self) -> float:
        power = self.sample()[1]
        assert not isinstance(power, CapabilityError)
        return power

    def timed_energy(self) -> tuple[float, float]:
        sensor = self._sensors.counter
        if sensor is None or not self._sensors.timestamps:
            raise unsupported("timestamps")
        joules, now = self.energy(), self._clock.instant
        return joules, sensor.refresh(sensor.last_refresh(now, self._salt), self._salt)

    def power_samples(self, since: float) -> list[tuple[float, float]]:
        raise unsupported("dated samples")


def measured(
    scenario: Scenario,
    sensors: Sensors,
    *,
    seed: int,
    until: float = 40.0,
    ask: float | None = None,
    late: float = 1e-4,
    held_up: tuple[float, float] = (0.0, 0.0),
    response: Response | None = None,
    only: str = "",
) -> Outcome:
    """Poll a GPU with these sensors, and take the energy of each window once it is final.

    Args:
        scenario: What is drawn, and windows around it.
        sensors: Of the GPU.
        seed: Of all that is random.
        until: Seconds that it goes on.
        ask: Seconds after a window's end to ask; by default when it is final.
        late: Seconds by which polls are late, about.
        held_up: Share of polls that a busy host holds up for longer, and for how long at most.
        response: What is known of the power meter from before.
        only: Name of the windows that count; by default all do.
    """
    rng = random.Random(seed)
    load, windows = scenario(rng, until)
    edges, clock = WindowEdges(), HandClock()
    estimator = EnergyEstimator(edges, LIMIT, response)
    poller = GpuPoller(SensedGpu(load, sensors, clock, 16 * seed), clock, estimator)  # type: ignore[arg-type]
    happenings: list[tuple[float, int, Window]] = []
    for window in windows:
        happenings += [(window.end, 0, window), (window.begin, 1, window)]
    happenings.sort(key=lambda each: each[:2])
    clock.instant = poller.due = 0.5
    energies: list[tuple[Window, Energy]] = []
    pending: list[Window] = []
    for instant, kind, window in [*happenings, (until + 1, 2, windows[-1])]:
        while poller.due < instant:
            clock.instant = max(poller.due, clock.instant) + rng.expovariate(1 / late)
            if rng.random() < held_up[0]:
                clock.instant += rng.uniform(0, held_up[1])
            poller.poll()
            while pending and (
                estimator.settled(pending[0].end)
                if ask is None
                else clock.instant >= pending[0].end + ask
            ):
                done = pending.pop(0)
                energies.append((done, estimator.energy(done.begin, done.end)))
            estimator.forget(clock.instant - 30)
        clock.instant = max(clock.instant, instant)
        if kind == 1:
            edges.begin(window.name, instant)
            poller.expedite(instant + 1e-3)
        elif kind == 0:
            edges.end(window.name, instant)
            pending.append(window)
    counted = energies[len(energies) // 4 :]
    errors, uncertainties = [], []
    for window, energy in counted:
        if only and window.name != only:
            continue
        truth = load.joules(window.end) - load.joules(window.begin)
        assert energy.joules is not None
        assert energy.uncertainty is not None
        errors.append(abs(energy.joules / truth - 1))
        uncertainties.append(energy.uncertainty / truth)
    return Outcome(errors, uncertainties, estimator, energies)
