"""Sensors over time: common code of the monitors of power and temperature.

Each sensor is read by the node's sampler into a timeline. Sensors that a device does not report are
absent, with the reason.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Self, TypeVar

from zeus.clock import to_monotonic
from zeus.device._node import current_node
from zeus.errors import CapabilityError, Reason, UnknownDeviceError
from zeus.monitor import _ranks as ranks
from zeus.monitor._sampler import Channel, Client, sampler_of
from zeus.monitor._timeline import Timeline

if TYPE_CHECKING:
    from zeus.clock import Clock
    from zeus.device import Gpu
    from zeus.device._node import Node

DEFAULT_MAX_SAMPLES = 100_000

_FASTEST = 0.01  # seconds between polls, unless the user sets less: no power sensor is quicker
_SHORTEST_INTERVAL = 0.005  # seconds; the 1 ms ticks of CPU counters must not matter
_RETRY = 1.0  # seconds between polls of a device that does not respond
_TOGETHER = 0.002  # seconds by which the sampler may come early to read several at once
_QUICK_POLLS = 50
_ENOUGH_CHANGES = 9
_FEWEST_CHANGES = 4

# A sensor that fails for one of these reasons will keep failing.
_LASTING = (Reason.UNSUPPORTED, Reason.NO_PERMISSION, Reason.DRIVER_ABSENT)

Samples = list[tuple[float, float]]
K = TypeVar("K")


# --- how one sensor is read -------------------------------------------------------------------


class Pace:
    """Decides how long to wait between polls of one sensor.

    Args:
        period: Seconds between polls.
        fixed: Whether the user set this period, so that nothing may change it.
        learns: Whether to learn how often the sensor's value changes, from some quick polls at the
            beginning, and then to poll twice as often as that.
    """

    def __init__(self, period: float, *, fixed: bool = False, learns: bool = False) -> None:
        self.period = period if fixed else max(period, _FASTEST)
        self._fixed = fixed
        self._quick_polls_left = _QUICK_POLLS if learns and not fixed else 0
        self._last_value: float | None = None
        self._changes: list[float] = []

    def pause(self, backoff: float) -> float:
        """Return the seconds to the next poll."""
        if self._fixed:
            return self.period
        return (_FASTEST if self._quick_polls_left else self.period) * backoff

    def observe(self, instant: float, value: float) -> None:
        """Learn from a poll."""
        if not self._quick_polls_left:
            return
        self._quick_polls_left -= 1
        if self._last_value is not None and value != self._last_value:
            self._changes.append(instant)
        self._last_value = value
        if len(self._changes) == _ENOUGH_CHANGES:
            self._quick_polls_left = 0
        if not self._quick_polls_left:
            self._conclude()

    def _conclude(self) -> None:
        # A nearly constant value, as of an idle GPU, shows no period: the initial one stays.
        if len(self._changes) < _FEWEST_CHANGES:
            return
        tick = median(later - earlier for earlier, later in pairwise(self._changes))
        # Twice per tick: every value is seen, and seen at most half a tick late.
        self.period = max(tick / 2, _FASTEST)


class SensorChannel(Channel):
    """Reads one sensor, which never hangs, into a timeline whenever it is due."""

    def __init__(
        self, read: Callable[[], float], clock: Clock, pace: Pace, timeline: Timeline
    ) -> None:
        self.timeline = timeline
        #: Why the sensor does not respond now.
        self.trouble: CapabilityError | None = None
        self._read = read
        self._clock = clock
        self._pace = pace
        self._closed = False
        self._lock = threading.Lock()

    def poll(self) -> None:
        """Read the sensor, unless this poll is only for other channels."""
        early = min(_TOGETHER, self._pace.period / 2)
        if not self._closed and self._clock.now() >= self.due - early:
            self.sample()

    def last_poll(self) -> None:
        """Read a last time, from the user's thread."""
        if self.trouble is None:
            self.sample()
        with self._lock:
            self._closed = True

    def knows(self, instant: float) -> bool:
        """Return whether samples cover an instant: not after a sensor stopped responding."""
        last = self.timeline.last()
        return last is not None and (self.trouble is None or instant <= last[0])

    def sample(self) -> None:
        """Read the sensor now, from any thread."""
        begun = self._clock.now()
        try:
            value = self._read()
        except CapabilityError as error:
            self._missed(error)
            return
        ended = self._clock.now()
        instant = (begun + ended) / 2
        with self._lock:
            if self._closed:
                return
            self._keep(instant, value)
            self._pace.observe(instant, value)
        self.trouble = None
        pause = self._pace.pause(self.backoff)
        # By the schedule, not by when the poll ended, so that delays do not accumulate.
        due = min(self.due, begun) + pause
        self.due = due if due > ended else ended + pause

    def _missed(self, error: CapabilityError) -> None:
        pause = self._pace.pause(self.backoff)
        # One bad value among good ones is no error: the next may be good again.
        if error.reason is not Reason.IMPLAUSIBLE or not len(self.timeline):
            self.trouble = error
            pause = max(pause, _RETRY)
        self.due = self._clock.now() + pause

    def _keep(self, instant: float, value: float) -> None:
        self.timeline.append(instant, value)


class CounterChannel(SensorChannel):
    """Reads an energy counter and keeps the mean power between polls.

    Its timeline must be a level one; its integral is then the counter itself.
    """

    _previous: tuple[float, float] | None = None

    def _keep(self, instant: float, value: float) -> None:
        if self._previous is not None:
            begun, counted = self._previous
            if instant - begun < _SHORTEST_INTERVAL:
                return  # the next poll counts these joules, with less noise
            if value >= counted:
                watts = (value - counted) / (instant - begun)
                if not len(self.timeline):
                    self.timeline.append(begun, watts)
                self.timeline.append(instant, watts)
        self._previous = (instant, value)


