"""Reads recorded runs of pipelines under frequency schedules, as published with the Perseus paper.

A recording is a folder, or an archive of one, with two files for each schedule: `N.sched.json` has
the clock of every instruction of every rank, `N.prof.json` the times and energies of iterations
and the times of loads and computations. Values of an iteration are medians from the third iteration
on: earlier ones warm up, and a stalled loader must not count.
"""

from __future__ import annotations

import json
import lzma
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeus.errors import TraceError
from zeus.replay.pipelines._boards import Board, board_named
from zeus.replay.pipelines._instructions import Kind, instructions, shape_of

Array = NDArray[np.float64]

WARM_UP = 2  # iterations
_FILE = re.compile(r"(\d+)\.(sched|prof)\.json")
_COMPUTATIONS = {"forward": Kind.FORWARD, "backward": Kind.BACKWARD}


@dataclass(frozen=True)
class Run:
    """One schedule, as it ran.

    Attributes:
        number: Number of the schedule.
        clocks: MHz of "forward" and "backward", by rank and microbatch.
        times: Seconds of "forward", "backward" and "load", likewise.
        time: Seconds of an iteration.
        energies: Joules of an iteration, by rank.
    """

    number: int
    clocks: Mapping[str, Array]
    times: Mapping[str, Array]
    time: float
    energies: Array

    @property
    def energy(self) -> float:
        """Joules of an iteration over all ranks."""
        return float(self.energies.sum())

    @property
    def uniform(self) -> bool:
        """Whether everything ran at the same clock."""
        return bool(np.ptp(list(self.clocks.values())) == 0)


@dataclass(frozen=True)
class Recording:
    """All schedules of one workload.

    Attributes:
        name: Name of the folder or archive.
        board: GPU model that all ranks ran on.
        stages: Number of pipeline stages; rank `r` runs stage `r % stages`.
        microbatches: Microbatches in an iteration.
        runs: Every schedule, by number.
    """

    name: str
    board: Board
    stages: int
    microbatches: int
    runs: Mapping[int, Run]

    @property
    def ranks(self) -> int:
        """Number of GPUs."""
        return len(next(iter(self.runs.values())).energies)

    @property
    def planned(self) -> list[Run]:
        """Runs of plans, by number.

        Those where everything has the highest clock are without (0 and 1 as published): GPUs still
        warmed up then.
        """
        highest = max(float(np.max(list(run.clocks.values()))) for run in self.runs.values())
        return [
            run
            for run in self.runs.values()
            if not (run.uniform and run.clocks["forward"].flat[0] == highest)
        ]


def read_recording(path: Path | str, gpu: str | None = None) -> Recording:
    """Read a recording.

    Args:
        path: A folder with `N.sched.json` and `N.prof.json`, or a tar archive of one, at any depth.
        gpu: GPU model, "A40" or "A100"; by default the one that the name of `path` contains.

    Raises:
        TraceError: If a file is missing or invalid; names it.
    """
    path = Path(path)
    files = dict(_files(path))
    numbers = sorted({number for number, _ in files})
    if not numbers:
        raise TraceError(f"{path} must hold files N.sched.json and N.prof.json, but has none")
    name = path.name.removesuffix(".tar.xz")
    runs, shapes = {}, set()
    for number in numbers:
        for kind in ("sched", "prof"):
            if (number, kind) not in files:
                raise TraceError(f"{path} has no {number}.{kind}.json beside the other file")
        where = f"{path}: schedule {number}"
        try:
            runs[number], shape = _run(number, files[number, "sched"], files[number, "prof"])
        except TraceError as error:
            raise TraceError(f"{where}: {error}") from None
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise TraceError(f"{where} is not in the recorded format: {error!r}") from None
        shapes.add((*shape, len(runs[number].energies)))
    if len(shapes) > 1:
        raise TraceError(
            f"{path}: schedules must have the same stages, microbatches and ranks, but got "
            f"{sorted(shapes)}"
        )
    stages, microbatches, _ = shapes.pop()
    return Recording(name, board_named(gpu or name), stages, microbatches, runs)


