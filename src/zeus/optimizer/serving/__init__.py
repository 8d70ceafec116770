"""Inference services: the least energy under bounds on latencies.

`_controller.py` decides, interval by interval, from what `_knowledge.py` has learned: times of
iterations (`_roofline.py`) and prompts (`_slowdown.py`), power (`_power.py`) and latencies by load
(`_levels.py`). They know no server, GPU or clock. `_steering.py` adds GPUs, `_optimizer.py` the
requests of this process, `_observer.py` the metrics of another one.
"""

from __future__ import annotations

from zeus.optimizer.serving._controller import control
from zeus.optimizer.serving._interval import Decision, ServingInterval, ServingSetting
from zeus.optimizer.serving._optimizer import ServingOptimizer

__all__ = ["Decision", "ServingInterval", "ServingOptimizer", "ServingSetting", "control"]
