"""Conversion of a driver's counter timestamps to the monotonic clock."""

from __future__ import annotations

from collections import deque

from zeus.device._base import unsupported
from zeus.errors import CapabilityError, Reason

_WHAT = "timestamps of the energy counter"
_NANO = 1e-9
_ALL_BITS = 2**64 - 1
_RECENT = 256  # refreshes


class DriverTime:
    """Maps a driver's timestamps, of a clock that runs at the same rate, to the monotonic clock.

    A timestamp is never later than the moment at which it is read. So the smallest difference
    between the two, over many readings, is the offset of the clocks.
    """

    def __init__(self) -> None:
        self._apart: deque[float] = deque(maxlen=_RECENT)
        self._last: tuple[int, float] | None = None

    def instant(self, joules: float, timestamp: int, now: float) -> float:
        """Return the monotonic instant of a timestamp.

        Args:
            joules: Value of the counter.
            timestamp: Nanoseconds of the driver's clock.
            now: The monotonic instant after both were read.

        Raises:
            CapabilityError: If there is no timestamp, or it contradicts the counter.
        """
        if timestamp in (0, _ALL_BITS):
            raise unsupported(_WHAT, "this part does not report them")
        last, self._last = self._last, (timestamp, joules)
        if last is not None and timestamp < last[0]:
            self._apart.clear()  # perhaps another clock: estimate its offset again
            raise _implausible(f"went back from {last[0]} to {timestamp} ns")
        if last is None or timestamp != last[0] or not self._apart:
            self._apart.append(now - timestamp * _NANO)
        elif joules != last[1]:
            raise _implausible(f"stood still at {timestamp} ns while the counter moved")
        return timestamp * _NANO + min(self._apart)


def _implausible(what: str) -> CapabilityError:
    return CapabilityError(Reason.IMPLAUSIBLE, f"{_WHAT} {what}")
