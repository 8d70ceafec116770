"""How much slower work becomes at a lower clock: a roofline of computation and memory traffic."""

from __future__ import annotations

from dataclasses import dataclass

from zeus._rules import Number
from zeus.errors import SimulationError


@dataclass(frozen=True)
class Roofline:
    """Work whose time is a smooth maximum of computation and memory traffic.

    Computation goes with 1 / clock. Memory traffic hardly depends on the clock, until the clock is
    so low that the GPU cannot ask for data as quickly as memory delivers: from there on its time
    rises steeply. So the energy of work that is bound by memory has a minimum at that clock.

    Attributes:
        intensity: Time of computation at the highest clock, in units of the time of memory
            traffic: far below 1 for work that is bound by memory (generating tokens), far above 1
            for work that is bound by computation (prompts).
        sharpness: Exponent of the smooth maximum.
        memory_knee: Share of the highest clock near which memory traffic becomes slower; 0 if it
            never does. The default was measured on a V100.
        memory_steepness: Exponent with which it does.

    Raises:
        ValueError: If a value is out of range.
    """

    intensity: float
    sharpness: float = 3.0
    memory_knee: float = 0.4623
    memory_steepness: float = 19.14

    def __post_init__(self) -> None:
        Number(0).check("intensity", self.intensity, SimulationError)
        Number(1, 100).check("sharpness", self.sharpness, SimulationError)
        Number(0, 1).check("memory_knee", self.memory_knee, SimulationError)
        Number(1, 100).check("memory_steepness", self.memory_steepness, SimulationError)

    def slowdown(self, clock: float) -> float:
        """Return the time in units of that at the highest clock.

        Args:
            clock: Share of the highest clock.
        """
        return self._time(clock) / self._time(1.0)

    def _time(self, clock: float) -> float:
        memory = memory_slowdown(clock, self.memory_knee, self.memory_steepness)
        return smooth_maximum(memory, self.intensity / clock, self.sharpness)


def smooth_maximum(memory: float, compute: float, sharpness: float) -> float:
    """Return a value above both, close to the larger; one of them must be above 0."""
    low, high = (memory, compute) if memory < compute else (compute, memory)
    return float(high * (1 + (low / high) ** sharpness) ** (1 / sharpness))


def memory_slowdown(clock: float, knee: float, steepness: float) -> float:
    """Return the factor on the time of memory traffic at a share of the highest clock."""
    # From a factor of 1.5 on it goes with 1 / clock, as what waits for the GPU does.
    bend = knee * 2 ** (1 / steepness)
    return 1.5 * bend / clock if clock < bend else 1 + float((knee / clock) ** steepness)
