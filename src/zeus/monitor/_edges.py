"""The instants at which windows begin and end, which is when load changes.

All windows of a process share one log of edges. Between two edges lies a segment: the same windows
are open throughout, and segments with the same open windows are expected to draw similar power.
"""

from __future__ import annotations

import math
import re
import threading
from bisect import bisect_right
from collections import Counter, deque
from typing import NamedTuple

#: Names of the open windows, sorted; names that differ only in their numbers count as the same.
Names = tuple[str, ...]

_NUMBERS = re.compile(r"\d+")
_SETTING = 2  # how a setting counts among the names that are open; a window counts 1
_MAX_PIECES = 64  # per time span; if there are more, they are merged by name


class Piece(NamedTuple):
    """A part of a segment."""

    segment: int  # number of the segment; negative for merged parts of many segments
    names: Names  # windows that are open in it
    begin: float  # first instant, in seconds; `end` is the last
    end: float


class WindowEdges:
    """Edges of windows. Any thread may record them; queries for segments take a lock."""

    def __init__(self) -> None:
        self._recorded: deque[tuple[float, str, int]] = deque()
        self._keys: dict[str, str] = {}
        self._open: Counter[str] = Counter()
        self._setting = ""
        self._instants = [-math.inf]
        self._names: list[Names] = [()]
        self._first = 0  # number of the oldest retained segment
        self._merged_count = 0
        self._lock = threading.Lock()

    def begin(self, name: str, now: float) -> None:
        """Record that a window begins."""
        self._recorded.append((now, name, 1))

    def end(self, name: str, now: float) -> None:
        """Record that a window ends."""
        self._recorded.append((now, name, -1))

    def change_setting(self, setting: str, now: float) -> None:
        """Record that a knob was changed: windows draw different power under each setting."""
        if setting == self._setting:
            return
        if self._setting:
            self._recorded.append((now, self._setting, -_SETTING))
        if setting:
            self._recorded.append((now, setting, _SETTING))
        self._setting = setting

    def pieces(self, begin: float, end: float) -> list[Piece]:
        """Return the segments between two instants, clipped to them."""
        with self._lock:
            self._apply_recorded()
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
            return found if len(found) <= _MAX_PIECES else self._merged(found)

    def _merged(self, pieces: list[Piece]) -> list[Piece]:
        """Merge many short pieces into one per kind, in sequence: only lengths matter."""
        lengths: dict[Names, float] = {}
        for piece in pieces:
            lengths[piece.names] = lengths.get(piece.names, 0.0) + piece.end - piece.begin
        found, now = [], pieces[0].begin
        for names, length in lengths.items():
            self._merged_count += 1
            found.append(Piece(-self._merged_count, names, now, now + length))
            now += length
        return found

    def forget(self, before: float) -> None:
        """Drop edges older than an instant."""
        with self._lock:
            self._apply_recorded()
            cut = bisect_right(self._instants, before) - 1
            if cut > 0:
                del self._instants[:cut], self._names[:cut]
                self._first += cut

    def reset_after_fork(self) -> None:
        """Replace the lock: a thread of the parent may have held it."""
        self._lock = threading.Lock()

    def _key(self, name: str) -> str:
        """Return the name without its numbers: all steps of a loop count as alike."""
        key = self._keys.get(name)
        if key is None:
            if len(self._keys) > 1000:
                self._keys.clear()
            key = self._keys[name] = _NUMBERS.sub("#", name)
        return key

    def _apply_recorded(self) -> None:
        while self._recorded:
            now, name, change = self._recorded.popleft()
            # Numbers distinguish settings, but not windows.
            key = name if abs(change) == _SETTING else self._key(name)
            self._open[key] += change
            if self._open[key] <= 0:
                del self._open[key]
            # A thread may record an instant after another thread has recorded a later one.
            now = max(now, self._instants[-1])
            names = tuple(sorted(self._open))
            if now == self._instants[-1]:
                self._names[-1] = names
            else:
                self._instants.append(now)
                self._names.append(names)
