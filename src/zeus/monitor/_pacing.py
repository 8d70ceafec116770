"""Polling rates, and the bound on their CPU time.

A sensor that is refreshed periodically shows nothing new in between. It is polled where a refresh
is expected: in the middle of the bracket that must contain it while the bracket is wide, else at
its end. A sensor that is always fresh is polled densely while a window is young, because its end
may be near, and less often as it ages: what a poll can miss is then small against the window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from zeus.device._guard import DEFAULT_TIMEOUT
from zeus.monitor._refreshes import RefreshModel

HANG_TIMEOUT = DEFAULT_TIMEOUT  # seconds, also in the helper, until a driver call counts as hanging
COLLECT_PERIOD = 0.2  # seconds between collections of the helper's samples
HOUSEKEEPING_PERIOD = 1.0  # seconds between checks of helpers, memory and CPU time
RETRY_PERIOD = 1.0  # seconds between polls of a device that is lost
HORIZON = 30.0  # seconds for which samples are kept; windows begun earlier keep a checkpoint
DENSE_PERIOD = 0.01  # seconds between polls of a fresh sensor, while a window is young
# Maximum seconds between polls of a GPU while a window is open. Not a multiple of any sensor's
# period: polls in step with refreshes would always see the same phase.
SLOWEST_PERIOD = 0.093
OFTEN_ENOUGH = 0.03  # seconds; counters refreshed more often need not be read at every refresh
_LONGEST_GAP = 0.25  # seconds between polls, whatever sensors are expected to do
_SHORTEST_GAP = 0.003  # seconds between polls, however many refreshes are expected
_AGE_SHARE = 0.02  # of the youngest window's age: time between polls of a fresh sensor
_SHARP = 1e-3  # seconds; a refresh known this well needs no polls of its own,
_SHARP_SHARE = 1e-3  # nor does one known to this share of the youngest window's age
_JUST_AFTER = 2e-4  # seconds after the latest instant at which a refresh is expected
_GRACE = 15  # updates, about as many seconds
_BUSY_BOUND = 0.01  # share of a core; polls become rarer above it


def next_poll(
    now: float,
    age: float,
    sensors: Sequence[RefreshModel],
    backoff: float,
    often_enough: float = OFTEN_ENOUGH,
) -> tuple[float, float]:
    """Return when to poll a GPU next, and the deadline after which a refresh may be missed.

    `now` is the last poll, `age` that of the youngest window, `backoff` lengthens pauses. Of
    sensors refreshed more often than every `often_enough` seconds, not every refresh is read.
    """
    slowest = now + SLOWEST_PERIOD
    if all(sensor.periodic for sensor in sensors):
        slowest = now + _LONGEST_GAP  # refreshes determine when, not elapsed time
    else:
        pause = max(DENSE_PERIOD, age * _AGE_SHARE) * backoff
        # Whatever the backoff, more than one poll must fall into a window that ends soon.
        dense = now + min(pause, max(DENSE_PERIOD * min(backoff, 2.5), age / 3))
        slowest = min(slowest, dense)
    sharp = max(_SHARP, age * _SHARP_SHARE)
    earliest = now + _SHORTEST_GAP
    ends, deadlines, confirming = [], [], [slowest]
    for sensor in sensors:
        expected = sensor.next_after(now)
        if expected is None:
            continue
        low, high = max(expected[0], now), expected[1]
        if high - low > sharp:
            due = min(slowest, max((low + high) / 2, earliest))
            return due, due
        if expected[0] < now:
            # It may come any moment; which refresh a poll within the bracket shows is ambiguous.
            due = max(high + _JUST_AFTER, earliest)
            return due, due
        assert sensor.period is not None
        # Not every refresh of a quick sensor is read.
        skipped = max(math.ceil(often_enough / sensor.period - 1), 0) * sensor.period
        ends.append(high + skipped + _JUST_AFTER)
        deadlines.append(low + skipped + sensor.period - _JUST_AFTER)
        if sensor.unconfirmed(now):
            # One poll right before it, and one right after.
            before = low - _JUST_AFTER
            confirming.append(before if before > earliest else high + _JUST_AFTER)
    if not ends:
        return slowest, slowest
    # Sensors refreshed once are read together, before any of them is refreshed again.
    due = max(min(max(ends), *deadlines), earliest)
    deadline = max(due, min(deadlines))
    soon = min(confirming)
    return (due, deadline) if deadline < soon else (min(due, soon), soon)


class Governor:
    """Keeps the CPU time of polling, which `spent` returns in seconds, under a bound."""

    def __init__(self, spent: Callable[[], float]) -> None:
        self.backoff = 1.0  # factor by which to lengthen the time between polls
        self._spent = spent
        self._mark: tuple[float, float] | None = None
        self._updates = 0

    def update(self, now: float) -> None:
        """Compare the CPU time with the bound. To be called about once a second."""
        mark, self._mark = self._mark, (now, self._spent())
        # CPU time starts again from zero in a new thread.
        if mark is None or not 0 < now - mark[0] < 10 or self._mark[1] < mark[1]:
            return
        self._updates += 1
        if self._updates < _GRACE:
            return  # polling is dense until it is known when sensors are refreshed
        share = (self._mark[1] - mark[1]) / (now - mark[0])
        factor = 1.25 if share > _BUSY_BOUND else 0.9 if share < 0.7 * _BUSY_BOUND else 1.0
        self.backoff = min(max(1.0, self.backoff * factor), 8.0)
