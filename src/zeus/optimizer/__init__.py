"""Optimizers: each sets knobs so that the user's own objective is met at minimum cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeus._lazy import lazy_names

if TYPE_CHECKING:
    from zeus.optimizer.batch_size.job._spec import JobSpec
    from zeus.optimizer.batch_size.running._client import BatchSizeOptimizer
    from zeus.optimizer.callback import Callback
    from zeus.optimizer.frequency import GlobalFrequencyOptimizer
    from zeus.optimizer.pipeline_frequency.running._client import PipelineFrequencyOptimizer
    from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
    from zeus.optimizer.serving._optimizer import ServingOptimizer

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "BatchSizeOptimizer": "zeus.optimizer.batch_size.running._client",
        "Callback": "zeus.optimizer.callback",
        "GlobalFrequencyOptimizer": "zeus.optimizer.frequency",
        "GlobalPowerLimitOptimizer": "zeus.optimizer.power_limit",
        "JobSpec": "zeus.optimizer.batch_size.job._spec",
        "PipelineFrequencyOptimizer": "zeus.optimizer.pipeline_frequency.running._client",
        "ServingOptimizer": "zeus.optimizer.serving._optimizer",
    },
)

__all__ = [
    "BatchSizeOptimizer",
    "Callback",
    "GlobalFrequencyOptimizer",
    "GlobalPowerLimitOptimizer",
    "JobSpec",
    "PipelineFrequencyOptimizer",
    "ServingOptimizer",
]
