"""The record of changed GPU settings, for people: who holds what, and what comes back."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

from zeus.device import Node
from zeus.device.journal import Entry, Value, journal_path, recorded_gpus
from zeus.device.state import state_directory

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
    """All holds on record, from the oldest to the latest of each knob.

    Records are replaced as a whole, so reading needs no lock. What cannot be read is left out:
    whoever changes the knob next keeps such a file and says so.
    """
    found: list[RecordedHold] = []
    for gpu in sorted(recorded_gpus()):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            for knob, stack in _read(state_directory() / "holds" / f"{gpu}.json").items():
                found += [
                    RecordedHold(gpu, knob, depth, entry, entry.abandoned())
                    for depth, entry in enumerate(stack)
                ]
    return found


def _read(path: Path) -> dict[str, list[Entry]]:
    record = json.loads(path.read_text(encoding="utf-8"))
    return {
        str(knob): [Entry(**entry) for entry in stack] for knob, stack in record["knobs"].items()
    }


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
