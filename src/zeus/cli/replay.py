"""`zeus replay`: replay policies of recurring jobs on traces of real training runs.

With `--json`, a list of objects, one for each GPU, workload, policy and seed: `gpu`, `workload`,
`scenario` (what changes for the job, in words), `policy`, `seed`, `recurrences`, `trials`,
`unreached` (recurrences that were abandoned), `energy` (J), `time` (s) and `cost` (J) of all
recurrences, `eta_last5_vs_default`, `tta_last5_vs_default`, `cumulative_regret` (in units of the
oracle's cost of one run), `too_expensive_after_100` (fraction of the recurrences after the first
100 whose configuration is expected to cost more than 5 % above the oracle's),
`cumulative_eta_vs_default`, `cumulative_tta_vs_default`, `last_batch_size`, `last_power_limit`,
`optimal_batch_size` and `optimal_power_limit`. Ratios are null where the default never reaches the
target.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zeus.cli._output import prepared
from zeus.cli._parser import UsageError, add_json_output_options, whole_number
from zeus.cli._replaying import (
    AVAILABLE,
    DEFAULTS,
    about_the_job,
    add_replay_options,
    load_tables,
    publish,
    read_traces,
    with_progress,
)
from zeus.cli._scenarios import (
    add_scenario_options,
    check_scenario_options,
    scenarios_of,
    window_of,
)
from zeus.cli._terminal import MISSING, Console
from zeus.errors import ExtensionError, TraceError, ZeusError

if TYPE_CHECKING:
    from zeus.replay._scenarios import Scenario
    from zeus.replay._study import Record

_HEAD = ("policy", "energy", "time", "regret", "worst", "late", "trials", "last")
_MOST = 1_000_000
_MAX_SEED = 2**53
_MANY_RUNS = 1000  # from here on, regret is shown without decimals


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.usage = "zeus replay [--traces DIR] [options]"
    parser.description = (
        "Replay recurring training jobs on recorded traces, or on a made-up job: for each GPU and "
        "workload, the energy and time of each policy, the configuration it converges to, and its "
        "regret against the optimum. Needs no GPU."
    )
    parser.epilog = """\
