"""Rows of `zeus top`: GPUs of this machine and of others, and their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zeus.cli._power_history import PowerHistory
from zeus.cli._snapshot import CpuReading, GpuReading, Snapshot, SocReading


@dataclass(frozen=True)
class Holder:
    """A process that holds a knob of a GPU.

    Attributes:
        knob: The knob, in words.
        value: Its value, with unit.
        user: The user; empty if unknown.
        detail: Process and job.
    """

    knob: str
    value: str
    user: str
    detail: str = ""


@dataclass(frozen=True)
class GpuRow:
    """A GPU with what is known beside its reading.

    Attributes:
        gpu: Its reading.
        node: The other node that it is in; empty for this machine.
        history: Its power over time.
        holders: Who holds its knobs.
        seconds: For how long its energy was counted.
    """

    gpu: GpuReading
    node: str = ""
    history: PowerHistory | None = None
    holders: tuple[Holder, ...] = ()
    seconds: float = 0.0

    @property
    def identity(self) -> tuple[str, str, int]:
        """What names this GPU, whatever the order of rows."""
        return self.node, self.gpu.key, self.gpu.index


@dataclass(frozen=True)
class Frame:
    """All that one screen shows.

    Attributes:
        elapsed: Seconds since the start.
        rows: GPUs, those of this machine first.
        cpus: CPU packages, each with its node.
        soc: The system on a chip of this machine.
        nodes: Why other nodes show nothing, by name; `None` for one that responds.
        now: Instant, in seconds of the monotonic clock.
    """

    elapsed: float
    rows: tuple[GpuRow, ...]
    cpus: tuple[tuple[str, CpuReading], ...] = ()
    soc: SocReading | None = None
    nodes: dict[str, str | None] | None = None
    now: float = 0.0


def frame_of(snapshot: Snapshot) -> Frame:
    """Return this machine's snapshot alone."""
    return Frame(
        snapshot.elapsed,
        tuple(GpuRow(gpu, seconds=snapshot.elapsed) for gpu in snapshot.gpus),
        tuple(("", cpu) for cpu in snapshot.cpus),
        snapshot.soc,
    )


SORTS: dict[str, Callable[[GpuReading], float | None]] = {
    "index": lambda _: None,  # as they are
    "power": lambda gpu: gpu.power,
    "energy": lambda gpu: gpu.energy,
    "utilization": lambda gpu: gpu.utilization,
    "temperature": lambda gpu: gpu.temperature,
}
"""Orders of GPUs by name: the largest first, but indices from 0 on."""


def sorted_rows(rows: Sequence[GpuRow], sort: str, *, reverse: bool = False) -> list[GpuRow]:
    """Return rows in an order; those whose value is unknown are last in any.

    Args:
        rows: Rows in the order of nodes and indices.
        sort: One of `SORTS`.
        reverse: Whether the smallest is first, and the highest index.
    """
    if sort == "index":
        return list(reversed(rows)) if reverse else list(rows)
    value = SORTS[sort]
    known = [row for row in rows if value(row.gpu) is not None]
    known.sort(key=lambda row: value(row.gpu) or 0.0, reverse=not reverse)
    return known + [row for row in rows if value(row.gpu) is None]
