"""Reads one GPU so that its energy can be divided between its processes.

On a GPU with one owner or none, all that is not idle is its owner's: the energy counter is read
every few seconds, and processes when its power changes, or after a while. While several owners use
it, polls follow the driver's samples of usage and the refreshes of the energy counter, so that the
two are known for the same time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from itertools import pairwise

from zeus.clock import Clock
from zeus.device import Gpu
from zeus.device._base import ProcessUsage, suppress_unsupported
from zeus.errors import CapabilityError, Reason
from zeus.telemetry._attribution import Divided, GpuAttribution
from zeus.telemetry._counter_ticks import CounterTicks, SearchTurn

_WATCHING = 3.0  # seconds between readings of the counter of a GPU with one owner, or none
_RELAXED = 12.0  # seconds between readings of its usage while its power does not change
_CHANGED = 1.15  # ratio of powers that is a change
_UNSUPPORTED = 300.0  # seconds until a GPU without a counter is tried again
_SHORTEST_WATCH = 0.5  # seconds, for a mean power by a counter
_PROMPT = 2.0  # seconds between readings of usage where the rest of it may be lost or unclear
_ATTENTIVE = 1.0  # seconds, for a while after processes came or went
_ATTENTION = 30.0  # seconds of that while
_FIRST = 0.05  # seconds between polls until the period of samples is known
_RESIDENTS = 1.0  # seconds between lists of processes
_TOGETHER = 120.0  # seconds since it last ran, for which an owner counts as one of several
_AFTER = 0.008  # seconds after a sample or a refresh is expected
_SHORTEST_SAMPLE = 0.02  # seconds
_SHORT_SAMPLE = 0.3  # seconds; a shorter period need not be followed once powers are known
_LONGEST_SAMPLE = 1.2  # seconds


class GpuUsageReader:
    """Polls one GPU.

    Args:
        gpu: The GPU.
        clock: Clock of the node.
        owner: Returns what is equal for processes of one owner.
        appeared: Called with each process that is new on the GPU, as long as it lives.
        idle_power: Watts with nothing on the GPU, if known from before.
        turn: Shared by the readers of one thread.

    Attributes:
        due: When to poll next.
        equal_shares: Whether the driver does not report usage by process, so that all processes
            on the GPU count as using it alike.
        error: Why nothing can be divided at present, if so.
    """

    def __init__(
        self,
        gpu: Gpu,
        clock: Clock,
        owner: Callable[[int], Hashable],
        appeared: Callable[[int], None],
        *,
        idle_power: float | None = None,
        turn: SearchTurn | None = None,
    ) -> None:
        self.due = clock.now()
        self.equal_shares = False
        self.error: CapabilityError | None = None
        self.attribution = GpuAttribution(idle_power)
        self._gpu = gpu
        self._clock = clock
        self._owner = owner
        self._appeared = appeared
        self._ticks = CounterTicks(gpu.driver.counter_period, turn)
        self._timed = True
        self._resident: tuple[int, ...] = ()
        self._watched: tuple[float, float] | None = None  # a reading of the counter
        self._watts: float | None = None  # before it
        self._listed = float("-inf")
        self._changed = self.due
        self._ran: dict[Hashable, float] = {}
        self._ends: deque[float] = deque(maxlen=9)
        self._next_usage = self.due
        self._period: float | None = None  # of the driver's samples of usage

    def poll(self) -> list[Divided]:
        """Read the GPU; returns the intervals whose energy is divided by that."""
        now = self._clock.now()
        try:
            sampled = now >= self._next_usage
            if sampled:
                self._read_usage(now)
            changed = self._power_changed(now, self._read_energy())
            if changed and not sampled:
                self._next_usage = now
                self._read_usage(now)
            self.error = None
        except CapabilityError as error:
            self.error = error
            self.attribution.restart()
            unsupported = error.reason is Reason.UNSUPPORTED
            self.due = self._next_usage = now + (_UNSUPPORTED if unsupported else _WATCHING)
            return []
        self._plan(now)
        return self.attribution.divide()

    @property
    def contended(self) -> bool:
        """Whether several owners used the GPU lately."""
        now = self._clock.now()
        return sum(now - ran < _TOGETHER for ran in self._ran.values()) > 1

    def _read_energy(self) -> float:
        if self._timed:
            with suppress_unsupported():
                joules, instant = self._gpu.timed_energy()
                self.attribution.add_energy(instant, joules)
                return joules
            self._timed = False
        joules = self._gpu.energy()
        now = self._clock.now()
        dated = self._ticks.add(now, joules) if self.contended else now - self._ticks.period / 2
        if dated is not None:
            known = self.contended and self._ticks.known
            self.attribution.add_energy(dated, joules, 0.0 if known else self._ticks.period / 2)
        return joules

    def _power_changed(self, now: float, joules: float) -> bool:
        """Whether mean power since the previous reading differs from that before it."""
        if self._watched is None:
            self._watched = now, joules
            return False
        begin, before = self._watched
        if now - begin < _SHORTEST_WATCH:
            return False
        self._watched = now, joules
        last, self._watts = self._watts, max(0.0, joules - before) / (now - begin)
        if last is None:
            return False
        return max(last, self._watts) > _CHANGED * min(last, self._watts)

    def _read_usage(self, now: float) -> None:
        since = self.attribution.known_until
        if since is None:
            return
        if now - self._listed >= _RESIDENTS:
            before = self._resident
            self._resident = tuple(process.pid for process in self._gpu.processes())
            self._listed = now
            if set(before) != set(self._resident):
                self._changed = now
            for pid in self._resident:
                if pid not in before:
                    self._appeared(pid)
        used = self._usage(since)
        if used.end > used.begin and used.shares:
            self._ends.append(used.end)
            for pid in used.shares:
                self._ran[self._owner(pid)] = used.end
        self.attribution.add_usage(now, used.end, used.shares, self._resident)

    def _usage(self, since: float) -> ProcessUsage:
        if not self.equal_shares:
            with suppress_unsupported():
                return self._gpu.process_usage(since)
            self.equal_shares = True
        now = self._clock.now()
        busy = self._gpu.utilization() / max(1, len(self._resident))
        return ProcessUsage(since, now, {pid: busy for pid in self._resident if busy})

    def _plan(self, now: float) -> None:
        sampled = now >= self._next_usage
        if sampled:
            attentive = now - self._changed <= _ATTENTION
            self._next_usage = now + (_ATTENTIVE if attentive else self._calm_period())
            if self.contended and not self.equal_shares:
                self._next_usage = self._next_sample(now)
        polls = [self._next_usage, now + _WATCHING]
        if self.contended and not self._timed:
            search = self._ticks.next_poll(now)
            # The counter's refresh before a sample of usage was just read; this is the one after.
            after = self._ticks.next_tick(now) if sampled else None
            polls += [poll for poll in (search, after and after + _AFTER / 2) if poll is not None]
        self.due = min(poll for poll in polls if poll > now)

    def _calm_period(self) -> float:
        owners = {*map(self._owner, self._resident)}
        # Where usage is as of now, that of a process which ends is known until the last reading.
        prompt = len(owners) > 1 or (owners and self._timed)
        return _PROMPT if prompt else _RELAXED

    def _next_sample(self, now: float) -> float:
        if self._timed:
            return now + (1.0 if self.attribution.certain else 0.25)  # usage is as of now
        ends = list(self._ends)
        gaps = [later - end for end, later in pairwise(ends) if later - end > _SHORTEST_SAMPLE]
        if self._period is None:
            if len(gaps) < 4:
                return now + _FIRST
            self._period = min(_LONGEST_SAMPLE, *gaps)
        period = self._period = min([self._period, *gaps])
        # Not a multiple of a usual period of counters, so that the two meet in all phases.
        samples = 4 if self.attribution.certain and period < _SHORT_SAMPLE else 1
        expected = ends[-1] + samples * period + _AFTER
        return expected if expected > now else now + period / 4
