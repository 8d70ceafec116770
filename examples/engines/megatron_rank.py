"""One rank of Megatron-core: a tiny GPT under its own pipeline schedules, on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import trial
from torch.overrides import TorchFunctionMode

VOCABULARY, LENGTH, WIDTH = 128, 16, 32
RANKS = 2


class CpuForCuda(TorchFunctionMode):
    """Make tensors on the CPU where Megatron-core names the device "cuda"."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the function with another device."""
        del types
        given = dict(kwargs or {})
        if str(given.get("device", "")).startswith("cuda"):
            given["device"] = "cpu"
        return func(*args, **given)


def pretend_cpu_is_cuda() -> None:
    """Answer what Megatron-core asks `torch.cuda`."""
    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment,return-value]
    torch.cuda.synchronize = lambda *_: None
    CpuForCuda().__enter__()


pretend_cpu_is_cuda()

from megatron.core import parallel_state  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.models.gpt.gpt_model import GPTModel  # noqa: E402
from megatron.core.pipeline_parallel import schedules  # noqa: E402
from megatron.core.tensor_parallel import random as random_states  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

from zeus.integrations.pipeline_engine import attach_megatron  # noqa: E402


def ranks() -> dict[str, int]:
    """What Megatron-core says of this process."""
    return {
        "rank": dist.get_rank(),
        "dp_rank": parallel_state.get_data_parallel_rank(),
        "pp_rank": parallel_state.get_pipeline_model_parallel_rank(),
        "tp_rank": parallel_state.get_tensor_model_parallel_rank(),
        "dp_degree": parallel_state.get_data_parallel_world_size(),
        "pp_degree": parallel_state.get_pipeline_model_parallel_world_size(),
        "tp_degree": parallel_state.get_tensor_model_parallel_world_size(),
        "world_size": dist.get_world_size(),
    }


def parts(chunks: int) -> list[GPTModel]:
    """The parts of the model that this rank has."""
    config = TransformerConfig(
        num_layers=RANKS * 2,
        hidden_size=WIDTH,
        num_attention_heads=2,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=True,
        pipeline_dtype=torch.float32,
        pipeline_model_parallel_size=RANKS,
        virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None,
        # Of two ranks, each is the other's previous and next one. In a batch of messages, gradients
        # are then taken for activations, and nothing is learned; overlapping messages are right.
        overlap_p2p_comm=chunks > 1,
        batch_p2p_comm=chunks == 1,
        bias_dropout_fusion=False,
        gradient_accumulation_fusion=False,
    )
    rank = parallel_state.get_pipeline_model_parallel_rank()
    return [
        GPTModel(
            config,
            get_gpt_layer_local_spec(),
            VOCABULARY,
            LENGTH,
            pre_process=rank == 0 and chunk == 0,
            post_process=rank == RANKS - 1 and chunk == chunks - 1,
            vp_stage=chunk if chunks > 1 else None,
        )
        for chunk in range(chunks)
    ]


def batches(seed: int) -> Iterator[torch.Tensor]:
    """Sequences of numbers that count up, which are quick to learn."""
    numbers = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randint(64, (1, 1), generator=numbers) + torch.arange(LENGTH + 1)


def forward_step(data: Iterator[torch.Tensor], model: GPTModel) -> tuple[torch.Tensor, Any]:
    """Compute a microbatch: the output, and the function that makes a loss of it."""
    row = next(data)
    positions = torch.arange(LENGTH).unsqueeze(0)
    mask = torch.ones(LENGTH, LENGTH).triu(1).bool().view(1, 1, LENGTH, LENGTH)
    output = model(row[:, :-1], positions, mask, labels=row[:, 1:])

    def loss_of(
        target: torch.Tensor, output: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, float]]:
        del target
        loss = output.mean()
        return loss, {"loss": loss.item()}

    return output, partial(loss_of, row)


def main() -> None:
    """Train until the trial ends."""
    options = trial.arguments()
    this = trial.Trial(options)
    dist.init_process_group("gloo")
    chunks = 2 if options.schedule.startswith("interleaved") else 1
    parallel_state.initialize_model_parallel(
        pipeline_model_parallel_size=RANKS,
        virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None,
    )
    # Dropout is off, so that no random state of a GPU is needed.
    random_states.CudaRNGStatesTracker.fork = lambda *_, **__: nullcontext()
    torch.manual_seed(dist.get_rank())
    model = parts(chunks)
    sgd = torch.optim.Adam([p for part in model for p in part.parameters()], lr=3e-3)
    gpu = this.begin(ranks(), stages=RANKS * chunks)
    given = model if chunks > 1 else model[0]
    hooks = attach_megatron(schedules, given, gpu)
    train = schedules.get_forward_backward_func()
    data = [batches(seed=0) for _ in model]
    while this.goes_on():
        with hooks.step():
            found = train(
                forward_step_func=forward_step,
                data_iterator=data if chunks > 1 else data[0],
                model=given,
                num_microbatches=trial.MICROBATCHES,
                seq_length=LENGTH,
                micro_batch_size=1,
            )
            sgd.step()
            sgd.zero_grad()
        if found:
            this.losses.append(sum(each["loss"] for each in found) / len(found))
    this.end()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