# --- base class of all sensor monitors --------------------------------------------------------


class SensorMonitor(Client):
    """Monitors sensors of several devices from its construction until `stop`.

    It samples until stopped or garbage collected, and can be used in a ``with`` statement. Sensors
    are identified by domain (the quantity) and device index.
    """

    def __init__(
        self,
        gpu_indices: Sequence[int] | None,
        update_period: float | None,
        max_samples: int | None,
        node: Node | None,
    ) -> None:
        if update_period is not None and not 0 < update_period < math.inf:
            raise ValueError(f"`update_period > 0` seconds must hold, but got {update_period}")
        if max_samples is None:
            max_samples = DEFAULT_MAX_SAMPLES
        if not max_samples >= 2:
            raise ValueError(f"`max_samples_per_gpu >= 2` must hold, but got {max_samples}")
        self.node = node or current_node()
        self.update_period = update_period
        if gpu_indices is None:
            gpu_indices = ranks.own_gpus(len(self.node.gpus))
        self.gpus = self.node.gpus.select(gpu_indices)
        self.gpu_indices = [gpu.index for gpu in self.gpus]
        self._max_samples = max_samples
        self._clock = self.node.clock
        self._sampler = sampler_of(self.node)
        self._sensors: dict[tuple[str, int], SensorChannel] = {}
        self._absent: dict[tuple[str, int], CapabilityError] = {}
        self._process = os.getpid()
        self._stopped = False

    @property
    def unavailable(self) -> dict[tuple[str, int], CapabilityError]:
        """Why a requested sensor currently has no values, by domain and device index."""
        failing = {key: sensor.trouble for key, sensor in self._sensors.items() if sensor.trouble}
        return {**self._absent, **failing}

    def stop(self) -> None:
        """End sampling. Existing samples remain available."""
        if self._stopped:
            return
        self._stopped = True
        self._sampler.leave(self)
        if os.getpid() != self._process:
            return  # in a forked child; only the parent samples
        for sensor in self._sensors.values():
            sensor.last_poll()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- for monitors -----------------------------------------------------------------------

    def _add_gpu_sensor(
        self, domain: str, gpu: Gpu, read_gpu: Callable[[Gpu], float], pace: Pace
    ) -> None:
        timeline = Timeline(self._max_samples)
        read = partial(read_gpu, gpu)
        self._add(domain, gpu.index, SensorChannel(read, self._clock, pace, timeline))

    def _pace(self, period: float, *, longest: float = math.inf, learns: bool = False) -> Pace:
        """Return the user's pace, else one of this period; with `longest` seconds between polls."""
        if self.update_period is not None:
            return Pace(min(self.update_period, longest), fixed=True)
        return Pace(min(period, longest), learns=learns)

    def _add(self, domain: str, index: int, sensor: SensorChannel) -> None:
        sensor.sample()
        if sensor.trouble is not None and sensor.trouble.reason in _LASTING:
            self._absent[domain, index] = sensor.trouble
        else:
            self._sensors[domain, index] = sensor

    def _start(self) -> None:
        if self._sensors:
            self._sampler.join(self)
            self._sampler.wake()

    def _of(self, domain: str, index: int | None = None) -> Iterator[tuple[int, SensorChannel]]:
        """Yield the sensors of a domain by device index, or only that of one device."""
        for (own_domain, own_index), sensor in self._sensors.items():
            if own_domain == domain and index in (None, own_index):
                yield own_index, sensor

    def _timelines(
        self,
        domain: str,
        index: int | None,
        indices: Sequence[int],
        start: float | None,
        end: float | None,
    ) -> dict[int, Samples]:
        if index is not None and index not in indices:
            raise UnknownDeviceError(f"device index must be among {list(indices)}, but got {index}")
        low, high = self._span(start, end)
        return {
            own_index: sensor.timeline.samples(low, high)
            for own_index, sensor in self._of(domain, index)
        }

    def _span(self, start: float | None, end: float | None) -> tuple[float, float]:
        low = -math.inf if start is None else to_monotonic(start, self._clock)
        high = math.inf if end is None else to_monotonic(end, self._clock)
        if not low <= high:
            raise ValueError(
                f"`start_time <= end_time` must hold, but got (start_time={start}, end_time={end})"
            )
        return low, high

    def _values(
        self, sensors: Iterable[tuple[K, SensorChannel]], time: float | None
    ) -> dict[K, float] | None:
        """Return the known values at an instant, or the latest; `None` if there are none."""
        at = math.inf if time is None else to_monotonic(time, self._clock)
        return _known((key, s.timeline.value_at(at)) for key, s in sensors if s.knows(at))

    def _integrals(
        self, sensors: Iterable[tuple[K, SensorChannel]], start: float, end: float
    ) -> dict[K, float] | None:
        """Return the known integrals between two instants; `None` if there are none."""
        low, high = self._span(start, end)
        return _known((key, s.timeline.integral(low, high)) for key, s in sensors if s.knows(high))

    # --- called by the sampler --------------------------------------------------------------

    def channels_wanted(self, now: float) -> tuple[Channel, ...]:  # noqa: ARG002
        """Return all sensors until stopped."""
        return () if self._stopped else tuple(self._sensors.values())


def _known(values: Iterable[tuple[K, float | None]]) -> dict[K, float] | None:
    return {key: value for key, value in values if value is not None} or None
