"""Reads what the recorded workloads took under power limits, as published beside the recordings.

`GPU_power_limits_global.csv` has one limit for all GPUs, `GPU_power_limits_local.csv` one for each
stage; a row is a run.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from zeus.errors import TraceError
from zeus.replay.pipelines._recording import Recording

KINDS = {"one power limit": "global", "a power limit for each stage": "local"}


@dataclass(frozen=True)
class LimitedRun:
    """A workload under power limits.

    Attributes:
        limits: Watts, by stage.
        time: Seconds of an iteration.
        energy: Joules of an iteration over all GPUs.
    """

    limits: tuple[float, ...]
    time: float
    energy: float


def read_power_limits(folder: Path, recording: Recording) -> dict[str, list[LimitedRun]]:
    """Read the runs of a workload under power limits, by approach.

    Args:
        folder: Folder with the tables.
        recording: The workload.

    Returns:
        An approach only if there is a table with the workload.

    Raises:
        TraceError: If a table is invalid; names it and the line.
    """
    found = {}
    for name, kind in KINDS.items():
        path = folder / f"{recording.board.name.lower()}_power_limits_{kind}.csv"
        if path.exists():
            runs = _read(path, recording)
            if runs:
                found[name] = runs
    return found


def _read(path: Path, recording: Recording) -> list[LimitedRun]:
    runs = []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.DictReader(file)
            for row in lines:
                try:
                    if _same(row, recording):
                        runs.append(_run(row, recording.stages))
                except (KeyError, TypeError, ValueError) as error:
                    raise TraceError(
                        f"{path}, line {lines.line_num}, is not in the published format: {error!r}"
                    ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path} cannot be read: {error}") from None
    return runs


def _run(row: dict[str, str], stages: int) -> LimitedRun:
    limits = tuple(float(row[f"power_limit_{stage}"]) for stage in range(stages))
    run = LimitedRun(limits, float(row["time"]), float(row["energy"]))
    if not (run.time > 0 and run.energy > 0):
        raise ValueError(f"time and energy must be above 0, but got {run.time}, {run.energy}")
    return run


def _same(row: dict[str, str], recording: Recording) -> bool:
    """Whether a row is of the recorded workload; the recording's name shortens the model's."""
    shape = tuple(int(row[name]) for name in ("pp", "num_microbatches", "dp", "tp"))
    pipelines = recording.ranks // recording.stages
    _, _, rest = recording.name.partition("-")
    return (
        shape[:2] == (recording.stages, recording.microbatches)
        and shape[2] * shape[3] == pipelines
        and row["model_name"].startswith(rest.partition("-pp")[0])
    )
