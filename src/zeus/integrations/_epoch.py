"""The time and energy of an epoch, from the pieces that were measured of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from zeus.monitor import Measurement
from zeus.monitor.measurement import GPU, Reading

EPOCH_TIME = "zeus/epoch_time"
EPOCH_ENERGY = "zeus/epoch_energy"

#: What a logger is given: names and numbers.
Values = dict[str, float]


def joined(pieces: Iterable[Measurement]) -> Measurement:
    """One measurement of pieces that follow each other. Energy is known if it is of all pieces."""
    time = 0.0
    readings: dict[tuple[str, int | str], Reading] = {}
    for piece in pieces:
        time += piece.time
        for reading in piece.readings:
            slot = (reading.domain, reading.index)
            before = readings.get(slot)
            if before is None:
                readings[slot] = reading
            elif before.energy is not None and reading.energy is not None:
                readings[slot] = replace(reading, energy=before.energy + reading.energy)
            elif before.energy is not None:
                readings[slot] = reading  # says why it is not known
    return Measurement.of(time, readings.values())


def values_of(epochs: Iterable[Measurement]) -> Values:
    """What to log of an epoch that several processes have measured.

    Seconds of the slowest, joules of all. Energy is left out if that of a GPU is not known, or if
    nothing is.
    """
    whole = Measurement.combined(epochs)
    values = {EPOCH_TIME: whole.time}
    energy = whole.energy
    if energy is not None and not any(reading.domain == GPU for reading in whole.unavailable):
        values[EPOCH_ENERGY] = energy
    return values