examples:
  zeus replay
  zeus replay --traces traces/nsdi23
  zeus replay --traces traces/nsdi23 --gpu v100 --workload neumf --policy paper,zeus --seeds 50
  zeus replay --traces traces/nsdi23 --workload shufflenetv2 --target 0.55 --output records.json
  zeus replay --traces traces/nsdi23 --gpu v100 --workload resnet50 --drift sudden --overlap 4
  zeus replay --traces traces/nsdi23 --gpu a40 --policy zeus --move v100"""
    parser.set_defaults(**DEFAULTS)
    add_replay_options(parser)
    parser.add_argument(
        "--workload", default="all", metavar="NAME,NAME", help="workloads, or `all` (default)"
    )
    parser.add_argument(
        "--seeds",
        type=whole_number(1, _MOST),
        default=20,
        metavar="N",
        help="number of jobs per policy and workload (20)",
    )
    parser.add_argument(
        "--first-seed",
        type=whole_number(0, _MAX_SEED),
        default=0,
        metavar="N",
        help="seed of the first job (0); the next has the next one",
    )
    parser.add_argument(
        "--target",
        type=float,
        metavar="T",
        help="override the target metric; with one workload only",
    )
    parser.add_argument(
        "--recurrences",
        type=whole_number(1, _MOST),
        metavar="N",
        help="runs of each job (default: twice its number of configurations)",
    )
    parser.add_argument(
        "--first-night",
        choices=("measure", "default"),
        default="measure",
        help="`zeus` first measures for some seconds what an epoch costs at every batch size, as "
        "programs can with measure_batch_sizes() (measure), or begins with the default",
    )
    add_scenario_options(parser)
    add_json_output_options(parser, "records")


def run(arguments: argparse.Namespace) -> int:
    """Replay the jobs, then print the report."""
    with prepared(arguments.json) as output:
        scenarios = _scenarios(arguments)
        records = _replayed(arguments, scenarios)
        publish(
            output,
            arguments.json,
            lambda console: about_the_job(arguments) + _report(console, scenarios, records),
            [record.to_dict() for record in records],
        )
    return 0


def _scenarios(arguments: argparse.Namespace) -> list[Scenario]:
    from zeus.replay._workloads import workload_named  # noqa: PLC0415

    names = None if arguments.workload == "all" else arguments.workload.split(",")
    workloads = None if names is None else [workload_named(name) for name in names]
    if arguments.target is not None and (workloads is None or len(workloads) != 1):
        raise UsageError("--target needs exactly one workload; name it with --workload")
    check_scenario_options(arguments)
    traces = read_traces(arguments, *([arguments.move] if arguments.move else []))
    by_gpu = load_tables(arguments, traces, workloads, arguments.target)
    tables = [table for gpu, found in by_gpu.items() if gpu != arguments.move for table in found]
    if not tables and arguments.move in by_gpu:
        raise UsageError(f"--move {arguments.move} needs jobs that begin on another GPU model")
    if not tables:
        raise TraceError(f"{arguments.traces} has no known workload")
    return scenarios_of(arguments, traces, tables)


def _replayed(arguments: argparse.Namespace, scenarios: Sequence[Scenario]) -> list[Record]:
    from zeus.optimizer.batch_size.policies._registry import policy_at  # noqa: PLC0415
    from zeus.replay._study import study  # noqa: PLC0415

    policies = {
        name: policy_at(name) if ":" in name else name for name in arguments.policy
    }  # before any is replayed
    records = []
    for name, report in with_progress(arguments.policy):
        try:
            records += study(
                scenarios,
                policies[name],
                range(arguments.first_seed, arguments.first_seed + arguments.seeds),
                progress=report,
                measure_sizes=arguments.first_night == "measure",
                beta=arguments.beta,
                window=window_of(arguments),
            )
        except ZeusError:
            raise
        except Exception as error:
            if name in AVAILABLE:
                raise
            raise ExtensionError(  # in code that is not ours
                f"the policy {name} failed: {type(error).__name__}: {error} "
                "(set ZEUS_DEBUG=1 to see the traceback)"
            ) from error
    return records


def _report(
    console: Console, scenarios: Sequence[Scenario], records: Sequence[Record]
) -> list[str]:
    rows: list[Sequence[str]] = [_HEAD]
    for scenario in scenarios:
        table, last = scenario.tables[0], scenario.last
        best = _setting(last.batch_sizes[last.optimum.arm], last.power_limits[last.optimum.power])
        changes = f", {scenario.label}" if scenario.label else ""
        rows.append([f"{table.gpu} {table.workload}{changes}; best: {best}"])
        for policy in dict.fromkeys(record.policy for record in records):
            mine = [
                record
                for record in records
                if (record.gpu, record.workload, record.policy)
                == (table.gpu, table.workload, policy)
            ]
            rows.append(_row(mine))
    seeds = len({record.seed for record in records})
    return [
        *console.table(rows, right=range(1, len(_HEAD)), heading=True),
        "",
        f"Means over {seeds} jobs each.",
        "Energy and time: of the last five recurrences, relative to the default.",
        "Regret: cumulative cost beyond the optimum, in units of one optimal run;",
        "worst: of the worst job. Late: runs after the first 100 whose configuration is",
        "expected to cost more than 5 % above the optimum. Last: most common final",
        "configuration.",
    ]


def _row(records: Sequence[Record]) -> list[str]:
    first = records[0]
    count = len(records)
    last = Counter((record.last_batch_size, record.last_power_limit) for record in records)
    regrets = [record.cumulative_regret for record in records]
    return [
        first.policy,
        _mean([record.eta_last5_vs_default for record in records]),
        _mean([record.tta_last5_vs_default for record in records]),
        _regret(sum(regrets) / count),
        _regret(max(regrets)),
        _share([record.too_expensive_after_100 for record in records]),
        f"{sum(record.trials for record in records) / count:.1f}",
        _setting(*last.most_common(1)[0][0]),
    ]


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.3f}" if known else MISSING


def _share(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * sum(known) / len(known):.1f} %" if known else MISSING


def _regret(value: float) -> str:
    return f"{value:.2f}" if value < _MANY_RUNS else f"{value:,.0f}"


def _setting(batch_size: int, power_limit: float) -> str:
    return f"{batch_size} @ {power_limit:g} W"
