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
    energy = known_energy(whole)
    if energy is not None:
        values[EPOCH_ENERGY] = energy
    return values


def known_energy(measured: Measurement) -> float | None:
    """Return the joules of all devices; `None` if that of any GPU is unknown, or none is known."""
    incomplete = any(reading.domain == GPU for reading in measured.unavailable)
    return None if incomplete else measured.energy
