"""Runs of one traffic under static settings, each simulated once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zeus._rules import Number
from zeus.errors import TraceError
from zeus.optimizer.serving._interval import TPOT, TTFT, ServingSetting
from zeus.testing import ServingResult, ServingWorkload, Traffic, simulate_serving
from zeus.testing._serving_simulation import Controller

PERCENT = 99.0
LEAST_BUSY, MOST_BUSY = 0.5, 0.7
_WANTED_BUSY = 0.6
_LOWEST_SHARE = 0.49  # of the highest clock; nothing was measured below
_STEP_SHARE = 0.02
_RUNG = 0.95  # of the clock above, as where a controller acts on real GPUs
_MAX_REPLICAS = 10_000


@dataclass(frozen=True)
class Bounds:
    """Bounds on the 99th percentiles.

    Attributes:
        ttft: Seconds to the first token.
        tpot: Seconds per token after the first.
    """

    ttft: float
    tpot: float

    def kept_by(self, result: ServingResult) -> bool:
        """Whether the percentiles over the whole traffic are within the bounds.

        Args:
            result: A run.
        """
        ttft, tpot = result.percentile(TTFT, PERCENT), result.percentile(TPOT, PERCENT)
        return (ttft is None or ttft <= self.ttft) and (tpot is None or tpot <= self.tpot)

    def kept_share(self, result: ServingResult) -> float:
        """Return the share of 60-s intervals in which the bounds were kept, 0 to 1.

        Args:
            result: A run.
        """
        return result.kept([(TTFT, PERCENT, self.ttft), (TPOT, PERCENT, self.tpot)])


class Runs:
    """Runs of one traffic on simulated servers.

    Args:
        workload: Model and GPU.
        traffic: Requests.
        replicas: Number of servers.
        options: Further arguments of `simulate_serving`, the same for all runs.

    Raises:
        ValueError: If there is no request.
    """

    def __init__(
        self,
        workload: ServingWorkload,
        traffic: Traffic,
        replicas: int,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if not len(traffic):
            raise TraceError("a replay needs at least one request, but the traffic has none")
        self.workload = workload
        self.traffic = traffic
        self.replicas = replicas
        self._options = dict(options or {})
        self._static: dict[ServingSetting, ServingResult] = {}

    @property
    def default(self) -> ServingResult:
        """The run at the highest clock."""
        return self.static(self.workload.highest)

    def static(self, setting: ServingSetting) -> ServingResult:
        """Return the run under a setting that never changes.

        Args:
            setting: MHz of each phase.
        """
        if setting not in self._static:
            self._static[setting] = simulate_serving(
                self.workload,
                self.traffic,
                replicas=self.replicas,
                setting=setting,
                **self._options,
            )
        return self._static[setting]

    def controlled(self, controller: Callable[[int], Controller], interval: float) -> ServingResult:
        """Return a run under a controller.

        Args:
            controller: Makes the controller of a replica from its index.
            interval: Seconds between its decisions.
        """
        return simulate_serving(
            self.workload,
            self.traffic,
            replicas=self.replicas,
            controller=controller,
            interval=interval,
            **self._options,
        )

    def bounds(self, factor: float) -> Bounds:
        """Return bounds that are multiples of the default's percentiles.

        Args:
            factor: From 1 on.

        Raises:
            ValueError: If the factor is below 1.
        """
        Number(1).check("factor", factor, TraceError)
        ttft = self.default.percentile(TTFT, PERCENT)
        tpot = self.default.percentile(TPOT, PERCENT)
        return Bounds(factor * (ttft or 0.0), factor * (tpot or 0.0))

    def clocks(self) -> tuple[float, ...]:
        """Return the clocks that are tried, highest first: steps of 2 %, down to 49 %."""
        every = self.workload.clocks()
        step = max(1, round(_STEP_SHARE * every[0] / self.workload.clock_step))
        return tuple(each for each in every[::step] if each >= _LOWEST_SHARE * every[0])

    def rungs(self) -> tuple[float, ...]:
        """Return the clocks that controllers choose from, highest first: steps of 5 %."""
        every = self.workload.clocks()
        chosen = [every[0]]
        for clock in every:
            if clock <= _RUNG * chosen[-1] and clock >= _LOWEST_SHARE * every[0]:
                chosen.append(clock)
        return tuple(chosen)


def suitable_replicas(
    workload: ServingWorkload, traffic: Traffic, options: Mapping[str, Any] | None = None
) -> int:
    """Return the number of servers that are closest to 60 % busy at the highest clock.

    Busy is a server with at least one request. One server is the least, even if it is less busy.

    Args:
        workload: Model and GPU.
        traffic: Requests.
        options: Further arguments of `simulate_serving`.

    Raises:
        ValueError: If there is no request.
    """
    top = workload.highest_clock
    token = workload.decode(top, 1, 500)[0]
    alone = sum(workload.prefill(top, p)[0] + (g - 1) * token for _, p, g in traffic)
    number = max(1, min(_MAX_REPLICAS, round(alone / max(traffic.seconds, 1.0) / _WANTED_BUSY)))
    tried: dict[int, float] = {}
    while number not in tried and len(tried) < 8:
        tried[number] = Runs(workload, traffic, number, options).default.busy_share
        if LEAST_BUSY + 0.05 <= tried[number] <= MOST_BUSY - 0.05:
            break
        # Fewer servers have larger batches, so they are busy for less time together: go halfway.
        middle = round((number + number * tried[number] / _WANTED_BUSY) / 2)
        if middle == number:
            middle += 1 if tried[number] > _WANTED_BUSY else -1
        number = max(1, min(_MAX_REPLICAS, middle))
    return min(tried, key=lambda each: abs(tried[each] - _WANTED_BUSY))
