"""`zeus straggler`: report that a pipeline of a pipeline job became slower, or is healthy again.

With `--json`, prints the job as stored by the server: `name`, `status`, `stragglers`, `ranks` and
more, as `GET /api/pipelines/NAME` returns it.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from zeus.cli._parser import UsageError, add_json_option, add_server_option, seconds, whole_number
from zeus.cli._pipeline_server import DEFAULT_SERVER, asking, status
from zeus.cli._terminal import Console, clean
from zeus.errors import PipelineError

if TYPE_CHECKING:
    from zeus.optimizer.pipeline_frequency.api._remote import RemotePipelines


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.usage = (
        "zeus straggler [JOB --pipeline N --slowdown FACTOR|--time S|--healthy] [options]"
    )
    parser.description = (
        "Report to the server of a pipeline-parallel job that one of its pipelines became slower "
        "(a GPU that throttles, a node with a bad network) or is healthy again. From the next "
        "iteration on, all other pipelines slow down to the same time and save energy. Without a "
        "job, list all pipeline jobs."
    )
    parser.epilog = """\
examples:
  zeus straggler
  zeus straggler gpt3 --pipeline 3 --slowdown 1.2 --server http://gpu1:8420
  zeus straggler gpt3 --pipeline 3 --healthy"""
    parser.add_argument("job", nargs="?", metavar="JOB", help="name of the job")
    parser.add_argument(
        "--pipeline",
        type=whole_number(0),
        metavar="N",
        help="index of the data-parallel pipeline, from 0",
    )
    parser.add_argument(
        "--slowdown",
        type=float,
        metavar="FACTOR",
        help="its iteration takes FACTOR times as long as usual",
    )
    parser.add_argument("--time", type=seconds, metavar="S", help="its iteration takes S seconds")
    parser.add_argument("--healthy", action="store_true", help="it is as fast as the others again")
    add_server_option(parser, f"ZEUS_SERVER, or {DEFAULT_SERVER}")
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Report the straggler, or list the jobs."""
    given = [arguments.slowdown is not None, arguments.time is not None, arguments.healthy]
    if arguments.job is None and (arguments.pipeline is not None or any(given)):
        raise UsageError("name the JOB of the straggler (`zeus straggler` lists them)")
    if arguments.job is not None and (arguments.pipeline is None or sum(given) != 1):
        raise UsageError(
            "zeus straggler JOB needs --pipeline N and one of --slowdown FACTOR, --time S and "
            "--healthy"
        )
    console = Console(sys.stdout)
    with asking(arguments.server) as api:
        if arguments.job is None:
            _list(api, console, as_json=arguments.json)
        else:
            _report(api, console, arguments)
    return 0


def _report(api: RemotePipelines, console: Console, arguments: argparse.Namespace) -> None:
    from zeus.optimizer.pipeline_frequency.api._commands import ReportStraggler  # noqa: PLC0415
    from zeus.optimizer.pipeline_frequency.job._messages import Straggler  # noqa: PLC0415

    try:
        straggler = Straggler(
            arguments.pipeline, arguments.slowdown, arguments.time, arguments.healthy
        )
    except PipelineError as error:
        raise UsageError(str(error)) from None
    job = api.do(ReportStraggler(job=arguments.job, straggler=straggler))
    if arguments.json:
        console.print_json(job)
        return
    slow = ", ".join(str(Straggler(**each)) for each in job["stragglers"])
    console.print(f"{clean(job['name'])}: {slow or 'no pipeline straggles'} ({status(job)}).")


def _list(api: RemotePipelines, console: Console, *, as_json: bool) -> None:
    from zeus.optimizer.pipeline_frequency.api._commands import ListPipelines  # noqa: PLC0415

    jobs = api.do(ListPipelines())
    if as_json:
        console.print_json(jobs)
        return
    if not jobs:
        console.print("No pipeline jobs.")
        return
    rows = [("job", "pipelines", "places", "GPUs each", "alive", "straggling", "status")]
    rows += [
        (
            clean(job["name"]),
            str(job["dp_degree"]),
            str(job["pp_degree"]),
            str(job["tp_degree"]),
            f"{job['alive']} of {job['dp_degree'] * job['pp_degree'] * job['tp_degree']}",
            str(job["straggling"]),
            status(job),
        )
        for job in jobs
    ]
    console.print_table(rows, right=(1, 2, 3, 4, 5))
