"""Recorded pipelines: what models predict of other schedules, and what our plans would save.

    python benchmarks/recorded_pipelines.py [RECORDING ...]

prints JSON, with all values in percent. A recording is an archive or a folder, by default those of
`../shared/traces/pipelines` or of `pipelines` in `ZEUS_TRACES`. Takes about a minute.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from zeus.replay.pipelines import Recording, compare_plans, read_recording, splits, validate

TRACES = Path(os.environ.get("ZEUS_TRACES", Path(__file__).parents[2] / "shared" / "traces"))


def summary(errors: np.ndarray) -> dict[str, float]:
    """Median and largest of the errors, in percent."""
    percent = 100 * abs(errors)
    return {"median": round(float(np.median(percent)), 3), "worst": round(float(percent.max()), 3)}


def measure(path: Path) -> dict[str, Any]:
    """Everything that is measured on one recording."""
    recording = read_recording(path)
    row: dict[str, Any] = {"schedules": len(recording.planned)}
    for split in splits(recording):
        errors = validate(recording, split)
        row[split.name] = {"time": summary(errors.time), "energy": summary(errors.energy)}
    compared = [each for split in splits(recording)[:2] for each in compare_plans(recording, split)]
    saved = [100 * each.saved for each in compared]
    row["our plans beside the recorded ones"] = {
        "saved, median": round(float(np.median(saved)), 3),
        "saved, least": round(min(saved), 3),
        "saved, most": round(max(saved), 3),
    }
    row["power limits"] = limits(recording, path.parent)
    return row


def limits(recording: Recording, folder: Path) -> dict[str, Any]:
    """Measured energy saved by power limits and by the recorded schedules, at equal time.

    Against all GPUs at 300 W: the least energy of each approach with an iteration that is longer by
    a given share at most; `None` if it was not measured that fast.
    """
    gpu = recording.board.name.lower()
    points = {"recorded schedules": [(run.time, run.energy) for run in recording.planned]}
    for kind in ("global", "local"):
        table = folder / f"{gpu}_power_limits_{kind}.csv"
        if not table.exists():
            return {}
        with table.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if _same(row, recording)]
        points[f"{kind} power limit"] = [(float(row["time"]), float(row["energy"])) for row in rows]
    if not points["global power limit"]:
        return {}
    time, energy = min(points["global power limit"])
    found: dict[str, Any] = {}
    for name, each in points.items():
        found[name] = {}
        for slower in (1, 3, 5, 10):
            least = min((e for t, e in each if t <= time * (1 + slower / 100)), default=None)
            saved = None if least is None else round(100 * (1 - least / energy), 1)
            found[name][f"at most {slower} % slower"] = saved
    return found


def _same(row: dict[str, str], recording: Recording) -> bool:
    """Whether a row of power limits is of the recorded workload; both shorten its name."""
    model = recording.name.split("-", 1)[1].split("-pp")[0]
    shape = int(row["pp"]), int(row["num_microbatches"])
    return row["model_name"].startswith(model) and shape == (
        recording.stages,
        recording.microbatches,
    )


def main() -> None:
    """Measure the given recordings, or all."""
    paths = [Path(each) for each in sys.argv[1:]]
    paths = paths or sorted((TRACES / "pipelines").glob("*.tar.xz"))
    if not paths:
        sys.exit(f"no recordings at {TRACES / 'pipelines'}; set ZEUS_TRACES to where they are")
    print(json.dumps({path.name: measure(path) for path in paths}, indent=2))


if __name__ == "__main__":
    main()
