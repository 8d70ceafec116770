"""One rank of torchtitan's own trainer, with its smallest Llama 3, on a CPU."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch._utils
import trial

VOCABULARY, LENGTH, LAYERS = 2048, 16, 4


def pretend_cpu_is_an_accelerator() -> None:
    """Torchtitan asks for an accelerator when it is imported; let it find the CPU."""
    missing: dict[str, Any] = {
        "get_device_name": lambda *_: "CPU",
        "get_device_properties": lambda *_: SimpleNamespace(total_memory=2**30),
        "reset_peak_memory_stats": lambda *_: None,
        "empty_cache": lambda: None,
        "memory_stats": lambda *_: {},
    }
    for name, value in missing.items():
        if not hasattr(torch.cpu, name):
            setattr(torch.cpu, name, value)
    torch._utils._get_available_device_type = lambda: "cpu"


pretend_cpu_is_an_accelerator()

from torchtitan.components.dataloader import BaseDataLoader  # noqa: E402
from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.components.metrics import MetricsProcessor  # noqa: E402
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw  # noqa: E402
from torchtitan.components.tokenizer import BaseTokenizer  # noqa: E402
from torchtitan.config import ParallelismConfig, TrainingConfig  # noqa: E402
from torchtitan.distributed import utils as dist_utils  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402
from torchtitan.models.llama3 import model_registry  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

from zeus.integrations.torchtitan import attach_torchtitan, mesh_ranks  # noqa: E402


class Counting(BaseDataLoader):
    """Sequences of numbers that count up, which are quick to learn."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """Nothing to configure."""

    def __init__(self, config: Config, *, local_batch_size: int, dp_rank: int, **_: Any) -> None:
        del config
        self._size = local_batch_size
        self._numbers = torch.Generator().manual_seed(dp_rank)

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        while True:
            first = torch.randint(64, (self._size, 1), generator=self._numbers)
            row = first + torch.arange(LENGTH + 1)
            positions = torch.arange(LENGTH).expand(self._size, -1)
            yield {"input": row[:, :-1], "positions": positions}, row[:, 1:]

    def state_dict(self) -> dict[str, Any]:
        """Nothing is saved."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing is loaded."""


class NoTokenizer(BaseTokenizer):
    """Numbers need none."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        """Nothing to configure."""

    def __init__(self, config: Config, **_: Any) -> None:
        del config
        super().__init__()

    def encode(self, *args: Any, **kwargs: Any) -> list[int]:
        """Not asked for."""
        raise NotImplementedError

    def decode(self, *args: Any, **kwargs: Any) -> str:
        """Not asked for."""
        raise NotImplementedError

    def get_vocab_size(self) -> int:
        """Return how many numbers there are."""
        return VOCABULARY


def configuration(schedule: str) -> Trainer.Config:
    """The smallest Llama 3, in two stages per rank if interleaved, else in one."""
    spec = model_registry("debugmodel")
    spec.model.layers = spec.model.layers[:LAYERS]
    for layer in spec.model.layers:  # flex attention would be compiled, which needs a GPU
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    return Trainer.Config(
        model_spec=spec,
        loss=CrossEntropyLoss.Config(global_vocab_size=VOCABULARY),
        optimizer=default_adamw(lr=1e-3),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=1),
        tokenizer=NoTokenizer.Config(),
        dataloader=Counting.Config(),
        metrics=MetricsProcessor.Config(log_freq=1),
        activation_checkpoint=None,
        training=TrainingConfig(
            local_batch_size=trial.MICROBATCHES,
            seq_len=LENGTH,
            steps=trial.PATIENCE + 1,
            disable_cuda_graphs=True,
        ),
        parallelism=ParallelismConfig(
            pipeline_parallel_degree=2,
            pipeline_parallel_schedule=schedule,
            pipeline_parallel_microbatch_size=1,
            data_parallel_shard_degree=1,
        ),
    )


def accept_microbatches(schedule: Any) -> None:
    """Let a schedule of PyTorch 2.13 be called as torchtitan 0.3 calls those of newer versions.

    It passes lists of microbatches, where PyTorch 2.13 takes a batch and divides it.
    """
    step = schedule.step
    if "arg_mbs" in inspect.signature(step).parameters:
        return

    def step_with_batch(
        *,
        arg_mbs: list[tuple[torch.Tensor, ...]] | None,
        kwarg_mbs: list[dict[str, torch.Tensor]],
        target_mbs: list[torch.Tensor] | None,
        **others: Any,
    ) -> Any:
        batch = [torch.cat(each) for each in zip(*arg_mbs or (), strict=True)]
        named = {name: torch.cat([each[name] for each in kwarg_mbs]) for name in kwarg_mbs[0]}
        target = None if target_mbs is None else torch.cat(target_mbs)
        return step(*batch, target=target, **named, **others)

    schedule.step = step_with_batch


def main() -> None:
    """Train until the trial ends."""
    options = trial.arguments()
    this = trial.Trial(options)
    torch.manual_seed(0)
    dist_utils.set_pg_timeouts = lambda **_: None  # of NCCL: those of gloo stay as they are
    trainer = configuration(options.schedule).build()
    accept_microbatches(trainer.pp_schedule)
    gpu = this.begin(mesh_ranks(trainer), stages=2 * len(trainer.model_parts))
    attach_torchtitan(trainer, gpu)

    log = trainer.metrics_processor.log

    def logged(step: int, loss: float, *args: Any, **kwargs: Any) -> None:
        if trainer.pp_has_last_stage:
            this.losses.append(loss)
        log(step, loss, *args, **kwargs)

    trainer.metrics_processor.log = logged
    trainer.should_continue_training = this.goes_on
    trainer.train()
    this.end()
    trainer.close()


if __name__ == "__main__":
    main()
