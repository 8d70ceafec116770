"""`zeus env`: what can be measured and controlled here, what cannot, why, and how to fix it.

With `--json`, one object with these keys:

- `zeus`, `python`, `platform`: versions and system, as text.
- `simulated`: value of `ZEUS_SIMULATE`, or null.
- `drivers`: versions of the loaded GPU kernel drivers, by name.
- `visibility`: the environment variables that hide or reorder GPUs.
- `gpus_on_machine`: number of GPUs, visible or not.
- `gpus`: for each visible GPU `index`, `name`, `vendor`, `key`, `pci_address`, `whole_module` and
  `capabilities`: by name, an object with `available`, `reason`, `detail`, `cure`.
- `cpus`: for each package `index`, `name`, and `energy` and `dram` in the form of a capability.
- `soc`: `name` and `parts`, or null.
- `problems`: devices that were found but cannot be used: `what`, `reason`, `detail`, `cure`.
- `agent`: the node agent that sets knobs for this process: `socket`, `zeus` (its version) and
  `leases`, as `zeus agent leases --json` prints them; null without one.
- `holds`: GPU settings changed under a hold: `gpu`, `knob`, `value`, `previous`, `pid`.
- `records`: where holds are recorded: `place`, and `shared`, whether all users of the machine see
  it; `unreadable`: records that cannot be read, with `gpu`, `path` and `why`.
- `extensions`: what other distributions add to Zeus: `group`, `name`, `value`, `distribution` and
  `problem`, why it is not used.
- `frameworks`: whether each framework that windows can wait for is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from zeus import __version__
from zeus._extensions import Extension
from zeus.cli import FAILED
from zeus.cli._extension_list import extension_lines, installed_extensions
from zeus.cli._holds import RecordedHold, gpu_names, recorded_holds, show_value, unreadable_lines
from zeus.cli._parser import add_json_option
from zeus.cli._terminal import Console, number_ranges, sections
from zeus.device import Capability, Gpu, Node, Soc, Support, current_node
from zeus.device._record_places import machine_place
from zeus.device._records import UnreadableRecord, record_name
from zeus.device._vendors import vendors, visibility_variables
from zeus.errors import CapabilityError, KnobError
from zeus.monitor._sync import FRAMEWORKS
from zeus.state._files import in_container

Answers = Mapping[Capability, Support]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Show what can be measured and controlled on this machine, what cannot, why, and how to "
        "fix it. Nothing is changed: permission to set the power limit is tested by setting it to "
        "its current value."
    )
    parser.epilog = """\
examples:
  zeus env
  zeus env --json | jq '.gpus[].name'

exit codes:
  0  success
  1  a record of changed settings cannot be read"""
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the report."""
    report = Report.of(current_node())
    Console(sys.stdout).print_result(report, as_json=arguments.json)
    return FAILED if report.unreadable else 0


