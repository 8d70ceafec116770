"""Polls the sensors of one GPU and reports when they were refreshed.

Power and counter are read in one driver call, so that no refresh falls between them. Where the
driver timestamps its values (AMD's counter, NVIDIA's power samples), its timestamps are used; else
a refresh lies between two polls, in a bracket that narrows the longer its period is tracked.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from zeus.device._base import call_driver, read_or_error
from zeus.errors import CapabilityError, Reason
from zeus.monitor._pacing import OFTEN_ENOUGH, RETRY_PERIOD, next_poll
from zeus.monitor._refreshes import RefreshModel
from zeus.monitor._samples import Poll, Refresh, SensorStatus

if TYPE_CHECKING:
    from zeus.clock import Clock
    from zeus.device import Gpu
    from zeus.device._base import GpuDriver

_TIMESTAMPED_PERIOD = 0.1  # seconds between requests for samples that the driver has timestamped
_TIMESTAMP_SPREAD = 5e-4  # seconds by which its timestamps may be off
_LONGEST_PERIOD = 0.25  # seconds, of a sensor whose period is not known yet
_QUIET = 1.0  # seconds without a change of power
_MAX_UNTIMESTAMPED = 20  # changes of power without a timestamped sample, before giving these up


_FRESH = RefreshModel()  # for a sensor without expected refreshes


class SampleSink(Protocol):
    """Receives the results of a poller."""

    def take_counter(self, refresh: Refresh) -> None:
        """Take a refresh of the counter."""

    def take_power(self, refresh: Refresh) -> None:
        """Take a refresh of the power meter."""

    def take_poll(self, poll: Poll) -> None:
        """Take a completed poll; its refreshes have been passed on before."""

    def take_status(self, status: SensorStatus) -> None:
        """Take a change in which sensors can be read."""


class GpuPoller:
    """Polls one GPU when it is due. A channel of the sampler.

    Args:
        reader: The GPU, or its unguarded driver where another process detects hanging calls.
        clock: The node's clock.
        sink: Receives the results.
    """

    def __init__(self, reader: Gpu | GpuDriver, clock: Clock, sink: SampleSink) -> None:
        self.due = self.deadline = math.inf  # poll next, and at the latest to miss no refresh
        self.backoff = 1.0  # factor of the time between polls
        self.youngest = clock.now()  # when the youngest window began
        self.status = SensorStatus()
        self._status_reported = False  # a previous poller may have reported trouble
        self._reader = reader
        self._clock = clock
        self._sink = sink
        self._last = Poll(-math.inf, math.nan, math.nan)
        self._begun = -math.inf
        self._counter = RefreshModel()
        self._power = RefreshModel()
        self._live = reader.meter_period == 0  # according to the driver
        #: Whether the driver timestamps its counter, as far as is known; and the timestamp of its
        #: last power sample, `None` if it has none.
        self._timestamps_counter = True
        self._timestamped_until: float | None = -math.inf
        self._untimestamped = 0  # changes of power since then
        self._unchanged_since = math.inf  # since when power has been the same

    def expedite(self, due: float) -> None:
        """Poll no later than this instant for a new window, if that can show anything new."""
        self.youngest = due
        if self.status.trouble is None and not self.latched:
            self.due = min(self.due, due)
            self.deadline = min(self.deadline, due)

    @property
    def latched(self) -> bool:
        """Whether sensors are refreshed periodically and show nothing new in between."""
        if not self._counter.periodic:
            return False
        return self._power_is_periodic or self._power_is_quiet or not self.status.power

    @property
    def _power_is_periodic(self) -> bool:
        return self._power.periodic and not self._live

    @property
    def _power_is_quiet(self) -> bool:
        """Whether power has not changed for a while: reading it with the counter is enough."""
        if self._live or not self.status.counter:
            return False
        return self._last.instant - self._unchanged_since > _QUIET

    def poll(self) -> None:
        """Read the sensors once, report changes, and decide when to poll next."""
        now = self._clock.now
        begun = now()
        try:
            joules, timestamp, watts = self._read()
        except CapabilityError as error:
            self._set_status(self.status._replace(trouble=error))
            self.due = self.deadline = now() + RETRY_PERIOD
            return
        ended = now()
        if self.status.trouble is not None or not self._status_reported:
            self._set_status(self.status._replace(trouble=None))
        last = self._last
        poll = Poll((begun + ended) / 2, last.joules, last.watts)
        if joules is not None:
            self._compare_counter(joules, timestamp, poll.instant, ended)
            poll = poll._replace(joules=joules)
        if watts is not None:
            self._compare_power(watts, poll.instant, ended)
            poll = poll._replace(watts=watts)
        self._last, self._begun = poll, begun
        self._sink.take_poll(poll)
        sensors = [self._counter] if self.status.counter else []
        if self.status.power and self._timestamped_until is None and not self._power_is_quiet:
            sensors.append(_FRESH if self._live else self._power)
        age = ended - self.youngest
        # A counter sums up what was not read; without one, every reading of the meter counts.
        often_enough = OFTEN_ENOUGH if self.status.counter else 0.0
        self.due, self.deadline = next_poll(ended, age, sensors, self.backoff, often_enough)
        if self.status.power and self._timestamped_until is not None:
            self._take_timestamped(ended)

    # --- reading ----------------------------------------------------------------------------------

    def _read(self) -> tuple[float | None, float | None, float | None]:
        """Return joules, the timestamp of their refresh if the driver reports it, and watts."""
        reader, status = self._reader, self.status
        counted: float | CapabilityError | None = None
        watts: float | CapabilityError | None = None
        timestamp = None
        if status.counter and self._timestamps_counter:
            counted, timestamp = self._read_timestamped_counter()
        elif status.counter and status.power and not status.averaged:
            counted, watts = call_driver(reader.sample)
        elif status.counter:
            counted = read_or_error(reader.energy)
        if status.power and watts is None:
            watts = read_or_error(reader.average_power if status.averaged else reader.instant_power)
        return self._checked_counter(counted), timestamp, self._checked_power(watts)

    def _read_timestamped_counter(self) -> tuple[float | CapabilityError, float | None]:
        try:
            return call_driver(self._reader.timed_energy)
        except CapabilityError as error:
            if error.reason is Reason.IMPLAUSIBLE:
                return error, None
            self._timestamps_counter = False
            return read_or_error(self._reader.energy), None

    def _checked_counter(self, counted: float | CapabilityError | None) -> float | None:
        if not isinstance(counted, CapabilityError):
            return counted
        _raise_if_lost(counted)
        if counted.reason is not Reason.IMPLAUSIBLE:  # else one bad value; the next may be good
            note = f"no energy counter ({counted.reason})"
            self._set_status(self.status._replace(counter=False, counter_note=note))
        return None

    def _checked_power(self, watts: float | CapabilityError | None) -> float | None:
        if not isinstance(watts, CapabilityError):
            return watts
        _raise_if_lost(watts)
        if watts.reason is Reason.IMPLAUSIBLE:
            return None
        if self.status.counter:
            self._set_status(self.status._replace(power=False))
            return None
        if self.status.averaged:
            raise watts
        # A mean over a second is better than no power at all.
        self._set_status(self.status._replace(averaged=True))
        return self._checked_power(read_or_error(self._reader.average_power))

    def _set_status(self, status: SensorStatus) -> None:
        self._status_reported = True
        self.status = status
        self._sink.take_status(status)

    # --- comparing with the previous poll ---------------------------------------------------------

    def _compare_counter(
        self, joules: float, timestamp: float | None, polled: float, ended: float
    ) -> None:
        last = self._last
        if joules == last.joules:
            self._counter.unchanged()
        elif timestamp is not None:
            self._counter.observe(self._begun, ended)
            self._sink.take_counter(
                Refresh(timestamp - 1e-5, timestamp, last.instant, polled, joules)
            )
        elif joules > last.joules:
            low, high = self._counter.observe(self._earliest(self._counter), ended)
            self._sink.take_counter(Refresh(low, high, last.instant, polled, joules))
        elif joules < last.joules:  # the driver was reloaded, and counts from zero
            self._counter = RefreshModel()
            self._sink.take_counter(Refresh(self._begun, ended, last.instant, polled, joules))

    def _compare_power(self, watts: float, polled: float, ended: float) -> None:
        last = self._last
        if math.isnan(last.watts):
            return
        low, high = self._begun, ended
        if watts == last.watts:
            self._power.unchanged()
            self._unchanged_since = min(self._unchanged_since, polled)
            if self._power_is_periodic:
                return  # it adds nothing new
        else:
            self._unchanged_since = math.inf
            if self._counter.periodic:
                self._power.suggest(self._counter)  # as on most GPUs
            low, high = self._power.observe(self._earliest(self._power), ended)
            self._untimestamped += 1
            if self._untimestamped > _MAX_UNTIMESTAMPED:
                self._timestamped_until = None
        if self._timestamped_until is None:
            self._sink.take_power(Refresh(low, high, last.instant, polled, watts))

    def _earliest(self, sensor: RefreshModel) -> float:
        """Return the earliest instant of a shown refresh: after a gap in polls, it is the last."""
        return max(self._begun, self._clock.now() - 1.05 * (sensor.period or _LONGEST_PERIOD))

    def _take_timestamped(self, now: float) -> None:
        """Read the power samples that the driver has timestamped itself, if any."""
        assert self._timestamped_until is not None
        since = max(self._timestamped_until, now - 1.0)
        if now - since < _TIMESTAMPED_PERIOD:
            return
        try:
            samples = call_driver(lambda: self._reader.power_samples(since))
        except CapabilityError:
            self._timestamped_until = None
            return
        for instant, watts in samples:
            self._sink.take_power(
                Refresh(instant - _TIMESTAMP_SPREAD, instant, since, max(instant, since), watts)
            )
            since, self._untimestamped = instant, 0
        self._timestamped_until = since


def _raise_if_lost(error: CapabilityError) -> None:
    if error.reason in (Reason.LOST, Reason.HANGS):
        raise error
