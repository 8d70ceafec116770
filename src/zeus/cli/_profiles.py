"""Inputs of `zeus frontier`: files of several formats, or a simulated run of a recorded job.

Each input becomes a list of `Saved`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zeus._rules import is_number
from zeus.cli._parser import UsageError
from zeus.errors import LogFileError, ZeusError
from zeus.frontier import Frontier, Point
from zeus.frontier._record import parse

_DEFAULT_BATCH_SIZES = {  # from table 1 of the Zeus paper
    "librispeech": 192,
    "squad": 32,
    "sentiment140": 128,
    "imagenet": 256,
    "cifar100": 1024,
    "movielens-1m": 1024,
}


@dataclass(frozen=True)
class Saved:
    """A frontier and its origin; `None` where unknown."""

    frontier: Frontier  # with the maximum power of all GPUs together, if known
    gpu: str | None = None  # product name
    gpus: int | None = None  # number of GPUs
    knob: str | None = None  # "power_limit" or "graphics_clock"
    job: str | None = None  # name of the job
    batch_size: int | None = None  # batch size of the job

    @property
    def title(self) -> str:
        """Return a one-line title: the work, job, batch size and GPUs."""
        text = self.frontier.work or "Time and energy"
        if self.job is not None and self.job not in text:
            text = f"{self.job}: {text}"
        batch = f"batch size {self.batch_size}"
        if self.batch_size is not None and batch not in text:
            text += f", {batch}"
        if self.gpu is not None and self.gpu not in text:
            count = f"{self.gpus} x " if self.gpus is not None and self.gpus > 1 else ""
            text += f", on {count}{self.gpu}"
        return text

    @property
    def reference(self) -> Point:
        """Return the setting to compare with: the default of an unmodified GPU.

        For power limits and clocks it is the highest; for other knobs the first.
        """
        points = self.frontier.points
        if self.frontier.knob_unit in ("W", "MHz") and all(is_number(p.knob) for p in points):
            return max(points, key=lambda point: point.knob)
        return points[0]

    def to_dict(self) -> dict[str, Any]:
        """Return the origin in the form of JSON."""
        return {
            "gpu": self.gpu,
            "gpus": self.gpus,
            "knob": self.knob,
            "job": self.job,
            "batch_size": self.batch_size,
        }


def read(path: Path) -> list[Saved]:
    """Read all frontiers of a file in any of its formats; raise `UsageError` if it is invalid."""
    try:
        with path.open(encoding="utf-8") as file:
            beginning = file.read(4096)
            text = beginning + file.read()
        if beginning.lstrip().startswith("{"):
            return list(_read_json(path, text))
        if beginning.startswith("start_time,"):
            return list(_read_windows(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text: {error}") from None
    except ZeusError as error:
        message = str(error)
        raise UsageError(message if str(path) in message else f"{path}: {message}") from None
    raise UsageError(
        f"{path} must be a frontier (JSON), a file of profiles (JSON) or a log of windows (CSV "
        f"that begins with start_time,window_name,elapsed_time), but it begins with "
        f"{beginning[:20]!r}"
    )


def _read_json(path: Path, text: str) -> Iterator[Saved]:
    from zeus.optimizer.training._profiles import FORMAT, ProfileFile  # noqa: PLC0415

    content = parse(text)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        yield Saved(Frontier.from_json(text))
        return
    for profile in ProfileFile(path).read():
        key = profile.key
        frontier = profile.frontier
        if frontier.max_power_per_gpu is not None:
            frontier = replace(
                frontier, max_power=frontier.max_power_per_gpu * key.gpus, max_power_per_gpu=None
            )
        yield Saved(frontier, key.gpu, key.gpus, key.knob, key.job, key.batch_size)


def _read_windows(path: Path) -> Iterator[Saved]:
    """Read a log; windows with the same name, except for the power limit, are one job."""
    from zeus.monitor._log import read_log  # noqa: PLC0415

    jobs: dict[str, list[Point]] = {}
    gpus = 0
    for line, window in enumerate(read_log(path), 2):
        match = re.fullmatch(r"(.*?)(\d+(?:\.\d+)?)", window.name, re.DOTALL)
        if match is None:
            raise LogFileError(
                f"{path}, line {line}: a window's name must end in the power limit in watts, as in "
                f"'resnet50_250', but got {window.name!r}"
            )
        energies = list(window.gpu_energy.values())
        gpus = len(energies)
        if None in energies or not energies:
            raise LogFileError(f"{path}, line {line}: the energy of every GPU must be known")
        limit = float(match[2])
        if limit == 0:
            raise LogFileError(f"{path}, line {line}: a power limit must be more than 0 W")
        try:
            point = Point(
                int(limit) if limit.is_integer() else limit,
                window.elapsed_time,
                sum(energy for energy in energies if energy is not None),
            )
        except ZeusError as error:
            raise LogFileError(f"{path}, line {line}: {error}") from None
        jobs.setdefault(match[1].strip(" _-:/"), []).append(point)
    if not jobs:
        raise LogFileError(f"{path} must have at least one window, but has none")
    for job, points in jobs.items():
        frontier = Frontier(
            points,
            path.stem if len(jobs) == 1 else f"{path.stem}, {job}",
            knob_name="power limit",
            knob_unit="W",
            # Profiling begins at the maximum, so the highest limit is assumed to be it.
            max_power=max(point.knob for point in points) * gpus,
        )
        name = job if len(jobs) > 1 else None  # for a single job, the file name says more
        yield Saved(frontier.combine(), gpus=gpus, knob="power_limit", job=name)


# --- simulated run of a recorded job ------------------------------------------------------------


def simulate(text: str, step: float) -> Saved:
    """Run one epoch of a recorded job at every power limit, on a simulated GPU in virtual time.

    Args:
        text: GPU:DATASET or GPU:DATASET:BATCH_SIZE.
        step: Watts between limits, from the highest down.

    Raises:
        UsageError: If there is no such job; lists the recorded jobs.
    """
    from zeus.device import DeviceSet, Gpu, Node  # noqa: PLC0415
    from zeus.monitor import ZeusMonitor  # noqa: PLC0415
    from zeus.testing import SimulatedNode, recorded_workload  # noqa: PLC0415

    model, dataset, batch_size = _recorded_job(text)
    workload = recorded_workload(model, dataset, batch_size)
    built = SimulatedNode(model)
    # A private node: variables that hide the user's GPUs do not apply to it.
    gpu = Gpu(0, built.drivers[0])
    node = Node(built.clock, built.drivers, DeviceSet([gpu]), simulated=model)
    limits = gpu.power_limits()
    points = []
    with ZeusMonitor([0], [], sync_execution_with=None, node=node) as monitor:
        for watts in _down(limits.maximum, limits.minimum, step):
            with gpu.hold(power_limit=watts):
                monitor.begin_window("epoch")
                workload.run(gpu)
                epoch = monitor.end_window("epoch")
            energy, uncertainty = epoch.total_energy, epoch.uncertainty
            points.append(Point(watts, epoch.time, energy, energy_uncertainty=uncertainty))
    job = "/".join(workload.name.split("/")[:2])
    frontier = Frontier(
        points,
        f"an epoch of {job}, batch size {batch_size}, on a simulated {gpu.name}",
        knob_name="power limit",
        knob_unit="W",
        max_power=limits.maximum,
    )
    return Saved(frontier, gpu.name, 1, "power_limit", job, batch_size)


def _recorded_job(text: str) -> tuple[str, str, int]:
    from zeus.testing import recorded_jobs  # noqa: PLC0415

    sizes: dict[tuple[str, str], list[int]] = {}
    for recorded in recorded_jobs():
        known = sizes.setdefault((recorded.gpu, recorded.dataset), [])
        if recorded.batch_size not in known:
            known.append(recorded.batch_size)
    model, _, job = text.partition(":")
    dataset, _, batch = job.partition(":")
    model = model.lower()
    if (model, dataset) not in sizes:
        jobs = ", ".join(":".join(pair) for pair in sizes)
        raise UsageError(
            f"--simulate takes GPU:DATASET or GPU:DATASET:BATCH_SIZE, but got {text!r}; "
            f"recorded jobs: {jobs}"
        )
    known = sizes[model, dataset]
    batch = batch or str(_DEFAULT_BATCH_SIZES.get(dataset, known[-1]))
    if not batch.isdecimal() or int(batch) not in known:
        raise UsageError(
            f"--simulate: {model}:{dataset} was not recorded with batch size {batch!r}; recorded: "
            f"{', '.join(map(str, sorted(known)))}"
        )
    return model, dataset, int(batch)


def _down(highest: float, lowest: float, step: float) -> Iterator[float]:
    for number in range(int((highest - lowest) / step + 1e-9) + 1):
        watts = highest - number * step
        yield int(watts) if float(watts).is_integer() else watts


# --- selection ----------------------------------------------------------------------------------


def matching(
    saved: Sequence[Saved],
    *,
    gpu: str | None = None,
    job: str | None = None,
    batch_size: int | None = None,
) -> list[int]:
    """Return the indices of profiles that match; `gpu` is part of the GPU name."""
    return [
        position
        for position, one in enumerate(saved)
        if (gpu is None or gpu.lower() in (one.gpu or "").lower())
        and (job is None or one.job == job)
        and (batch_size is None or one.batch_size == batch_size)
    ]
