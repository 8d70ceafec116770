"""How often a client may ask."""

from __future__ import annotations

from collections.abc import Callable

_MAX_CLIENTS = 10_000


class RateLimit:
    """A token bucket for each client: a number of requests at once, then so many per minute.

    Args:
        per_minute: Requests per minute; as many may come at once.
        clock: Monotonic clock in seconds.
    """

    def __init__(self, per_minute: float, clock: Callable[[], float]) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def wait(self, client: str) -> float:
        """Count a request; return the seconds until it is allowed, 0 if it is now."""
        now = self._clock()
        if len(self._left) >= _MAX_CLIENTS:
            self._left = {name: kept for name, kept in self._left.items() if kept[1] > now - 60}
        left, at = self._left.get(client, (self._per_minute, now))
        left = min(left + (now - at) * self._per_minute / 60, self._per_minute)
        if left < 1:
            return (1 - left) * 60 / self._per_minute
        self._left[client] = left - 1, now
        return 0.0
