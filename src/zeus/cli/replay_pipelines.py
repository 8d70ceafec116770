"""`zeus replay-pipelines`: what recorded pipelines show of predictions, plans and power limits.

With `--json`, one object: `name`, `gpu`, `gpus`, `stages`, `microbatches`, `schedules` (their
number); `predictions`, for each `split` the relative errors of `time` and `energy` of schedules
that the model was not fitted to (`median`, `worst`); `plans`, for each recorded `schedule` its
`time` (s) and `energy` (J) and those of our plan that is as fast (`planned_time`, `planned_energy`)
by a model fitted to other schedules, and the least that any plan can take (`bound`), null if no
plan is as fast; `links` (s, between each stage and the next) and `tail` (s) of a model fitted to
all; `reference`, time and energy of the run that savings are relative to; `saved`, for each
approach the share of the reference's energy by how many percent longer an iteration may take, null
if none is that fast; and `points`, times and energies of each approach.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from zeus.cli._output import PreparedFile, prepared
from zeus.cli._parser import UsageError, add_json_output_options
from zeus.cli._replaying import publish, with_progress
from zeus.cli._terminal import MISSING, Console
from zeus.drawing._files import kind_of, rendered
from zeus.errors import PictureError

if TYPE_CHECKING:
    from zeus.replay.pipelines._study import Study


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.usage = "zeus replay-pipelines RECORDING [options]"
    parser.description = (
        "Fit models to some frequency schedules of a recorded pipeline, predict the others, and "
        "compare our plans and power limits with them. RECORDING is a folder with N.sched.json and "
        "N.prof.json for each schedule N, as published with the Perseus paper, or a tar archive of "
        "one. Tables GPU_power_limits_global.csv and GPU_power_limits_local.csv beside it are "
        "read, too. Takes a minute or two, and no GPU."
    )
    parser.epilog = """\
examples:
  zeus replay-pipelines pipelines/a40-bert-huge-pp8-mb32.tar.xz
  zeus replay-pipelines pipelines/a40-bert-huge-pp8-mb32.tar.xz --figure bert.svg --json
  zeus replay-pipelines my-runs --gpu A100 --output my-runs.json"""
    parser.add_argument("recording", metavar="RECORDING", help="folder or tar archive")
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        help="GPU model, A40 or A100 (default: the one in the name of RECORDING)",
    )
    parser.add_argument("--figure", metavar="FILE", help="draw times and energies: .svg or .png")
    add_json_output_options(parser, "the results")


def run(arguments: argparse.Namespace) -> int:
    """Read the recording, fit, predict, plan, write files, print."""
    from zeus.replay.pipelines import read_recording  # noqa: PLC0415  (an extra)
    from zeus.replay.pipelines._figure import draw  # noqa: PLC0415
    from zeus.replay.pipelines._power_limits import read_power_limits  # noqa: PLC0415
    from zeus.replay.pipelines._study import study  # noqa: PLC0415

    kind = None
    if arguments.figure is not None:
        try:
            kind = kind_of(arguments.figure)
        except PictureError as error:
            raise UsageError(str(error)) from None
        if arguments.json == arguments.figure:
            raise UsageError(f"--figure and --output must differ, but both are {arguments.figure}")
    path = Path(arguments.recording)
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(prepared(arguments.json))
        figure = None
        if arguments.figure is not None:
            figure = stack.enter_context(contextlib.closing(PreparedFile(arguments.figure)))
        recording = read_recording(path, arguments.gpu)
        limits = read_power_limits(path.resolve().parent, recording)
        for _, report in with_progress([recording.name]):
            found = study(recording, limits, report)
        if figure is not None and kind is not None:
            figure.write_bytes(rendered(partial(draw, found), kind))
        publish(output, arguments.json, lambda console: _report(console, found), found.to_dict())
    return 0


def _report(console: Console, study: Study) -> list[str]:
    recording = study.recording
    return [
        f"{recording.name}: {recording.ranks} x {recording.board.name}, {recording.stages} stages, "
        f"{recording.microbatches} microbatches,",
        f"{len(recording.planned)} schedules",
        "",
        *_predictions(console, study),
        "",
        *_plans(study),
        "",
        *_savings(console, study),
    ]


def _predictions(console: Console, study: Study) -> list[str]:
    rows: list[Sequence[str]] = [("predicted", "time, median", "worst", "energy, median", "worst")]
    for each in study.errors:
        errors = [abs(each.time), abs(each.energy)]
        values = [float(value) for e in errors for value in (sorted(e)[len(e) // 2], e.max())]
        rows.append([each.split.name, *(f"{100 * value:.2f} %" for value in values)])
    milliseconds = ", ".join(f"{1e3 * float(link):.0f}" for link in study.model.engine.links)
    return [
        *console.table(rows, right=range(1, 5), heading=True),
        f"Messages between stages take {milliseconds} ms, as fitted to all schedules.",
    ]


def _plans(study: Study) -> list[str]:
    saved = sorted(each.saved for each in study.comparisons if each.clocks)
    lines = []
    if saved:
        possible = sorted(each.possible for each in study.comparisons if each.clocks)
        lines = [
            f"Our plans save {_middle(saved)} of the schedules' energy at equal time (median; "
            f"least {_percent(saved[0])},",
            f"most {_percent(saved[-1])}), by a model fitted to other schedules; no plan with the "
            "clocks that ran can",
            f"save more than {_middle(possible)}.",
        ]
        longer = sorted(time for time, _ in study.checked)
        less = sorted(energy for _, energy in study.checked)
        lines += [
            f"By a model fitted to those schedules instead, they save {_middle(less)} (least "
            f"{_percent(less[0])})",
            f"and take {_middle(longer, '+')} time (most {_percent(longer[-1], '+')}).",
        ]
    slow = len(study.comparisons) - len(saved)
    if slow:
        lines.append(f"No plan is as fast as {slow} of the schedules.")
    return lines


def _savings(console: Console, study: Study) -> list[str]:
    from zeus.replay.pipelines._study import SLOWER  # noqa: PLC0415

    if study.reference is None:
        return ["There is no run at the highest clocks that savings could be relative to."]
    rows: list[Sequence[str]] = [("saved, if slower by at most", *(f"{n} %" for n in SLOWER))]
    for approach in study.points:
        saved = [study.saved(approach, percent) for percent in SLOWER]
        rows.append([approach, *(MISSING if x is None else f"{100 * x:.1f} %" for x in saved)])
    time, energy = study.reference
    return [
        *console.table(rows, right=range(1, len(SLOWER) + 1), heading=True),
        f"Relative to {time:.4g} s and {energy / 1e3:.4g} kJ of an iteration at the highest "
        "setting, as measured.",
    ]


def _middle(ordered: Sequence[float], sign: str = "") -> str:
    return _percent(ordered[len(ordered) // 2], sign)


def _percent(share: float, sign: str = "") -> str:
    return f"{100 * share:{sign}.2f} %"
