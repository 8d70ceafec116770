"""Energy of a GPU, divided between its processes, with idle energy apart.

Fed with readings of the energy counter and with the time for which processes used the GPU, in any
rhythm, it divides the energy of one interval of usage after the other:

- The time in which no kernel runs, at the power of a GPU with nothing on it, is idle.
- What such a GPU draws above that, because processes are resident, is theirs in equal parts.
- The rest is of the processes that ran, by time x power while they run (`_load_powers.py`).

Parts always add up to the counter. No device or clock is used here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from zeus.telemetry._corrections import Corrections
from zeus.telemetry._load_powers import WAITING, LoadPowers

#: Seconds without a sample of usage after which nothing ran: drivers sample every second at least.
NO_SAMPLE = 1.5

_IDLE_MEMORY = 600.0  # seconds over which idle power is a mean
_ALIGNED = 0.02  # seconds between a sample of usage and a reading of the counter
_LONGEST_LESSON = 2.0  # seconds
_CERTAIN = 0.015  # standard deviation of the power of a process, as a share of it
_NOTHING = 1e-6  # share of time that counts as none
_SETTLED = 3.0  # seconds after the last process, until which power is still coming down


@dataclass(frozen=True)
class Divided:
    """The energy of one interval, in joules.

    Attributes:
        begin: Begin of the interval, in seconds.
        end: Its end.
        processes: Energy of each process, by its number.
        idle: Energy of no process.
    """

    begin: float
    end: float
    processes: dict[int, float] = field(default_factory=dict)
    idle: float = 0.0


@dataclass(frozen=True)
class _Interval:
    begin: float
    end: float
    shares: Mapping[int, float]
    resident: Collection[int]


@dataclass
class _Lesson:
    """Consecutive intervals, from which powers are learned together."""

    begin: float = 0.0
    end: float = 0.0
    joules: float = 0.0
    misaligned: float = 0.0  # at the begin, in seconds
    seconds: dict[int, float] = field(default_factory=dict)


class GpuAttribution:
    """Divides the energy of one GPU.

    Args:
        idle_power: Watts of the GPU with nothing on it, if known from before.
    """

    def __init__(self, idle_power: float | None = None) -> None:
        self._powers = LoadPowers()
        self._idle = idle_power
        self._idle_seconds = 60.0 if idle_power is not None else 0.0
        self._energy: deque[tuple[float, float, float]] = deque()
        self._waiting: deque[_Interval] = deque()
        self._known_until: float | None = None
        self._last_busy = float("-inf")
        self._ran: set[int] = set()
        self._lesson = _Lesson()
        self._corrections = Corrections(self._watts, self._powers.uncertainty)
        self._resident_before: frozenset[int] = frozenset()

    @property
    def idle_power(self) -> float | None:
        """Watts with nothing on the GPU, as learned; `None` before there was such a time."""
        return self._idle

    @property
    def certain(self) -> bool:
        """Whether the powers of processes that ran lately are well known."""
        ran = self._ran
        return bool(ran) and max(map(self._powers.uncertainty, ran)) < _CERTAIN

    @property
    def known_until(self) -> float | None:
        """The instant up to which usage is known: ask the driver for usage since then."""
        return self._known_until

    def add_energy(self, instant: float, joules: float, uncertainty: float = 0.0) -> None:
        """Add a reading of the energy counter.

        Args:
            instant: When the counter stood there, in seconds.
            joules: Its value.
            uncertainty: Seconds by which the instant may be off.
        """
        if self._energy and joules < self._energy[-1][1]:
            self.restart()  # the driver was loaded again
        if self._energy and instant <= self._energy[-1][0]:
            return
        self._energy.append((instant, joules, uncertainty))
        if self._known_until is None:
            self._known_until = instant

    def add_usage(
        self,
        now: float,
        end: float,
        shares: Mapping[int, float],
        resident: Collection[int] = (),
    ) -> None:
        """Add the usage since `known_until`.

        Args:
            now: Current instant, in seconds.
            end: Until when it is known; not after `known_until` if there is no new sample.
            shares: Share of this time in which each process ran, 0 to 1.
            resident: Processes that are on the GPU, whether or not they run.
        """
        begin = self._known_until
        if begin is None:
            return
        if end <= begin:
            end, shares = now - NO_SAMPLE, {}
        if end > begin:
            self._waiting.append(_Interval(begin, end, dict(shares), {*resident, *shares}))
            self._known_until = end

    def restart(self) -> None:
        """Forget all readings that are not divided yet; what was learned is kept."""
        self._energy.clear()
        self._waiting.clear()
        self._known_until = None

    def divide(self) -> list[Divided]:
        """Return the intervals whose energy is known by now, each once."""
        found: list[Divided] = []
        while self._waiting and self._energy and self._waiting[0].end <= self._energy[-1][0]:
            interval = self._waiting.popleft()
            joules = self._joules_at(interval.end) - self._joules_at(interval.begin)
            found.append(self._divided(interval, max(0.0, joules)))
            self._learn(interval.end)
            while len(self._energy) > 2 and self._energy[1][0] <= interval.end:
                self._energy.popleft()
        return found

    def _joules_at(self, instant: float) -> float:
        readings = self._energy
        at = bisect_right(readings, instant, key=lambda reading: reading[0])
        if at == 0:
            return readings[0][1]
        if at == len(readings):
            return readings[-1][1]
        (begin, before, _), (end, after, _) = readings[at - 1], readings[at]
        return before + (after - before) * (instant - begin) / (end - begin)

    def _divided(self, interval: _Interval, joules: float) -> Divided:
        begin, end = interval.begin, interval.end
        seconds = end - begin
        used = {pid: share for pid, share in interval.shares.items() if share > _NOTHING}
        total = sum(used.values())
        if total > 1:  # kernels of several processes at once: their parts of the time
            used = {pid: share / total for pid, share in used.items()}
        gap = max(0.0, 1 - total)
        if not interval.resident:
            self._learn_idle(begin, seconds, joules / seconds)
            self._resident_before = frozenset()
            return Divided(begin, end, idle=joules)
        self._last_busy = end
        self._ran = {pid for pid in self._ran if pid in interval.resident} | used.keys()
        self._note(interval, joules, {**used, WAITING: gap})
        waiting = self._powers.watts(WAITING)
        if waiting is None:
            waiting = self._idle if self._idle is not None else self._powers.typical() / 4
        idle_power = waiting if self._idle is None else self._idle
        idle = min(joules, idle_power * gap * seconds)
        rest = joules - idle
        for_residents = min(rest, max(0.0, waiting - idle_power) * gap * seconds)
        if not used:
            for_residents = rest
        parts = {pid: for_residents / len(interval.resident) for pid in interval.resident}
        weights = {pid: share * self._watts(pid) for pid, share in used.items()}
        whole = sum(weights.values())
        given = {pid: (rest - for_residents) * part / whole for pid, part in weights.items()}
        for pid, gets in self._corrections.add(begin, end, used, given).items():
            parts[pid] = parts.get(pid, 0.0) + gets
        return Divided(begin, end, parts, idle)

    def _watts(self, pid: int) -> float:
        return max(self._powers.watts(pid) or self._powers.typical(), 1e-3)

    def _note(self, interval: _Interval, joules: float, shares: Mapping[int, float]) -> None:
        lesson = self._lesson
        changed, self._resident_before = (
            self._resident_before != interval.resident,
            frozenset(interval.resident),
        )
        if changed:  # at some instant in it, which is not known
            self._lesson = _Lesson()
            return
        if not lesson.seconds or lesson.end != interval.begin:
            misaligned = self._misaligned(interval.begin)
            lesson = self._lesson = _Lesson(interval.begin, misaligned=misaligned)
        lesson.end = interval.end
        lesson.joules += joules
        length = interval.end - interval.begin
        for pid, share in shares.items():
            lesson.seconds[pid] = lesson.seconds.get(pid, 0.0) + share * length

    def _learn(self, end: float) -> None:
        """Learn at instants at which energy and usage are known; in between energy is guessed."""
        lesson = self._lesson
        misaligned = self._misaligned(end)
        length = lesson.end - lesson.begin
        if not lesson.seconds or (misaligned > _ALIGNED and length < _LONGEST_LESSON):
            return
        if self._idle is not None:
            self._powers.expect_waiting(self._idle)
        shares = {pid: seconds / length for pid, seconds in lesson.seconds.items()}
        self._powers.update(
            lesson.begin,
            lesson.end,
            shares,
            lesson.joules / length,
            misaligned + lesson.misaligned,
        )
        self._lesson = _Lesson()

    def _misaligned(self, instant: float) -> float:
        """Return the seconds from an instant to the closest reading of the counter."""
        at = bisect_right(self._energy, instant, key=lambda reading: reading[0])
        near = [self._energy[i] for i in (at - 1, at) if 0 <= i < len(self._energy)]
        return min(abs(instant - other) + uncertainty for other, _, uncertainty in near)

    def _learn_idle(self, begin: float, seconds: float, watts: float) -> None:
        if begin - self._last_busy < _SETTLED:
            return
        self._idle_seconds = min(self._idle_seconds + seconds, _IDLE_MEMORY)
        weight = min(1.0, seconds / self._idle_seconds)
        self._idle = watts if self._idle is None else self._idle + weight * (watts - self._idle)
