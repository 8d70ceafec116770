"""The summary of `zeus top` at its end: energy and power of every GPU since its start."""

from __future__ import annotations

from collections.abc import Sequence

from zeus.cli._gpu_rows import Frame, GpuRow
from zeus.cli._gpu_table import THIS_NODE, show
from zeus.cli._terminal import MISSING, Console
from zeus.monitor._measurement import show_seconds

_JOULES_PER_KWH = 3.6e6
_LONG = 10.0  # seconds of which a tick of an energy counter is no more than a hundredth


class Peaks:
    """Highest power seen, of each GPU and of all together."""

    def __init__(self) -> None:
        self._of_gpus: dict[tuple[str, str, int], float] = {}
        self.together: float | None = None

    def add(self, frame: Frame) -> None:
        """Take the powers of a frame."""
        powers = [row.gpu.power for row in frame.rows if row.gpu.power is not None]
        if powers:
            self.together = max(sum(powers), self.together or 0.0)
        for row in frame.rows:
            if row.gpu.power is not None:
                highest = self._of_gpus.get(row.identity, 0.0)
                self._of_gpus[row.identity] = max(row.gpu.power, highest)

    def of(self, row: GpuRow) -> float | None:
        """Return the highest power of a GPU, also between two frames where that was sampled."""
        sampled = row.history.highest if row.history is not None else None
        known = [each for each in (sampled, self._of_gpus.get(row.identity)) if each is not None]
        return max(known, default=None)


def summary(console: Console, frame: Frame, peaks: Peaks) -> list[str]:
    """Return time, energy, and mean and highest power of every GPU, and of all."""
    lines = [f"{show_seconds(round(frame.elapsed, 1))} of `zeus top`"]
    if not frame.rows:
        return lines
    table = [["node", "GPU", "name", "energy", "", "mean", "highest"]]
    for row in frame.rows:
        gpu = row.gpu
        cells = _cells(gpu.energy, _mean(row), peaks.of(row))
        table.append([row.node or THIS_NODE, f"{gpu.index}", gpu.name, *cells])
    if len(frame.rows) > 1:
        energy = _sum([row.gpu.energy for row in frame.rows])
        mean = _sum([_mean(row) for row in frame.rows])
        table.append(["", "all", "", *_cells(energy, mean, peaks.together)])
    right = (1, 3, 4, 5, 6)
    if not frame.nodes:
        table = [cells[1:] for cells in table]
        right = (0, 2, 3, 4, 5)
    return [*lines, *console.table(table, right=right, heading=True)]


def _cells(energy: float | None, mean: float | None, highest: float | None) -> list[str]:
    kwh = MISSING if energy is None else f"{energy / _JOULES_PER_KWH:.4g} kWh"
    return [show(energy, "J"), kwh, show(mean, "W"), show(highest, "W")]


def _mean(row: GpuRow) -> float | None:
    if row.history is not None and row.seconds < _LONG:
        return row.history.mean(row.history.since, row.history.last)
    if row.gpu.energy is None or row.seconds <= 0:
        return None
    return row.gpu.energy / row.seconds


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
