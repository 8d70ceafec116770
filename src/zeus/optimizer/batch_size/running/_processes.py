"""The processes of a job, as launchers describe them in environment variables."""

from __future__ import annotations

import os
from collections.abc import Iterable


def launched_rank() -> int:
    """Return the rank of this process in its job; 0 if no launcher says otherwise."""
    return _number_in(("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")) or 0


def launched_processes() -> int:
    """Return the number of processes of this job; 1 if no launcher says otherwise."""
    # Not SLURM_NTASKS: it is also set for the one process of a batch script.
    return _number_in(("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")) or 1


def _number_in(names: Iterable[str]) -> int | None:
    for name in names:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return None
