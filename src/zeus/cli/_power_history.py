"""Power of GPUs over time, for graphs.

On this machine a `PowerMonitor` samples it, several times per redrawn screen: what happens between
two of them is in the graph, and in the highest power. Of other nodes, what they publish is kept.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from zeus.device import Node
from zeus.errors import ZeusError
from zeus.monitor._power import PowerDomain, PowerMonitor
from zeus.monitor._timeline import Timeline

_CAPACITY = 20_000  # samples per GPU: an hour at five per second; older ones become coarser
_PERIOD = 0.2  # seconds between samples of a GPU
_MAX_RATE = 80.0  # samples per second of all GPUs together, for the sake of CPU time
_LONGEST_GAP = 3.0  # seconds between samples; a longer pause is shown as a gap
_MISSED = 4  # periods without a sample, likewise
_MAX_GAPS = 200


class PowerHistory:
    """Power of one GPU over time.

    Args:
        level: Whether samples are means since the previous sample.
        longest_gap: Seconds between two samples, beyond which power is unknown there.

    Attributes:
        highest: Highest power in watts; `None` before the first sample.
        since: Instant of the first sample.
    """

    def __init__(self, *, level: bool = False, longest_gap: float = _LONGEST_GAP) -> None:
        self.highest: float | None = None
        self.since = math.inf
        self.last = -math.inf
        self._longest_gap = longest_gap
        self._timeline = Timeline(_CAPACITY, level=level)
        self._gaps: deque[tuple[float, float]] = deque(maxlen=_MAX_GAPS)

    def add(self, instant: float, watts: float, highest: float | None = None) -> None:
        """Add a sample, unless it is not newer than the last.

        Args:
            instant: In seconds of the monotonic clock.
            watts: Power.
            highest: Highest power since the previous sample, if that is known to be another.
        """
        if instant <= self.last:
            return
        if instant - self.last > self._longest_gap and self.since < instant:
            self._gaps.append((self.last, instant))
        self.since = min(self.since, instant)
        self.last = instant
        self.highest = max(watts if highest is None else highest, self.highest or 0.0)
        self._timeline.append(instant, watts)

    def means(self, end: float, span: float, bins: int) -> list[float | None]:
        """Return mean powers of consecutive times of equal length; `None` where it is unknown.

        Their edges are the same from call to call, so that a graph moves by whole columns.

        Args:
            end: Instant within the last of them.
            span: Seconds of all together.
            bins: Number of them.
        """
        length = span / bins
        after = math.floor(end / length) + 1
        edges = [number * length for number in range(after - bins, after + 1)]
        return [self._mean(low, high) for low, high in pairwise(edges)]

    def mean(self, start: float, end: float) -> float | None:
        """Return the mean power within a time, as far as it was sampled."""
        low, high = max(start, self.since), min(end, self.last)
        joules = self._timeline.integral(low, high) if low < high else None
        return None if joules is None else joules / (high - low)

    def energy(self) -> float | None:
        """Return the integral of all samples, in joules; `None` if there is only one."""
        return self._timeline.integral(self.since, self.last) if self.since < self.last else None

    def _mean(self, low: float, high: float) -> float | None:
        if high <= self.since or low >= self.last:
            return None
        middle = (low + high) / 2
        if any(begun < middle < ended for begun, ended in self._gaps):
            return None
        return self.mean(low, high)


class NodePower:
    """Histories of the GPUs of this machine, from its monitor.

    Args:
        node: The machine.
        gpu_indices: Its GPUs.
    """

    def __init__(self, node: Node, gpu_indices: Sequence[int]) -> None:
        self._node = node
        self._period = max(_PERIOD, len(gpu_indices) / _MAX_RATE)
        longest_gap = max(_LONGEST_GAP, _MISSED * self._period)
        self._histories = {index: PowerHistory(longest_gap=longest_gap) for index in gpu_indices}
        self._monitors: list[tuple[PowerDomain, PowerMonitor]] = []
        if not gpu_indices:
            return
        if node.clock.virtual:
            self._begin()
        else:
            # The first samples may wait for a driver that hangs; the screen does not.
            threading.Thread(target=self._begin, name="zeus-history", daemon=True).start()

    def _begin(self) -> None:
        left = list(self._histories)
        for domain in (PowerDomain.DEVICE_INSTANT, PowerDomain.DEVICE_AVERAGE):
            if not left:
                return
            try:
                monitor = PowerMonitor(
                    left, self._period, _CAPACITY, [domain], cpu_indices=[], node=self._node
                )
            except ZeusError:
                return  # a GPU without power has no graph, and its row says why
            self._monitors.append((domain, monitor))
            left = [index for index in left if index not in monitor.device_domains]

    def update(self) -> None:
        """Take the monitor's new samples."""
        for domain, monitor in list(self._monitors):
            for index in monitor.gpu_indices:
                history = self._histories[index]
                start = history.last if math.isfinite(history.last) else None
                found = monitor.get_power_timeline(domain, index, start)
                for instant, watts in found.get(index, ()):
                    history.add(instant, watts)

    def of(self, index: int) -> PowerHistory:
        """Return the history of a GPU."""
        return self._histories[index]

    def stop(self) -> None:
        """End sampling, and take the last samples."""
        for _, monitor in list(self._monitors):
            monitor.stop()
        self.update()
