"""`zeus plan`: the clocks at which a training pipeline wastes the least energy.

With `--json`, a list of the frontier's points by rising `time` (s), each with `energy` (J, over all
GPUs, including waiting) and `lower_bound` (J, for any plan of this time). The selected one also has
`plan`: one entry per operation, by `start` (s), with `device`, `stage`, `instruction`,
`microbatch`, `frequency` (MHz; null if none is set), `label` (if the option has one), `time` (s),
`energy` (J, of a GPU), and `not_before` (s) if it must not start earlier; and `peak_power` and
`lowest_power` (W, of all GPUs, at any moment).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from zeus.cli import NOT_KEPT, print_message
from zeus.cli import _objectives as objectives
from zeus.cli._output import PreparedFile
from zeus.cli._parser import UsageError, add_json_output_options, number, whole_number
from zeus.cli._solver_progress import showing
from zeus.cli._terminal import Console
from zeus.drawing._files import kind_of, rendered
from zeus.errors import FrontierError, PictureError, PipelineError, StageProfileError
from zeus.frontier import Deadline, Objective, ObjectiveEntry, Time
from zeus.optimizer.pipeline_frequency import (
    Execution,
    Pipeline,
    Plan,
    Profile,
    Solution,
    build,
    solve,
    solve_capped,
    total_power,
)
from zeus.optimizer.pipeline_frequency._compare import Comparison, compare, read_frontier
from zeus.optimizer.pipeline_frequency._figure import Others, draw
from zeus.optimizer.pipeline_frequency._limit import Limit
from zeus.optimizer.pipeline_frequency._profile import useful
from zeus.optimizer.pipeline_frequency._schedules import all_schedules
from zeus.optimizer.pipeline_frequency._solver import PLANS
from zeus.optimizer.pipeline_frequency._trace import to_trace

_SHOWN = 12  # points of the frontier
_COUNT, _AMOUNT = whole_number(1), number(0.0)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.usage = "zeus plan PROFILE --microbatches N --blocking-power W [options]"
    parser.description = (
        "Find the clock of each computation of a pipeline-parallel training iteration, from "
        "measurements of its stages. PROFILE is a CSV table with the columns stage, instruction, "
        "frequency (MHz), time (s) and energy (J, of one GPU), and label if other things "
        "than clocks are chosen."
    )
    parser.epilog = """\
