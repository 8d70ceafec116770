"""What the finder of steps learns: how long steps take, and how late tokens are seen."""

from __future__ import annotations

import math

_FOLLOW = 0.01  # weight of a point
_MEMORY = 200  # tokens
_MEAN = 0.8  # of the root mean square, if it is half a normal distribution


class Lateness:
    """How late tokens are seen, from how those of one step spread."""

    def __init__(self) -> None:
        self._square = 0.0
        self._tokens = 0
        #: Root mean square in seconds.
        self.rms = 0.0

    @property
    def mean(self) -> float:
        """Mean in seconds."""
        return _MEAN * self.rms

    def learn(self, squares: float, count: int) -> None:
        """Learn from tokens.

        Args:
            squares: Sum of the squares of how late they were, in s².
            count: Number of tokens.
        """
        self._tokens = min(self._tokens + count, max(_MEMORY, count))
        self._square += (squares - count * self._square) / self._tokens
        self.rms = math.sqrt(max(self._square, 0.0))


class Line:
    """A straight line through recent points, by least squares; neither part is negative."""

    def __init__(self) -> None:
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)  # 1, x, x², y, xy
        self._parts = (0.0, 0.0)

    def at(self, x: float) -> float:
        """Return its value; 0 before the first point."""
        return self._parts[0] + self._parts[1] * x

    def add(self, x: float, y: float) -> None:
        """Add a point."""
        keep = 1 - _FOLLOW
        n, sx, sxx, sy, sxy = self._sums
        n, sx, sxx = n * keep + 1.0, sx * keep + x, sxx * keep + x * x
        sy, sxy = sy * keep + y, sxy * keep + x * y
        self._sums = n, sx, sxx, sy, sxy
        spread = sxx - sx * sx / n
        slope = (sxy - sx * sy / n) / spread if spread > 0.01 * n else 0.0
        slope = min(max(slope, 0.0), sy / sx)
        self._parts = (sy - slope * sx) / n, slope
