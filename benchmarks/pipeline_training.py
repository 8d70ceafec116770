"""Training a pipeline with Zeus and without: the example of `examples/pipeline`, as it is.

Real processes and a real server train a small transformer with PyTorch's pipeline runtime on
simulated GPUs in virtual time. So the figures do not depend on the machine or what else it does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness import QUICK, Bench, say
from rows import Row, row
from tools import OURS, ROOT

TASK = "pipeline_training"
SCHEDULES = ("1f1b", "interleaved")
LONGEST = 1.001  # times the iteration without Zeus
FULL_SPEED = 0.9  # of the energy
STRAGGLER = 1 - 0.126  # as at the lower end of what was published for clusters of A100


def bench_pipeline_training(bench: Bench) -> Iterator[Row]:
    """The example of a training pipeline, with Zeus and without (ours only)."""
    for schedule in SCHEDULES[: 1 if bench.effort == QUICK else None]:
        say(f"  {schedule}")
        with tempfile.TemporaryDirectory() as folder:
            yield from compared(schedule, Path(folder))


def compared(schedule: str, folder: Path) -> Iterator[Row]:
    result = folder / "result.json"
    script = ROOT / "examples" / "pipeline" / "compare.py"
    subprocess.run(
        [sys.executable, str(script), "--json", str(result), "--schedule", schedule],
        env={**os.environ, "ZEUS_STATE_DIR": str(folder)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    found = json.loads(result.read_text())

    def one(measure: str, case: str, unit: str, value: float, target: float | None = None) -> Row:
        return row(TASK, measure, f"{schedule}, {case}", unit, {OURS: value}, target=target)

    def left(phase: str, what: str) -> float:
        both = found["phases"][phase]
        return both["with"][what] / both["without"][what]

    for phase in found["phases"]:
        yield one("iteration time, of that without Zeus", phase, "1", left(phase, "time"), LONGEST)
        target = FULL_SPEED if phase != "straggler" else None
        yield one("energy, of that without Zeus", phase, "1", left(phase, "energy"), target)
    waiting = left("straggler", "of who waits")
    yield one("energy of the pipeline that waits", "straggler", "1", waiting, STRAGGLER)
    yield one("losses that differ", "all steps", "steps", float(found["losses that differ"]), 0.0)
    yield one("until there is a plan", "from the start", "steps", found["steps until planned"])
    slowest = max(found["steps until settled"])
    yield one("until all follow", "from a straggler's report", "steps", slowest, 1.0)
