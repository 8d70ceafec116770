"""When an energy counter was refreshed, for counters without timestamps.

Counters are refreshed periodically. Polled densely for a few refreshes, period and phase are known
roughly, and from then on exactly by single refreshes at growing distances. So a value that is read
at any instant can be dated by its refresh.
"""

from __future__ import annotations

import math

_DENSE = 0.002  # seconds between polls while searching
_GIVE_UP = 0.5  # seconds of a first search
_RETRY = 30.0  # seconds after one that found nothing
_FIRST_CHECK = 0.2  # seconds after the first search
_LAST_CHECK = 15.0  # seconds between later ones
_MARGIN = 0.006  # seconds before a refresh is expected
_CLOSE = 0.003  # seconds by which an expected refresh may be off
_LIVE = 2.5 * _DENSE  # a shorter period is none
_USUAL = 0.1  # seconds, of counters of which nothing is known
_MOVED = 0.25  # of a period: a refresh so far from where it is expected is another rhythm


class SearchTurn:
    """Lets one counter of several be searched at a time, as dense polls of many hinder each other.

    Attributes:
        free_at: The instant from which the next search may begin.
    """

    free_at = float("-inf")


class CounterTicks:
    """Period and phase of one energy counter.

    Args:
        period: First guess of the period, in seconds, if there is one.
        turn: Shared with other counters that the same thread polls.
    """

    def __init__(self, period: float | None = None, turn: SearchTurn | None = None) -> None:
        self._turn = turn or SearchTurn()
        self.period = _USUAL if period is None else period
        self._anchor: float | None = None  # a refresh, from which periods are counted
        self._edge = 0.0  # the last refresh that was seen
        self._last: tuple[float, float] | None = None
        self._edges: list[float] = []
        self._search = float("-inf")  # when the next search begins
        self._until = float("inf")
        self._pause = _FIRST_CHECK
        self._length = _GIVE_UP
        self._wrong = 0  # checks in a row that found another rhythm

    @property
    def known(self) -> bool:
        """Whether refreshes are known by their period and phase."""
        return self._anchor is not None

    def next_poll(self, now: float) -> float | None:
        """Return when to read the counter next for a search; `None` if none is due."""
        if now > self._until:
            self._missed(now)
        if now + _DENSE < self._search:
            return self._search
        if self._until == float("inf"):  # it has not begun
            if now < self._turn.free_at:
                self._search = self._turn.free_at
                self._aim()
                return max(self._search, now + _DENSE)
            self._until = now + self._length
            self._turn.free_at = self._until
        return now + _DENSE

    def add(self, now: float, joules: float) -> float | None:
        """Return the instant of a value that was read now: that of its refresh.

        `None` if it was read so close to a refresh that it may be of either side.
        """
        last, self._last = self._last, (now, joules)
        if last is not None and last[1] != joules and self._until < float("inf"):
            if now - last[0] <= 2 * _DENSE:
                self._found((last[0] + now) / 2)
            else:
                self._edges = []  # polled too late to date it, or to know that it was only one
        if self._anchor is None:
            return now - self.period / 2
        if self.period <= _LIVE:
            return now
        instant = self._edge + math.floor((now - self._edge) / self.period) * self.period
        close = min(now - instant, instant + self.period - now) < _CLOSE
        return None if close else instant

    def next_tick(self, now: float) -> float | None:
        """Return the next refresh after an instant, if it is known."""
        if self._anchor is None or self.period <= _LIVE:
            return None
        return self._edge + (math.floor((now - self._edge) / self.period) + 1) * self.period

    def _found(self, edge: float) -> None:
        if self._anchor is None:
            self._edges.append(edge)
            if len(self._edges) < 3:
                return
            self._anchor, self.period = self._edges[0], (edge - self._edges[0]) / 2
        else:
            count = round((edge - self._anchor) / self.period)
            if abs(edge - self._anchor - count * self.period) > _MOVED * self.period:
                self._wrong += 1
                if self._wrong > 2:
                    self._anchor, self._edges, self._pause = None, [], _FIRST_CHECK
                self._missed(edge)
                return
            self.period = (edge - self._anchor) / count
        self._edge, self._wrong = edge, 0
        self._search = edge + self._pause
        self._aim()
        self._pause = min(2 * self._pause, _LAST_CHECK)
        self._end_search(edge)

    def _aim(self) -> None:
        """Begin the next search just before a refresh is expected."""
        expected = self.next_tick(self._search)
        if expected is not None:
            self._search = expected - _MARGIN
            self._length = 2 * _MARGIN + 2 * _DENSE

    def _missed(self, now: float) -> None:
        """Search again later: polls were late, or there is nothing to be found."""
        self._edges = []
        if self._anchor is None:
            self._search, self._length = now + _RETRY, _GIVE_UP
        else:
            self._search = now + self._pause
            self._aim()
        self._end_search(now)

    def _end_search(self, now: float) -> None:
        self._until = float("inf")
        self._turn.free_at = min(self._turn.free_at, now)
