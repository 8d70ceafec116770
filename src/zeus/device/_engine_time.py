"""Usage of a GPU by process, from time that a driver adds up for each process."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from zeus.device._base import ProcessUsage

_KEPT = 64  # readings


class EngineTime:
    """Differences of the engine time of processes between readings.

    Several callers may use one, each with intervals of its own.
    """

    def __init__(self) -> None:
        self._readings: deque[tuple[float, dict[int, float]]] = deque(maxlen=_KEPT)

    def usage(self, since: float, now: float, seconds: Mapping[int, float]) -> ProcessUsage:
        """Return the usage from the last reading at or before an instant, to now.

        Args:
            since: The `time.monotonic()` instant.
            now: The instant of this reading.
            seconds: Time for which kernels of each process have run so far, by process number.
        """
        self._readings.append((now, dict(seconds)))
        earlier = [reading for reading in self._readings if reading[0] <= since]
        begin, before = earlier[-1] if earlier else self._readings[0]
        if begin >= now:
            return ProcessUsage(now, now)
        # The time of a new process with the number of an old one begins at 0 again.
        ran = {pid: (total, before.get(pid, 0.0)) for pid, total in seconds.items()}
        shares = {
            pid: min(1.0, (total - earlier if total >= earlier else total) / (now - begin))
            for pid, (total, earlier) in ran.items()
            if total != earlier
        }
        return ProcessUsage(begin, now, shares)
