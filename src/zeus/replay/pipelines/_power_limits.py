"""Reads what the recorded workloads took under power limits, as published beside the recordings.

`GPU_power_limits_global.csv` has one limit for all GPUs, `GPU_power_limits_local.csv` one for each
stage; a row is a run. A table may have several partitions of a model's layers into stages, which
are different workloads: recorded is the one that takes as long. A recording that is not named after
a model is found by the time and energy of its runs at the highest clocks.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from zeus.errors import TraceError
from zeus.replay.pipelines._recording import Recording

KINDS = {"one power limit": "global", "a power limit for each stage": "local"}

_EQUAL = 0.03  # relative difference of runs of one workload at the highest setting, at most

_Workload = tuple[str, str]  # model, and partition of its layers


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
    tables = {}
    for name, kind in KINDS.items():
        path = folder / f"{recording.board.name.lower()}_power_limits_{kind}.csv"
        if path.exists():
            tables[name] = _read(path, recording)
    everything = [each for table in tables.values() for each in table]
    fastest = min(run.time for run in recording.runs.values())
    likely = [each for each in everything if _named(each[0][0], recording)] or [
        each for each in everything if _as_recorded(each[1], recording)
    ]
    if not likely:
        return {}
    workload, _ = min(likely, key=lambda each: abs(each[1].time - fastest))
    chosen = {
        name: [run for own, run in table if own == workload] for name, table in tables.items()
    }
    return {name: runs for name, runs in chosen.items() if runs}


def _read(path: Path, recording: Recording) -> list[tuple[_Workload, LimitedRun]]:
    """Return runs of workloads with the recorded numbers of stages, microbatches and GPUs."""
    runs = []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.DictReader(file)
            for row in lines:
                try:
                    if _same_shape(row, recording):
                        workload = row["model_name"], row.get("partition_method", "")
                        runs.append((workload, _run(row, recording.stages)))
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


def _same_shape(row: dict[str, str], recording: Recording) -> bool:
    shape = tuple(int(row[name]) for name in ("pp", "num_microbatches", "dp", "tp"))
    pipelines = recording.ranks // recording.stages
    return (
        shape[:2] == (recording.stages, recording.microbatches) and shape[2] * shape[3] == pipelines
    )


def _named(model: str, recording: Recording) -> bool:
    """Whether a recording is named after a model; its name shortens the model's."""
    _, _, rest = recording.name.partition("-")
    return model.startswith(rest.partition("-pp")[0])


def _as_recorded(run: LimitedRun, recording: Recording) -> bool:
    """Whether a run takes what a recorded one at one clock does."""
    return any(
        abs(run.time / each.time - 1) < _EQUAL and abs(run.energy / each.energy - 1) < _EQUAL
        for each in recording.runs.values()
        if each.uniform
    )
