"""The energy of windows on one GPU, from the refreshes of its sensors.

Every refresh of the counter or of the power meter is one equation about the integral of power over
an interval (`levels.py` has the model). The energy of a window with several ticks of the counter is
their difference, plus its two ends by the model; that of a shorter one is by the model alone. The
stated uncertainty comes from the variance of the energy given all refreshes around the window.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from zeus.monitor._credibility import Credibility
from zeus.monitor._edges import Names, Piece, WindowEdges
from zeus.monitor._levels import Integral, Levels, Posterior, conditioned
from zeus.monitor._meter_integral import MeterIntegral
from zeus.monitor._pacing import OFTEN_ENOUGH
from zeus.monitor._response import LONGEST_SPAN, Response
from zeus.monitor._samples import Energy, Method, Poll, Refresh, SensorStatus

_KEPT = 15.0  # seconds for which equations are kept; windows are computed before
_MANY_TICKS = 4  # ticks in a window from which their difference is used directly
_MILLIJOULE = 1e-3
_STATED = 2.4  # standard deviations, for 19 of 20: tails are heavier than a Gaussian's
_MAX_POWER = 1.5  # times the highest limit: boards overshoot briefly
_MAX_EQUATIONS = 12
_WIDE = 0.5  # periods of the counter, beyond which a refresh is not located
_NOISE = 0.003  # of a power reading
_DIFFER = 0.2  # of the power limit, by which windows of a name may differ
_CLEAR = 0.002  # seconds to the next edge, so that a reading certainly covers one segment
_TOGETHER = 2.5  # periods of the counter, over which windows are computed together
_LIVE_MARGIN = 0.03  # seconds around a window in which polls of a live meter are relevant to it
_LATE = 0.02  # seconds; approximate lag of a power meter without a counter to compare it with
_LAG_SPREAD = 0.0125  # seconds, a standard deviation: published lags are 10 to 50 ms
_UNSEEN_RIPPLE = 0.1  # of power, within the time of one reading
_AROUND_EDGE = 0.1  # seconds in which a late meter shows that power has changed
_SAME = 0.02  # of power, by which neighboring intervals may differ by chance
_OVERDUE = 1.0  # seconds after a window within which a working counter has ticked
_NO_POLL = Poll(-math.inf, math.nan, math.nan)


class Tick(NamedTuple):
    """A refresh of the counter: its instant, the instant's standard deviation, and the value.

    Of a power meter in place of a counter, also the variance (J²) accumulated so far.
    """

    instant: float
    spread: float
    joules: float
    variance: float = 0.0


class Interval(NamedTuple):
    """Interval between two ticks: the counter's integral, and the levels known before it."""

    end: float
    measured: Integral
    before: Levels


class WindowCheckpoint(NamedTuple):
    """State kept for a window that began long ago: energy up to its first tick, and that tick."""

    energy: Posterior
    tick: Tick


#: Begin, end, and the checkpoint if the window began long ago.
Window = tuple[float, float, WindowCheckpoint | None]


