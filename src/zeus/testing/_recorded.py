"""Jobs whose time and power were recorded on real GPUs, as work for simulated ones.

Each is fitted to a sweep over power limits of one training job (`benchmarks/fit_simulated.py`).
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

from zeus.errors import SimulationError
from zeus.testing._workload import Workload

_FILE = "recorded_jobs.csv"


@dataclass(frozen=True)
class RecordedJob:
    """One recorded job, and how it uses its GPU.

    Attributes:
        gpu: Model it was recorded on, as `SimulatedNode` calls it.
        dataset: Name of the dataset.
        network: Name of the neural network.
        optimizer: Name of the optimizer.
        batch_size: Samples per iteration.
        activity: As in `Workload`.
        compute_bound: As in `Workload`.
        host_share: Share of the epoch, at the highest clock, in which the GPU waits.
        epoch_time: Seconds per epoch at the highest clock.
    """

    gpu: str
    dataset: str
    network: str
    optimizer: str
    batch_size: int
    activity: float
    compute_bound: float
    host_share: float
    epoch_time: float

    @property
    def workload(self) -> Workload:
        """One epoch of the job."""
        return Workload(
            name=f"{self.dataset}/{self.network}/{self.optimizer}/{self.batch_size}",
            gpu_time=(1 - self.host_share) * self.epoch_time,
            host_time=self.host_share * self.epoch_time,
            activity=self.activity,
            compute_bound=self.compute_bound,
        )


@functools.cache
def recorded_jobs() -> tuple[RecordedJob, ...]:
    """All recorded jobs, by GPU, dataset, optimizer and batch size."""
    text = resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8")
    rows = list(csv.reader(text.splitlines()))[1:]  # below the heading, in the order of the fields
    return tuple(
        RecordedJob(gpu, dataset, network, optimizer, int(batch_size), *map(float, numbers))
        for gpu, dataset, network, optimizer, batch_size, *numbers in rows
    )


def recorded_workload(
    gpu_model: str, dataset: str, batch_size: int, optimizer: str | None = None
) -> Workload:
    """One epoch of a recorded job.

    Args:
        gpu_model: GPU it was recorded on: "v100" or "a40".
        dataset: Name of the dataset, such as "cifar100".
        batch_size: Samples per iteration.
        optimizer: Name of the optimizer; where two were recorded (cifar100), "adadelta" by default.

    Raises:
        ValueError: If there is no such job; lists those that exist.
    """
    jobs: Iterable[RecordedJob] = recorded_jobs()
    for field, wanted in (
        ("gpu", gpu_model.lower()),
        ("dataset", dataset),
        ("optimizer", optimizer),
        ("batch_size", batch_size),
    ):
        matching = [job for job in jobs if wanted is None or getattr(job, field) == wanted]
        if not matching:
            known = ", ".join(map(str, dict.fromkeys(getattr(job, field) for job in jobs)))
            raise SimulationError(
                f"no recorded job has {field} {wanted!r} "
                f"(gpu_model={gpu_model!r}, dataset={dataset!r}, batch_size={batch_size!r}, "
                f"optimizer={optimizer!r}); there are: {known}"
            )
        jobs = matching
    return next(iter(jobs)).workload
