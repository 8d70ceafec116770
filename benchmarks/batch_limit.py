"""Advice on the batch limit, on recorded tables of which every second limit is left out.

    python benchmarks/batch_limit.py [TABLE ...]

prints JSON. For each model and server of the tables, every second limit is left out (the highest
stays), `advise_limit` chooses a limit from the rest under a bound on the mean time per token, and
the choice is judged by the whole table: whether it keeps the bound, and how much more energy per
token it takes than the best recorded limit that does. Bounds are round ones from 40 to 400 ms, and
none. The truth at a limit that was not recorded is interpolated between its recorded neighbors.
Tables of which fewer than three limits remain are left out; so are bounds that no limit keeps.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zeus.optimizer.serving._advice import LimitRow, _by_inverse, _Curve, _rising, advise_limit
from zeus.optimizer.serving._limit_tables import read_limit_tables

if TYPE_CHECKING:
    from harness import Bench
    from rows import Row

TRACES = Path(os.environ.get("ZEUS_TRACES", Path(__file__).parents[2] / "shared" / "traces"))
TABLES = ("mlenergy-v2-llm.tar.xz", "splitwise_perf_model.csv", "v100_mistral7b_clock_sweep.csv")
BOUNDS = (0.04, 0.05, 0.06, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 10.0)
LATENCY = "tpot avg"
WITHIN = 0.03


@dataclass(frozen=True)
class Judged:
    """A choice, judged by the whole table."""

    group: str
    bound: float
    limit: int
    measured: bool
    latency: float
    excess: float
    best: float

    @property
    def kept(self) -> bool:
        """Whether the bound is kept."""
        return self.latency <= self.bound * 1.0001

    @property
    def good(self) -> bool:
        """Whether the bound is kept with hardly more energy than the least."""
        return self.kept and self.excess <= WITHIN


def averaged(rows: Sequence[LimitRow]) -> list[LimitRow]:
    """One row per limit, in order."""
    limits = sorted({row.limit for row in rows})
    mine = [[row for row in rows if row.limit == limit] for limit in limits]
    return [
        LimitRow(
            found[0].limit,
            statistics.fmean(row.energy for row in found),
            {LATENCY: statistics.fmean(row.latencies[LATENCY] for row in found)},
        )
        for found in mine
    ]


def halved(rows: Sequence[LimitRow]) -> list[LimitRow]:
    """Every second row, and the last."""
    return [*rows[:-1:2], rows[-1]]


def judge(name: str, rows: Sequence[LimitRow], *, offered: bool) -> Iterator[Judged]:
    """Advise from half of the rows under each bound, and judge by all.

    Args:
        name: Name of the table.
        rows: One row per limit, in order.
        offered: Whether to choose from recorded limits only, as far as their rows are left out.
    """
    known = halved(rows)
    if len(known) < 3 or len(known) == len(rows):
        return
    limits = [row.limit for row in rows]
    energies = _Curve(limits, [row.energy for row in rows], _by_inverse)
    latencies = _Curve(limits, [row.latencies[LATENCY] for row in rows], _rising)
    for bound in BOUNDS:
        if not any(row.latencies[LATENCY] <= bound for row in known):
            continue
        best = min((row for row in rows if row.latencies[LATENCY] <= bound), key=lambda r: r.energy)
        choice = advise_limit(
            known, {LATENCY: bound}, limits=[int(each) for each in limits] if offered else None
        )
        excess = energies.at(choice.limit) / best.energy - 1
        latency = latencies.at(choice.limit)
        yield Judged(name, bound, choice.limit, choice.measured, latency, excess, best.limit)


def covered(rows: Sequence[LimitRow]) -> Iterator[bool]:
    """Whether what was left out lies within twice the stated uncertainty."""
    known = halved(rows)
    if len(known) < 3:
        return
    limits = [row.limit for row in known]
    for value, form in (
        (lambda row: row.energy, _by_inverse),
        (lambda row: row.latencies[LATENCY], _rising),
    ):
        curve = _Curve(limits, [value(row) for row in known], form)
        for row in rows:
            if row.limit not in limits:
                error = abs(math.log(curve.at(row.limit) / value(row)))
                yield error <= 2 * curve.spread(row.limit)


def summary(found: Sequence[Judged]) -> dict[str, Any]:
    """Shares in percent."""
    if not found:
        return {"choices": 0}
    groups = {each.group for each in found}
    share = lambda chosen: round(100 * len(chosen) / len(found), 1)  # noqa: E731
    return {
        "tables": len(groups),
        "choices": len(found),
        "bound kept, %": share([each for each in found if each.kept]),
        "within 3 % of the best, %": share([each for each in found if each.excess <= WITHIN]),
        "both, %": share([each for each in found if each.good]),
        "median more energy than the best, %": round(
            100 * statistics.median(each.excess for each in found), 2
        ),
    }


def measured(paths: Sequence[Path]) -> dict[str, Any]:
    """Everything that is measured on some tables."""
    result: dict[str, Any] = {}
    for path in paths:
        tables, remarks = read_limit_tables(path)
        rows = {
            table.name or path.name: averaged(table.rows)
            for table in tables
            if all(LATENCY in row.latencies for row in table.rows)
        }
        coverage = [each for found in rows.values() for each in covered(found)]
        result[path.name] = {
            "any limit": summary([j for n, r in rows.items() for j in judge(n, r, offered=False)]),
            "recorded limits": summary(
                [j for n, r in rows.items() for j in judge(n, r, offered=True)]
            ),
            "left out rows within twice the uncertainty, %": (
                round(100 * sum(coverage) / len(coverage), 1) if coverage else None
            ),
            "remarks": remarks,
        }
    return result


def bench_batch_limit(_: Bench) -> Iterator[Row]:
    """Advice on the batch limit, on recorded tables with every second limit left out."""
    from rows import row
    from tools import OURS

    paths = [path for name in TABLES if (path := TRACES / "serving" / name).exists()]
    for name, found in measured(paths).items():
        good = {OURS: found["any limit"]["both, %"]}
        yield row("batch_limit", "good choices", name, "%", good, target=95, at_least=True, **found)


def main() -> None:
    """Measure the given tables, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", type=Path, metavar="TABLE")
    parser.add_argument("--failures", action="store_true", help="list choices that are not good")
    arguments = parser.parse_args()
    paths = arguments.tables or [TRACES / "serving" / name for name in TABLES]
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        sys.exit(f"no tables at {', '.join(missing)}; set ZEUS_TRACES to where they are")
    print(json.dumps(measured(paths), indent=2))
    if arguments.failures:
        for path in paths:
            for table in read_limit_tables(path)[0]:
                for each in judge(table.name, averaged(table.rows), offered=False):
                    if not each.good:
                        print(each, file=sys.stderr)


if __name__ == "__main__":
    main()