class EnergyEstimator:
    """Computes energies of windows from the refreshes of one GPU's sensors. Thread-safe.

    Args:
        edges: Edges of the windows of this process.
        max_power: Maximum power of the GPU, in watts.
        response: How its power meter responds, if known.
    """

    def __init__(
        self, edges: WindowEdges, max_power: float, response: Response | None = None
    ) -> None:
        self.status = SensorStatus()
        self.last_poll = _NO_POLL
        self.response = response or Response()
        self.period = 0.1  # seconds between recent ticks of the counter
        self.lock = threading.RLock()
        self._edges = edges
        self._max_power = max_power
        self._credibility = Credibility()
        self._offset = 0.0
        self._counted: Refresh | None = None
        self._skipped = False
        #: Power readings that differ from the previous one; `_polls` also has those that do not.
        self._readings: list[Refresh] = []
        self._polls: list[Refresh] = []
        #: Equations from readings, cached once the response is known for certain.
        self._equations: dict[Refresh, Integral] = {}
        self._unread = 0  # readings that no counter interval covers yet
        self._restart()

    def _restart(self) -> None:
        """Start over with another source: what was learned from the previous one is wrong."""
        self._levels = Levels(self._max_power)
        self._ticks: list[Tick] = []
        #: A tick too close to the last to learn from, but useful for a window that just ended.
        self._latest: Tick | None = None
        self._summed = MeterIntegral()  # in place of a counter
        self._intervals: list[Interval] = []
        self._inside: tuple[int, float] | None = None

    # --- input ------------------------------------------------------------------------------------

    def take_status(self, status: SensorStatus) -> None:
        """Record a change in which sensors can be read."""
        self.status = status

    def take_poll(self, poll: Poll) -> None:
        """Record the latest poll of the sensors."""
        with self.lock:
            if not self._uses_counter and self._polls and poll.watts == self._polls[-1].value:
                self._summed.add_unchanged(poll.instant, poll.watts)
                self._integrate_power(poll.instant)
            self.last_poll = poll

    def take_counter(self, refresh: Refresh) -> None:
        """Record a refresh of the counter."""
        with self.lock:
            last, self._counted = self._counted, refresh
            if last is not None and refresh.value < last.value:
                # The driver was reloaded and counts from zero. The lost energy is estimated.
                watts = 0.0 if math.isnan(self.last_poll.watts) else self.last_poll.watts
                lost = watts * (refresh.polled - last.polled)
                self._offset += last.value - refresh.value + lost
                return
            spread = max((refresh.high - refresh.low) / math.sqrt(12), 1e-5)
            instant = (refresh.low + refresh.high) / 2
            tick = Tick(instant, spread, refresh.value + self._offset)
            if last is not None:
                self._check_credibility(last, refresh)
            # After a time without polls a refresh is poorly located, as is one that may be
            # another; the next one will be located well.
            self._skipped = not self._skipped and refresh.high - refresh.low > _WIDE * self.period
            if self._uses_counter and not self._skipped:
                self._add(tick)

    def take_power(self, refresh: Refresh) -> None:
        """Record a refresh of the power meter, or a poll without one where that is informative."""
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
            if not self._uses_counter:
                before = (last or refresh).value
                if self.response.best.instant:
                    self._summed.add_live(refresh.polled, before, refresh.value)
                else:
                    located = refresh.low, refresh.high
                    self._summed.add_refresh(located, refresh.polled, before, refresh.value)
                self._integrate_power(refresh.polled)

    @property
    def _uses_counter(self) -> bool:
        """Whether the counter exists and is trusted."""
        return self.status.counter and not self._credibility.note

    def _integrate_power(self, polled: float) -> None:
        """Let the integral of the power meter, up to a poll, stand in for a counter."""
        # Unless it is live, the meter lags by an unknown time, which matters where power changes.
        late = 0.0 if self.response.best.instant else _LATE + self._summed.delay
        recent = [poll.value for poll in self._polls[-8:]]
        change = min((max(recent) - min(recent)) / max(recent[-1], 1.0), 1.0)
        summed = self._summed
        spread = 0.0 if self.response.best.instant else _LATE * change
        self._add(Tick(polled - late, 1e-4 + spread, summed.joules, summed.variance))

    def _check_credibility(self, last: Refresh, refresh: Refresh) -> None:
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
            # A tick that is not located exactly adds little to one right before it.
            nearest = OFTEN_ENOUGH if tick.spread > 1e-4 else 0.0
            if tick.instant <= last.instant + nearest:
                self._latest = max(tick, self._latest or tick)
                return
            self._learn(last, tick)
        self._ticks.append(tick)

    def _learn(self, one: Tick, other: Tick) -> None:
        """Learn levels from the counter's difference between two ticks."""
        length = other.instant - one.instant
        joules = other.joules - one.joules
        watts = joules / length
        pieces = self._edges.pieces(one.instant, other.instant)
        if not pieces:
            return
        self.period += 0.1 * (min(length, 1.0) - self.period)
        variance = (one.spread**2 + other.spread**2) * watts**2 + 1e-6
        variance += max(other.variance - one.variance, 0.0)
        measured = Integral(pieces, joules, variance)
        self._intervals.append(Interval(other.instant, measured, self._levels.snapshot()))
        first = pieces[0]
        single = first.segment if len(pieces) == 1 else None
        if self._inside is not None and single == self._inside[0]:
            # In the same segment as before: it adds nothing about levels.
            noise = 3 * (one.spread**2 + other.spread**2) * (watts / length) ** 2
            self._levels.learn_slow(first.names, watts - self._inside[1], length, noise)
        else:
            self._levels.learn(measured)
        self._inside = None if single is None else (single, watts)
        self._take_readings(one.instant, other.instant)

    def _take_readings(self, since: float, until: float) -> None:
        """Learn from power readings, once the counter covers the time around them."""
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
            # A reading distinguishes responses only where load changes.
            if not unambiguous and self.response.undecided(reading.polled):
                self._judge_response(reading)

    def _learn_inside(self, reading: Refresh, names: Names, recent: bool) -> None:
        """Learn from a reading that covers a time of constant load."""
        response, level = self.response, self._levels.level(names)
        if level is not None:
            response.learn_gain(reading.value, *level)
        if recent and self._inside is not None:
            off = reading.value / response.gain - self._inside[1]
            self._levels.learn_fast(names, off, response.best.window)

    def _judge_response(self, reading: Refresh) -> None:
        """Compare how well responses explain a reading, given the counter alone."""
        response = self.response
        candidates = response.candidates()
        spans = [candidate.span(reading) for candidate in candidates]
        begin, end = reading.polled - LONGEST_SPAN, reading.polled
        measured, levels = self._counter_around(begin, end)
        targets = [self._edges.pieces(*span) for span in spans]
        if not measured or not all(targets):
            return
        levels.distinguish(_DIFFER)  # better to need more readings than to decide too soon
        found = conditioned(levels, measured, targets)
        expected = [
            (energy.mean / (b - a), energy.variance / (b - a) ** 2)
            for energy, (a, b) in zip(found, spans, strict=True)
        ]
        edges = [piece.begin for piece in self._edges.pieces(begin - 0.1, end)[1:]]
        before = response.best
        response.judge(reading, candidates, expected, self._step(begin, end), edges)
        if response.best != before:
            self._equations.clear()  # they were for other time spans

    def _step(self, begin: float, end: float) -> float:
        """Return the watts by which load changes between two instants, by the known levels."""
        pieces = self._edges.pieces(begin, end)
        levels = [known[0] for p in pieces if (known := self._levels.level(p.names)) is not None]
        return max(levels) - min(levels) if len(levels) > 1 else 0.0

    def forget(self, before: float) -> None:
        """Drop ticks and readings older than an instant."""
        with self.lock:
            cut = bisect_left(self._ticks, before, key=_instant)
            del self._ticks[: max(cut - 1, 0)]
            kept = max(before, self.last_poll.instant - _KEPT)
            del self._intervals[: bisect_left(self._intervals, kept, key=_end)]
            for readings in (self._readings, self._polls):
                del readings[: bisect_left(readings, kept, key=_polled)]
            self._unread = min(self._unread, len(self._readings))
            self._equations.clear()

    # --- output -----------------------------------------------------------------------------------

    def settled(self, end: float) -> bool:
        """Return whether the energy of a window that ended at this instant is final."""
        with self.lock:
            if self.status.trouble is not None or self.last_poll.instant > end + _OVERDUE:
                return True
            return bool(self._ticks) and self._ticks[-1].instant >= end

    @property
    def seen(self) -> bool:
        """Whether the GPU was polled at least once, or does not respond."""
        return self.last_poll is not _NO_POLL or self.status.trouble is not None

    @property
    def ticks_seen(self) -> float:
        """Instant of the last tick; changes whenever unsettled windows may have new energies."""
        return self._ticks[-1].instant if self._ticks else 0.0

    def checkpoint(self, begin: float) -> WindowCheckpoint | None:
        """Return the state a window begun at `begin` must keep; `None` if there is no tick yet."""
        with self.lock:
            first = bisect_left(self._ticks, begin, key=_instant)
            if first >= len(self._ticks):
                return None
            tick = self._ticks[first]
            return WindowCheckpoint(self._local(begin, tick.instant), tick)

    def energy(
        self, begin: float, end: float, checkpoint: WindowCheckpoint | None = None
    ) -> Energy:
        """Return the energy of one window; see `energies`."""
        return self.energies([(begin, end, checkpoint)])[0]

    def energies(self, windows: Sequence[Window]) -> list[Energy]:
        """Return energies of windows; neighboring ones are computed together, which is cheaper."""
        with self.lock:
            found: list[Energy | None] = []
            short: list[int] = []
            for number, window in enumerate(windows):
                energy = self._without_model(window) or self._long(window)
                found.append(energy)
                if energy is None:
                    if short and window[1] - windows[short[0]][0] > _TOGETHER * self.period:
                        self._compute_short(windows, short, found)
                        short = []
                    short.append(number)
            self._compute_short(windows, short, found)
            return [energy for energy in found if energy is not None]

    def counted(self, since: float, until: float = math.inf) -> list[Integral]:
        """Return energies between ticks: of intervals that end after `since`, up to `until`."""
        with self.lock:
            first = bisect_right(self._intervals, since, key=_end)
            last = bisect_right(self._intervals, until, key=_end)
            return [interval.measured for interval in self._intervals[first:last]]

    def integrals(self, since: float, until: float) -> list[Integral]:
        """Return what the sensors have shown: energies of intervals, with their variances.

        Those of the counter, and those of a meter that certainly is live. Readings of other meters
        are left out: which time they cover is learned from windows, which know the load in less
        detail than code that asks for integrals does, and what is not certain yet may be wrong.

        Args:
            since: Only intervals that end after this instant.
            until: Only intervals that end at this instant or before.
        """
        with self.lock:
            found = self.counted(since, until)
            live = self.response.best.instant and self.response.sure
            return found + self._integrated(since, until, 0.0) if live else found

    def _without_model(self, window: Window) -> Energy | None:
        """Return the energy of a window for which there is no tick; `None` if there are ticks."""
        begin, end, _ = window
        trouble = self.status.trouble
        if trouble is not None and end > self.last_poll.instant:
            return Energy(None, Method.UNAVAILABLE, note=str(trouble))
        return None if self._ticks else self._by_last_power(begin, end)

    def _long(self, window: Window) -> Energy | None:
        """Return the energy of a window with several ticks; `None` if it has fewer."""
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

    def _compute_short(
        self, windows: Sequence[Window], which: Sequence[int], found: list[Energy | None]
    ) -> None:
        """Compute the energies of neighboring short windows by the model."""
        if not which:
            return
        begin = min(windows[number][0] for number in which)
        end = max(windows[number][1] for number in which)
        targets = [self._edges.pieces(*windows[number][:2]) for number in which]
        for number, energy in zip(which, self._locals(begin, end, targets), strict=True):
            found[number] = self._plausible(energy, *windows[number][:2])

    def _plausible(self, energy: Posterior, begin: float, end: float) -> Energy:
        joules, variance, shared = energy
        if not self._uses_counter and not self.response.best.instant:
            variance += self._lag_variance(begin) + self._lag_variance(end)
        most = _MAX_POWER * self._max_power * (end - begin)
        if not 0 <= joules <= most:  # impossible for a GPU: the learned model does not fit
            variance += (joules - min(max(joules, 0.0), most)) ** 2 + most**2 / 12
            joules = self._interpolated(end) - self._interpolated(begin)
        covered = self._ticks[-1].instant > begin and end > self._ticks[0].instant
        method = Method.COUNTER if self._uses_counter else Method.INTEGRATED
        return Energy(
            joules,
            method if covered else Method.ESTIMATED,
            max(_STATED * math.sqrt(variance), _MILLIJOULE),
            self._note(),
            _STATED * math.sqrt(min(shared, variance)),
        )

    def _lag_variance(self, edge: float) -> float:
        """Return the variance (J²) at an edge because, without a counter, the lag is unknown.

        Also unknown is how power ripples within the time of one reading, which the edge divides.
        """
        first = bisect_left(self._polls, edge - _AROUND_EDGE, key=_polled)
        last = bisect_right(self._polls, edge + _AROUND_EDGE, key=_polled)
        watts = [poll.value for poll in self._polls[first:last]]
        if not watts:
            return 0.0
        divided = _UNSEEN_RIPPLE * max(watts) * 2 * self._summed.delay
        return (_LAG_SPREAD * (max(watts) - min(watts))) ** 2 + divided**2

    def _interpolated(self, instant: float) -> float:
        """Return the counter at an instant, as if power were constant between ticks."""
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
        uncovered = last >= self._ticks[-1] and last.instant > first.instant
        uncovered = uncovered and last.instant < end
        uncovered = uncovered and not self.response.best.instant  # a live meter shows it
        if not uncovered or len(self._edges.pieces(first.instant, end)) != 1:
            after = self._local(last.instant, end)
        else:
            # No sensor covers its end yet; the best estimate is the window's own mean power.
            length = end - last.instant
            ripple = self._levels.ripple(self._edges.pieces(last.instant, end)[0].names, length)
            after = Posterior(watts * length, ripple, 0.0)
        located = (first.spread**2 + last.spread**2) * watts**2
        located += max(last.variance - first.variance, 0.0)
        return Posterior(
            before.mean + counted + after.mean,
            before.variance + located + after.variance,
            before.shared + after.shared,
        )

    def _local(self, begin: float, end: float) -> Posterior:
        """Return the energy of one end of a long window by the model, given nearby refreshes."""
        pieces = self._edges.pieces(begin, end)
        energy = self._locals(begin - self.period, end + self.period, [pieces])[0]
        reconstructed = self._reconstructed(begin, end)
        return energy if reconstructed is None else energy._replace(mean=reconstructed)

    def _reconstructed(self, begin: float, end: float) -> float | None:
        """Return the energy of part of a counter interval in which power changes at most once.

        If the intervals before and after lie in one segment each, they show the power on both
        sides; the energy of the interval then shows when it changed. That is exact for a load that
        changes at an edge, and for one that changes rarely, at any instant. `None` where the
        neighbors do not show it.
        """
        at = bisect_right(self._ticks, begin, key=_instant)
        around = self._ticks[max(at - 2, 0) : at + 2]
        if len(around) < 4 or end > around[2].instant or not self._uses_counter:
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
        """Return the energies of several targets between two instants by the model."""
        measured, levels = self._counter_around(begin, end)
        power = self._power_around(begin, end, _MAX_EQUATIONS - len(measured))
        measured += power
        if self.response.best.instant and any(one.begin < end and one.end > begin for one in power):
            levels.distinguish()  # a live meter shows this window itself: others are irrelevant
        return conditioned(levels, measured, targets)

    def _counter_around(self, begin: float, end: float) -> tuple[list[Integral], Levels]:
        """Return the counter's integrals around an interval, and the levels known before them."""
        intervals = self._intervals
        # No integral covers the time after the last tick, but its segment may have begun earlier.
        first = min(bisect_right(intervals, begin, key=_end), max(len(intervals) - 1, 0))
        last = bisect_left(intervals, end, key=_end)
        near = intervals[first : min(last + 1, first + _MAX_EQUATIONS)]
        levels = near[0].before if near else self._levels
        return [interval.measured for interval in near], levels.snapshot()

    def _power_around(self, begin: float, end: float, most: int) -> list[Integral]:
        """Return the integrals from power readings around an interval."""
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
        """Return the integral for a power reading, over a span set by how the meter responds."""
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
        """Return whether a reading covers one segment, however the meter responds."""
        return len(self._edges.pieces(reading.low - LONGEST_SPAN, reading.polled)) == 1

    def _integrated(self, begin: float, end: float, margin: float = _LIVE_MARGIN) -> list[Integral]:
        """Integrate the polls of a live meter within each segment: every poll counts."""
        polls, gain = self._polls, self.response.gain
        found = []
        pieces: Sequence[Piece] = self._edges.pieces(begin - margin, end + margin)
        for piece in pieces:
            # A poll exactly at the edge precedes it: in virtual time load changes instantly.
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
            return Energy(None, Method.UNAVAILABLE, note="this GPU has not been sampled yet")
        joules = watts * (end - begin)
        return Energy(joules, Method.ESTIMATED, max(joules, _MILLIJOULE), self._note(), joules)

    def _note(self) -> str:
        if self._uses_counter:
            return ""
        source = "mean power over about a second" if self.status.averaged else "instantaneous power"
        return f"{self._credibility.note or self.status.counter_note}; integrated from {source}"


def _instant(tick: Tick) -> float:
    return tick.instant


def _end(interval: Interval) -> float:
    return interval.end


def _polled(reading: Refresh) -> float:
    return reading.polled
