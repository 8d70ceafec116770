"""Who measures what when a launcher has started one process per GPU.

If every rank measured the whole node, a sum over ranks would count each joule as many times as
there are ranks. Left to itself, a rank measures its own GPU, and the first rank of a node also its
CPUs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

logger = logging.getLogger(__name__)

# (rank on this node, processes on this node) as launchers tell them: torchrun and Accelerate,
# Open MPI, MVAPICH2, Slurm.
_VARIABLES = (
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
)


def local_rank() -> tuple[int, int]:
    """This process's number on its node and how many there are; (0, 1) without a launcher."""
    for rank_name, size_name in _VARIABLES:
        try:
            rank, size = int(os.environ[rank_name]), int(os.environ[size_name])
        except (KeyError, ValueError):
            continue
        if 0 <= rank < size:
            return rank, size
    return 0, 1


def own_gpus(gpu_count: int) -> list[int] | None:
    """The GPUs that are this rank's by default; `None` for all that it sees.

    The convention of all launchers is one GPU per rank, numbered alike. Where the numbers do not
    fit it, the launcher has shown each rank only its own GPUs, and all it sees are its own.
    """
    rank, size = local_rank()
    follows_convention = gpu_count == size or (gpu_count > size and "LOCAL_RANK" in os.environ)
    return [rank] if size > 1 and follows_convention else None


def owns_host() -> bool:
    """Whether this rank is the one that measures what the ranks of a node share."""
    return local_rank()[0] == 0


def warn_if_shared(gpu_indices: Sequence[int], gpu_count: int) -> None:
    """Say so if the user's choice makes ranks measure each other's GPUs."""
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
