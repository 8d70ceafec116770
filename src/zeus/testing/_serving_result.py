"""Results of a simulated server: energy, latencies, and what was held when."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from zeus.optimizer.serving._interval import E2E, TPOT, TTFT, ServingSetting
from zeus.testing._serving_events import ServedRequest

INTERVAL = 60.0  # seconds in which bounds are checked


@dataclass(frozen=True)
class Held:
    """A setting from an instant on.

    Attributes:
        time: Seconds.
        replica: Index of the replica.
        setting: Setting.
        reason: Why, for people.
    """

    time: float
    replica: int
    setting: ServingSetting
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class ServingResult:
    """Energy and latencies of simulated traffic.

    Attributes:
        seconds: Duration; the same for all replicas.
        replicas: Number of replicas.
        energy: Exact joules of all replicas.
        idle_energy: Those while no request was processed.
        busy: Seconds of all replicas in which work ran, by phase.
        requests: All requests, in the order of replicas and arrivals.
        held: Settings, whenever one changed.
    """

    seconds: float
    replicas: int
    energy: float
    idle_energy: float
    busy: Mapping[str, float]
    requests: Sequence[ServedRequest]
    held: Sequence[Held] = field(default=(), repr=False)

    @property
    def busy_share(self) -> float:
        """Share of the time in which work ran, 0 to 1."""
        total = self.seconds * self.replicas
        return sum(self.busy.values()) / total if total > 0 else 0.0

    @property
    def tokens(self) -> int:
        """Generated tokens."""
        return sum(request.generated for request in self.requests)

    def latencies(self, name: str) -> list[float]:
        """Return the latencies of all requests in seconds.

        Args:
            name: "ttft", "tpot" or "e2e".

        Raises:
            ValueError: If the name is none of these.
        """
        return [value for _, value in self._timed(name)]

    def percentile(self, name: str, percent: float) -> float | None:
        """Return the latency in seconds that `percent` % of requests do not exceed.

        Args:
            name: "ttft", "tpot" or "e2e".
            percent: 0 to 100.

        Returns:
            `None` if there was no such request.

        Raises:
            ValueError: If the name is none of these.
        """
        found = self.latencies(name)
        return _percentile(found, percent) if found else None

    def by_interval(self, name: str, percent: float, seconds: float = INTERVAL) -> dict[int, float]:
        """Return a percentile for each interval in which a latency became known.

        Args:
            name: "ttft" (known at the first token), "tpot" or "e2e" (known at the last).
            percent: 0 to 100.
            seconds: Length of the intervals.

        Returns:
            Seconds by the number of the interval.
        """
        found: dict[int, list[float]] = defaultdict(list)
        for time, value in self._timed(name):
            found[int(time // seconds)].append(value)
        return {index: _percentile(values, percent) for index, values in sorted(found.items())}

    def kept(self, bounds: Iterable[tuple[str, float, float]], seconds: float = INTERVAL) -> float:
        """Return the share of intervals in which all bounds were kept, 0 to 1.

        Args:
            bounds: Name of the latency, percentile, and seconds that it must not exceed.
            seconds: Length of the intervals. Those in which no latency became known are left out.
        """
        seen: set[int] = set()
        broken: set[int] = set()
        for name, percent, bound in bounds:
            found = self.by_interval(name, percent, seconds)
            seen |= set(found)
            broken |= {index for index, value in found.items() if value > bound}
        return 1 - len(broken) / len(seen) if seen else 1.0

    def _timed(self, name: str) -> Iterable[tuple[float, float]]:
        if name == TTFT:
            return ((each.first, each.ttft) for each in self.requests)
        if name == TPOT:
            return ((each.end, each.tpot) for each in self.requests if each.tpot is not None)
        if name == E2E:
            return ((each.end, each.e2e) for each in self.requests)
        raise ValueError(f"name must be one of {TTFT}, {TPOT}, {E2E}, but got {name!r}")


def _percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that `percent` % of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered), math.ceil(len(ordered) * percent / 100)) - 1)]