examples:
  zeus plan profile.csv --microbatches 12 --blocking-power 70.38
  zeus plan profile.csv --microbatches 12 --blocking-power 70.38 --max-slowdown 1.1 --figure p.svg
  zeus plan profile.csv --microbatches 12 --blocking-power 70.38 --communication 0.005,0.005,0.05
  zeus plan profile.csv --microbatches 12 --blocking-power 70.38 --peak-power 2100 --margin 0.05
  zeus plan profile.csv --schedule interleaved --chunks 2 --microbatches 16 \\
      --blocking-power 83.64 --deadline 3.1 --output plan.json --trace plan.trace.json"""
    parser.add_argument("profile", metavar="PROFILE", help="CSV table of measurements")
    what = parser.add_argument_group("pipeline")
    what.add_argument(
        "--schedule", choices=list(all_schedules()), default="1f1b", help="schedule (default: 1f1b)"
    )
    what.add_argument(
        "--microbatches", type=_COUNT, required=True, metavar="N", help="microbatches per batch"
    )
    what.add_argument(
        "--blocking-power",
        type=_AMOUNT,
        required=True,
        metavar="W",
        help="power of a GPU while it waits for another (A40: 70.38, A100: 83.64)",
    )
    what.add_argument(
        "--chunks",
        type=_COUNT,
        metavar="N",
        help="stages per rank, if interleaved or zero-bubble (default: 1; zbv has 2)",
    )
    what.add_argument(
        "--tensor-parallel", type=_COUNT, default=1, metavar="N", help="GPUs per rank (default: 1)"
    )
    what.add_argument(
        "--data-parallel", type=_COUNT, default=1, metavar="N", help="pipelines (default: 1)"
    )
    what.add_argument(
        "--communication",
        type=_link_times,
        metavar="S[,S...]",
        help="seconds to send a result to the neighboring stage: one value for all links, or one "
        "for each link between neighboring stages, such as 0.005,0.005,0.05; S/S if activations "
        "and gradients differ (default: as in PROFILE, or 0)",
    )
    what.add_argument(
        "--blocking-messages",
        action="store_true",
        help="neither rank computes while one sends to the other, as in engines that synchronize "
        "around messages",
    )
    what.add_argument(
        "--data-loading",
        type=_AMOUNT,
        default=0.0,
        metavar="S",
        help="seconds that the first stage waits for each microbatch (default: 0)",
    )
    wanted = parser.add_argument_group(
        "plan to select",
        "By default that of least energy that is as fast as the highest clocks. The deadline may "
        "be the iteration time of a straggler.",
    )
    one = wanted.add_mutually_exclusive_group()
    one.add_argument("--fastest", action="store_true", help="the fastest plan")
    objectives.add_options(one, _choosable())
    bounds = parser.add_argument_group(
        "power of all GPUs together",
        "Kept at every moment of the iteration; only such plans are made.",
    )
    bounds.add_argument("--peak-power", type=_AMOUNT, metavar="W", help="most watts at any moment")
    bounds.add_argument(
        "--power-swing",
        type=_AMOUNT,
        metavar="W",
        help="most watts between the highest and the lowest power, warm-up and cool-down included",
    )
    bounds.add_argument(
        "--margin",
        type=_AMOUNT,
        default=0.0,
        metavar="SHARE",
        help="keep the peak even if the time of each operation varies by this share, such as 0.05 "
        "(default: 0)",
    )
    parser.add_argument(
        "--plans",
        type=_COUNT,
        default=PLANS,
        metavar="N",
        help=f"approximate number of plans to compute (default: {PLANS})",
    )
    parser.add_argument(
        "--compare",
        metavar="FILE",
        help="frontier to compare with: CSV with the columns time, energy",
    )
    add_json_output_options(parser, "the frontier and the plan")
    parser.add_argument(
        "--figure", metavar="FILE", help="draw the pipeline and the frontier: .svg or .png"
    )
    parser.add_argument(
        "--trace", metavar="FILE", help="write a trace for Perfetto or Chrome (JSON)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Read the profile, solve, select a plan, write files, print."""
    with _usage_errors():
        kind = None if arguments.figure is None else kind_of(arguments.figure)
    _check_files(arguments)
    with contextlib.ExitStack() as stack:
        files = {
            name: stack.enter_context(contextlib.closing(PreparedFile(given)))
            for name in ("json", "figure", "trace")
            if (given := getattr(arguments, name)) is not None
        }
        with _usage_errors():
            profile = Profile.read(arguments.profile)
            others = read_frontier(arguments.compare) if arguments.compare else []
            pipeline = _pipeline(profile, arguments)
        try:
            solution = _solved(pipeline, arguments)
        except PipelineError as error:
            print_message(str(error))
            return NOT_KEPT
        before = pipeline.at_highest_frequency()
        objective, goal = _objective(arguments, before, solution)
        selection = objective.select(solution.frontier)
        if not selection.feasible:
            print_message(selection.note)
            return NOT_KEPT
        plan: Plan = selection.point.knob
        if "json" in files:
            files["json"].write(_json(solution, plan))
        if kind is not None:
            name = Path(arguments.compare).stem if arguments.compare else ""
            drawn = partial(draw, before, plan, solution, Others(name, others))
            files["figure"].write_bytes(rendered(drawn, kind))
        if "trace" in files:
            executions = {"every clock at its highest": before, "the plan": plan.execute()}
            files["trace"].write(json.dumps(to_trace(executions)))
    if arguments.json != "-":
        console = Console(sys.stdout)
        lines = _report_lines(console, profile, before, solution, plan)
        lines += [f"Selected: {goal}.", *filter(None, [selection.note])]
        if others:
            lines += _comparison_lines(compare(solution.frontier, others), arguments.compare)
        saved = (arguments.json, arguments.figure, arguments.trace)
        console.print(*lines, *(f"Saved {name}" for name in saved if name))
    return 0


def _check_files(arguments: argparse.Namespace) -> None:
    """Raise `UsageError` if an output file is also an input or another output."""
    seen: set[Path] = set()
    for option in ("profile", "compare", "json", "figure", "trace"):
        name = getattr(arguments, option)
        if name is None or name == "-":
            continue
        path = Path(os.path.realpath(name))  # resolve() fails on a loop of links
        if path in seen and option != "compare":
            named = "output" if option == "json" else option
            raise UsageError(f"each file must be given once, but --{named} gives {name} again")
        seen.add(path)


@contextlib.contextmanager
def _usage_errors() -> Iterator[None]:
    """Report invalid values and unreadable files as usage errors."""
    try:
        yield
    except (FrontierError, PictureError, PipelineError, StageProfileError) as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from None


def _link_times(text: str) -> list[float | tuple[float, float]]:
    """Parse message times: by link, and by direction where they differ."""
    times: list[float | tuple[float, float]] = []
    for link in text.split(","):
        there, slash, back = link.partition("/")
        times.append((_AMOUNT(there), _AMOUNT(back)) if slash else _AMOUNT(there))
    return times


def _choosable() -> list[ObjectiveEntry]:
    """Return the objectives that need only time and energy, which is what plans have."""
    return [entry for entry in objectives.all_objectives() if entry.options and not entry.needs]


def _objective(
    arguments: argparse.Namespace, before: Execution, solution: Solution
) -> tuple[Objective, str]:
    """Return the objective and its goal in words."""
    for entry in _choosable():
        objective = objectives.given(arguments, entry)
        if objective is not None:
            return objective, entry.goal_of(objective)
    if arguments.fastest:
        return Time(), "the fastest"
    if solution.frontier.fastest.time > before.time:  # under a bound on the power
        return Time(), "the fastest, as no plan is as fast as the highest clocks"
    return Deadline(before.time), "lowest energy, as fast as the highest clocks"


