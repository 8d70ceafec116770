"""The recent power history of a simulated GPU, which its sensors still depend on.

Power changes in steps, so the energy drawn is piecewise linear: one point per change.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field

MAX_POINTS = 256


def _numbers() -> array[float]:
    return array("d")


@dataclass
class History:
    """Joules drawn up to the instants at which power changed, oldest first."""

    times: array[float] = field(default_factory=_numbers)
    joules: array[float] = field(default_factory=_numbers)

    def append(self, time: float, joules: float, keep: float) -> None:
        """Add a change of power.

        Args:
            time: Instant of the change, in seconds.
            joules: Energy drawn up to then.
            keep: Seconds of history that are still needed.
        """
        if self.times and time <= self.times[-1]:
            return  # several changes at one instant: nothing was drawn between them
        passed = bisect_right(self.times, time - keep) - 1  # the line begins at the last of these
        if passed > 0:
            del self.times[:passed], self.joules[:passed]
        self.times.append(time)
        self.joules.append(joules)
        if len(self.times) > MAX_POINTS:
            self._merge(keep / (MAX_POINTS // 4))

    def _merge(self, length: float) -> None:
        """Merge segments of the older half into ones of `length` seconds, keeping their energy."""
        half = MAX_POINTS // 2
        stay = [0]
        for at in range(1, half):
            if self.times[at] - self.times[stay[-1]] >= length:
                stay.append(at)
        for numbers in (self.times, self.joules):
            numbers[:half] = array("d", [numbers[at] for at in stay])


@dataclass(frozen=True)
class Drawn:
    """Power and energy drawn by one GPU, at any instant.

    Attributes:
        history: Changes of power up to `time`.
        time: The instant from which power stays as it is.
        energy: Joules up to then.
        watts: Power since the last change.
        watts_before: Power before the first point of the history.
    """

    history: History
    time: float
    energy: float
    watts: float
    watts_before: float

    def joules_at(self, instant: float) -> float:
        """Return the joules drawn up to an instant."""
        if instant >= self.time:
            return self.energy + self.watts * (instant - self.time)
        begin, joules, watts = self._segment(instant)
        return joules + watts * (instant - begin)

    def watts_at(self, instant: float) -> float:
        """Return the watts at an instant; at a change, the new power."""
        times = self.history.times
        if instant >= (times[-1] if times else self.time):
            return self.watts
        return self._segment(instant)[2]

    def _segment(self, instant: float) -> tuple[float, float, float]:
        """Return start, joules up to it, and watts of the segment at an instant before `time`."""
        times, joules = self.history.times, self.history.joules
        at = bisect_right(times, instant)
        end = (times[at], joules[at]) if at < len(times) else (self.time, self.energy)
        if at == 0:
            return *end, self.watts_before
        begin = times[at - 1], joules[at - 1]
        return *begin, (end[1] - begin[1]) / (end[0] - begin[0])
