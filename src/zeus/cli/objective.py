"""`zeus objective`: set what a running pipeline job is planned for.

With `--json`, prints the job as stored by the server: `name`, `status`, `objective`, `ranks` and
more, as `GET /api/pipelines/NAME` returns it.
"""

from __future__ import annotations

import argparse
import sys

from zeus.cli._parser import UsageError, add_json_option, add_server_option, seconds
from zeus.cli._pipeline_server import DEFAULT_SERVER, asking, status
from zeus.cli._terminal import Console, clean
from zeus.errors import PipelineError

_VALUES = (
    "max_slowdown",
    "deadline",
    "energy_budget",
    "power_budget",
    "peak_power",
    "power_swing",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.usage = "zeus objective JOB [--fastest | --max-slowdown FACTOR | ...] [options]"
    parser.description = (
        "Set what a running pipeline-parallel job is planned for. Its ranks follow it from their "
        "next iteration on. Without an objective, show the current one."
    )
    parser.epilog = """\
examples:
  zeus objective gpt3 --server http://gpu1:8420
  zeus objective gpt3 --max-slowdown 1.05
  zeus objective gpt3 --power-cap 12000 --peak-power 14000
  zeus objective gpt3 --fastest"""
    parser.add_argument("job", metavar="JOB", help="name of the job")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--fastest", action="store_true", help="as fast as possible, which is the default"
    )
    which.add_argument(
        "--max-slowdown", type=float, metavar="FACTOR",
        help="least energy within FACTOR times the time of the highest clocks",
    )  # fmt: skip
    which.add_argument(
        "--deadline", type=seconds, metavar="S", help="least energy within S seconds per iteration"
    )
    which.add_argument(
        "--energy-budget", type=float, metavar="J",
        help="as fast as possible with J joules per iteration, of all GPUs together",
    )  # fmt: skip
    which.add_argument(
        "--power-cap", "--power-budget", dest="power_budget", type=float, metavar="W",
        help="as fast as possible with W watts on average, of all GPUs together",
    )  # fmt: skip
    parser.add_argument(
        "--peak-power", type=float, metavar="W",
        help="never more than W watts at any moment, of all GPUs together, from the next plan on",
    )  # fmt: skip
    parser.add_argument(
        "--power-swing", type=float, metavar="W",
        help="highest less lowest power of an iteration at most W watts, of all GPUs together; "
        "computations are delayed for it",
    )  # fmt: skip
    add_server_option(parser, f"ZEUS_SERVER, or {DEFAULT_SERVER}")
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Set the objective, or show it."""
    from zeus.optimizer.pipeline_frequency.api._commands import (  # noqa: PLC0415
        SetObjective,
        ShowPipeline,
    )
    from zeus.optimizer.pipeline_frequency.job._objective import (  # noqa: PLC0415
        PipelineObjective,
    )

    values = {name: getattr(arguments, name) for name in _VALUES}
    try:
        objective = PipelineObjective(**values)
    except PipelineError as error:
        raise UsageError(str(error)) from None
    given = arguments.fastest or objective != PipelineObjective()
    command = (
        SetObjective(job=arguments.job, objective=objective)
        if given
        else ShowPipeline(job=arguments.job)
    )
    console = Console(sys.stdout)
    with asking(arguments.server) as api:
        job = api.do(command)
    if arguments.json:
        console.print_json(job)
        return 0
    said = PipelineObjective(**job["objective"])
    console.print(f"{clean(job['name'])}: {said} ({status(job)}).")
    return 0
