"""How a simulated server's energy is metered: exactly, or by a counter as real GPUs have it."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

from zeus._rules import Number
from zeus.errors import SimulationError


@dataclass(frozen=True)
class CounterMeter:
    """An energy counter that is refreshed periodically, late, and with noise.

    Attributes:
        period: Seconds between refreshes.
        lag: Seconds by which its values are late.
        noise: Relative standard deviation of the energy between two readings.
        seed: Seed of phase and noise.

    Raises:
        ValueError: If a value is negative or not finite.
    """

    period: float = 0.1
    lag: float = 0.025
    noise: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        Number(0, above=True).check("period", self.period, SimulationError)
        Number(0).check("lag", self.lag, SimulationError)
        Number(0, 1).check("noise", self.noise, SimulationError)


class MeterState:
    """A counter in use by one replica.

    Args:
        meter: The counter; `None` for one that is exact.
        replica: Index of the replica; each has another phase.
    """

    def __init__(self, meter: CounterMeter | None, replica: int) -> None:
        self._meter = meter
        self._dice = random.Random(f"{meter.seed if meter else 0} {replica}")
        self._phase = self._dice.random()
        self._line: deque[tuple[float, float]] = deque([(0.0, 0.0)])
        self._read = 0.0

    def add(self, time: float, joules: float) -> None:
        """Note the exact energy up to an instant."""
        self._line.append((time, joules))

    def reading(self, now: float, exact: float) -> tuple[float, float]:
        """Return the energy since the reading before, and its standard error, in joules.

        Args:
            now: Seconds.
            exact: Exact energy since the reading before.
        """
        meter = self._meter
        if meter is None:
            return exact, 0.0
        refreshed = ((now / meter.period - self._phase) // 1 + self._phase) * meter.period
        shown = self._at(max(0.0, refreshed - meter.lag))
        difference, self._read = shown - self._read, shown
        scale = 1 + meter.noise * self._dice.gauss()
        span = now - self._line[0][0]
        power = (self._line[-1][1] - self._line[0][1]) / span if span > 0 else 0.0
        late = power * (meter.period / 6**0.5)  # two ends, each evenly distributed over a period
        return difference * scale, (late**2 + (meter.noise * difference) ** 2) ** 0.5

    def _at(self, time: float) -> float:
        """Return the exact energy up to an instant; older ones are forgotten."""
        line = self._line
        while len(line) > 2 and line[1][0] <= time:
            line.popleft()
        (begin, low), (end, high) = line[0], line[1] if len(line) > 1 else line[0]
        return low + (high - low) * (time - begin) / (end - begin) if end > begin else low
