"""`zeus paper`: the figures and tables of the Zeus paper, recomputed from its traces."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections import Counter
from pathlib import Path

from zeus.cli._parser import UsageError
from zeus.cli._replaying import names, progress_bar, whole
from zeus.cli._terminal import Console
from zeus.errors import MissingExtraError

_MOST = 10_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.usage = "zeus paper --traces DIR --output DIR [options]"
    parser.description = (
        "Recompute the figures and tables of the Zeus paper (NSDI '23) from its traces: PNG, SVG "
        "and JSON of each, and one page that compares them with the published numbers. Needs no "
        "GPU."
    )
    parser.epilog = """\
examples:
  zeus paper --traces traces/nsdi23 --output paper
  zeus paper --traces traces/nsdi23 --output paper --only figure-4,table-2
  zeus paper --traces traces/nsdi23 --output paper --gpu a40 --seeds 10"""
    parser.add_argument("--traces", required=True, metavar="DIR", help="folder with the traces")
    parser.add_argument("--output", required=True, metavar="DIR", help="folder to write into")
    parser.add_argument(
        "--only",
        metavar="NAME,NAME",
        help="figures and tables, such as figure-4,table-2 (default: all)",
    )
    parser.add_argument(
        "--gpu", metavar="NAME", help="GPU of single-GPU figures (default: v100, or the first)"
    )
    parser.add_argument(
        "--seeds",
        type=whole(1, _MOST),
        default=50,
        metavar="N",
        help="number of jobs per policy and workload (50)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Recompute the figures and tables, then print where they are."""
    lacking = [
        extra
        for extra, package in (("batch-size", "numpy"), ("plot", "matplotlib"))
        if importlib.util.find_spec(package) is None
    ]
    if lacking:
        raise MissingExtraError("`zeus paper`", *lacking)
    from zeus.replay._traces import load_traces  # noqa: PLC0415
    from zeus.replay.paper._catalogue import CATALOGUE  # noqa: PLC0415
    from zeus.replay.paper._produce import produce  # noqa: PLC0415

    only = names(arguments.only, tuple(CATALOGUE), "figure or table") if arguments.only else None
    traces = load_traces(Path(arguments.traces))
    if arguments.gpu is not None and arguments.gpu not in traces.power:
        raise UsageError(
            f"{arguments.traces} has no power trace of {arguments.gpu}; "
            f"it has {', '.join(traces.power)}"
        )
    output = Path(arguments.output)
    with progress_bar() as show:
        exhibits = produce(
            traces, output, only=only, seeds=arguments.seeds, gpu=arguments.gpu, progress=show
        )
    facts = [fact for exhibit in exhibits for fact in exhibit.facts if fact.published]
    counts = Counter(fact.agrees for fact in facts)
    console = Console(sys.stdout)
    console.print(
        f"{len(exhibits)} figures and tables: {output / 'index.html'}",
        f"{len(facts)} published statements: {counts[True]} agree, {counts[False]} differ, "
        f"{counts[None]} cannot be compared directly",
    )
    return 0
