"""When windows began and ended, which is when load changes.

All windows of a process share one log of edges. Between two edges lies a segment: the same windows
are open all through it, and segments with the same windows open are expected to draw alike.
"""

from __future__ import annotations

import math
import re
import threading
from bisect import bisect_right
from collections import Counter, deque
from typing import NamedTuple

#: Names of the windows that are open, sorted; numbers in names count as one.
Names = tuple[str, ...]

_NUMBERS = re.compile(r"\d+")
_MAX_PIECES = 64  # of one span; more are taken together by name


class Piece(NamedTuple):
    """A part of a segment.

    Attributes:
        segment: Number of the segment; below zero for parts of many that were taken together.
        names: Windows that are open in it.
        begin: Instant; `end` likewise.
    """

    segment: int
    names: Names
    begin: float
    end: float


class WindowEdges:
    """Edges of windows. They may be noted in any thread; who asks for segments takes turns."""

    def __init__(self) -> None:
        self._noted: deque[tuple[float, str, int]] = deque()
        self._keys: dict[str, str] = {}
        self._open: Counter[str] = Counter()
        self._setting = ""
        self._instants = [-math.inf]
        self._names: list[Names] = [()]
        self._first = 0  # number of the oldest segment that is kept
        self._taken_together = 0
        self._lock = threading.Lock()

    def begin(self, name: str, now: float) -> None:
        """A window begins."""
        self._noted.append((now, name, 1))

    def end(self, name: str, now: float) -> None:
        """A window ends."""
        self._noted.append((now, name, -1))

    def change_setting(self, setting: str, now: float) -> None:
        """A knob was turned: windows draw otherwise than under another setting of it."""
        if setting == self._setting:
            return
        if self._setting:
            self._noted.append((now, self._setting, -1))
        if setting:
            self._keys[setting] = setting  # its numbers do count
            self._noted.append((now, setting, 1))
        self._setting = setting

    def pieces(self, begin: float, end: float) -> list[Piece]:
        """The segments between two instants, as far as they lie there."""
        with self._lock:
            self._take_in()
            instants, names, first = self._instants, self._names, self._first
            at = max(bisect_right(instants, begin) - 1, 0)
            last = len(instants) - 1
            found = []
            while at <= last and instants[at] < end:
                low, high = instants[at], instants[at + 1] if at < last else end
                low = max(low, begin)
                high = min(high, end)
                if high > low:
                    found.append(Piece(first + at, names[at], low, high))
                at += 1
            return found if len(found) <= _MAX_PIECES else self._together(found)

    def _together(self, pieces: list[Piece]) -> list[Piece]:
        """Many short pieces as one of each kind, one after the other: lengths are what counts."""
        lengths: dict[Names, float] = {}
        for piece in pieces:
            lengths[piece.names] = lengths.get(piece.names, 0.0) + piece.end - piece.begin
        found, now = [], pieces[0].begin
        for names, length in lengths.items():
            self._taken_together += 1
            found.append(Piece(-self._taken_together, names, now, now + length))
            now += length
        return found

    def forget(self, before: float) -> None:
        """Drop edges from before an instant."""
        with self._lock:
            self._take_in()
            cut = bisect_right(self._instants, before) - 1
            if cut > 0:
                del self._instants[:cut], self._names[:cut]
                self._first += cut

    def reset_after_fork(self) -> None:
        """A thread of the parent may have held the lock."""
        self._lock = threading.Lock()

    def _key(self, name: str) -> str:
        """The name without its numbers: the steps of a loop are alike, whatever their count."""
        key = self._keys.get(name)
        if key is None:
            if len(self._keys) > 1000:
                self._keys.clear()
            key = self._keys[name] = _NUMBERS.sub("#", name)
        return key

    def _take_in(self) -> None:
        while self._noted:
            now, name, change = self._noted.popleft()
            key = self._key(name)
            self._open[key] += change
            if self._open[key] <= 0:
                del self._open[key]
            # Threads may note an instant after another has noted a later one.
            now = max(now, self._instants[-1])
            names = tuple(sorted(self._open))
            if now == self._instants[-1]:
                self._names[-1] = names
            else:
                self._instants.append(now)
                self._names.append(names)
