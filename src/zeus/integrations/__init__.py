"""Zeus where people already are: one module per training framework, imported only when used.

`transformers`, `lightning` and `keras` have a `ZeusCallback` for their framework's list of
callbacks; `accelerate` has one that hands out epochs and steps; `loop` does that for any other
loop, JAX included. Each takes any number of `zeus.optimizer.Callback`, and brings the power-limit
optimizer if it is given none. `pytorch` has a data loader that does it all by itself. `pipelining`
and `pipeline_engine` tell the optimizer of a pipeline what PyTorch's runtime, Megatron-LM,
DeepSpeed or an engine of one's own computes.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

__all__ = [
    "accelerate",
    "keras",
    "lightning",
    "loop",
    "pipeline_engine",
    "pipelining",
    "pytorch",
    "transformers",
]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
