"""Which rank measures which device when a launcher has started one process per GPU.

If every rank measured the whole node, a sum over ranks would count each joule as many times as
there are ranks. By default a rank measures its own GPU, and the first rank of a node also its CPUs.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence

logger = logging.getLogger(__name__)

# (rank on this node, processes on this node) as set by launchers: torchrun and Accelerate,
# DeepSpeed, Open MPI, MPICH and Intel MPI, MVAPICH2.
_VARIABLES = (
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("LOCAL_RANK", "LOCAL_SIZE"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
)


def local_rank() -> tuple[int, int]:
    """Return this process's rank on its node and the local world size; (0, 1) without a launcher.

    Where the launcher sets only the world size of the whole job, that is returned.
    """
    for rank_name, size_name in _VARIABLES:
        found = _within(_number(rank_name), _number(size_name))
        if found is not None:
            return found
    # Lightning's launcher sets no more; Slurm's comes last, as it may start other launchers.
    return (
        _within(_number("LOCAL_RANK"), _number("WORLD_SIZE"))
        or _within(_number("SLURM_LOCALID"), _slurm_tasks())
        or (0, 1)
    )


def _within(rank: int | None, size: int | None) -> tuple[int, int] | None:
    return (rank, size) if rank is not None and size is not None and 0 <= rank < size else None


def _number(variable: str) -> int | None:
    try:
        return int(os.environ[variable])
    except (KeyError, ValueError):
        return None


def _slurm_tasks() -> int | None:
    """Return the number of tasks of this job step on this node.

    Not that of the whole job (`SLURM_NTASKS_PER_NODE`): the batch script and its children see it
    too, and are not one of these tasks.
    """
    written = re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    node = _number("SLURM_NODEID") or 0
    for tasks, nodes in written:  # "4(x2),3": four on each of two nodes, three on the next
        node -= int(nodes or 1)
        if node < 0:
            return int(tasks)
    return None


def own_gpus(gpu_count: int) -> list[int] | None:
    """Return the GPUs of this rank by default; `None` for all that it sees.

    The convention of all launchers is one GPU per rank, with the same index. Where the counts do
    not fit it, the launcher shows each rank only its own GPUs, and all visible ones are its own.
    """
    rank, size = local_rank()
    size_known = any(_number(variable) is not None for _, variable in _VARIABLES)
    if "LOCAL_RANK" in os.environ and not size_known:
        size = min(size, gpu_count)  # it is the whole job's, perhaps on several nodes
    follows_convention = gpu_count == size or (gpu_count > size and "LOCAL_RANK" in os.environ)
    return [rank] if size > max(rank, 1) and follows_convention else None


def owns_host() -> bool:
    """Return whether this rank measures the devices that the ranks of a node share."""
    return local_rank()[0] == 0


def warn_if_shared(gpu_indices: Sequence[int], gpu_count: int) -> None:
    """Log a warning if the user's choice makes ranks measure each other's GPUs."""
    mine = own_gpus(gpu_count)
    if mine is not None and not set(gpu_indices) <= set(mine):
        rank, size = local_rank()
        logger.warning(
            "rank %d of %d on this node measures GPUs %s, beyond its own %s: do not add up over "
            "ranks (Measurement.combined counts each GPU once)",
            rank,
            size,
            list(gpu_indices),
            mine,
        )
