"""The parts of a system on a chip, which report their values all at once."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from zeus.errors import CapabilityError, Reason

if TYPE_CHECKING:
    from zeus.clock import Clock

_TOGETHER = 2e-3  # seconds; requests this close together share one reading


class SharedReading:
    """Reads all parts once for all requests about single parts at the same moment.

    Args:
        read: Reads the values of all parts.
        clock: The node's clock.
    """

    def __init__(self, read: Callable[[], Mapping[str, float]], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._at = -math.inf
        self._values: Mapping[str, float] = {}

    def of(self, part: str) -> float:
        """Return the value of a part.

        Raises:
            CapabilityError: If the chip, or this part of it, does not answer now.
        """
        with self._lock:
            if not 0 <= self._clock.now() - self._at < _TOGETHER:
                self._values = self._read()
                self._at = self._clock.now()
            value = self._values.get(part)
        if value is None:
            raise CapabilityError(Reason.LOST, f"{part} does not answer")
        return value
