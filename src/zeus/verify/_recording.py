"""Dense polls of the sensors of one GPU, while a load runs in a pattern or nothing does."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from zeus.errors import CapabilityError, Reason
from zeus.verify._load_pattern import Edge, Segment

if TYPE_CHECKING:
    from zeus.clock import Clock
    from zeus.device import Gpu
    from zeus.verify._loads import Load

_MANY_ERRORS = 20  # failed polls in a row, after which a sensor counts as missing


class Poll(NamedTuple):
    """One poll of the sensors: values are NaN where there are none."""

    begun: float
    ended: float
    joules: float
    watts: float
    average: float


class Change(NamedTuple):
    """A change of a value: the sensor was refreshed between these instants."""

    low: float
    high: float


class Recording(NamedTuple):
    """Polls, and the edges of the load meanwhile.

    `missing` has the reason why a sensor showed no value, by its field in `Poll`.
    """

    polls: list[Poll]
    edges: list[Edge]
    missing: dict[str, CapabilityError]

    def values(self, field: str) -> list[tuple[Poll, float]]:
        """Return the polls that have a value of a sensor."""
        at = Poll._fields.index(field)
        return [(poll, poll[at]) for poll in self.polls if not math.isnan(poll[at])]

    def changes(self, field: str) -> list[Change]:
        """Return where the value of a sensor changed."""
        found = []
        last: tuple[Poll, float] | None = None
        for poll, value in self.values(field):
            if last is not None and value != last[1]:
                found.append(Change(last[0].begun, poll.ended))
            last = poll, value
        return found


class Sensors:
    """Reads the sensors of a GPU; one that fails for good is not asked again.

    Raises:
        CapabilityError: From `poll`, if the GPU is lost or its driver hangs.
    """

    def __init__(self, gpu: Gpu, clock: Clock) -> None:
        self._gpu = gpu
        self._clock = clock
        self._failed: dict[str, int] = {}
        self.missing: dict[str, CapabilityError] = {}

    def poll(self) -> Poll:
        """Read all of them once."""
        now = self._clock.now
        begun = now()
        joules, watts = self._gpu.sample()
        ended = now()
        average = math.nan
        if "average" not in self.missing:
            average = self._taken("average", self._average())
        return Poll(
            begun, ended, self._taken("joules", joules), self._taken("watts", watts), average
        )

    def _average(self) -> float | CapabilityError:
        try:
            return self._gpu.average_power()
        except CapabilityError as error:
            return error

    def _taken(self, field: str, value: float | CapabilityError) -> float:
        if not isinstance(value, CapabilityError):
            self._failed[field] = 0
            self.missing.pop(field, None)
            return value
        if value.reason in (Reason.LOST, Reason.HANGS):
            raise value
        self._failed[field] = self._failed.get(field, 0) + 1
        lasting = value.reason is not Reason.IMPLAUSIBLE
        if lasting or self._failed[field] > _MANY_ERRORS:
            self.missing[field] = value
        return math.nan


def record(
    sensors: Sensors,
    clock: Clock,
    gap: float,
    segments: Sequence[Segment],
    load: Load | None = None,
    *,
    rng: random.Random,
) -> Recording:
    """Poll for as long as the segments take.

    Args:
        sensors: What to poll.
        clock: The node's clock.
        gap: Seconds between polls, in the mean; irregular, so as to be in step with no sensor.
        segments: When the load runs.
        load: The load; without one nothing runs.
        rng: Random numbers.
    """
    polls: list[Poll] = []
    begun = clock.now()
    end = begun + sum(segment.seconds for segment in segments)
    next_edge: Callable[[], float] = (lambda: math.inf) if load is None else load.next_edge
    if load is not None:
        load.start(segments)
    due = begun
    while (now := clock.now()) < end:
        wait = min(due, next_edge(), end) - now
        if wait > 0:
            clock.sleep(wait)
        if load is not None:
            load.advance()
        now = clock.now()
        if now >= due:
            polls.append(sensors.poll())
            due = max(due, now) + gap * rng.uniform(0.5, 1.5)
    edges = load.finish() if load is not None else []
    return Recording(polls, edges, dict(sensors.missing))
