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
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zeus.cli._output import prepared
from zeus.cli._parser import UsageError, add_action, add_json_output_options
from zeus.cli._replaying import POLICIES, beta, names, progress_bar, share, whole
from zeus.cli._terminal import MISSING, Console
from zeus.errors import MissingExtraError, TraceError

if TYPE_CHECKING:
    from zeus.replay._table import JobTable
    from zeus.replay.cluster import ClusterRecord, ClusterTrace

_JOBS = 1_200_000
_MAX_JOBS = 10**10
_MAX_SEED = 2**53
_HEAD = (
    "workload", "groups", "jobs", "energy", "time", "regret", "trials", "overlap", "at once"
)  # fmt: skip
# Options of one action only, with their defaults.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "generate": {"output": None, "jobs": _JOBS},
    "replay": {
        "tables": None,
        "traces": None,
        "gpu": "all",
        "policy": ",".join(POLICIES),
        "eta": 0.5,
        "beta": 2.0,
        "scale": "linear",
        "engine": "local",
        "workers": None,
        "address": None,
        "json": None,
    },
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.usage = (
        "zeus cluster replay --tables DIR --traces DIR [options]\n"
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
  zeus cluster replay --tables made-up --traces traces/nsdi23 --gpu v100
  zeus cluster replay --tables pai --traces traces/nsdi23 --policy paper,zeus --json > c.json
  zeus cluster replay --tables pai --traces traces/nsdi23 --engine ray --address auto"""
    add_action(parser, "generate", "replay")
    parser.add_argument(
        "--seed",
        type=whole(0, _MAX_SEED),
        default=0,
        metavar="N",
        help="seed of the random numbers (0)",
    )
    made = parser.add_argument_group("generate")
    made.add_argument("--output", default=None, metavar="DIR", help="folder for the tables")
    made.add_argument(
        "--jobs", type=whole(10, _MAX_JOBS), metavar="N", help=f"rows of each table ({_JOBS})"
    )
    replayed = parser.add_argument_group("replay")
    replayed.add_argument(
        "--tables",
        metavar="DIR",
        help="folder with pai_job_table and pai_group_tag_table (.csv, .csv.gz or .tar.gz)",
    )
    replayed.add_argument("--traces", metavar="DIR", help="folder with training and power traces")
    replayed.add_argument("--gpu", metavar="NAME,NAME", help="GPU models, or `all` (default)")
    replayed.add_argument(
        "--policy", metavar="NAME,NAME", help=f"{', '.join(POLICIES)} (default: all)"
    )
    replayed.add_argument("--eta", type=share, metavar="N", help="weight of energy, 0 to 1 (0.5)")
    replayed.add_argument(
        "--beta", type=beta, default=argparse.SUPPRESS, metavar="N",
        help="stop runs early at N times the lowest cost, or `none` (2)",
    )  # fmt: skip
    replayed.add_argument(
        "--scale", choices=("linear", "log"),
        help="cluster groups by their mean runtime, as in the paper, or by its logarithm (linear)",
    )  # fmt: skip
    replayed.add_argument(
        "--engine",
        choices=("local", "ray"),
        help="local processes or Ray; the result is the same (local)",
    )
    replayed.add_argument(
        "--workers", type=whole(1, 100_000), metavar="N", help="processes (default: one per core)"
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
    try:
        import numpy  # noqa: F401, PLC0415  (not needed for --help)
    except ImportError:
        raise MissingExtraError("`zeus cluster`", "batch-size") from None
    return (_generate if arguments.action == "generate" else _replay)(arguments)


def _check(arguments: argparse.Namespace) -> None:
    """Reject options of the other action, and fill in defaults."""
    for action, defaults in _DEFAULTS.items():
        given = [name for name in defaults if getattr(arguments, name, None) is not None]
        if "beta" in defaults and hasattr(arguments, "beta") and "beta" not in given:
            given.append("beta")  # `none` was given
        if action != arguments.action:
            if given:
                raise UsageError(f"--{given[0]} is for `zeus cluster {action}`")
            continue
        for name in set(defaults) - set(given):
            setattr(arguments, name, defaults[name])
    needed = ("output",) if arguments.action == "generate" else ("tables", "traces")
    for name in needed:
        if getattr(arguments, name) is None:
            raise UsageError(f"zeus cluster {arguments.action} needs --{name} DIR")
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

    policies = names(arguments.policy, POLICIES, "policy")
    with prepared(arguments.json) as output:
        tables = _tables(arguments)
        with progress_bar() as show:
            show(0.0, "reading tables")
            trace = read_trace(Path(arguments.tables))
        records = _replayed(arguments, trace, tables, policies)
        # One stream cannot carry a table and JSON.
        console = Console(sys.stderr if arguments.json == "-" else sys.stdout)
        console.print(*_report(console, trace, records))
        if output is not None:
            document = {
                "tables": {
                    "jobs": trace.jobs,
                    "groups": trace.groups,
                    "overlapping": int(trace.overlapping().sum()),
                    **asdict(trace.counts),
                },
                "records": [record.to_dict() for record in records],
            }
            output.write(json.dumps(document, indent=1))
    return 0


def _tables(arguments: argparse.Namespace) -> dict[str, list[JobTable]]:
    """Return the workloads by GPU."""
    from zeus.replay._table import job_table  # noqa: PLC0415
    from zeus.replay._traces import load_traces  # noqa: PLC0415
    from zeus.replay._workloads import WORKLOADS  # noqa: PLC0415

    gpus = None if arguments.gpu == "all" else arguments.gpu.split(",")
    traces = load_traces(Path(arguments.traces), gpus)
    tables = {
        gpu: [
            job_table(traces, gpu, workload, eta_knob=arguments.eta)
            for workload in WORKLOADS
            if workload.key in traces.power[gpu]
        ]
        for gpu in traces.power
    }
    empty = [gpu for gpu, found in tables.items() if not found]
    if empty:
        raise TraceError(f"{arguments.traces} has no known workload for {', '.join(empty)}")
    for table in [table for found in tables.values() for table in found]:
        _ = table.optimum  # rejects unreachable targets before the replay starts
    return tables


def _replayed(
    arguments: argparse.Namespace,
    trace: ClusterTrace,
    tables: dict[str, list[JobTable]],
    policies: Sequence[str],
) -> list[ClusterRecord]:
    from zeus.replay.cluster import simulate  # noqa: PLC0415

    records: list[ClusterRecord] = []
    with progress_bar() as show:
        for number, (gpu, workloads) in enumerate(tables.items()):

            def report(done: float, number: int = number, gpu: str = gpu) -> None:
                show((number + done) / len(tables), gpu)

            records += simulate(
                trace,
                workloads,
                policies,
                seed=arguments.seed,
                scale=arguments.scale,
                engine=arguments.engine,
                workers=arguments.workers,
                address=arguments.address,
                progress=report,
                beta=arguments.beta,
            ).records
    return records


# --- report ---------------------------------------------------------------------------------------


def _report(console: Console, trace: ClusterTrace, records: Sequence[ClusterRecord]) -> list[str]:
    rows: list[Sequence[str]] = [_HEAD]
    for gpu, policy in dict.fromkeys((record.gpu, record.policy) for record in records):
        rows.append([f"{gpu}, {policy}"])
        rows += [_row(record) for record in records if (record.gpu, record.policy) == (gpu, policy)]
    lines = console.table(rows, right=range(1, len(_HEAD)))
    lines[0] = console.style(lines[0], "bold")
    counts = trace.counts
    share_of_overlap = trace.overlapping().mean()
    return [
        *lines,
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
