"""Options of `zeus replay` for worlds that change, and the scenarios that follow from them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from zeus.cli._parser import UsageError, number, whole_number

if TYPE_CHECKING:
    from zeus.replay._scenarios import Scenario
    from zeus.replay._table import JobTable
    from zeus.replay._traces import Traces
    from zeus.replay._workloads import Workload

_DRIFTS = ("sudden", "linear", "sinusoidal", "ramp")
_WINDOW = 10  # observations that count if the data drift
_MAX_BATCH_SIZE = 2**31
_MAX_OVERLAP = 1000


def add_scenario_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("other worlds")
    group.add_argument(
        "--default",
        type=whole_number(1, _MAX_BATCH_SIZE),
        metavar="N",
        help="another batch size as the default",
    )
    group.add_argument(
        "--drift",
        choices=_DRIFTS,
        help="let the epochs become those of another target: there and back at once, gradually, or "
        "twice; or there only (ramp)",
    )
    group.add_argument(
        "--drift-to",
        type=float,
        metavar="T",
        help="that target (default: the one whose best batch size is farthest)",
    )
    group.add_argument(
        "--window",
        type=whole_number(0, 1000),
        metavar="N",
        help=f"latest observations that count, 0 for all (0; with --drift {_WINDOW})",
    )
    group.add_argument(
        "--overlap",
        type=number(0.0, _MAX_OVERLAP, above=True),
        metavar="N",
        help="submit runs independently of each other, N at once on average with the default",
    )
    group.add_argument("--move", metavar="GPU", help="move to another GPU model in mid job")


def window_of(arguments: argparse.Namespace) -> int:
    """Return the number of latest observations that count."""
    if arguments.window is not None:
        return int(arguments.window)
    return _WINDOW if arguments.drift else 0


def check_scenario_options(arguments: argparse.Namespace) -> None:
    """Raise a `UsageError` for options that exclude each other."""
    if arguments.drift_to is not None and not arguments.drift:
        raise UsageError("--drift-to is the end of a drift; it needs --drift")
    if arguments.drift and arguments.move:
        raise UsageError("give --drift or --move, not both")


def scenarios_of(
    arguments: argparse.Namespace, traces: Traces, tables: Sequence[JobTable]
) -> list[Scenario]:
    """Return what the jobs of each table meet.

    Args:
        arguments: With the options of this module.
        traces: Where other targets and other GPU models come from.
        tables: Workloads on GPUs.

    Raises:
        TraceError: If the traces lack what an option asks for.
    """
    from zeus.replay._scenarios import Scenario, with_default  # noqa: PLC0415

    if arguments.default is not None:
        tables = [with_default(table, arguments.default) for table in tables]
    if arguments.drift:
        found = [_drifting(arguments, traces, table) for table in tables]
    elif arguments.move:
        found = [_moving(arguments, traces, table) for table in tables]
    else:
        found = [Scenario.steady(table, arguments.recurrences) for table in tables]
    if arguments.overlap is None:
        return found
    how = f"{arguments.overlap:g} overlap"
    return [
        replace(each, overlap=arguments.overlap, label=", ".join(filter(None, (each.label, how))))
        for each in found
    ]


def _drifting(arguments: argparse.Namespace, traces: Traces, table: JobTable) -> Scenario:
    from zeus.replay._scenarios import drifting, farthest  # noqa: PLC0415

    if arguments.drift_to is not None:
        other = _elsewhere(arguments, traces, table, target=arguments.drift_to)
        _ = other.optimum  # rejects unreachable targets
    else:
        recorded = sorted({row.target_metric for row in traces.training[_workload(table).key]})
        others = [
            _elsewhere(arguments, traces, table, target=target)
            for target in recorded
            if target != table.target_metric
        ]
        other = farthest(table, others)
    count = table.recurrences if arguments.recurrences is None else arguments.recurrences
    label = f"{arguments.drift} drift to {other.target_metric:g}"
    return replace(drifting(table, other, arguments.drift, count), label=label)


def _moving(arguments: argparse.Namespace, traces: Traces, table: JobTable) -> Scenario:
    from zeus.replay._scenarios import moving  # noqa: PLC0415

    other = _elsewhere(arguments, traces, table, gpu=arguments.move)
    stays = [table.recurrences, other.recurrences]
    if arguments.recurrences is not None:
        stays = [arguments.recurrences // 2, arguments.recurrences - arguments.recurrences // 2]
    return replace(moving([table, other], stays), label=f"moves to {arguments.move}")


def _elsewhere(
    arguments: argparse.Namespace,
    traces: Traces,
    table: JobTable,
    *,
    gpu: str | None = None,
    target: float | None = None,
) -> JobTable:
    """Return the same workload on another GPU or at another target."""
    from zeus.replay._table import job_table  # noqa: PLC0415

    return job_table(
        traces,
        gpu or table.gpu,
        _workload(table),
        eta_knob=table.eta_knob,
        target_metric=table.target_metric if target is None else target,
        untrained=arguments.untrained,
    )


def _workload(table: JobTable) -> Workload:
    from zeus.replay._workloads import workload_named  # noqa: PLC0415

    return workload_named(table.workload)
