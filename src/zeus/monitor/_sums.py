"""Sums and differences of the measurements of one process.

`Measurement.combined` is the sum over processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from zeus.monitor._measurement import GPU, Measurement, Reading


def joined(pieces: Iterable[Measurement]) -> Measurement:
    """Add up consecutive measurements. A device's energy is known if it is known in all of them."""
    time = 0.0
    readings: dict[tuple[str, int | str], Reading] = {}
    for piece in pieces:
        time += piece.time
        for reading in piece.readings:
            slot = (reading.domain, reading.index)
            before = readings.get(slot)
            readings[slot] = reading if before is None else _merged(before, reading, _plus)
    return Measurement.of(time, readings.values())


def since(total: Measurement, before: Measurement) -> Measurement:
    """Subtract an earlier sum of the same windows from a later one."""
    earlier = {(reading.domain, reading.index): reading for reading in before.readings}
    readings = []
    for reading in total.readings:
        other = earlier.get((reading.domain, reading.index))
        readings.append(reading if other is None else _merged(other, reading, _minus))
    return Measurement.of(total.time - before.time, readings)


def gpu_energy(measurement: Measurement) -> float | None:
    """Return the joules of all GPUs; `None` if one is unknown, or there is none."""
    energies = [reading.energy for reading in measurement.readings if reading.domain == GPU]
    known = [energy for energy in energies if energy is not None]
    return math.fsum(known) if known and len(known) == len(energies) else None


def _merged(first: Reading, last: Reading, how: Callable[[float, float], float]) -> Reading:
    if first.energy is None:
        return first  # with the reason
    if last.energy is None:
        return last
    uncertainty = math.hypot(first.uncertainty or 0.0, last.uncertainty or 0.0)
    return replace(last, energy=how(last.energy, first.energy), uncertainty=uncertainty)


def _plus(last: float, first: float) -> float:
    return first + last


def _minus(last: float, first: float) -> float:
    return last - first
