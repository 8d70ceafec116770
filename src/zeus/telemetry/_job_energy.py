"""Energy of GPUs by Slurm job, Kubernetes pod and user, measured in the background.

`JobEnergyMeter` polls every GPU of a node as often as its processes need it (`_gpu_usage.py`),
finds the owner of each process while it lives, and keeps what was divided (`_job_totals.py`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from zeus.device import Gpu, Node
from zeus.device._process_owner import ProcessOwner, owner_of
from zeus.errors import CapabilityError
from zeus.telemetry._counter_ticks import SearchTurn
from zeus.telemetry._gpu_usage import GpuUsageReader
from zeus.telemetry._job_totals import Job, JobTotals
from zeus.telemetry._owners import OWNER_LABELS
from zeus.telemetry._readings import distinct_gpus

logger = logging.getLogger(__name__)

JOB_LABELS = ("gpu", "uuid", *OWNER_LABELS, "method")
"""Labels of the energy of a job."""
IDLE_LABELS = ("gpu", "uuid")
"""Labels of idle energy."""

_SAVE = 30.0  # seconds
_MAX_OWNERS = 4096  # processes whose owner is remembered


class JobEnergyMeter:
    """Measures the energy of jobs on all GPUs of a node until it is closed.

    Args:
        node: The node.
        file: Where totals are kept across restarts; `None` to begin at 0.
        owner: Finds the owner of a process.
    """

    def __init__(
        self,
        node: Node,
        file: Path | None = None,
        owner: Callable[[int], ProcessOwner | None] = owner_of,
    ) -> None:
        self.totals = JobTotals(file)
        self._clock = node.clock
        self._find = owner
        self._owners: dict[int, tuple[str, str, str]] = {}
        turn = SearchTurn()
        self._gpus: list[tuple[Gpu, GpuUsageReader]] = [
            (
                gpu,
                GpuUsageReader(
                    gpu,
                    node.clock,
                    self._owner,
                    self._appeared,
                    idle_power=self.totals.idle_power.get(gpu.key),
                    turn=turn,
                ),
            )
            for gpu in distinct_gpus(node)
        ]
        self._saved = node.clock.now()
        self._lock = threading.Lock()
        self._runner = node.clock.run(self, "zeus-job-energy")

    def due(self) -> float | None:
        """When the next GPU is to be polled."""
        return min((reader.due for _, reader in self._gpus), default=None)

    def fire(self) -> None:
        """Poll the GPUs that are due."""
        now = self._clock.now()
        for gpu, reader in self._gpus:
            if reader.due <= now:
                self._poll(gpu, reader)
        if now - self._saved >= _SAVE:
            self._saved = now
            with self._lock:
                self.totals.save()

    def close(self) -> None:
        """Stop measuring and keep the totals."""
        self._runner.stop()
        with self._lock:
            self.totals.save()

    def job_energy(self) -> list[tuple[tuple[str, ...], float]]:
        """Return the joules of each job so far, by values of `JOB_LABELS`."""
        numbers = self._numbers()
        with self._lock:
            return [
                ((numbers[job.gpu], job.gpu, job.user, job.job, job.pod, job.method), joules)
                for job, joules in self.totals.jobs.items()
                if job.gpu in numbers
            ]

    def idle_energy(self) -> list[tuple[tuple[str, ...], float]]:
        """Return the idle joules of each GPU so far, by values of `IDLE_LABELS`."""
        numbers = self._numbers()
        with self._lock:
            idle = self.totals.idle.items()
            return [((numbers[gpu], gpu), joules) for gpu, joules in idle if gpu in numbers]

    def errors(self) -> dict[str, CapabilityError]:
        """Return why the energy of a GPU is not divided at present, by its key."""
        return {gpu.key: reader.error for gpu, reader in self._gpus if reader.error}

    def _numbers(self) -> dict[str, str]:
        return {gpu.key: str(gpu.index) for gpu, _ in self._gpus}

    def _poll(self, gpu: Gpu, reader: GpuUsageReader) -> None:
        divided = reader.poll()
        method = "equal" if reader.equal_shares else "usage"
        with self._lock:
            for interval in divided:
                self.totals.add_idle(gpu.key, interval.idle)
                for pid, joules in interval.processes.items():
                    self.totals.add(Job(gpu.key, *self._owner(pid), method), joules)
            if reader.attribution.idle_power is not None:
                self.totals.idle_power[gpu.key] = reader.attribution.idle_power

    def _owner(self, pid: int) -> tuple[str, str, str]:
        """Return Slurm job, pod and user of a process, as first seen: it may have ended since."""
        if pid not in self._owners:
            self._appeared(pid)
        return self._owners[pid]

    def _appeared(self, pid: int) -> None:
        """Find the owner of a new process, which may have the number of an older one."""
        self._owners.pop(pid, None)
        if len(self._owners) >= _MAX_OWNERS:
            self._owners.pop(next(iter(self._owners)))
        self._owners[pid] = _labels(self._find(pid))


def _labels(owner: ProcessOwner | None) -> tuple[str, str, str]:
    if owner is None:
        return "", "", ""
    user = owner.user or ("" if owner.uid is None else str(owner.uid))
    return owner.slurm_job, owner.pod, user
