"""Common parts of the commands that replay: options, tables, progress and the report."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zeus._extensions import POLICIES as OUTSIDE
from zeus._extensions import extension_names
from zeus.cli._output import PreparedFile
from zeus.cli._parser import number
from zeus.cli._terminal import Console

if TYPE_CHECKING:
    from zeus.replay._table import JobTable
    from zeus.replay._traces import Traces
    from zeus.replay._workloads import Workload

POLICIES = ("default", "grid", "paper", "zeus")
"""Policies that are replayed if none is named."""
AVAILABLE = (*POLICIES[:-1], "paper-repaired", "zeus")
"""Policies of Zeus."""
DEFAULTS: dict[str, Any] = {
    "gpu": "all",
    "policy": POLICIES,
    "eta": 0.5,
    "beta": 2.0,
    "untrained": "drop",
    "json": None,
}
"""Defaults of the common options."""
_BAR = 30


def add_replay_options(parser: argparse._ActionsContainer) -> None:
    """Add the common options, without their defaults."""
    parser.add_argument(
        "--traces",
        metavar="DIR",
        help="folder with training and power traces (default: a made-up job that comes with Zeus)",
    )
    parser.add_argument("--gpu", metavar="NAME,NAME", help="GPU models, or `all` (default)")
    parser.add_argument(
        "--policy",
        type=_policies,
        metavar="NAME,NAME",
        help=f"of {', '.join(_available())} (default: {','.join(POLICIES)})",
    )
    parser.add_argument(
        "--eta", type=number(0.0, 1.0), metavar="N", help="weight of energy, 0 to 1 (0.5)"
    )
    parser.add_argument(
        "--beta",
        type=_beta,
        metavar="N",
        help="stop runs early at N times the lowest cost, or `none` (2)",
    )
    parser.add_argument(
        "--untrained",
        choices=("drop", "fail"),
        help="batch sizes that were never trained are not offered, or fail (drop)",
    )


def read_traces(arguments: argparse.Namespace, *more: str) -> Traces:
    """Read the traces of the GPUs that `--gpu` names, and of more.

    Args:
        arguments: With the common options.
        more: Further GPU models.

    Raises:
        TraceError: If a file is missing or a line is invalid.
    """
    # Not for --help.
    from zeus.replay._example import EXAMPLE_GPUS, example_traces  # noqa: PLC0415
    from zeus.replay._traces import gpus_in, load_traces  # noqa: PLC0415

    folder = None if arguments.traces is None else Path(arguments.traces)
    named: Sequence[str] = arguments.gpu.split(",")
    if arguments.gpu == "all":
        named = EXAMPLE_GPUS if folder is None else gpus_in(folder)
    wanted = [*named, *more]
    return example_traces(wanted) if folder is None else load_traces(folder, wanted)


def about_the_job(arguments: argparse.Namespace) -> list[str]:
    """Return lines that say which job was replayed, if it is none that was recorded."""
    from zeus.replay._traces import SOURCE  # noqa: PLC0415

    if arguments.traces is not None:
        return []
    return [
        "A made-up job: nothing was recorded, all numbers follow from formulas",
        "(zeus/replay/_example.py). It shows how policies learn, not what yours would",
        "save. Traces of real jobs, for --traces, are published in",
        SOURCE,
        "",
    ]


def load_tables(
    arguments: argparse.Namespace,
    traces: Traces,
    workloads: Sequence[Workload] | None = None,
    target: float | None = None,
) -> dict[str, list[JobTable]]:
    """Return the tables of workloads, by GPU.

    Args:
        arguments: With the common options.
        traces: From `read_traces`.
        workloads: By default all that the traces have.
        target: Target other than that of the workload.

    Raises:
        TraceError: If the traces lack a GPU, a workload or the target, or none ever reaches it.
    """
    from zeus.replay._table import job_table  # noqa: PLC0415
    from zeus.replay._workloads import ALL_WORKLOADS  # noqa: PLC0415

    tables = {
        gpu: [
            job_table(
                traces,
                gpu,
                workload,
                eta_knob=arguments.eta,
                target_metric=target,
                untrained=arguments.untrained,
            )
            for workload in (ALL_WORKLOADS if workloads is None else workloads)
            if workloads is not None or workload.key in recorded
        ]
        for gpu, recorded in traces.power.items()
    }
    for table in [table for found in tables.values() for table in found]:
        _ = table.optimum  # rejects unreachable targets before the replay starts
    return tables


def publish(
    output: PreparedFile | None,
    name: str | None,
    report: Callable[[Console], list[str]],
    document: Any,
) -> None:
    """Print the lines of a report, and write a document to the output that `--json` names."""
    # One stream cannot carry a table and JSON.
    console = Console(sys.stderr if name == "-" else sys.stdout)
    console.print(*report(console))
    if output is not None:
        output.write(json.dumps(document, indent=1))


def with_progress(labels: Sequence[str]) -> Iterator[tuple[str, Callable[[float], None]]]:
    """Yield each label with a function that reports the fraction of its work that is done."""
    with progress_bar() as show:
        for place, label in enumerate(labels):

            def report(done: float, place: int = place, label: str = label) -> None:
                show((place + done) / len(labels), label)

            yield label, report


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[float, str], None]]:
    """Show a progress bar on stderr if it is a terminal; yield a function that sets it."""
    console = Console(sys.stderr)
    shown = -1

    def show(share: float, what: str) -> None:
        nonlocal shown
        percent = int(share * 100)
        if console.can_be_steered and percent != shown:
            shown = percent
            console.write(f"\r{console.bar(share, _BAR)} {percent:3d} % {what}\x1b[K")

    try:
        yield show
    finally:
        if shown >= 0:
            console.write("\r\x1b[K")


def _policies(text: str) -> tuple[str, ...]:
    """Parse names of policies, separated by commas; some may be "package:Name".

    Raises:
        argparse.ArgumentTypeError: If a name is unknown.
    """
    found = tuple(dict.fromkeys(text.split(",")))
    available = _available()
    wrong = [name for name in found if name not in available and not name.strip(":").count(":")]
    if wrong:
        known = ", ".join(available)
        raise argparse.ArgumentTypeError(f"unknown policy {', '.join(wrong)}; available: {known}")
    return found


def _available() -> tuple[str, ...]:
    return (*AVAILABLE, *extension_names(OUTSIDE))


def _beta(text: str) -> float | None:
    """Parse the multiple of the lowest cost at which a run is stopped; `none` never stops one.

    Raises:
        argparse.ArgumentTypeError: If it is not above 1.
    """
    return None if text.strip().lower() == "none" else number(1.0, 1e9, above=True)(text)
