"""How long a whole cluster takes: 1.2 million overlapping jobs with each policy, as JSON.

The tables are made up (`zeus cluster generate`), with so many rows that 1.2 million jobs succeed
and recur. Each policy is a command of its own, tables read anew. It takes wall time on
two workers, processor time of all processes, and the most memory that they hold together.

    python benchmarks/cluster.py [--quick] [--traces DIR]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import QUICK, Bench, say
from rows import Row, row

TRACES = Path(
    os.environ.get("ZEUS_TRACES", Path(__file__).resolve().parents[2] / "shared" / "traces")
)
ZEUS = [sys.executable, "-m", "zeus", "cluster"]
POLICIES = ("default", "grid", "paper", "zeus")
ROWS, QUICK_ROWS = 2_050_000, 100_000
WORKERS = 2
OURS = "ours"
_EVERY = 0.2  # seconds between two looks at the memory
_PAGE = os.sysconf("SC_PAGE_SIZE")


def measured(command: list[str]) -> dict[str, Any]:
    """Seconds, core-seconds, and the most bytes that the command and its children hold."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    most = 0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(_EVERY)
            break
        most = max(most, _memory(process.pid))
    seconds = time.monotonic() - began
    if code:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {code}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cores = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "core_seconds": cores, "bytes": most}


def _memory(process: int) -> int:
    """Resident bytes of a process and its children; pages they share count more than once."""
    total = 0
    with contextlib.suppress(OSError):
        total = int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        total += sum(_memory(int(child)) for child in children)
    return total


def protocol(traces: Path, quick: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="zeus-cluster-") as scratch:
        tables, record = Path(scratch) / "tables", Path(scratch) / "record.json"
        rows = QUICK_ROWS if quick else ROWS
        say(f"cluster: {rows} rows")
        made = measured([*ZEUS, "generate", "--jobs", str(rows), "--output", str(tables)])
        for policy in POLICIES:
            say(f"cluster: {policy}")
            command = [
                *ZEUS, "replay", "--tables", str(tables), "--traces", str(traces), "--gpu", "v100",
                "--policy", policy, "--workers", str(WORKERS), "--json", str(record),
            ]  # fmt: skip
            took = measured(command)
            total = json.loads(record.read_text())["records"][-1]
            yield from _rows(policy, took, total, quick)
        yield row(
            "cluster", "making up the tables", f"{rows} rows", "s", {OURS: made["seconds"]}, **made
        )


def _rows(policy: str, took: dict[str, float], total: dict[str, Any], quick: bool) -> Iterator[Row]:
    case = f"{policy}, {total['jobs']} jobs, {WORKERS} workers"
    more: dict[str, Any] = {"load_average": os.getloadavg(), **took, "total": total}
    yield row(
        "cluster", "replaying a cluster", case, "s", {OURS: took["seconds"]},
        target=None if quick else 30.0, **more,
    )  # fmt: skip
    yield row(
        "cluster", "most memory of all processes", case, "GB", {OURS: took["bytes"] / 1e9},
        target=2.0,
    )  # fmt: skip


def bench_cluster(bench: Bench) -> Iterator[Row]:
    """1.2 million overlapping jobs of a cluster with each policy; ours only."""
    yield from protocol(TRACES / "nsdi23", bench.effort.imports <= QUICK.imports)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer jobs")
    parser.add_argument("--traces", type=Path, default=TRACES / "nsdi23", metavar="DIR")
    chosen = parser.parse_args()
    print(json.dumps(list(protocol(chosen.traces, chosen.quick)), indent=2))


if __name__ == "__main__":
    main()
