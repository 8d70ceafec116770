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


class Piece(NamedTuple):
    """A part of a segment.

    Attributes:
        segment: Number of the segment.
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
        self._open: Counter[str] = Counter()
        self._instants = [-math.inf]
        self._names: list[Names] = [()]
        self._first = 0  # number of the oldest segment that is kept
        self._lock = threading.Lock()

    def begin(self, name: str, now: float) -> None:
        """A window begins."""
        self._noted.append((now, name, 1))

    def end(self, name: str, now: float) -> None:
        """A window ends."""
        self._noted.append((now, name, -1))

    def pieces(self, begin: float, end: float) -> list[Piece]:
        """The segments between two instants, as far as they lie there."""
        with self._lock:
            self._take_in()
            at = max(bisect_right(self._instants, begin) - 1, 0)
            found = []
            while at < len(self._instants) and self._instants[at] < end:
                low = max(begin, self._instants[at])
                high = min(end, self._instants[at + 1] if at + 1 < len(self._instants) else end)
                if high > low:
                    found.append(Piece(self._first + at, self._names[at], low, high))
                at += 1
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

    def _take_in(self) -> None:
        while self._noted:
            now, name, change = self._noted.popleft()
            key = _NUMBERS.sub("#", name)
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
