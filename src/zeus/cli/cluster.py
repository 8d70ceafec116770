"""`zeus cluster`: replay all recurring jobs of a GPU cluster with each policy.

With `--json`, `replay` writes one object: `tables` has the number of replayed `jobs` and `groups`,
how many jobs were `overlapping` in the cluster, the number of `rows` in the job table, and how many
were left out (`unsuccessful`, `untimed`, `ungrouped`, `alone`). `records` is a list, one object for
each GPU, policy and workload, and one with the workload `all`: `gpu`,
`workload`, `policy`, `seed`, `groups`, `jobs`, `mean_runtime` (s, in the cluster), `trials`,
`unreached`, `energy` (J), `time` (s), `energy_vs_default`, `time_vs_default`, `cumulative_regret`
(in units of the oracle's cost of one run), `overlapping_jobs` and `most_at_once`. Ratios are null
where the default never reaches the target.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zeus.cli._output import prepared
from zeus.cli._parser import (
    UsageError,
    add_action,
    add_json_output_options,
    whole_number,
)
from zeus.cli._replaying import (
    DEFAULTS,
    about_the_job,
    add_replay_options,
    load_tables,
    progress_bar,
    publish,
    read_traces,
    with_progress,
)
from zeus.cli._terminal import MISSING, Console
from zeus.errors import TraceError

if TYPE_CHECKING:
    from zeus.replay._table import JobTable
    from zeus.replay.cluster import ClusterRecord, ClusterTrace

_JOBS = 1_200_000
_MAX_JOBS = 10**10
_MAX_SEED = 2**53
_HEAD = (
    "workload", "groups", "jobs", "energy", "time", "regret", "trials", "overlap", "at once"
)  # fmt: skip
# Options of one action only, with their defaults; None is none.
_OPTIONS: dict[str, dict[str, Any]] = {
    "generate": {"jobs": _JOBS},
    "replay": {
        **DEFAULTS,
        "traces": None,
        "scale": "linear",
        "engine": "local",
        "workers": None,
        "address": None,
    },
}
_REQUIRED = {"generate": ("output",), "replay": ("tables",)}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.usage = (
        "zeus cluster replay --tables DIR [--traces DIR] [options]\n"
        "       zeus cluster generate --output DIR [options]"
    )
    parser.description = (
        "Replay all recurring jobs of Alibaba's GPU cluster trace, including their overlaps, and "
        "show the total energy and time of each policy. `generate` creates synthetic tables with "
        "the same columns and the published statistics. Needs no GPU."
    )
    parser.epilog = """\
