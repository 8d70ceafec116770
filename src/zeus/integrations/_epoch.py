"""Time and energy of an epoch, added up from the measured parts of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from zeus.monitor import Measurement
from zeus.monitor._measurement import GPU, Reading

EPOCH_TIME = "zeus/epoch_time"
EPOCH_ENERGY = "zeus/epoch_energy"

#: Values for a logger, by name.
Values = dict[str, float]


def joined(pieces: Iterable[Measurement]) -> Measurement:
    """Add up consecutive measurements. Energy is known only if it is known for all of them."""
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
                readings[slot] = reading  # carries the reason why it is not known
    return Measurement.of(time, readings.values())


def values_of(epochs: Iterable[Measurement]) -> Values:
    """Return the values to log for an epoch that several processes have measured.

    Time is that of the slowest process in seconds, energy the sum of all in joules. Energy is left
    out if that of any GPU is unknown, or if none is known.
    """
    whole = Measurement.combined(epochs)
    values = {EPOCH_TIME: whole.time}
    energy = whole.energy
    if energy is not None and not any(reading.domain == GPU for reading in whole.unavailable):
        values[EPOCH_ENERGY] = energy
    return values
