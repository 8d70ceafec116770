"""One rank of DeepSpeed's pipeline engine, with a tiny transformer, on a CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
import torch.distributed as dist
import trial
from deepspeed.pipe import PipelineModule
from torch import nn
from torch.nn import functional

from zeus.integrations.pipeline_engine import attach_deepspeed

VOCABULARY, LENGTH, WIDTH = 128, 16, 32
RANKS = 2


class Layer(nn.TransformerEncoderLayer):
    """A layer that attends to what came before."""

    def __init__(self) -> None:
        super().__init__(WIDTH, 2, 4 * WIDTH, dropout=0.0, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """The same shape: sample, place in the text, features."""
        return super().forward(x, nn.Transformer.generate_square_subsequent_mask(LENGTH))


def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the next number."""
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def batches(seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Sequences of numbers that count up, which are quick to learn."""
    numbers = torch.Generator().manual_seed(seed)
    while True:
        row = torch.randint(64, (1, 1), generator=numbers) + torch.arange(LENGTH + 1)
        yield row[:, :-1], row[:, 1:]


def ranks(engine: deepspeed.PipelineEngine) -> dict[str, int]:
    """What DeepSpeed says of this process."""
    grid = engine.grid
    return {
        "rank": dist.get_rank(),
        "dp_rank": grid.get_data_parallel_rank(),
        "pp_rank": grid.get_pipe_parallel_rank(),
        "tp_rank": grid.get_slice_parallel_rank(),
        "dp_degree": grid.get_data_parallel_world_size(),
        "pp_degree": grid.get_pipe_parallel_world_size(),
        "tp_degree": grid.get_slice_parallel_world_size(),
        "world_size": dist.get_world_size(),
    }


def main() -> None:
    """Train until the trial ends."""
    options = trial.arguments()
    this = trial.Trial(options)
    # Collectives in shared memory take minutes to compile, and gloo has them as well.
    # By its full name, because `deepspeed.comm.torch` is PyTorch itself.
    backend: Any = import_module("deepspeed.comm.torch")
    backend.build_shm_op = lambda: None
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    layers = [
        nn.Embedding(VOCABULARY, WIDTH),
        *(Layer() for _ in range(4)),
        nn.Linear(WIDTH, VOCABULARY),
    ]
    module = PipelineModule(layers, num_stages=RANKS, loss_fn=loss)
    engine, _, _, _ = deepspeed.initialize(
        model=module,
        model_parameters=list(module.parameters()),
        config={
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": trial.MICROBATCHES,
            "optimizer": {"type": "Adam", "params": {"lr": 3e-3, "torch_adam": True}},
        },
    )
    gpu = this.begin(ranks(engine), stages=RANKS)
    attach_deepspeed(engine, gpu)
    data = batches(seed=0)
    while this.goes_on():
        found = engine.train_batch(data_iter=data)
        this.losses.append(float(found))
    this.end()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
