"""Measure Zeus beside its peers on one simulated driver, and print what was found as JSON.

Every measurement is a process of its own (`worker.py`) under the interpreter of the tool, and the
tools take turns, so that whatever else this machine does meets all of them alike. Numbers are
medians over the turns. See README.md in this folder for what is measured and how to read it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import accuracy
import batch_limit
import cluster
import harsh_pipelines
import holds
import monitoring
import pipeline_training
import pipelines
import power_limit
import power_limit_decisions
import recurring_jobs
import replay_policies
import serving
import whole_runs
from harness import QUICK, Bench, Effort, say
from rows import Row
from tools import PEERS, Tool, ours, peer

TASKS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "import": monitoring.bench_import,
    "overhead": monitoring.bench_overhead,
    "accuracy": accuracy.bench_accuracy,
    "background": monitoring.bench_background,
    "size": monitoring.bench_size,
    "holds": holds.bench_holds,
    "power_limit": power_limit.bench_power_limit,
    "power_limit_decisions": power_limit_decisions.bench_power_limit_decisions,
    "whole_runs": whole_runs.bench_whole_runs,
    "pipelines": pipelines.bench_pipelines,
    "pipeline_training": pipeline_training.bench_pipeline_training,
    "harsh_pipelines": harsh_pipelines.bench_harsh_pipelines,
    "replay": replay_policies.bench_replay,
    "cluster": cluster.bench_cluster,
    "serving": serving.bench_serving,
    "batch_limit": batch_limit.bench_batch_limit,
    "round_trips": recurring_jobs.bench_round_trips,
    "recurring_jobs": recurring_jobs.bench_recurring_jobs,
}


def machine() -> dict[str, Any]:
    return {
        "cpus": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
    }


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME[,NAME]", help=f"of {', '.join(TASKS)}")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions; less exact")
    parser.add_argument("--no-peers", action="store_true", help="measure only Zeus")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the JSON here as well")
    chosen = parser.parse_args(arguments)
    chosen.tasks = chosen.only.split(",") if chosen.only else list(TASKS)
    wrong = [name for name in chosen.tasks if name not in TASKS]
    if wrong:
        parser.error(f"--only takes names of {', '.join(TASKS)}, but got {', '.join(wrong)}")
    return chosen


def measured(tools: Sequence[Tool], tasks: Sequence[str], effort: Effort) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="zeus-bench-") as scratch:
        bench = Bench(tools, effort, Path(scratch))
        for name in tasks:
            say(f"{name}: {TASKS[name].__doc__}")
            rows += TASKS[name](bench)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = parsed(arguments)
    tools = [ours(), *(peer(name) for name in PEERS if not chosen.no_peers)]
    before, started = machine(), time.monotonic()
    rows = measured(tools, chosen.tasks, QUICK if chosen.quick else Effort())
    document = {
        "machine": {**before, "load_average_after": os.getloadavg()},
        "seconds": round(time.monotonic() - started),
        "quick": chosen.quick,
        "tools": {tool.name: tool.described() for tool in tools},
        "targets_met": all(found["met"] is not False for found in rows),
        "rows": rows,
    }
    text = json.dumps(document, indent=2, ensure_ascii=False)
    if chosen.output is not None:
        chosen.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
