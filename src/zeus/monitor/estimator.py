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
from collections import deque
from itertools import pairwise
from typing import NamedTuple

from zeus.monitor.credibility import Credibility
from zeus.monitor.edges import Piece, WindowEdges
from zeus.monitor.levels import Integral, Levels, conditioned
from zeus.monitor.looks import Energy, Look, Method, Senses
from zeus.monitor.refreshes import RefreshModel
from zeus.monitor.response import Reading, Response

_KEPT = 15.0  # seconds for which refreshes are kept; windows are worked out before
_MANY_TICKS = 4  # from which a window's ticks are taken at their word
_MILLIJOULE = 1e-3
_MOST_POWER = 1.5  # times the highest limit: boards overshoot for a moment
_MAX_EQUATIONS = 14
_LONGEST_PERIOD = 0.25  # seconds, of a counter whose period is not known yet
_BLIND = 0.5  # seconds; beyond, a GPU that was not polled did not answer


class Tick(NamedTuple):
    """A refresh of the counter: its instant, the standard deviation of that, and its value."""

    instant: float
    spread: float
    joules: float


class Head(NamedTuple):
    """What a window that began long ago keeps: its energy up to its first tick, and that tick."""

    joules: float
    variance: float
    tick: Tick


class EnergyEstimator:
    """Takes in samples of one GPU, answers energies. May be fed and asked from several threads.

    Args:
        edges: Of the windows of this process.
        max_power: Watts that the GPU draws at most.
    """

    def __init__(self, edges: WindowEdges, max_power: float) -> None:
        self.senses = Senses()
        self.last_look = -math.inf
        self.lock = threading.RLock()
        self.ticks = RefreshModel()
        self._edges = edges
        self._max_power = max_power
        self._levels = Levels(max_power)
        self._response = Response()
        self._last: Look | None = None
        self._offset = 0.0
        self._ticks: list[Tick] = []
        self._told: deque[Integral] = deque()
        #: What was known before each interval of the counter, by its end.
        self._before: deque[tuple[float, Levels]] = deque()
        self._readings: list[Reading] = []
        self._polls: deque[tuple[float, float]] = deque(maxlen=256)
        self._inside: tuple[int, float] | None = None
        self._credibility = Credibility()
        self._checked: Tick | None = None

    # --- taking in --------------------------------------------------------------------------

    def take(self, look: Look) -> None:
        """Take in a sample. Those older than the latest are left out."""
        with self.lock:
            last = self._last
            if last is not None and look.begun < last.begun:
                return
            self._last = look
            self.last_look = look.ended
            if last is None:
                return
            if look.watts is not None and last.watts is not None:
                self._take_power(last, look)
            if look.joules is not None and last.joules is not None:
                self._take_counter(last, look)
            if not self._counts and look.watts is not None and last.watts is not None:
                self._count_power(last, look)

    def _take_counter(self, last: Look, look: Look) -> None:
        assert look.joules is not None
        assert last.joules is not None
        if look.joules < last.joules:
            # The driver was reloaded and counts from zero. What it forgot is not known.
            watts = look.watts or last.watts or 0.0
            self._offset += last.joules - look.joules + watts * (look.begun - last.begun)
            self.ticks = RefreshModel()
        elif look.joules > last.joules:
            # After a time without polls, it is the last refresh that shows.
            earliest = look.begun - (1.05 * (self.ticks.period or _LONGEST_PERIOD))
            low, high = self.ticks.observe(max(last.begun, earliest), look.between)
            spread = max((high - low) / math.sqrt(12), 1e-5)
            tick = Tick((low + high) / 2, spread, look.joules + self._offset)
            self._check(tick)
            if self._counts:
                self._tick(tick)
        else:
            self.ticks.unchanged()

    @property
    def _counts(self) -> bool:
        """Whether the counter is there, and believed."""
        return self.senses.counter and not self._credibility.note

    def _check(self, tick: Tick) -> None:
        """Compare the counter with power where no window begins or ends."""
        last, self._checked = self._checked, tick
        if last is None or len(self._edges.pieces(last.instant, tick.instant)) != 1:
            return
        watts = [poll[1] for poll in self._polls if last.instant <= poll[0] <= tick.instant]
        if not watts or self.senses.averaged:
            return
        length = tick.instant - last.instant
        counted = tick.joules - last.joules
        if self._credibility.compare(length, counted, sum(watts) / len(watts)):
            # Begin again with the other source; what was learned from this one is wrong.
            self._ticks.clear()
            self._told.clear()
            self._before.clear()
            self._levels, self._inside = Levels(self._max_power), None

    def _count_power(self, last: Look, look: Look) -> None:
        """Without a counter, the power meter is summed up."""
        assert look.watts is not None
        assert last.watts is not None
        at, before = (look.between + look.ended) / 2, (last.between + last.ended) / 2
        value = self._ticks[-1].joules if self._ticks else 0.0
        value += (look.watts + last.watts) / 2 * (at - before)
        self._tick(Tick(at, 1e-5 + 0.01 * (at - before), value))

    def _tick(self, tick: Tick) -> None:
        if self._ticks and tick.instant <= self._ticks[-1].instant:
            return
        self._ticks.append(tick)
        if len(self._ticks) > 1:
            self._interval(self._ticks[-2], tick)

    def _interval(self, one: Tick, other: Tick) -> None:
        """Between two refreshes of the counter."""
        length = other.instant - one.instant
        joules = other.joules - one.joules
        watts = joules / length
        variance = (one.spread**2 + other.spread**2) * watts**2 + 1e-6
        if length > _BLIND:
            variance += (0.01 * joules) ** 2
        told = Integral(self._edges.pieces(one.instant, other.instant), joules, variance)
        if not told.pieces:
            return
        self._before.append((other.instant, self._levels.snapshot()))
        self._told.append(told)
        single = told.pieces[0].segment if len(told.pieces) == 1 else None
        again = self._inside is not None and single == self._inside[0]
        if again and self._inside is not None:
            self._levels.learn_slow(told.pieces[0].names, watts - self._inside[1], length)
        self._inside = None if single is None else (single, watts)
        self._levels.learn(told, again=again)
        self._take_readings(other.instant)
        while self._told and self._told[0].end < other.instant - _KEPT:
            self._told.popleft()
        while self._before and self._before[0][0] < other.instant - _KEPT:
            self._before.popleft()

    def _take_power(self, last: Look, look: Look) -> None:
        assert look.watts is not None
        self._polls.append(((look.between + look.ended) / 2, look.watts))
        reading = self._response.reading(last, look)
        if reading is not None:
            self._readings.append(reading)
            if len(self._readings) > 4 * _MAX_EQUATIONS:
                del self._readings[0]

    def _take_readings(self, until: float) -> None:
        """Turn power readings into equations, once the counter has told of the time around."""
        response = self._response
        instant = response.best.instant
        if instant:
            self._integrate_polls(until)
        ready = [reading for reading in self._readings if reading.polled <= until]
        self._readings = self._readings[len(ready) :]
        for reading in ready:
            if response.undecided(self._edges.pieces(reading.refreshed - 0.15, reading.polled)):
                self._judge_response(reading)
            if not instant:
                self._take_reading(reading)

    def _take_reading(self, reading: Reading) -> None:
        gain = self._response.gain
        begin, end = self._response.span(reading)
        pieces = self._edges.pieces(begin, end)
        if not pieces:
            return
        length = end - begin
        spread = 0.0 if self._response.best.live else reading.spread
        variance = (spread * self._step(begin - 2 * spread, end + 2 * spread)) ** 2
        variance += (0.003 * reading.watts * length) ** 2 + 1e-8
        self._told.append(Integral(pieces, reading.watts / gain * length, variance, counted=False))
        inside = self._inside
        if inside is not None and len(pieces) == 1 and pieces[0].segment == inside[0]:
            self._levels.learn_fast(pieces[0].names, reading.watts / gain - inside[1], length)

    def _step(self, begin: float, end: float) -> float:
        """Watts by which load changes in some time, as far as levels are known."""
        pieces = self._edges.pieces(begin, end)
        levels = [known[0] for p in pieces if (known := self._levels.level(p.names)) is not None]
        return max(levels) - min(levels) if len(levels) > 1 else 0.0

    def _judge_response(self, reading: Reading) -> None:
        """See which response explains a reading best, by what the counter alone tells."""
        spans = self._response.candidate_spans(reading)
        begin, end = reading.polled - 0.15, reading.polled
        told, levels = self._around(begin, end, counted=True)
        if not told:
            return
        found = conditioned(levels, told, [self._edges.pieces(*span) for span in spans])
        expected = [
            (joules / (b - a), variance / (b - a) ** 2)
            for (joules, variance), (a, b) in zip(found, spans, strict=True)
        ]
        edges = [piece.begin for piece in self._edges.pieces(begin - 0.1, end)[1:]]
        self._response.judge(reading, expected, self._step(begin, end), edges)
        own = self._response.span(reading)
        if own in spans and len(self._edges.pieces(*own)) == 1:
            self._response.learn_gain(reading.watts, *expected[spans.index(own)])

    def _integrate_polls(self, until: float) -> None:
        """Of a live meter, every poll counts: integrate over what lies within a segment."""
        polls = [poll for poll in self._polls if poll[0] <= until]
        for _ in polls:
            self._polls.popleft()
        if len(polls) < 2:
            return
        for piece in self._edges.pieces(polls[0][0], polls[-1][0] + 1e-9):
            inside = [poll for poll in polls if piece.begin <= poll[0] <= piece.end]
            if len(inside) < 2 or inside[-1][0] - inside[0][0] < 1e-3:
                continue
            joules = variance = 0.0
            for (a, one), (b, other) in pairwise(inside):
                joules += (one + other) / 2 * (b - a)
                variance += ((other - one) * (b - a)) ** 2 / 12
            span = Piece(piece.segment, piece.names, inside[0][0], inside[-1][0])
            variance += (0.002 * joules) ** 2 + 1e-8
            gain = self._response.gain
            self._told.append(Integral([span], joules / gain, variance, counted=False))

    def forget(self, before: float) -> None:
        """Drop ticks from before an instant."""
        with self.lock:
            cut = bisect_left(self._ticks, before, key=lambda tick: tick.instant)
            del self._ticks[: max(cut - 1, 0)]

    # --- answering --------------------------------------------------------------------------

    def lacks_tick(self, begin: float, end: float) -> bool:
        """Whether the refresh after a window, with which its energy is final, is still to come."""
        with self.lock:
            if not self._counts or not self._ticks or not self._response.latched:
                return False
            few = self.ticks_inside(begin, end) < _MANY_TICKS
            return few and self._ticks[-1].instant < end

    def ticks_inside(self, begin: float, end: float) -> int:
        """How many ticks of the counter fall into a window."""
        with self.lock:
            return bisect_right(self._ticks, end, key=_instant) - bisect_left(
                self._ticks, begin, key=_instant
            )

    @property
    def response(self) -> Response:
        """How the power meter responds."""
        return self._response

    def head(self, begin: float) -> Head | None:
        """What a window begun at `begin` must keep before it is forgotten; `None` if unknown."""
        with self.lock:
            first = bisect_left(self._ticks, begin, key=_instant)
            if first >= len(self._ticks):
                return None
            tick = self._ticks[first]
            return Head(*self._local(begin, tick.instant), tick)

    def energy(self, begin: float, end: float, head: Head | None = None) -> Energy:
        """Energy of a window.

        Args:
            begin: Instant it began.
            end: Instant it ended.
            head: What it kept, if it began long ago.
        """
        with self.lock:
            trouble = self.senses.trouble
            if trouble is not None and end > self.last_look:
                return Energy(None, Method.UNAVAILABLE, note=str(trouble))
            if not self._ticks:
                return self._by_power(begin, end)
            last = bisect_right(self._ticks, end, key=_instant) - 1
            if head is None:
                first = bisect_left(self._ticks, begin, key=_instant)
                if last - first + 1 >= _MANY_TICKS:
                    head = Head(*self._local(begin, self._ticks[first].instant), self._ticks[first])
            elif last < 0 or self._ticks[last].instant < head.tick.instant:
                head = None
            if head is None:
                joules, variance = self._local(begin, end)
            else:
                joules, variance = self._from_tick(head, self._ticks[last], end)
            most = _MOST_POWER * self._max_power * (end - begin)
            if not 0 <= joules <= most:  # no GPU draws that: what was learned does not fit
                variance += (joules - min(max(joules, 0.0), most)) ** 2 + most**2 / 12
                joules = self._interpolated(end, most) - self._interpolated(begin, most)
            inside = last >= 0 and self._ticks[last].instant >= begin
            return Energy(joules, self._method(inside), _spread(variance), self._note())

    def _interpolated(self, instant: float, most: float) -> float:
        """The counter at an instant, as if power were constant between ticks."""
        at = bisect_right(self._ticks, instant, key=_instant)
        if 0 < at < len(self._ticks):
            one, other = self._ticks[at - 1], self._ticks[at]
            share = (instant - one.instant) / (other.instant - one.instant)
            return one.joules + share * (other.joules - one.joules)
        near = self._ticks[min(at, len(self._ticks) - 1)]
        watts = self._last.watts if self._last is not None and self._last.watts else most / 2
        return near.joules + watts * (instant - near.instant)

    def _from_tick(self, head: Head, last: Tick, end: float) -> tuple[float, float]:
        after, variance = self._local(last.instant, end)
        counted = last.joules - head.tick.joules
        watts = counted / max(last.instant - head.tick.instant, 1e-9)
        variance += head.variance + (head.tick.spread**2 + last.spread**2) * watts**2
        return head.joules + counted + after, variance

    def _local(self, begin: float, end: float) -> tuple[float, float]:
        """Energy by the model, given the refreshes around."""
        pieces = self._edges.pieces(begin, end)
        if not pieces:
            return 0.0, 0.0
        told, levels = self._around(begin, end)
        return conditioned(levels, told, [pieces])[0]

    def _around(
        self, begin: float, end: float, *, counted: bool = False
    ) -> tuple[list[Integral], Levels]:
        """The equations about some time and its neighborhood, and what was known before them."""
        margin = self.ticks.period or 0.05
        near = [
            told
            for told in self._told
            if told.end > begin - margin
            and told.begin < end + margin
            and (told.counted or not counted)
        ]
        if len(near) > _MAX_EQUATIONS:
            middle = (begin + end) / 2
            near.sort(key=lambda told: (not told.counted, abs(told.begin + told.end - 2 * middle)))
            near = near[:_MAX_EQUATIONS]
        first = min((told.end for told in near if told.counted), default=math.inf)
        levels = next((known for at, known in self._before if at >= first - 1e-9), self._levels)
        return near, levels.snapshot()

    def _by_power(self, begin: float, end: float) -> Energy:
        watts = self._last.watts if self._last is not None else None
        if watts is None:
            return Energy(None, Method.UNAVAILABLE, note="nothing was seen of this GPU yet")
        joules = watts * (end - begin)
        return Energy(joules, Method.ESTIMATED, max(joules, _MILLIJOULE), self._note())

    def _method(self, inside: bool) -> Method:
        if not inside:
            return Method.ESTIMATED
        return Method.COUNTER if self._counts else Method.INTEGRATED

    def _note(self) -> str:
        if self._counts:
            return ""
        source = "mean power over about a second" if self.senses.averaged else "instantaneous power"
        return f"{self._credibility.note or self.senses.counter_note}; integrated from {source}"


def _instant(tick: Tick) -> float:
    return tick.instant


def _spread(variance: float) -> float:
    """Two standard deviations, but never less than the drivers' unit."""
    return max(2 * math.sqrt(variance), _MILLIJOULE)


__all__ = ["EnergyEstimator", "Head", "Piece", "Tick"]
