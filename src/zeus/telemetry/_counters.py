"""Energy totals that a time-series database can difference.

A database takes every decrease of a counter for a reset to 0, and adds all that the counter shows
afterwards. A decrease that is no reset would therefore add energy that was never consumed. The
counters of GPUs run on across restarts of a collector and are published as they are; those of CPUs
wrap, which only a process that polls them knows, so they are published as of the start of the
collector: a restart of it is a reset to 0.
"""

from __future__ import annotations

from collections.abc import Callable

from zeus.clock import Clock
from zeus.errors import CapabilityError, Reason
from zeus.monitor._sampler import Channel

_MAX_POWER = 5000.0  # watts; more than any device draws
_MAX_GAP = 5.0  # seconds without a sample after which power in between is not guessed
_RETRY = 1.0  # seconds between polls of a meter that does not respond
_SHORTEST = 0.5  # seconds over which a mean power is taken: counters tick up to 0.1 s apart


class DeviceCounter:
    """Joules of a counter of a device, free of decreases that are no resets."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def update(self, now: float, joules: float) -> float:
        """Return the value to publish for a reading at an instant.

        After a reset, of the driver for instance, the counter shows no more than a device can have
        consumed since the previous reading. A lower value that is higher than that is an error of
        the device: the previous value stays until it is reached again.
        """
        if self._last is not None:
            then, before = self._last
            if joules < before and joules > _MAX_POWER * (now - then):
                return before
        self._last = (now, joules)
        return joules


class MeanPower:
    """Mean watts between readings of an energy counter."""

    def __init__(self) -> None:
        self._watts: float | None = None
        self._last: tuple[float, float] | None = None

    def update(self, now: float, joules: float) -> float | None:
        """Return the mean since a reading at least half a second ago; `None` before there is one.

        Args:
            now: Instant of the reading, in seconds.
            joules: Its value, without wraparound.
        """
        if self._last is None or joules < self._last[1]:
            self._last, self._watts = (now, joules), None
        elapsed = now - self._last[0]
        if elapsed >= _SHORTEST:
            self._watts = (joules - self._last[1]) / elapsed
            self._last = (now, joules)
        return self._watts


class SinceStart:
    """Joules since the first reading of a counter."""

    def __init__(self) -> None:
        self._first: float | None = None

    def update(self, joules: float) -> float:
        """Return the joules to publish for a reading."""
        if self._first is None:
            self._first = joules
        return joules - self._first


class PowerIntegral(Channel):
    """Integrates one or several power meters, for devices without an energy counter.

    Args:
        read: Returns watts by part.
        clock: Clock of the device.
        period: Seconds between samples.
    """

    def __init__(self, read: Callable[[], dict[str, float]], clock: Clock, period: float) -> None:
        #: Joules by part since its first sample.
        self.joules: dict[str, float] = {}
        self._read = read
        self._clock = clock
        self._period = period
        self._last: dict[str, tuple[float, float]] = {}

    def poll(self) -> None:
        """Take a sample."""
        begun = self._clock.now()
        try:
            powers = self._read()
        except CapabilityError as error:
            # What was drawn meanwhile is unknown, and is not counted.
            if error.reason is not Reason.IMPLAUSIBLE:
                self._last.clear()
            self.due = begun + max(_RETRY, self._period)
            return
        now = (begun + self._clock.now()) / 2
        for part, watts in powers.items():
            then, before = self._last.get(part, (now, watts))
            if now - then <= _MAX_GAP or self._clock.virtual:
                gained = (before + watts) / 2 * (now - then)
                self.joules[part] = self.joules.get(part, 0.0) + gained
            self._last[part] = (now, watts)
        self.due = begun + self._period * max(self.backoff, 1.0)
