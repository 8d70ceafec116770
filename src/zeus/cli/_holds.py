"""The record of changed GPU settings, for people: who holds what, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass

from zeus.device import Node
from zeus.device.journal import Entry, Value, journal_path, recorded_stacks

_KNOBS = {
    "power_limit": "power limit",
    "graphics_clock": "graphics clock lock",
    "memory_clock": "memory clock lock",
}


@dataclass(frozen=True)
class RecordedHold:
    """One hold on one knob of one GPU, with its place in the stack of holds on that knob."""

    gpu: str
    knob: str
    depth: int
    entry: Entry
    abandoned: bool

    @property
    def knob_name(self) -> str:
        """The knob in words."""
        return _KNOBS.get(self.knob, self.knob.replace("_", " "))


def recorded_holds() -> list[RecordedHold]:
    """All holds on record, from the oldest to the latest of each knob."""
    return [
        RecordedHold(gpu, knob, depth, entry, entry.abandoned())
        for gpu, stacks in recorded_stacks().items()
        for knob, stack in stacks.items()
        for depth, entry in enumerate(stack)
    ]


def gpu_names(node: Node) -> dict[str, str]:
    """What to call each GPU, by the name of its record: visible ones as the user counts them."""
    names = {journal_path(d.identity.key).stem: d.identity.name for d in node.drivers}
    names |= {journal_path(gpu.key).stem: f"GPU {gpu.index} {gpu.name}" for gpu in node.gpus}
    return names


def show_value(knob: str, value: Value) -> str:
    """A knob's value with its unit."""
    if value is None:
        return "unlocked"
    if isinstance(value, list):
        low, high = value
        return f"{high} MHz" if low == high else f"{low}-{high} MHz"
    return f"{value:g} W" if knob == "power_limit" else f"{value}"
