"""Integrations with training frameworks: one module per framework, imported only when used.

`transformers`, `lightning` and `keras` have a `ZeusCallback` for their framework's list of
callbacks. `accelerate` has one whose iterators yield epochs and steps; `loop` does that for any
other loop, JAX included. Each takes any number of `zeus.optimizer.Callback`, and uses the
power-limit optimizer if it is given none. `pytorch` has a data loader that needs no further calls.
`pipelining` and `pipeline_engine` report the computations of PyTorch's pipeline runtime,
Megatron-LM, DeepSpeed or a custom engine to the pipeline optimizer; `torchtitan` attaches to its
trainer.

`mlflow`, `wandb`, `tensorboard` and `trackio` log energies in these tools: an integration takes one
as its argument `tracker`. `tracker` has their base class, for another tool.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

__all__ = [
    "accelerate",
    "keras",
    "lightning",
    "loop",
    "mlflow",
    "pipeline_engine",
    "pipelining",
    "pytorch",
    "tensorboard",
    "torchtitan",
    "tracker",
    "trackio",
    "transformers",
    "wandb",
]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