examples:
  zeus cluster generate --jobs 100000 --output made-up
  zeus cluster replay --tables made-up
  zeus cluster replay --tables made-up --traces traces/nsdi23 --gpu v100
  zeus cluster replay --tables pai --traces traces/nsdi23 --policy paper,zeus --json > c.json
  zeus cluster replay --tables pai --traces traces/nsdi23 --engine ray --address auto"""
    add_action(parser, "generate", "replay")
    parser.add_argument(
        "--seed",
        type=whole_number(0, _MAX_SEED),
        default=0,
        metavar="N",
        help="seed of the random numbers (0)",
    )
    made = parser.add_argument_group("generate", argument_default=argparse.SUPPRESS)
    made.add_argument(
        "--output", metavar="DIR", help="folder for the tables; replay: FILE to write the JSON to"
    )
    made.add_argument(
        "--jobs",
        type=whole_number(10, _MAX_JOBS),
        metavar="N",
        help=f"rows of each table ({_JOBS})",
    )
    replayed = parser.add_argument_group("replay", argument_default=argparse.SUPPRESS)
    replayed.add_argument(
        "--tables",
        metavar="DIR",
        help="folder with pai_job_table and pai_group_tag_table (.csv, .csv.gz or .tar.gz)",
    )
    add_replay_options(replayed)
    replayed.add_argument(
        "--scale",
        choices=("linear", "log"),
        help="cluster groups by their mean runtime, as in the paper, or by its logarithm (linear)",
    )
    replayed.add_argument(
        "--engine",
        choices=("local", "ray"),
        help="local processes or Ray; the result is the same (local)",
    )
    replayed.add_argument(
        "--workers",
        type=whole_number(1, 100_000),
        metavar="N",
        help="processes (default: one per core)",
    )
    replayed.add_argument(
        "--address",
        metavar="ADDRESS",
        help="address of a Ray cluster (RAY_ADDRESS, or a new local one)",
    )
    add_json_output_options(replayed, "records", output=False)


def run(arguments: argparse.Namespace) -> int:
    """Run the action."""
    _check(arguments)
    return (_generate if arguments.action == "generate" else _replay)(arguments)


def _check(arguments: argparse.Namespace) -> None:
    """Reject options of the other action, and fill in defaults."""
    given = vars(arguments)
    for action, options in _OPTIONS.items():
        if action == arguments.action:
            for name in _REQUIRED[action]:
                if name not in given:
                    raise UsageError(f"zeus cluster {action} needs --{name} DIR")
            given |= options | given
        else:
            for name in (*_REQUIRED[action], *options):
                if name in given and name != "output":  # which both have
                    raise UsageError(f"--{name} is for `zeus cluster {action}`")
    if arguments.action == "replay" and "output" in given:
        if arguments.json:
            raise UsageError("argument --output: not allowed with argument --json")
        arguments.json = arguments.output
    unregistered = [name for name in given.get("policy", ()) if ":" in name]
    if unregistered:
        raise UsageError(
            f"--policy {unregistered[0]} is for `zeus replay`; here, a policy must be registered, "
            "so that worker processes find it (docs/extending.md)"
        )
    if arguments.action == "replay" and arguments.address and arguments.engine != "ray":
        raise UsageError("--address is the address of a Ray cluster; it needs --engine ray")


def _generate(arguments: argparse.Namespace) -> int:
    from zeus.replay.cluster import write_tables  # noqa: PLC0415

    with progress_bar() as show:
        paths = write_tables(
            arguments.output, arguments.jobs, arguments.seed, lambda done: show(done, "jobs")
        )
    Console(sys.stdout).print(*map(str, paths))
    return 0


def _replay(arguments: argparse.Namespace) -> int:
    from zeus.replay.cluster import read_trace  # noqa: PLC0415

    with prepared(arguments.json) as output:
        tables = load_tables(arguments, read_traces(arguments))
        empty = [gpu for gpu, found in tables.items() if not found]
        if empty:
            raise TraceError(f"{arguments.traces} has no known workload for {', '.join(empty)}")
        with progress_bar() as show:
            show(0.0, "reading tables")
            trace = read_trace(Path(arguments.tables))
        records = _replayed(arguments, trace, tables)
        publish(
            output,
            arguments.json,
            lambda console: about_the_job(arguments) + _report(console, trace, records),
            {
                "tables": {
                    "jobs": trace.jobs,
                    "groups": trace.groups,
                    "overlapping": int(trace.overlapping().sum()),
                    **asdict(trace.counts),
                },
                "records": [record.to_dict() for record in records],
            },
        )
    return 0


def _replayed(
    arguments: argparse.Namespace, trace: ClusterTrace, tables: dict[str, list[JobTable]]
) -> list[ClusterRecord]:
    from zeus.replay.cluster import simulate  # noqa: PLC0415

    return [
        record
        for gpu, report in with_progress(list(tables))
        for record in simulate(
            trace,
            tables[gpu],
            arguments.policy,
            seed=arguments.seed,
            scale=arguments.scale,
            engine=arguments.engine,
            workers=arguments.workers,
            address=arguments.address,
            progress=report,
            beta=arguments.beta,
        ).records
    ]


# --- report ---------------------------------------------------------------------------------------


def _report(console: Console, trace: ClusterTrace, records: Sequence[ClusterRecord]) -> list[str]:
    rows: list[Sequence[str]] = [_HEAD]
    for gpu, policy in dict.fromkeys((record.gpu, record.policy) for record in records):
        rows.append([f"{gpu}, {policy}"])
        rows += [_row(record) for record in records if (record.gpu, record.policy) == (gpu, policy)]
    counts = trace.counts
    share_of_overlap = trace.overlapping().mean()
    return [
        *console.table(rows, right=range(1, len(_HEAD)), heading=True),
        "",
        f"{trace.jobs:,} jobs in {trace.groups:,} groups; {share_of_overlap:.1%} of them started",
        "while another job of their group was running.",
        f"Of {counts.rows:,} rows in the table, {counts.unsuccessful:,} did not succeed, "
        f"{counts.untimed:,} have no time,",
        f"{counts.ungrouped:,} have no group, and {counts.alone:,} do not recur.",
        "Energy and time: of all jobs, relative to the default. Regret: cost per job",
        "beyond the optimum, in units of one optimal run. Trials: per job. Overlap:",
        "jobs that start while another one is running; at once: maximum of one group.",
    ]


def _row(record: ClusterRecord) -> list[str]:
    return [
        record.workload,
        f"{record.groups}",
        f"{record.jobs}",
        _ratio(record.energy_vs_default),
        _ratio(record.time_vs_default),
        f"{record.cumulative_regret / record.jobs:.3f}",
        f"{record.trials / record.jobs:.3f}",
        f"{record.overlapping_jobs / record.jobs:.1%}",
        f"{record.most_at_once}",
    ]


def _ratio(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3f}"
