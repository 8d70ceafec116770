"""`zeus frontier`: time and energy at each setting of a knob, and the choice of each objective.

With `--json`, one object: `title`, `gpu`, `gpus`, `knob`, `job` and `batch_size` (null where not
known), `frontier` (as `Frontier.from_dict` reads it), `on_frontier` (indices of its Pareto-optimal
points), `reference` (the setting compared with), `choices` and `figures` (files that were written).
A choice has `objective` and `note` and, unless it could not be made (then they are
null): `knob`, `time` (s), `energy` (J), `average_power` (W), `time_change` and `energy_change`
(0.1 is 10 % more than the reference), `cost`, `feasible` and `tie`. If the file has several
profiles and none is selected: `profiles`, each with the first six keys and `number`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zeus.cli import NOT_KEPT
from zeus.cli import _objectives as objectives
from zeus.cli._output import PreparedFile, prepared
from zeus.cli._parser import UsageError, add_json_output_options
from zeus.cli._profiles import Saved, matching, read, simulate
from zeus.cli._terminal import MISSING, Console, clean
from zeus.drawing._files import kind_of
from zeus.drawing.frontier import KINDS, compared, count, knob_label, rendered, rows
from zeus.errors import FrontierError, PictureError
from zeus.frontier import Objective, Point, Selection, ZeusCost
from zeus.monitor._measurement import show_energy

_STEP = 25.0  # W


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.usage = "zeus frontier FILE|--simulate GPU:DATASET[:BATCH_SIZE] [options]"
    parser.description = (
        "Show time and energy of a fixed amount of work at each setting of a knob, and which "
        "setting each objective chooses. FILE is a frontier (JSON), profiles saved by an optimizer "
        "(JSON), or a log of windows whose names end in the power limit (CSV)."
    )
    parser.epilog = """\
