"""Time and energy of an epoch as values for a logger."""

from __future__ import annotations

from collections.abc import Iterable

from zeus.monitor import Measurement
from zeus.monitor._measurement import GPU

EPOCH_TIME = "zeus/epoch_time"
EPOCH_ENERGY = "zeus/epoch_energy"

#: Values for a logger, by name.
Values = dict[str, float]


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
