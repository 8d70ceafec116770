"""`zeus restore`: restore GPU settings left behind by processes that have exited.

With `--json`, one object: `restored`, `refused` and `held`, each a list of objects with `gpu`
(its key), `name`, `knob`, `value` (set by the hold), `previous` (value to restore), `pid`, `note`
and `cure`; and `unreadable`, a list of objects with `gpu`, `path` and `why`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zeus.cli import FAILED
from zeus.cli._holds import RecordedHold, gpu_names, recorded_holds, show_value, unreadable_lines
from zeus.cli._parser import add_json_option
from zeus.cli._terminal import Console
from zeus.device import Node, Problem, current_node
from zeus.device._records import UnreadableRecord
from zeus.state._files import boot_id


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Restore power limits and clocks that processes changed under a hold and left behind when "
        "they were killed or crashed. Zeus also does this automatically the next time it detects "
        "GPUs; this command does it now and reports what was done. Settings held by running "
        "processes are not touched."
    )
    parser.epilog = """\
examples:
  zeus restore
  sudo zeus restore    if setting GPU knobs needs it here

exit codes:
  0  everything is restored, or there was nothing to do
  1  something could not be restored, or a record cannot be read"""
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Restore the settings, then print the outcome."""
    # Detecting GPUs already restores settings, so the records must be read first.
    before, _ = recorded_holds()
    node = current_node()
    _, problems = node.restore()
    after, unreadable = recorded_holds()
    outcome = _compare(node, before, after, problems, unreadable)
    Console(sys.stdout).print_result(outcome, as_json=arguments.json)
    return FAILED if outcome.refused or outcome.unreadable else 0


@dataclass(frozen=True)
class _Line:
    """One hold and its outcome."""

    hold: RecordedHold
    name: str
    note: str
    cure: str = ""

    def to_dict(self) -> dict[str, Any]:
        return self.hold.to_dict() | {"name": self.name, "note": self.note, "cure": self.cure}


@dataclass(frozen=True)
class _Outcome:
    restored: Sequence[_Line]
    refused: Sequence[_Line]
    held: Sequence[_Line]
    unreadable: Sequence[UnreadableRecord]

    def to_dict(self) -> dict[str, Any]:
        return {
            "restored": [line.to_dict() for line in self.restored],
            "refused": [line.to_dict() for line in self.refused],
            "held": [line.to_dict() for line in self.held],
            "unreadable": [record.to_dict() for record in self.unreadable],
        }

    def lines(self, console: Console) -> list[str]:
        lines: list[str] = []
        for title, style, part in (
            ("Restored", "green", self.restored),
            ("Could not be restored", "red", self.refused),
            ("Not touched: held by a running process", "bold", self.held),
        ):
            if part:
                rows = [(line.name, line.hold.knob_name, line.note) for line in part]
                lines += [console.style(title, style), *console.table(rows, indent="  ")]
                lines += [f"  → {cure}" for cure in dict.fromkeys(x.cure for x in part) if cure]
        lines += unreadable_lines(console, self.unreadable)
        if not self.restored and not self.refused and not self.unreadable:
            lines.insert(0, "Nothing to restore.")
        return lines


def _compare(
    node: Node,
    before: Sequence[RecordedHold],
    after: Sequence[RecordedHold],
    problems: Sequence[Problem],
    unreadable: Sequence[UnreadableRecord],
) -> _Outcome:
    names = gpu_names(node)
    left = {hold.entry.id for hold in after}
    obstacles = {problem.what.removeprefix("restoring "): problem for problem in problems}
    return _Outcome(
        [
            _Line(hold, names.get(hold.gpu, hold.gpu), _restored_note(hold, after))
            for hold in before
            if hold.abandoned and hold.entry.id not in left
        ],
        [_refused_line(hold, names, obstacles) for hold in after if hold.abandoned],
        [
            _Line(hold, names.get(hold.gpu, hold.gpu), _held_note(hold))
            for hold in after
            if not hold.abandoned
        ],
        unreadable,
    )


def _restored_note(hold: RecordedHold, after: Sequence[RecordedHold]) -> str:
    entry = hold.entry
    was = f"was {show_value(hold.knob, entry.value)} by process {entry.pid}"
    previous = show_value(hold.knob, entry.previous)
    if entry.boot != boot_id():
        return f"{was} before the machine was rebooted, which restored it"
    holder = next((h for h in after if (h.gpu, h.knob) == (hold.gpu, hold.knob)), None)
    if holder is not None:
        return f"{was}; process {holder.entry.pid} holds it now and restores {previous}"
    return f"{previous} ({was})"


def _held_note(hold: RecordedHold) -> str:
    entry = hold.entry
    return f"{show_value(hold.knob, entry.value)} by process {entry.pid}"


def _refused_line(
    hold: RecordedHold, names: Mapping[str, str], obstacles: Mapping[str, Problem]
) -> _Line:
    wanted = f"{show_value(hold.knob, hold.entry.previous)} (left by process {hold.entry.pid})"
    if hold.gpu not in names:
        return _Line(
            hold,
            hold.gpu,
            f"{wanted}: no such GPU here now",
            "run it on the machine of that GPU; for a simulated one, with the same ZEUS_SIMULATE",
        )
    name = names[hold.gpu]
    # The obstacle names the GPU by its product name only.
    problem = next((p for product, p in obstacles.items() if name.endswith(product)), None)
    if problem is None:
        return _Line(hold, name, wanted)
    error = problem.error
    return _Line(hold, name, f"{wanted}: {error.reason}: {error.detail}", error.cure)
