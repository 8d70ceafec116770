"""The energy of windows on one GPU, from whatever its sensors are refreshed with.

Every refresh of the counter or of the power meter is one equation about the integral of power over
some time (`levels.py` has the model). A window that holds several ticks of the counter is their
difference, plus its two ends by the model; a shorter one is by the model alone. The variance of
what is asked for, given all refreshes around it, is the stated uncertainty.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from zeus.monitor.credibility import Credibility
from zeus.monitor.edges import Names, Piece, WindowEdges
from zeus.monitor.levels import Integral, Levels, Posterior, conditioned
from zeus.monitor.pacing import OFTEN_ENOUGH
from zeus.monitor.response import LONGEST_SPAN, Response
from zeus.monitor.samples import Energy, Method, Poll, Refresh, SensorStatus

_KEPT = 15.0  # seconds for which equations are kept; windows are worked out before
_MANY_TICKS = 4  # from which a window's ticks are taken at their word
_MILLIJOULE = 1e-3
_STATED = 2.4  # standard deviations, for 19 of 20: tails are heavier than a Gaussian's
_MAX_POWER = 1.5  # times the highest limit: boards overshoot for a moment
_MAX_EQUATIONS = 12
_WIDE = 0.5  # periods of the counter, beyond which a refresh is not located
_NOISE = 0.003  # of a power reading
_DIFFER = 0.2  # of the power limit, by which windows of a name may differ
_CLEAR = 0.002  # seconds to the next edge, so that a reading is surely of one segment
_TOGETHER = 2.5  # periods of the counter, over which windows are worked out together
_LIVE_MARGIN = 0.03  # seconds around a window in which polls of a live meter tell of it
_LATE = 0.02  # seconds by which a power meter is late, about, that no counter is compared with
_SAME = 0.02  # of power, by which neighboring intervals may differ by chance
_OVERDUE = 1.0  # seconds after a window by which a counter that ticks at all has ticked
_NO_POLL = Poll(-math.inf, math.nan, math.nan)


class Tick(NamedTuple):
    """A refresh of the counter: its instant, the standard deviation of that, and its value."""

    instant: float
    spread: float
    joules: float


class Interval(NamedTuple):
    """Between two ticks: what the counter tells, and what was known of levels before."""

    end: float
    told: Integral
    before: Levels


class WindowCheckpoint(NamedTuple):
    """What a window that began long ago keeps: its energy up to its first tick, and that tick."""

    energy: Posterior
    tick: Tick


#: When it began, when it ended, and what it kept, if it began long ago.
Window = tuple[float, float, WindowCheckpoint | None]


class EnergyEstimator:
    """Takes in the refreshes of one GPU's sensors, answers energies of windows.

    May be fed and asked from several threads.

    Args:
        edges: Of the windows of this process.
        max_power: Watts that the GPU draws at most.
        response: How its power meter responds, if that is known.

    Attributes:
        status: Which sensors can be read.
        last_poll: The latest poll.
        response: How the power meter responds.
        period: Seconds between ticks of the counter, as seen of late.
    """

    def __init__(
        self, edges: WindowEdges, max_power: float, response: Response | None = None
    ) -> None:
        self.status = SensorStatus()
        self.last_poll = _NO_POLL
        self.response = response or Response()
        self.period = 0.1
        self.lock = threading.RLock()
        self._edges = edges
        self._max_power = max_power
        self._credibility = Credibility()
        self._offset = 0.0
        self._counted: Refresh | None = None
        self._skipped = False
        #: Readings of power that differ from the one before, and those that do not as well.
        self._readings: list[Refresh] = []
        self._polls: list[Refresh] = []
        #: What readings tell, worked out once the response is sure.
        self._equations: dict[Refresh, Integral] = {}
        self._unread = 0  # readings that no interval of the counter has reached yet
        self._restart()

    def _restart(self) -> None:
        """Begin again with another source: what was learned from the one before is wrong."""
        self._levels = Levels(self._max_power)
        self._ticks: list[Tick] = []
        #: One too close to the last to learn from; of a window that just ended it tells more.
        self._latest: Tick | None = None
        self._summed: tuple[float, float] | None = None
        self._intervals: list[Interval] = []
        self._inside: tuple[int, float] | None = None

    # --- taking in --------------------------------------------------------------------------------

    def take_status(self, status: SensorStatus) -> None:
        """Which sensors can be read has changed."""
        self.status = status

    def take_poll(self, poll: Poll) -> None:
        """The sensors showed this at the latest poll."""
        with self.lock:
            if not self._counts and self._polls and poll.watts == self._polls[-1].value:
                self._sum_up(poll.instant, poll.watts, poll.watts)
            self.last_poll = poll

    def take_counter(self, refresh: Refresh) -> None:
        """The counter was refreshed."""
        with self.lock:
            last, self._counted = self._counted, refresh
            if last is not None and refresh.value < last.value:
                # The driver was reloaded and counts from zero. What it forgot is not known.
                watts = 0.0 if math.isnan(self.last_poll.watts) else self.last_poll.watts
                lost = watts * (refresh.polled - last.polled)
                self._offset += last.value - refresh.value + lost
                return
            spread = max((refresh.high - refresh.low) / math.sqrt(12), 1e-5)
            instant = (refresh.low + refresh.high) / 2
            tick = Tick(instant, spread, refresh.value + self._offset)
            if last is not None:
                self._check(last, refresh)
            # After a time without polls a refresh is hardly located, nor is one that may be
            # another; the next one will be.
            self._skipped = not self._skipped and refresh.high - refresh.low > _WIDE * self.period
            if self._counts and not self._skipped:
                self._add(tick)

    def take_power(self, refresh: Refresh) -> None:
        """The power meter was refreshed; or polled without, where that tells something, too."""
        with self.lock:
            last = self._polls[-1] if self._polls else None
            self._polls.append(refresh)
            if last is not None and self.response.best.instant:
                # A live meter shows how power moves from poll to poll.
                around = self._edges.pieces(last.polled, refresh.polled)
                if len(around) == 1:
                    off = (refresh.value - last.value) / math.sqrt(2)
                    self._levels.learn_fast(around[0].names, off, 0.0)
            if last is None or refresh.value != last.value or self.response.best.instant:
                self._readings.append(refresh)
                self._unread += 1
            if not self._counts:
                self._sum_up(refresh.polled, (last or refresh).value, refresh.value)

    @property
    def _counts(self) -> bool:
        """Whether the counter is there, and believed."""
        return self.status.counter and not self._credibility.note

    def _sum_up(self, polled: float, before: float, after: float) -> None:
        """Without a counter, the power meter is summed up."""
        since, joules = self._summed or (polled, 0.0)
        joules += (before + after) / 2 * max(polled - since, 0.0)
        self._summed = polled, joules
        # Unless it is live, the meter is late, by how much nothing tells: it matters where power
        # changes.
        late = 0.0 if self.response.best.instant else _LATE
        recent = [poll.value for poll in self._polls[-8:]]
        change = min((max(recent) - min(recent)) / max(after, 1.0), 1.0)
        self._add(Tick(polled - late, 1e-4 + late * change, joules))

    def _check(self, last: Refresh, refresh: Refresh) -> None:
        """Compare the counter with power where no window begins or ends."""
        begin, end = last.high, refresh.low
        if self.status.averaged or end <= begin or len(self._edges.pieces(begin, end)) != 1:
            return
        at = bisect_left(self._polls, begin, key=_polled)
        watts = [poll.value for poll in self._polls[max(at - 1, 0) :]]
        if not watts:
            return
        seconds = (refresh.low + refresh.high - last.low - last.high) / 2
        if self._credibility.compare(seconds, refresh.value - last.value, sum(watts) / len(watts)):
            self._restart()

    def _add(self, tick: Tick) -> None:
        if self._ticks:
            last = self._ticks[-1]
            # One that is not located exactly adds little to another right before it.
            nearest = OFTEN_ENOUGH if tick.spread > 1e-4 else 0.0
            if tick.instant <= last.instant + nearest:
                self._latest = max(tick, self._latest or tick)
                return
            self._learn(last, tick)
        self._ticks.append(tick)

    def _learn(self, one: Tick, other: Tick) -> None:
        """From what the counter tells of the time between two ticks."""
        length = other.instant - one.instant
        joules = other.joules - one.joules
        watts = joules / length
        pieces = self._edges.pieces(one.instant, other.instant)
        if not pieces:
            return
        self.period += 0.1 * (min(length, 1.0) - self.period)
        variance = (one.spread**2 + other.spread**2) * watts**2 + 1e-6
        told = Integral(pieces, joules, variance)
        self._intervals.append(Interval(other.instant, told, self._levels.snapshot()))
        first = pieces[0]
        single = first.segment if len(pieces) == 1 else None
        if self._inside is not None and single == self._inside[0]:
            # In the same segment as before: it says nothing new of levels.
            noise = 3 * (one.spread**2 + other.spread**2) * (watts / length) ** 2
            self._levels.learn_slow(first.names, watts - self._inside[1], length, noise)
        else:
            self._levels.learn(told)
        self._inside = None if single is None else (single, watts)
        self._take_readings(one.instant, other.instant)

    def _take_readings(self, since: float, until: float) -> None:
        """Learn from power readings, once the counter has told of the time around."""
        while self._unread:
            reading = self._readings[-self._unread]
            if reading.polled > until:
                return
            self._unread -= 1
            begin, end = self.response.best.span(reading)
            clear = _CLEAR if self.response.sure else 5 * _CLEAR
            around = self._edges.pieces(begin - clear, end + clear)
            unambiguous = self._unambiguous(reading)
            if len(around) == 1:
                self._learn_inside(reading, around[0].names, begin > since)
            # Only where load changes, a reading tells responses apart.
            if not unambiguous and self.response.undecided(reading.polled):
                self._judge_response(reading)

    def _learn_inside(self, reading: Refresh, names: Names, recent: bool) -> None:
        """From a reading of a time in which load does not change."""
        response, level = self.response, self._levels.level(names)
        if level is not None:
            response.learn_gain(reading.value, *level)
        if recent and self._inside is not None:
            off = reading.value / response.gain - self._inside[1]
            self._levels.learn_fast(names, off, response.best.window)

    def _judge_response(self, reading: Refresh) -> None:
        """See which response explains a reading best, by what the counter alone tells."""
        response = self.response
        candidates = response.candidates()
        spans = [candidate.span(reading) for candidate in candidates]
        begin, end = reading.polled - LONGEST_SPAN, reading.polled
        told, levels = self._counter_around(begin, end)
        targets = [self._edges.pieces(*span) for span in spans]
        if not told or not all(targets):
            return
        levels.tell_apart(_DIFFER)  # rather judged by more readings than too soon
        found = conditioned(levels, told, targets)
        expected = [
            (energy.mean / (b - a), energy.variance / (b - a) ** 2)
            for energy, (a, b) in zip(found, spans, strict=True)
        ]
        edges = [piece.begin for piece in self._edges.pieces(begin - 0.1, end)[1:]]
        before = response.best
        response.judge(reading, candidates, expected, self._step(begin, end), edges)
        if response.best != before:
            self._equations.clear()  # they were of other times

    def _step(self, begin: float, end: float) -> float:
        """Watts by which load changes in some time, as far as levels are known."""
        pieces = self._edges.pieces(begin, end)
        levels = [known[0] for p in pieces if (known := self._levels.level(p.names)) is not None]
        return max(levels) - min(levels) if len(levels) > 1 else 0.0

    def forget(self, before: float) -> None:
        """Drop what was seen before an instant."""
        with self.lock:
            cut = bisect_left(self._ticks, before, key=_instant)
            del self._ticks[: max(cut - 1, 0)]
            kept = max(before, self.last_poll.instant - _KEPT)
            del self._intervals[: bisect_left(self._intervals, kept, key=_end)]
            for readings in (self._readings, self._polls):
                del readings[: bisect_left(readings, kept, key=_polled)]
            self._unread = min(self._unread, len(self._readings))
            self._equations.clear()

    # --- answering --------------------------------------------------------------------------------

    def settled(self, end: float) -> bool:
        """Whether what is told of a window that ended then is final."""
        with self.lock:
            if self.status.trouble is not None or self.last_poll.instant > end + _OVERDUE:
                return True
            return bool(self._ticks) and self._ticks[-1].instant >= end

    @property
    def seen(self) -> bool:
        """Whether the GPU was polled at all, or does not answer."""
        return self.last_poll is not _NO_POLL or self.status.trouble is not None

    @property
    def ticks_seen(self) -> float:
        """Changes whenever there is something new to tell of windows that are not settled."""
        return self._ticks[-1].instant if self._ticks else 0.0

    def checkpoint(self, begin: float) -> WindowCheckpoint | None:
        """What a window begun at `begin` must keep before it is forgotten; `None` if unknown."""
        with self.lock:
            first = bisect_left(self._ticks, begin, key=_instant)
            if first >= len(self._ticks):
                return None
            tick = self._ticks[first]
            return WindowCheckpoint(self._local(begin, tick.instant), tick)

    def energy(
        self, begin: float, end: float, checkpoint: WindowCheckpoint | None = None
    ) -> Energy:
        """Energy of a window; see `energies`."""
        return self.energies([(begin, end, checkpoint)])[0]

    def energies(self, windows: Sequence[Window]) -> list[Energy]:
        """Energies of windows; of several that are near each other, at less than their price.

        Args:
            windows: When each began, when it ended, and what it kept, if it began long ago.
        """
        with self.lock:
            found: list[Energy | None] = []
            short: list[int] = []
            for number, window in enumerate(windows):
                energy = self._without_model(window) or self._long(window)
                found.append(energy)
                if energy is None:
                    if short and window[1] - windows[short[0]][0] > _TOGETHER * self.period:
                        self._work_out(windows, short, found)
                        short = []
                    short.append(number)
            self._work_out(windows, short, found)
            return [energy for energy in found if energy is not None]

    def _without_model(self, window: Window) -> Energy | None:
        """What there is to say where nothing is known."""
        begin, end, _ = window
        trouble = self.status.trouble
        if trouble is not None and end > self.last_poll.instant:
            return Energy(None, Method.UNAVAILABLE, note=str(trouble))
        return None if self._ticks else self._by_last_power(begin, end)

    def _long(self, window: Window) -> Energy | None:
        """Energy of a window that holds several ticks; `None` if it does not."""
        begin, end, checkpoint = window
        last = bisect_right(self._ticks, end, key=_instant) - 1
        if checkpoint is None:
            first = bisect_left(self._ticks, begin, key=_instant)
            if last - first + 1 < _MANY_TICKS:
                return None
            tick = self._ticks[first]
            checkpoint = WindowCheckpoint(self._local(begin, tick.instant), tick)
        elif last < 0 or self._ticks[last].instant < checkpoint.tick.instant:
            return None
        latest = self._ticks[last]
        if self._latest is not None and latest < self._latest and self._latest.instant <= end:
            latest = self._latest
        return self._plausible(self._from_tick(checkpoint, latest, end), begin, end)

    def _work_out(
        self, windows: Sequence[Window], which: Sequence[int], found: list[Energy | None]
    ) -> None:
        """Energies of short windows near each other, by the model."""
        if not which:
            return
        begin = min(windows[number][0] for number in which)
        end = max(windows[number][1] for number in which)
        targets = [self._edges.pieces(*windows[number][:2]) for number in which]
        for number, energy in zip(which, self._locals(begin, end, targets), strict=True):
            found[number] = self._plausible(energy, *windows[number][:2])

    def _plausible(self, energy: Posterior, begin: float, end: float) -> Energy:
        joules, variance, shared = energy
        most = _MAX_POWER * self._max_power * (end - begin)
        if not 0 <= joules <= most:  # no GPU draws that: what was learned does not fit
            variance += (joules - min(max(joules, 0.0), most)) ** 2 + most**2 / 12
            joules = self._interpolated(end) - self._interpolated(begin)
        told = self._ticks[-1].instant > begin and end > self._ticks[0].instant
        method = Method.COUNTER if self._counts else Method.INTEGRATED
        return Energy(
            joules,
            method if told else Method.ESTIMATED,
            max(_STATED * math.sqrt(variance), _MILLIJOULE),
            self._note(),
            _STATED * math.sqrt(min(shared, variance)),
        )

    def _interpolated(self, instant: float) -> float:
        """The counter at an instant, as if power were constant between ticks."""
        at = bisect_right(self._ticks, instant, key=_instant)
        if 0 < at < len(self._ticks):
            one, other = self._ticks[at - 1], self._ticks[at]
            share = (instant - one.instant) / (other.instant - one.instant)
            return one.joules + share * (other.joules - one.joules)
        near = self._ticks[min(at, len(self._ticks) - 1)]
        watts = self.last_poll.watts
        if math.isnan(watts):
            watts = self._max_power / 2
        return near.joules + watts * (instant - near.instant)

    def _from_tick(self, checkpoint: WindowCheckpoint, last: Tick, end: float) -> Posterior:
        before, first = checkpoint
        counted = last.joules - first.joules
        watts = counted / max(last.instant - first.instant, 1e-9)
        untold = last >= self._ticks[-1] and last.instant > first.instant
        untold = untold and not self.response.best.instant  # a live meter tells
        if not untold or len(self._edges.pieces(first.instant, end)) != 1:
            after = self._local(last.instant, end)
        else:
            # Nothing is told of its end yet; nothing knows that better than the window itself.
            length = end - last.instant
            ripple = self._levels.ripple(self._edges.pieces(last.instant, end)[0].names, length)
            after = Posterior(watts * length, ripple, 0.0)
        located = (first.spread**2 + last.spread**2) * watts**2
        return Posterior(
            before.mean + counted + after.mean,
            before.variance + located + after.variance,
            before.shared + after.shared,
        )

    def _local(self, begin: float, end: float) -> Posterior:
        """Energy of one end of a long window by the model, given the refreshes around.

        The intervals next to it tell what the segments on both sides draw.
        """
        pieces = self._edges.pieces(begin, end)
        energy = self._locals(begin - self.period, end + self.period, [pieces])[0]
        reconstructed = self._reconstructed(begin, end)
        return energy if reconstructed is None else energy._replace(mean=reconstructed)

    def _reconstructed(self, begin: float, end: float) -> float | None:
        """Energy of part of an interval of the counter in which power changes at most once.

        If the intervals before and after it lie in one segment each, they show what is drawn on
        both sides; the energy of the interval then shows when it changed. That is exact for a load
        that changes at an edge, and for one that changes rarely, wherever. `None` where the
        neighbors do not show it.
        """
        at = bisect_right(self._ticks, begin, key=_instant)
        around = self._ticks[max(at - 2, 0) : at + 2]
        if len(around) < 4 or end > around[2].instant or not self._counts:
            return None
        if self.response.best.instant:
            return None
        intervals = [(one.instant, other.instant) for one, other in pairwise(around)]
        if [len(self._edges.pieces(*interval)) for interval in intervals] != [1, 2, 1]:
            return None
        before, mean, after = (
            (other.joules - one.joules) / (other.instant - one.instant)
            for one, other in pairwise(around)
        )
        since, until = intervals[1]
        if abs(after - before) < _SAME * mean or not (before - mean) * (after - mean) < 0:
            return mean * (end - begin)
        change = since + (until - since) * (after - mean) / (after - before)
        early = max(min(end, change) - begin, 0.0)
        return before * early + after * (end - begin - early)

    def _locals(
        self, begin: float, end: float, targets: Sequence[Sequence[Piece]]
    ) -> list[Posterior]:
        """The same for several targets between two instants."""
        told, levels = self._counter_around(begin, end)
        power = self._power_around(begin, end, _MAX_EQUATIONS - len(told))
        told += power
        if self.response.best.instant and any(one.begin < end and one.end > begin for one in power):
            levels.tell_apart()  # a live meter shows the very window: others say nothing of it
        return conditioned(levels, told, targets)

    def _counter_around(self, begin: float, end: float) -> tuple[list[Integral], Levels]:
        """What the counter tells of some time and its neighborhood, and was known before that."""
        intervals = self._intervals
        # Of the time after the last tick nothing is told, but the segment may go on from before.
        first = min(bisect_right(intervals, begin, key=_end), max(len(intervals) - 1, 0))
        last = bisect_left(intervals, end, key=_end)
        near = intervals[first : min(last + 1, first + _MAX_EQUATIONS)]
        levels = near[0].before if near else self._levels
        return [interval.told for interval in near], levels.snapshot()

    def _power_around(self, begin: float, end: float, most: int) -> list[Integral]:
        """What power readings tell of some time and its neighborhood."""
        response = self.response
        if response.best.instant:
            return self._integrated(begin, end)
        margin = self.period
        first = bisect_left(self._readings, begin - margin, key=_polled)
        found = []
        for reading in self._readings[first : first + most]:
            if response.best.span(reading)[0] > end + margin:
                break
            equation = self._equations.get(reading) or self._equation(reading)
            if equation is not None:
                found.append(equation)
        return found

    def _equation(self, reading: Refresh) -> Integral | None:
        """What a power reading tells, of some time that depends on how the meter responds."""
        response = self.response
        since, until = response.best.span(reading)
        pieces = self._edges.pieces(since, until)
        if not pieces or not (response.sure or self._unambiguous(reading)):
            return None
        length, step, spread = until - since, 0.0, 0.0
        if not response.best.live:
            spread = (reading.high - reading.low) / math.sqrt(12)
            step = self._step(since - 2 * spread, until + 2 * spread)
        noise = math.hypot(_NOISE, response.gain_spread) * reading.value * length
        variance = (spread * step) ** 2 + noise**2 + 1e-8
        equation = Integral(pieces, reading.value / response.gain * length, variance)
        if response.sure:
            self._equations[reading] = equation
        return equation

    def _unambiguous(self, reading: Refresh) -> bool:
        """Whether a reading is of one segment, however the meter responds."""
        return len(self._edges.pieces(reading.low - LONGEST_SPAN, reading.polled)) == 1

    def _integrated(self, begin: float, end: float) -> list[Integral]:
        """Of a live meter every poll counts: integrate over what lies within a segment."""
        polls, gain = self._polls, self.response.gain
        found = []
        pieces: Sequence[Piece] = self._edges.pieces(begin - _LIVE_MARGIN, end + _LIVE_MARGIN)
        for piece in pieces:
            # One at the very edge is from before it: in virtual time load changes in no time.
            first = bisect_right(polls, piece.begin, key=_polled)
            last = bisect_right(polls, piece.end, key=_polled)
            if last - first < 2 or polls[last - 1].polled - polls[first].polled < 1e-3:
                continue
            joules = variance = 0.0
            for one, other in pairwise(polls[first:last]):
                gap = other.polled - one.polled
                joules += (one.value + other.value) / 2 * gap
                variance += ((other.value - one.value) * gap) ** 2 / 12
            span = piece._replace(begin=polls[first].polled, end=polls[last - 1].polled)
            variance += (0.002 * joules) ** 2 + 1e-8
            found.append(Integral([span], joules / gain, variance))
        return found

    def _by_last_power(self, begin: float, end: float) -> Energy:
        watts = self.last_poll.watts
        if math.isnan(watts):
            return Energy(None, Method.UNAVAILABLE, note="nothing was seen of this GPU yet")
        joules = watts * (end - begin)
        return Energy(joules, Method.ESTIMATED, max(joules, _MILLIJOULE), self._note(), joules)

    def _note(self) -> str:
        if self._counts:
            return ""
        source = "mean power over about a second" if self.status.averaged else "instantaneous power"
        return f"{self._credibility.note or self.status.counter_note}; integrated from {source}"


def _instant(tick: Tick) -> float:
    return tick.instant


def _end(interval: Interval) -> float:
    return interval.end


def _polled(reading: Refresh) -> float:
    return reading.polled