def _pipeline(profile: Profile, arguments: argparse.Namespace) -> Pipeline:
    return build(
        profile,
        arguments.schedule,
        arguments.microbatches,
        arguments.blocking_power,
        chunks=arguments.chunks,
        tensor_parallel=arguments.tensor_parallel,
        data_parallel=arguments.data_parallel,
        communication=arguments.communication,
        blocking_messages=arguments.blocking_messages,
        data_loading=arguments.data_loading,
        name=f"{Path(arguments.profile).stem}, {arguments.schedule}, "
        f"{arguments.microbatches} microbatch{'es' if arguments.microbatches > 1 else ''}",
    )


def _solved(pipeline: Pipeline, arguments: argparse.Namespace) -> Solution:
    """Return the plans, with bounds on their power if there are any."""
    if arguments.peak_power is None and arguments.power_swing is None:
        limit = Limit()
        with showing(limit, sys.stderr):
            return solve(pipeline, arguments.plans, limit)
    return solve_capped(
        pipeline,
        arguments.peak_power,
        arguments.power_swing,
        margin=arguments.margin,
        plans=arguments.plans,
    )


def _json(solution: Solution, selected: Plan) -> str:
    lines = []
    for plan in solution.plans:
        entry: dict[str, Any] = {
            "time": plan.time,
            "energy": plan.energy,
            "lower_bound": plan.lower_bound,
        }
        if plan == selected:
            entry["plan"] = plan.to_list()
            power = total_power(plan.execute())
            entry |= {"peak_power": power.peak, "lowest_power": power.low}
        lines.append(json.dumps(entry))
    return "[" + ",\n ".join(lines) + "]"


# --- report ---------------------------------------------------------------------------------------


def _report_lines(
    console: Console, profile: Profile, before: Execution, solution: Solution, plan: Plan
) -> list[str]:
    pipeline, plans = before.pipeline, solution.plans
    measured = sum(map(len, profile.values()))
    kept = sum(len(useful(options, pipeline.blocking_power)) for options in profile.values())
    gaps = [100 * each.gap for each in plans]
    rows: list[tuple[str, ...]] = [
        ("", "time (s)", "energy (J)", "Δ time", "Δ energy", "above bound"),
        ("highest clocks", f"{before.time:.4f}", f"{before.energy:.1f}", "", "", ""),
        *(_row("", each, before) for each in _some(plans) if each != plan),
        _row("selected", plan, before),
    ]
    return [
        console.style(pipeline.name, "bold"),
        f"{profile.stages} stages, {pipeline.gpus * pipeline.data_parallel} GPUs, "
        f"{pipeline.blocking_power:g} W while waiting",
        f"{kept} of {measured} measured options are useful",
        f"{len(plans)} plans; energy above the proven lower bound at their time:",
        f"{math.fsum(gaps) / len(gaps):.2f} % on average, {max(gaps):.2f} % at most",
        _power_line("power of all GPUs at the highest clocks:", before),
        _power_line("under the selected plan:", plan.execute()),
        "",
        *console.table(rows, right=(1, 2, 3, 4, 5)),
        "",
    ]


def _power_line(label: str, execution: Execution) -> str:
    power = total_power(execution)
    return f"{label} {power.low:.0f} to {power.peak:.0f} W, swing {power.swing:.0f} W"


def _row(label: str, plan: Plan, before: Execution) -> tuple[str, ...]:
    changes = [
        f"{round(100 * (value / reference - 1), 1) + 0:+.1f} %" if reference else "-"
        for value, reference in ((plan.time, before.time), (plan.energy, before.energy))
    ]
    # Rounded up, so that a printed time is a deadline that this plan keeps.
    time = f"{math.ceil(1e4 * plan.time - 1e-6) / 1e4:.4f}"
    return label, time, f"{plan.energy:.1f}", *changes, f"{100 * plan.gap:.2f} %"


def _some(plans: Sequence[Plan]) -> list[Plan]:
    """Return plans spread evenly over the frontier, including both ends."""
    count = min(_SHOWN, len(plans))
    indices = {round(n * (len(plans) - 1) / max(count - 1, 1)) for n in range(count)}
    return [plans[index] for index in sorted(indices)]


def _comparison_lines(comparison: Comparison, name: str) -> list[str]:
    stated = len(comparison.ratios) + comparison.unreachable
    if not comparison.ratios:
        return [f"{name}: no plan is as fast as any of its {stated} times"]
    return [
        f"Compared with {name}:",
        f"at equal time, the plans use {comparison.mean:.4f} of its energy on average "
        f"({min(comparison.ratios):.4f} to {max(comparison.ratios):.4f});",
        f"{comparison.unreachable} of its {stated} times are shorter than any plan.",
    ]
