"""Zeus in torchtitan's trainer, for models that it trains with pipeline parallelism.

After the trainer has been built, and before it trains::

    optimizer = PipelineFrequencyOptimizer(**mesh_ranks(trainer), server_url="http://gpu1:8420")
    attach_torchtitan(trainer, optimizer)
    trainer.train()

torchtitan trains with the schedules of `torch.distributed.pipelining`, so computations are reported
as by `zeus.integrations.pipelining`. This module knows where the trainer keeps its ranks, what
belongs to a step, and when training ends.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, TypedDict

from zeus.errors import FrameworkError, PipelineError
from zeus.integrations.pipeline_engine import PipelineCallback, PipelineHooks
from zeus.integrations.pipelining import attach

_OF_TRAINER = ("parallel_dims", "device", "gradient_accumulation_steps", "train_step", "close")
_OF_MESH = (
    "pp",
    "dp_replicate",
    "dp_shard",
    "cp",
    "tp",
    "world_size",
    "world_mesh",
    "get_optional_mesh",
)


class MeshRanks(TypedDict):
    """Ranks of a process, by the names that `PipelineFrequencyOptimizer` has for them."""

    rank: int
    dp_rank: int
    pp_rank: int
    tp_rank: int
    device_id: int
    dp_degree: int
    pp_degree: int
    tp_degree: int
    world_size: int


def mesh_ranks(trainer: Any) -> MeshRanks:
    """Return the ranks of this process, as `PipelineFrequencyOptimizer` takes them.

    They are read from the trainer's device mesh. Each index of the mesh dimension "batch"
    (replicated and sharded data parallelism) is a pipeline. GPUs of tensor and context parallelism
    compute the same microbatches at the same time, so they count as GPUs of one place.

    Args:
        trainer: A `torchtitan.trainer.Trainer`, built.

    Returns:
        The ranks, for `PipelineFrequencyOptimizer(**mesh_ranks(trainer), ...)`. `device_id` is the
        index of the trainer's device.

    Raises:
        FrameworkError: If this version of torchtitan lacks an attribute that is needed.
        PipelineError: If the trainer does not use pipeline parallelism.
    """
    dims = _checked(trainer).parallel_dims
    pipeline, data, context, tensor = (_index(dims, name) for name in ("pp", "batch", "cp", "tp"))
    return {
        "rank": dims.world_mesh.get_rank(),
        "dp_rank": data,
        "pp_rank": pipeline,
        "tp_rank": context * dims.tp + tensor,
        "device_id": trainer.device.index or 0,
        "dp_degree": dims.dp_replicate * dims.dp_shard,
        "pp_degree": dims.pp,
        "tp_degree": dims.cp * dims.tp,
        "world_size": dims.world_size,
    }


def attach_torchtitan(trainer: Any, optimizer: PipelineCallback) -> PipelineHooks:
    """Report the steps of torchtitan's trainer to an optimizer.

    An iteration is `trainer.train_step`: loading the batch, the schedule, and the step of the
    optimizers. With gradient accumulation, where one step runs the schedule several times, each run
    of the schedule is an iteration. Validation is not reported. `trainer.close()`, which
    torchtitan calls however training ends, closes the optimizer and restores clocks.

    Args:
        trainer: A `torchtitan.trainer.Trainer`, built, before or between its steps.
        optimizer: Gets the reports; the optimizer of the same rank.

    Returns:
        Hooks; call `detach` on them if the program goes on after training.

    Raises:
        FrameworkError: If this version of torchtitan or PyTorch lacks an attribute that is needed.
        PipelineError: If the trainer does not use pipeline parallelism.
    """
    schedule = _checked(trainer).pp_schedule
    hooks = attach(schedule, optimizer)
    close = trainer.close

    @functools.wraps(close)
    def closing(*args: Any, **kwargs: Any) -> Any:
        hooks.detach()
        optimizer.close()
        return close(*args, **kwargs)

    if trainer.gradient_accumulation_steps == 1:
        hooks.replace(trainer, "train_step", hooks.around_step(trainer.train_step))
    hooks.replace(trainer, "close", closing)
    return hooks


def _checked(trainer: Any) -> Any:
    for owner, names in ((trainer, _OF_TRAINER), (_dims(trainer), _OF_MESH)):
        for name in names:
            if not hasattr(owner, name):
                version = getattr(
                    sys.modules.get("torchtitan"), "__version__", "of unknown version"
                )
                raise FrameworkError(
                    f"torchtitan {version} is not supported (0.3 is): "
                    f"{type(owner).__name__} has no {name}"
                )
    if trainer.parallel_dims.pp < 2 or not hasattr(trainer, "pp_schedule"):
        raise PipelineError(
            "`pipeline_parallel_degree > 1` must hold to plan a pipeline, but got "
            f"{trainer.parallel_dims.pp}"
        )
    return trainer


def _dims(trainer: Any) -> Any:
    return getattr(trainer, "parallel_dims", None)


def _index(dims: Any, name: str) -> int:
    """Return the index of this process in a dimension of the mesh; 0 where it has no extent."""
    mesh = dims.get_optional_mesh(name)
    return 0 if mesh is None else int(mesh.get_local_rank())
