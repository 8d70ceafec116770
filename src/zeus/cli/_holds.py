"""Shows recorded holds on GPU settings: their values, processes, and what is restored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zeus.cli._terminal import Console
from zeus.device import Node
from zeus.device._records import (
    KNOBS,
    POWER_LIMIT,
    Entry,
    UnreadableRecord,
    Value,
    record_name,
    recorded_stacks,
)

_NAMES = dict(zip(KNOBS, ("power limit", "graphics clock lock", "memory clock lock"), strict=True))


@dataclass(frozen=True)
class RecordedHold:
    """One hold on one knob of one GPU, with its depth in the stack of holds on that knob."""

    gpu: str
    knob: str
    depth: int
    entry: Entry
    abandoned: bool

    @property
    def knob_name(self) -> str:
        """Return the name of the knob for messages."""
        return _NAMES[self.knob]

    def to_dict(self) -> dict[str, Any]:
        """Return the hold in the form of JSON."""
        entry = self.entry
        return {
            "gpu": self.gpu,
            "knob": self.knob,
            "value": entry.value,
            "previous": entry.previous,
            "pid": entry.pid,
        }


def recorded_holds() -> tuple[list[RecordedHold], list[UnreadableRecord]]:
    """Return all recorded holds, the oldest of each knob first; and unreadable records."""
    found, unreadable = recorded_stacks()
    holds = [
        RecordedHold(gpu, knob, depth, entry, entry.abandoned())
        for gpu, stacks in found.items()
        for knob, stack in stacks.items()
        for depth, entry in enumerate(stack)
    ]
    return holds, unreadable


def gpu_names(node: Node) -> dict[str, str]:
    """Return the display name of each GPU by record name; visible GPUs with their index."""
    names = {record_name(d.identity.key): d.identity.name for d in node.drivers}
    names |= {record_name(gpu.key): f"GPU {gpu.index} {gpu.name}" for gpu in node.gpus}
    return names


def show_value(knob: str, value: Value) -> str:
    """Format the value of a knob with its unit."""
    if value is None:
        return "unlocked"
    if isinstance(value, list):
        low, high = value
        return f"{high} MHz" if low == high else f"{low}-{high} MHz"
    return f"{value:g} W" if knob == POWER_LIMIT else f"{value}"


def unreadable_lines(console: Console, records: Sequence[UnreadableRecord]) -> list[str]:
    """Return lines about unreadable records, and how to fix them."""
    if not records:
        return []
    rows = [(f"{record.path}", record.why) for record in records]
    title = "Unreadable records of changed settings: their GPUs are not touched"
    cures = dict.fromkeys(record.error().cure for record in records)
    return [
        console.style(title, "red"),
        *console.table(rows, indent="  "),
        *(f"  → {cure}" for cure in cures),
    ]