# --- files ----------------------------------------------------------------------------------------


def _files(path: Path) -> Iterator[tuple[tuple[int, str], Any]]:
    """Yield number and kind of each file, and its JSON."""
    try:
        for name, text in _texts(path):
            match = _FILE.fullmatch(name)
            if match:
                try:
                    yield (int(match[1]), match[2]), json.loads(text)
                except ValueError as error:
                    raise TraceError(f"{path}: {name} must be JSON, but {error}") from None
    except tarfile.ReadError:
        raise TraceError(
            f"{path} cannot be read: it must be a folder, or a complete tar archive"
        ) from None
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"{path} cannot be read: {reason}") from None


def _texts(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        for each in sorted(path.glob("*.json")):
            yield each.name, each.read_bytes()
        return
    with tarfile.open(path) as archive:
        found = [
            (Path(member.name), member)
            for member in archive.getmembers()
            if member.isfile() and _FILE.fullmatch(Path(member.name).name)
        ]
        # Schedules of other systems lie in folders below that of the plans.
        depth = min((len(name.parts) for name, _ in found), default=0)
        for name, member in found:
            file = archive.extractfile(member) if len(name.parts) == depth else None
            if file is not None:
                yield name.name, file.read()


def _run(number: int, schedule: Any, profile: Any) -> tuple[Run, tuple[int, int]]:
    schedule, profile = (
        sorted(each, key=lambda rank: rank["rank"]) for each in (schedule, profile)
    )
    if [rank["rank"] for rank in schedule] != [rank["rank"] for rank in profile]:
        raise TraceError("both files must have the same ranks")
    stages, microbatches = shape_of([len(rank["power_states"]) for rank in schedule])
    clocks = {name: np.empty((len(schedule), microbatches)) for name in _COMPUTATIONS}
    for index, rank in enumerate(schedule):
        order = instructions(index % stages, stages, microbatches)
        for instruction, clock in zip(order, rank["power_states"], strict=True):
            for name, kind in _COMPUTATIONS.items():
                if instruction.kind is kind:
                    clocks[name][index, instruction.index] = clock
    iterations = np.array([rank["iter_time"] for rank in profile], float)
    energies = np.array([rank["iter_energy"] for rank in profile], float)
    if iterations.shape[1] <= WARM_UP:
        raise TraceError(f"over {WARM_UP} iterations are needed, but got {iterations.shape[1]}")
    breakdowns = [rank["time_breakdown"] for rank in profile]
    times = {
        name: np.array([_microbatches(each.get(name, []), microbatches) for each in breakdowns])
        for name in (*_COMPUTATIONS, "load")
    }
    run = Run(
        number,
        clocks,
        times,
        float(np.median(iterations[:, WARM_UP:].max(0))),
        np.median(energies[:, WARM_UP:], axis=1),
    )
    for label, values in (("clocks", clocks), ("times", {k: times[k] for k in _COMPUTATIONS})):
        for name, value in values.items():
            if not (np.isfinite(value).all() and (value > 0).all()):
                raise TraceError(f"{label} of {name} must be above 0, but some are not")
    if not (run.time > 0 and (run.energies > 0).all()):
        raise TraceError("times and energies of iterations must be above 0, but some are not")
    return run, (stages, microbatches)


def _microbatches(iterations: list[list[float]], microbatches: int) -> Array:
    """Return the time of each microbatch: the sum of its entries, median over iterations."""
    if not iterations:
        return np.zeros(microbatches)
    parts = []
    for values in iterations[WARM_UP:]:
        # The last stage has two loads for each microbatch, of which one does nothing.
        each = max(len(values) // microbatches, 1)
        parts.append(np.reshape(values[-each * microbatches :], (microbatches, each)).sum(1))
    return np.asarray(np.median(parts, axis=0))
