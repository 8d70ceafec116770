"""`zeus batch-limit`: which batch limit of a server keeps latency bounds with the least energy.

With `--json`, one object: `remarks` (rows that were left out, and why) and `advice`, a list of
objects, one for each model and server in the table: `group` (values that its rows have in common),
`limit`, `measured`, `feasible`, `energy` (J per token), `energy_unit` ("J", or "relative" where the
table has no unit), `energy_spread` (relative), `latencies` (s, by name), `latency_spread`
(relative), `saved` (share of the energy at the lowest limit) and `notes`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from zeus.cli import NOT_KEPT
from zeus.cli._parser import UsageError, add_json_option
from zeus.cli._terminal import Console

if TYPE_CHECKING:
    from zeus.optimizer.serving._advice import LimitAdvice
    from zeus.optimizer.serving._limit_tables import LimitTable

_HEAD = ("", "limit", "energy per token", "saved")
_BOUND = re.compile(r"(ttft|tpot|itl|e2e):(p\d+(?:\.\d+)?|avg|mean|median):(.+)")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.usage = "zeus batch-limit TABLE --bound LATENCY:STATISTIC:SECONDS [options]"
    parser.description = (
        "From a table of measured batch limits (max_num_seqs) of a server, find the one that keeps "
        "latency bounds with the least energy per token, also between measured ones. TABLE is a "
        "CSV, or JSON, or a folder or tar archive of these: with a column max_num_seqs or "
        "batch_size, one for the energy (joules_per_token), and latencies such as tpot_p99 or "
        "ttft_avg_ms. The files of ML.ENERGY's leaderboard and of Splitwise are understood as they "
        "are. Needs no GPU."
    )
    parser.epilog = """\
examples:
  zeus batch-limit measured.csv --bound tpot:p99:0.06 --bound ttft:p99:1.5
  zeus batch-limit mlenergy-v2-llm.tar.xz --bound tpot:avg:0.1 --where model=gemma-2-9b --json
  zeus batch-limit measured.csv --bound tpot:p99:0.06 --limits 32,64,128,256"""
    parser.add_argument("table", metavar="TABLE", help="file, folder or tar archive")
    parser.add_argument(
        "--bound",
        action="append",
        type=_bound,
        required=True,
        metavar="LATENCY:STATISTIC:SECONDS",
        help="such as tpot:p99:0.06; several must all be kept",
    )
    parser.add_argument(
        "--limits",
        type=_limits,
        metavar="N,N",
        help="limits to choose from (default: all within the table)",
    )
    parser.add_argument(
        "--where",
        action="append",
        type=_condition,
        default=[],
        metavar="COLUMN=TEXT",
        help="only rows whose column (model, gpu, tp, task...) contains the text",
    )
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read the table, advise, print."""
    from zeus.optimizer.serving._advice import advise_limit  # noqa: PLC0415  (not for --help)
    from zeus.optimizer.serving._limit_tables import read_limit_tables  # noqa: PLC0415

    bounds: dict[str, float] = dict(arguments.bound)
    tables, remarks = read_limit_tables(arguments.table)
    chosen = [table for table in tables if _matches(table.group, arguments.where)]
    if not chosen:
        known = sorted({f"{key}={value}" for table in tables for key, value in table.group.items()})
        raise UsageError(f"no row matches --where; the table has {', '.join(known) or 'no groups'}")
    advice = [(each, advise_limit(each.rows, bounds, limits=arguments.limits)) for each in chosen]
    if arguments.json:
        document = {"remarks": remarks, "advice": [_plain(*each) for each in advice]}
        Console(sys.stdout).print(json.dumps(document, indent=1))
    else:
        console = Console(sys.stdout)
        console.print(*_report(console, advice, bounds, remarks))
    return 0 if all(each.feasible for _, each in advice) else NOT_KEPT


def _bound(text: str) -> tuple[str, float]:
    found = _BOUND.fullmatch(text.strip().lower())
    try:
        seconds = float(found[3]) if found else 0.0
    except ValueError:
        seconds = 0.0
    if found is None or not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"must be such as tpot:p99:0.06, but got {text!r}")
    return f"{found[1]} {'avg' if found[2] == 'mean' else found[2]}", seconds


def _limits(text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"must be whole numbers from 1 on, but got {text!r}")
    return found


def _condition(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (equals and key.strip() and value.strip()):
        raise argparse.ArgumentTypeError(f"must be such as model=llama, but got {text!r}")
    return key.strip().lower(), value.strip().lower()


def _matches(group: Mapping[str, str], conditions: Sequence[tuple[str, str]]) -> bool:
    return all(value in group.get(key, "").lower() for key, value in conditions)


def _plain(table: LimitTable, advice: LimitAdvice) -> dict[str, Any]:
    unit = "relative" if table.relative else "J"
    return {"group": dict(table.group), "energy_unit": unit, **asdict(advice)}


def _report(
    console: Console,
    advice: Sequence[tuple[LimitTable, LimitAdvice]],
    bounds: Mapping[str, float],
    remarks: Sequence[str],
) -> list[str]:
    rows: list[Sequence[str]] = [(*_HEAD, *bounds)]
    notes: dict[str, None] = {}
    for table, each in advice:
        unit = "" if table.relative else " J"
        rows.append([
            (table.name or "table") + ("" if each.feasible else " !"),
            f"{each.limit}{'' if each.measured else '*'}",
            f"{each.energy:.4g}{unit}{_spread(each.energy_spread)}",
            f"{100 * each.saved:.0f} %",
            *(
                f"{1e3 * each.latencies[name]:.1f} ms{_spread(each.latency_spread[name])}"
                for name in bounds
            ),
        ])  # fmt: skip
        if len(advice) == 1:
            notes |= dict.fromkeys(each.notes)
    if any(not each.measured for _, each in advice):
        notes["*: not measured, interpolated between measured limits; ± is a standard error"] = None
    if any(not each.feasible for _, each in advice):
        notes["!: no limit of the table keeps all bounds"] = None
    return [
        *console.table(rows, right=range(1, len(_HEAD) + len(bounds)), heading=True),
        "",
        *(f"{_capital(note)}." for note in (*notes, *remarks)),
        "Saved: against the lowest measured limit.",
    ]


def _spread(relative: float) -> str:
    return f" ±{100 * relative:.0f} %" if relative else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