examples:
  zeus frontier profiles.json --job resnet50 --figure frontier.html
  zeus frontier --simulate v100:imagenet --eta 0.7
  zeus frontier log.csv --deadline 12 --figure frontier.svg --figure frontier.png"""
    parser.add_argument("file", nargs="?", metavar="FILE", help="frontier, profiles or log")
    parser.add_argument(
        "--simulate",
        metavar="JOB",
        help="instead of FILE: a recorded job on a simulated GPU, such as v100:imagenet:256",
    )
    parser.add_argument(
        "--step",
        type=float,
        metavar="W",
        help=f"watts between the power limits that --simulate tries (default: {_STEP:g})",
    )
    several = parser.add_argument_group("profile, if the file has several")
    several.add_argument("--gpu", metavar="NAME", help="GPU whose name contains NAME")
    several.add_argument("--job", metavar="NAME", help="name of the job")
    several.add_argument("--batch-size", type=int, metavar="N", help="batch size")
    several.add_argument("--profile", type=int, metavar="N", help="number in the list")
    wanted = parser.add_argument_group("objectives")
    objectives.add_options(wanted, objectives.all_objectives(), defaults=True)
    wanted.add_argument(
        "--max-power",
        type=float,
        metavar="W",
        help="maximum power of all GPUs together, for ZeusCost (default: as the file states)",
    )
    wanted.add_argument(
        "--times",
        type=float,
        metavar="N",
        help="scale the work by N, such as from a step to a whole training run",
    )
    parser.add_argument(
        "--figure",
        action="append",
        default=[],
        metavar="FILE",
        help="save a figure: .svg, .png, or .html with a slider over eta; may be repeated",
    )
    add_json_output_options(parser, "one object")


def run(arguments: argparse.Namespace) -> int:
    """Read the frontier, select, print and plot."""
    with _wrong_values():
        figures = {name: kind_of(name, KINDS) for name in arguments.figure}
    console = Console(sys.stdout)
    saved = _sources(arguments)
    if len(saved) > 1:
        return _list(console, saved, arguments)
    (one,) = saved.values()
    with _wrong_values():
        shown = _Shown(_adjusted(one, arguments), _chosen_by(arguments))
    with contextlib.ExitStack() as stack:
        files = [
            (
                stack.enter_context(contextlib.closing(PreparedFile(name))),
                shown.figure(kind, arguments.eta.eta_knob),
            )
            for name, kind in figures.items()
        ]
        output = stack.enter_context(prepared(arguments.json))
        for file, content in files:
            file.write_bytes(content)
        if output is not None:
            output.write(json.dumps(shown.to_dict() | {"figures": list(figures)}, indent=2))
    if arguments.json != "-":
        saved_files = [*figures, *([arguments.json] if arguments.json else [])]
        console.print(*shown.lines(console), *(f"Saved {name}" for name in saved_files))
    return NOT_KEPT if shown.unkept else 0


@contextlib.contextmanager
def _wrong_values() -> Any:
    """Report invalid values as usage errors."""
    try:
        yield
    except (FrontierError, PictureError) as error:
        raise UsageError(str(error)) from None


def _chosen_by(arguments: argparse.Namespace) -> dict[str, Objective]:
    """Return the objectives by label: those with a default or no value, and those given."""
    found: dict[str, Objective] = {}
    for entry in objectives.all_objectives():
        objective = objectives.given(arguments, entry) if entry.options else entry.kind()
        if objective is not None:
            found[entry.label(objective)] = objective
    return found


# --- input --------------------------------------------------------------------------------------


def _sources(arguments: argparse.Namespace) -> dict[int, Saved]:
    """Return the selected profiles by their number in the file.

    Raises:
        UsageError: If no profile matches, or options conflict.
    """
    if (arguments.file is None) == (arguments.simulate is None):
        raise UsageError(
            "give either a FILE or --simulate, as in `zeus frontier --simulate v100:imagenet`"
        )
    asked = {
        "--gpu": arguments.gpu,
        "--job": arguments.job,
        "--batch-size": arguments.batch_size,
        "--profile": arguments.profile,
    }
    given = [name for name, value in asked.items() if value is not None]
    if arguments.simulate is not None:
        if given:
            raise UsageError(f"{given[0]} selects a profile of a FILE, not of --simulate")
        step = _STEP if arguments.step is None else arguments.step
        if not 1 <= step <= 1000:
            raise UsageError(f"`1 <= step <= 1000` (watts) must hold, but got --step {step:g}")
        return {1: simulate(arguments.simulate, step)}
    if arguments.step is not None:
        raise UsageError("--step can be used with --simulate only")
    saved = read(Path(arguments.file))
    if not saved:
        raise UsageError(f"{arguments.file} has no profile")
    if arguments.profile is not None and not 1 <= arguments.profile <= len(saved):
        raise UsageError(
            f"`1 <= profile <= {len(saved)}` must hold for {arguments.file}, but got --profile "
            f"{arguments.profile}"
        )
    found = matching(saved, gpu=arguments.gpu, job=arguments.job, batch_size=arguments.batch_size)
    if arguments.profile is not None:
        found = [position for position in found if position + 1 == arguments.profile]
    if not found:
        words = " ".join(f"{name} {asked[name]}" for name in given)
        there = "; ".join(clean(one.title) for one in saved)
        raise UsageError(f"{arguments.file} has no profile for {words}; it has: {there}")
    return {position + 1: saved[position] for position in found}


def _adjusted(saved: Saved, arguments: argparse.Namespace) -> Saved:
    frontier = saved.frontier
    if arguments.max_power is not None:
        frontier = replace(frontier, max_power=arguments.max_power, max_power_per_gpu=None)
    if arguments.times is not None:
        frontier = frontier.scaled(arguments.times)
    return replace(saved, frontier=frontier)


def _list(console: Console, saved: dict[int, Saved], arguments: argparse.Namespace) -> int:
    """List the matching profiles, so that the user can select one."""
    if arguments.figure:
        raise UsageError(
            f"{len(saved)} profiles of {arguments.file} match; select one with --gpu, "
            f"--job, --batch-size or --profile (without --figure they are listed)"
        )
    if arguments.json:
        listed = [
            {"number": number, "title": one.title, **one.to_dict()} for number, one in saved.items()
        ]
        with contextlib.closing(PreparedFile(arguments.json)) as output:
            output.write(json.dumps({"profiles": listed}, indent=2))
        return 0
    table = [("no.", "job", "batch size", "GPUs", "knob", "points")]
    for number, one in saved.items():
        gpus = f"{one.gpus or '?'} x {one.gpu}" if one.gpu else str(one.gpus or MISSING)
        table.append(
            (
                str(number),
                clean(one.job or MISSING),
                str(one.batch_size or MISSING),
                clean(gpus),
                (one.knob or one.frontier.knob_name).replace("_", " "),
                str(len(one.frontier)),
            )
        )
    console.print(
        f"{arguments.file} has {len(saved)} profiles"
        + (" that match:" if len(saved) < max(saved) else ":"),
        *console.table(table, right=(0, 2, 5), indent="  "),
        "Select one with --gpu, --job, --batch-size or --profile NUMBER.",
    )
    return 0


# --- output -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Choice:
    """The selection of an objective, or why there is none."""

    objective: str
    selection: Selection | None
    problem: str = ""

    @property
    def note(self) -> str:
        return self.problem if self.selection is None else self.selection.note

    @property
    def verdict(self) -> str:
        if self.selection is None:
            return "unknown"
        if not self.selection.feasible:
            return "not kept"
        return "tie" if self.selection.tie else ""

    def to_dict(self, reference: Point) -> dict[str, Any]:
        result: dict[str, Any] = {"objective": self.objective, "note": self.note}
        names = ("knob", "time", "energy", "average_power", "time_change", "energy_change", "cost",
                 "feasible", "tie")  # fmt: skip
        if self.selection is None:
            return result | dict.fromkeys(names)
        point = self.selection.point
        energy_change = None if reference.energy == 0 else -point.savings(reference)
        values = (point.knob, point.time, point.energy, point.average_power,
                  point.slowdown(reference) - 1, energy_change, self.selection.cost,
                  self.selection.feasible, self.selection.tie)  # fmt: skip
        return result | dict(zip(names, values, strict=True))


class _Shown:
    """A frontier, and the selection of each objective."""

    def __init__(self, saved: Saved, objectives: dict[str, Objective]) -> None:
        self.saved = saved
        self.frontier = saved.frontier
        self.reference = saved.reference
        self.choices = [self._choice(name, objective) for name, objective in objectives.items()]

    @property
    def unkept(self) -> bool:
        """Whether an objective is kept by no point."""
        return any(
            choice.selection is not None and not choice.selection.feasible
            for choice in self.choices
        )

    def _choice(self, name: str, objective: Objective) -> _Choice:
        try:
            return _Choice(name, objective.select(self.frontier))
        except FrontierError as error:
            entry = objectives.entry_of(objective)
            lacks = entry is not None and entry.needs == "max_power"
            return _Choice(name, None, f"{error}{'; set it with --max-power' if lacks else ''}")

    def figure(self, kind: str, eta: float) -> bytes:
        # On an HTML page, the slider shows the choice of ZeusCost.
        chosen = {
            choice.objective: choice.selection
            for choice in self.choices
            if choice.selection is not None
            and not (kind == ".html" and choice.objective.startswith(ZeusCost.__name__))
        }
        return rendered(
            self.frontier,
            kind,
            chosen=chosen,
            title=self.saved.title,
            reference=self.reference,
            eta_knob=eta,
        )

    def to_dict(self) -> dict[str, Any]:
        best = set(self.frontier.pareto())
        content = self.frontier.to_dict()
        return {
            "title": self.saved.title,
            **self.saved.to_dict(),
            "frontier": content,
            "on_frontier": [index for index, point in enumerate(self.frontier) if point in best],
            "reference": content["points"][self.frontier.points.index(self.reference)]["knob"],
            "choices": [choice.to_dict(self.reference) for choice in self.choices],
        }

    def lines(self, console: Console) -> list[str]:
        table = [tuple(map(clean, row)) for row in rows(self.frontier, self.reference)]
        reference = self._label(self.reference)
        chosen: list[tuple[str, ...]] = [("objective", "choice", "Δ time", "Δ energy", "")]
        for choice in self.choices:
            cells = (MISSING, MISSING, MISSING)
            if choice.selection is not None:
                point = choice.selection.point
                cells = (self._label(point), *compared(point, self.reference))
            chosen.append((choice.objective, *cells, choice.verdict))
        return [
            console.style(clean(f"{self.saved.title}: {count(self.frontier)}"), "bold"),
            "",
            *_headed(console, console.table(table, right=range(len(table[0]) - 1), indent="  ")),
            "",
            *_headed(console, console.table(chosen, right=(1, 2, 3), indent="  ")),
            "",
            f"Δ is relative to {reference}, {show_energy(self.reference.energy)}. "
            "* marks Pareto-optimal settings.",
            *(
                f"{choice.objective}: {clean(choice.note)}."
                for choice in self.choices
                if choice.note
            ),
        ]

    def _label(self, point: Point) -> str:
        return clean(knob_label(point.knob, self.frontier.knob_unit))


def _headed(console: Console, lines: Sequence[str]) -> list[str]:
    return [console.style(lines[0], "dim"), *lines[1:]]