@dataclass(frozen=True)
class Report:
    """Capabilities, problems and holds of a node."""

    node: Node
    answers: Sequence[Answers]
    cpus: Sequence[tuple[Support, Support]]
    soc_parts: Sequence[str]
    holds: Sequence[RecordedHold]
    unreadable: Sequence[UnreadableRecord]
    extensions: Sequence[Extension]

    @classmethod
    def of(cls, node: Node) -> Report:
        """Query all devices; GPUs in parallel, so that one that hangs delays no other."""
        gpus = list(node.gpus)
        with ThreadPoolExecutor(max(len(gpus), 1)) as threads:
            answers = list(threads.map(_ask_gpu, gpus))
        return cls(
            node,
            answers,
            [(_tried(cpu.energy), _tried(cpu.dram_energy)) for cpu in node.cpus],
            _parts(node.soc),
            *recorded_holds(),
            installed_extensions(node),
        )

    # --- JSON -------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the report in the form of JSON; see the module docstring."""
        node = self.node
        return {
            "zeus": __version__,
            "python": platform.python_version(),
            "platform": f"{platform.system()} {platform.machine()}",
            "simulated": node.simulated or None,
            "drivers": _driver_versions(),
            "visibility": _visibility(),
            "gpus_on_machine": len(node.drivers),
            "gpus": [
                _gpu_record(gpu, answers)
                for gpu, answers in zip(node.gpus, self.answers, strict=True)
            ],
            "cpus": [
                {"index": cpu.index, "name": cpu.name, "energy": asdict(own), "dram": asdict(dram)}
                for cpu, (own, dram) in zip(node.cpus, self.cpus, strict=True)
            ],
            "soc": {"name": node.soc.name, "parts": list(self.soc_parts)} if node.soc else None,
            "problems": [
                {
                    "what": problem.what,
                    "reason": problem.error.reason,
                    "detail": problem.error.detail,
                    "cure": problem.error.cure,
                }
                for problem in node.problems
            ],
            "agent": _agent_record(node),
            "holds": [hold.to_dict() for hold in self.holds],
            "records": _records_kept(),
            "unreadable": [record.to_dict() for record in self.unreadable],
            "extensions": [asdict(each) for each in self.extensions],
            "frameworks": _frameworks(),
        }

    # --- text -------------------------------------------------------------------------------

    def lines(self, console: Console) -> list[str]:
        """Return the report as text."""
        empty = not self.node.gpus and not self.node.cpus and self.node.soc is None
        return sections(
            [
                self._about(console),
                ["Only time can be measured on this machine."] if empty else [],
                *self._gpu_blocks(console),
                self._host_block(console),
                self._problem_block(console),
                self._hold_block(console),
                unreadable_lines(console, self.unreadable),
                extension_lines(console, self.extensions),
                _SIMULATION_HINT if empty else [],
            ]
        )

    def _about(self, console: Console) -> list[str]:
        node = self.node
        rows = [("system", f"{platform.system()} {platform.machine()}")]
        rows += [("driver", f"{name} {version}") for name, version in _driver_versions().items()]
        if node.simulated:
            rows.append(("GPUs", f"simulated: {node.simulated} (ZEUS_SIMULATE)"))
        hidden = len(node.drivers) - len(node.gpus)
        variables = [f"{name}={value}" for name, value in _visibility().items()]
        if variables:
            suffix = f" (hides {hidden} of {len(node.drivers)} GPUs)" if hidden > 0 else ""
            rows.append(("visible", " ".join(variables) + suffix))
        installed = [name for name, there in _frameworks().items() if there]
        waits = f"{', '.join(installed)} (windows wait for it)" if installed else "none installed"
        rows.append(("framework", waits))
        if node.agent is not None:
            about = f"Zeus {node.agent.version} at {node.agent.path}"
            rows.append(("agent", f"{about}; it sets knobs, as its policy allows"))
        elif node.gpus and not node.simulated:
            rows.append(("agent", "none; knobs are set by this process, if it may"))
            rows.append(("records", _where_kept()))
        title = f"Zeus {__version__}, Python {platform.python_version()}"
        return [console.style(title, "bold"), *console.table(rows, indent="  ")]

    def _gpu_blocks(self, console: Console) -> list[list[str]]:
        """Return one block per group of GPUs with the same model and capabilities."""
        groups: dict[tuple[object, ...], list[int]] = {}
        for position, (gpu, answers) in enumerate(zip(self.node.gpus, self.answers, strict=True)):
            alike = (gpu.name, gpu.identity.whole_module, tuple(answers.items()))
            groups.setdefault(alike, []).append(position)
        return [self._gpu_block(console, positions) for positions in groups.values()]

    def _gpu_block(self, console: Console, positions: Sequence[int]) -> list[str]:
        gpus = [self.node.gpus[position] for position in positions]
        numbers = number_ranges([gpu.index for gpu in gpus])
        lines = [console.style(f"GPU {numbers}  {gpus[0].name}", "bold")]
        lines += console.table(
            [(f"{gpu.index}", gpu.key, gpu.identity.pci_address or "") for gpu in gpus], indent="  "
        )
        if gpus[0].identity.whole_module:
            lines.append("  Readings cover the whole module, of which this GPU is a part.")
        return [*lines, "", *_answer_lines(console, self.answers[positions[0]])]

    def _host_block(self, console: Console) -> list[str]:
        lines: list[str] = []
        for cpu, (own, dram) in zip(self.node.cpus, self.cpus, strict=True):
            lines.append(console.style(f"CPU {cpu.index}  {cpu.name}", "bold"))
            lines += _support_rows(console, [("package energy", own), ("DRAM energy", dram)])
        if self.node.soc is not None:
            lines.append(console.style(f"SoC  {self.node.soc.name}", "bold"))
            lines.append(f"  energy of {', '.join(self.soc_parts)}")
        return lines

    def _problem_block(self, console: Console) -> list[str]:
        if not self.node.problems:
            return []
        cells: list[tuple[str, ...]] = []
        for problem in self.node.problems:
            cells.append((problem.what, _why(problem.what, Support.refused(problem.error))))
            cells += _cure_row(console, problem.error.cure, 1)
        return [console.style("Cannot be used", "bold"), *console.table(cells, indent="  ")]

    def _hold_block(self, console: Console) -> list[str]:
        names, leases = gpu_names(self.node), _leases(self.node)
        agent = _agent_process(self.node)
        leased = {(_record(lease), lease["knob"], str(lease["value"])) for lease in leases}
        rows = [
            (
                names.get(hold.gpu, hold.gpu),
                hold.knob_name,
                show_value(hold.knob, hold.entry.value),
                f"left by process {hold.entry.pid}; run `zeus restore`"
                if hold.abandoned
                else f"{'ceiling of the node agent' if own else f'set by process {hold.entry.pid}'}"
                f"; {show_value(hold.knob, hold.entry.previous)} is restored when it ends",
            )
            for hold in self.holds
            # Its record of a lease is shown with who has it.
            if not (own := hold.entry.pid == agent)
            or (hold.gpu, hold.knob, str(hold.entry.value)) not in leased
        ]
        rows += [
            (
                names.get(_record(lease), lease["gpu"]["name"]),
                lease["knob"].replace("_", " "),
                show_value(lease["knob"], lease["value"]),
                f"leased by {lease['holder']['user']}, process {lease['holder']['pid']}; "
                f"{show_value(lease['knob'], lease['previous'])} is restored when it ends",
            )
            for lease in leases
        ]
        if not rows:
            return []
        order = list(names.values())
        rows.sort(key=lambda row: order.index(row[0]) if row[0] in order else len(order))
        title = console.style("Settings changed under a hold", "bold")
        return [title, *console.table(rows, indent="  ")]


def _record(lease: dict[str, Any]) -> str:
    return record_name(lease["gpu"]["key"])


def _agent_process(node: Node) -> int | None:
    """Return the process of the node's agent, if it answers."""
    with contextlib.suppress(CapabilityError, KnobError, OSError, KeyError, TypeError):
        if node.agent is not None:
            return int(node.agent.client.request("status")["pid"])
    return None


def _leases(node: Node) -> list[dict[str, Any]]:
    """Return the leases on knobs of the node's agent."""
    if node.agent is None:
        return []
    try:
        found = node.agent.client.request("leases")
    except (CapabilityError, KnobError, OSError):
        return []
    return found if isinstance(found, list) else []


def _agent_record(node: Node) -> dict[str, Any] | None:
    if node.agent is None:
        return None
    agent = node.agent
    return {"socket": str(agent.path), "zeus": agent.version, "leases": _leases(node)}


_SIMULATION_HINT = [
    "You can try Zeus without hardware, on simulated GPUs:",
    "",
    "  ZEUS_SIMULATE=v100x4 zeus demo",
]


def _answer_lines(console: Console, answers: Answers) -> list[str]:
    different = set(answers.values())
    if len(different) == 1 and not (only := different.pop()).available:
        return _support_rows(console, [("everything", only)])  # the GPU is lost, or hangs
    return _support_rows(console, list(answers.items()))


def _support_rows(console: Console, rows: Sequence[tuple[str, Support]]) -> list[str]:
    cells: list[tuple[str, ...]] = []
    for name, support in rows:
        if support.available:
            cells.append((name, console.style("yes", "green"), ""))
            continue
        cells.append((name, console.style("no", "red"), _why(name, support)))
        cells += _cure_row(console, support.cure, 2)
    return console.table(cells, indent="  ")


def _cure_row(console: Console, cure: str, column: int) -> list[tuple[str, ...]]:
    return [(*([""] * column), console.style(f"→ {cure}", "cyan"))] if cure else []


def _why(name: str, support: Support) -> str:
    detail = support.detail
    if detail.lower() == name.lower():
        detail = ""
    return ": ".join(part for part in (support.reason, detail) if part)


def _ask_gpu(gpu: Gpu) -> dict[Capability, Support]:
    answers = {capability: gpu.support(capability) for capability in Capability}
    return {
        capability: replace(support, detail=_without_name(support.detail))
        for capability, support in answers.items()
    }


def _without_name(detail: str) -> str:
    """Remove the capability name from a detail: the row already shows it."""
    subject, _, reason = detail.partition(": ")
    return reason if subject in (*Capability, "power", "power field") else detail


def _tried(read: Callable[[], float]) -> Support:
    try:
        read()
    except CapabilityError as error:
        return Support.refused(error)
    return Support(True)


def _parts(soc: Soc | None) -> list[str]:
    if soc is None:
        return []
    try:
        return list(soc.energies() or soc.powers() or {})
    except CapabilityError:
        return []


def _gpu_record(gpu: Gpu, answers: Answers) -> dict[str, Any]:
    return {
        "index": gpu.index,
        "name": gpu.name,
        "vendor": gpu.identity.vendor,
        "key": gpu.key,
        "pci_address": gpu.identity.pci_address,
        "whole_module": gpu.identity.whole_module,
        "capabilities": {
            capability.replace(" ", "_"): asdict(support) for capability, support in answers.items()
        },
    }


def _visibility() -> dict[str, str]:
    return {name: os.environ[name] for name in visibility_variables() if name in os.environ}


def _frameworks() -> dict[str, bool]:
    """Return which frameworks are installed; importing them may allocate GPU memory."""
    return {name: importlib.util.find_spec(name) is not None for name in FRAMEWORKS}


def _records_kept() -> dict[str, Any]:
    try:
        place = machine_place()
    except OSError:
        return {"place": None, "shared": False}
    return {"place": str(place.directory), "shared": place.shared}


def _where_kept() -> str:
    """Describe where holds are recorded, and who sees them: others may undo unshared ones."""
    kept = _records_kept()
    if kept["place"] is None:
        return "none: no directory is writable, so settings cannot be changed"
    if not kept["shared"]:
        return f"of changed settings in {kept['place']}: other users do not see them"
    return f"of changed settings in {kept['place']}, for all users" + (
        "; in a container, mount the host's /run/zeus to share them" if in_container() else ""
    )


def _driver_versions() -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in filter(None, (vendor.kernel_driver for vendor in vendors())):
        try:
            text = Path(f"/sys/module/{name}/version").read_text(encoding="utf-8").strip()
        except OSError:
            continue
        versions[name] = text
    return versions
