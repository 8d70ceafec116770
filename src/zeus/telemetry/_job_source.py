"""Metrics of the energy of jobs and users, and where it is kept across restarts."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from pathlib import Path

from zeus.device import Node
from zeus.state._files import state_directory
from zeus.telemetry._job_energy import IDLE_LABELS, JOB_LABELS, JobEnergyMeter
from zeus.telemetry._metrics import Family, Kind, Metric
from zeus.telemetry._readings import EXPECTED, NodeReading

logger = logging.getLogger(__name__)

JOB_ENERGY = Metric(
    "zeus_job_energy_joules_total",
    "Energy of a GPU that is due to one owner: user, Slurm job and pod.",
    JOB_LABELS,
    Kind.COUNTER,
)
IDLE_ENERGY = Metric(
    "zeus_gpu_idle_energy_joules_total",
    "Energy of a GPU while no kernel ran on it, due to no owner.",
    IDLE_LABELS,
    Kind.COUNTER,
)
JOB_METRICS = (JOB_ENERGY, IDLE_ENERGY)
"""Metrics of energy by job."""


class JobEnergySource:
    """Measures the energy of jobs in the background, from now until it is closed.

    Args:
        node: The node.
    """

    name = "jobs"

    def __init__(self, node: Node) -> None:
        self.problem = ""
        self._file = _TotalsFile()
        self._meter = JobEnergyMeter(node, self._file.path)

    def families(self, reading: NodeReading) -> list[Family]:  # noqa: ARG002
        """Return the joules so far."""
        errors = self._meter.errors().values()
        self.problem = "; ".join(str(each) for each in errors if each.reason not in EXPECTED)
        return [
            Family(JOB_ENERGY, self._meter.job_energy()),
            Family(IDLE_ENERGY, self._meter.idle_energy()),
        ]

    def close(self) -> None:
        """Stop measuring; totals are kept."""
        self._meter.close()
        self._file.close()


class _TotalsFile:
    """The file of this user's exporter, unless another exporter has it or it cannot be written.

    Attributes:
        path: The file; `None` if totals are not kept.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self._lock = -1
        try:
            directory = state_directory()
            self._lock = os.open(directory / "job-energy.lock", _FLAGS, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            logger.warning("energy by job begins at 0: another exporter of this user keeps it")
        except OSError as error:
            self.close()
            logger.warning("energy by job is not kept across restarts: %s", error)
        else:
            self.path = directory / "job-energy.json"

    def close(self) -> None:
        """Leave the file to the next exporter."""
        if self._lock >= 0:
            with contextlib.suppress(OSError):
                os.close(self._lock)
        self._lock = -1


_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
