"""Releases two answers in step, so that nothing but their words tells them apart.

Models differ in speed, in how they group tokens, and in when they pause. A reader must not see any
of that before the vote. So words wait in a buffer; from one fixed tick to the next, both sides get
the same number of pieces, or neither gets any. The rate is what the slower one can keep up with,
is decided once both have a stock, and stays the same when one answer ends before the other. A frame
has the same size whatever is in it.
"""

from __future__ import annotations

import json
import re
from collections import deque
from dataclasses import dataclass, field

TICK = 0.1  # seconds from frame to frame
FRAME_BYTES = 1024
_STOCK = 12  # pieces that both sides need before the first is shown
_MAX_RATE = 20.0  # pieces per second, for readers
_MIN_RATE = 0.5
_MARGIN = 0.8  # share of the slower model's rate, so that it rarely runs dry
_MAX_PIECES = 2  # in a frame
_PIECE = re.compile(r"\s{0,4}\S{1,16}\s{0,4}|\s{1,8}")


class PieceReader:
    """Cuts a text that arrives in chunks into pieces: words, long ones in parts."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, text: str) -> list[str]:
        """Return the pieces that are complete; the last word may go on in the next chunk."""
        found = _PIECE.findall(self._rest + text)
        self._rest = found.pop() if found else ""
        return found

    def rest(self) -> list[str]:
        """Return the last piece, at the end of the text."""
        rest, self._rest = self._rest, ""
        return [rest] if rest else []


@dataclass
class _Side:
    pieces: deque[str] = field(default_factory=deque)
    reader: PieceReader = field(default_factory=PieceReader)
    received: int = 0
    first: float | None = None
    last: float = 0.0
    ended: bool = False

    @property
    def ready(self) -> bool:
        return self.ended or len(self.pieces) >= _STOCK

    @property
    def rate(self) -> float:
        """Pieces per second so far."""
        if self.first is None or self.last <= self.first or self.received < 2:
            return _MAX_RATE
        return (self.received - 1) / (self.last - self.first)


class Pacer:
    """Two answers on their way to a reader. Knows no clock: callers pass the time."""

    def __init__(self) -> None:
        self._sides = (_Side(), _Side())
        self._rate: float | None = None
        self._credit = 0.0

    def feed(self, side: int, text: str, now: float) -> None:
        """Take text of a model.

        Args:
            side: 0 for the left, 1 for the right.
            text: The text.
            now: Time in seconds.
        """
        self._take(self._sides[side], self._sides[side].reader.feed(text), now)

    def end(self, side: int, now: float) -> None:
        """Note that an answer is complete."""
        self._take(self._sides[side], self._sides[side].reader.rest(), now)
        self._sides[side].ended = True

    def _take(self, side: _Side, pieces: list[str], now: float) -> None:
        if pieces:
            side.first = now if side.first is None else side.first
            side.last = now
            side.received += len(pieces)
            side.pieces.extend(pieces)

    @property
    def finished(self) -> bool:
        """Whether both answers are complete and released."""
        return all(side.ended and not side.pieces for side in self._sides)

    def tick(self) -> tuple[str, str]:
        """Return what both sides get in this tick; often nothing."""
        left, right = self._sides
        if self._rate is None:
            if not (left.ready and right.ready):
                return "", ""
            self._rate = self._affordable()
        self._credit = min(self._credit + self._rate * TICK, float(_MAX_PIECES))
        count = int(self._credit)
        if not count:
            return "", ""
        if any(not side.ended and len(side.pieces) < count for side in self._sides):
            # One of them is late, so both wait, and go on more slowly. Never faster: that would
            # show that the slower one has ended.
            self._rate = min(self._rate, self._affordable())
            return "", ""
        self._credit -= count
        return _taken(left, count), _taken(right, count)

    def _affordable(self) -> float:
        slower = min(side.rate for side in self._sides)
        return min(max(_MARGIN * slower, _MIN_RATE), _MAX_RATE)


def _taken(side: _Side, count: int) -> str:
    return "".join(side.pieces.popleft() for _ in range(min(count, len(side.pieces))))


def frame(left: str, right: str, state: str = "") -> bytes:
    """Return a frame: a line of JSON of `FRAME_BYTES` bytes.

    Args:
        left: Words for the left side; `right` those for the right.
        right: See there.
        state: Not empty in the last frame: "answered" or "ended".
    """
    parts = {"left": left, "right": right, "state": state, "pad": ""}
    bare = json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode()
    return bare[:-2] + b" " * (FRAME_BYTES - len(bare) - 1) + bare[-2:] + b"\n"


def printable(text: str) -> str:
    """Return a model's text without what no page or file can hold."""
    text = text.encode("utf-8", "replace").decode()
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )
