"""Noise of a host on the steps of a training loop: jitter, late data, drift, neighbors."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from zeus._rules import Number
from zeus.device import Gpu
from zeus.errors import SimulationError
from zeus.testing._workload import Workload, simulated_driver


class Steps(Protocol):
    """Steps that a host can disturb: a `Workload` or a `RecordedProfile`."""

    def scaled(self, factor: float) -> Steps:
        """Return the same work in steps that take `factor` times as long."""

    def step_time(self, gpu: Gpu) -> float:
        """Seconds per step at the current settings."""

    def run(self, gpus: Gpu | Iterable[Gpu], steps: int = 1) -> float:
        """Run steps; returns the seconds that elapsed."""


@dataclass(frozen=True)
class HostNoise:
    """How a host disturbs a training loop. A value of 0 switches that disturbance off.

    Attributes:
        seed: Seed of the random numbers.
        jitter: Standard deviation of the logarithm of a step's time.
        late_share: Share of steps after which the GPU waits for data.
        late_steps: Range of that wait, in step times: (minimum, maximum).
        drift: Standard deviation of a slow drift of all steps' times (a first-order
            autoregressive process).
        drift_time: Correlation time of the drift, in seconds.
        disturbed_share: Share of stays at a setting during which a neighbor on the machine slows
            the steps, from beginning to end.
        disturbance: Relative slowdown of steps then.
        stays: Whether a neighbor is drawn for each stay at a setting; if not, once per setting
            for good, so that repeated measurements cannot detect it.

    Raises:
        ValueError: If a value is out of range.
    """

    seed: int = 0
    jitter: float = 0.02
    late_share: float = 0.01
    late_steps: tuple[float, float] = (2.0, 8.0)
    drift: float = 0.015
    drift_time: float = 60.0
    disturbed_share: float = 0.1
    disturbance: float = 0.03
    stays: bool = True

    def __post_init__(self) -> None:
        for name in ("jitter", "late_share", "drift", "disturbed_share", "disturbance"):
            Number(0, 1).check(name, getattr(self, name), SimulationError)
        Number(0, above=True).check("drift_time", self.drift_time, SimulationError)

    def around(self, work: Steps) -> NoisySteps:
        """Return the same steps with this noise; run them one by one.

        Args:
            work: A `Workload`, or a `RecordedProfile`.
        """
        return NoisySteps(work, self)


class NoisySteps:
    """Steps on a noisy host; made by `HostNoise.around`.

    Args:
        work: The steps without noise.
        noise: Noise of the host.
    """

    def __init__(self, work: Steps, noise: HostNoise) -> None:
        self.work = work
        self.noise = noise
        self._random = random.Random(noise.seed)
        self._drift = self._random.gauss(0.0, noise.drift)
        self._now: float | None = None
        self._setting: object = None
        self._slowed: dict[object, float] = {}
        self._neighbor = 1.0

    def run(self, gpus: Gpu | Iterable[Gpu], steps: int = 1) -> float:
        """Run steps one by one.

        Args:
            gpus: GPUs that run the steps.
            steps: Number of steps.

        Returns:
            Seconds that elapsed.
        """
        gpus = (gpus,) if isinstance(gpus, Gpu) else tuple(gpus)
        return sum(self._step(gpus) for _ in range(steps))

    def _step(self, gpus: tuple[Gpu, ...]) -> float:
        noise, draw = self.noise, self._random
        self._drift_on(simulated_driver(gpus[0]).clock.now())
        self._meet_neighbor(
            tuple((gpu.driver.power_limit(), gpu.driver.locked_graphics_clock()) for gpu in gpus)
        )
        factor = self._neighbor * math.exp(draw.gauss(0.0, noise.jitter) + self._drift)
        time = self.work.scaled(factor).run(gpus)
        if draw.random() < noise.late_share:
            step = max(self.work.step_time(gpu) for gpu in gpus)
            time += Workload("late", 0.0, step * draw.uniform(*noise.late_steps)).run(gpus)
        return time

    def _drift_on(self, now: float) -> None:
        elapsed = 0.0 if self._now is None else now - self._now
        self._now = now
        kept = math.exp(-elapsed / self.noise.drift_time)
        fresh = self._random.gauss(0.0, self.noise.drift)
        self._drift = kept * self._drift + math.sqrt(1 - kept * kept) * fresh

    def _meet_neighbor(self, setting: object) -> None:
        if setting == self._setting:
            return
        self._setting = setting
        there = self._random.random() < self.noise.disturbed_share
        self._neighbor = 1 + self.noise.disturbance if there else 1.0
        if not self.noise.stays:
            self._neighbor = self._slowed.setdefault(setting, self._neighbor)
