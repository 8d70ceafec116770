"""Pipeline-parallel training: which computation should run at which clock.

Stages are never perfectly balanced, and pipelines wait for the slowest of them, so many
computations run needlessly fast. A `Profile` has the time and energy of each at each clock, a
schedule turns it into a `Pipeline`, and `solve` finds the frontier of plans between the fastest
iteration and the one of minimum energy, each with a proven bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeus._lazy import lazy_names

if TYPE_CHECKING:
    from zeus.optimizer.pipeline_frequency.pipeline import Execution, Operation, Pipeline
    from zeus.optimizer.pipeline_frequency.plan import Plan
    from zeus.optimizer.pipeline_frequency.profile import Option, Profile
    from zeus.optimizer.pipeline_frequency.running.client import PipelineFrequencyOptimizer
    from zeus.optimizer.pipeline_frequency.schedules import Shape, Step, build
    from zeus.optimizer.pipeline_frequency.solver import Continuous, Solution, solve

_HOME = "zeus.optimizer.pipeline_frequency"

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Continuous": f"{_HOME}.solver",
        "Execution": f"{_HOME}.pipeline",
        "Operation": f"{_HOME}.pipeline",
        "Option": f"{_HOME}.profile",
        "Pipeline": f"{_HOME}.pipeline",
        "PipelineFrequencyOptimizer": f"{_HOME}.running.client",
        "Plan": f"{_HOME}.plan",
        "Profile": f"{_HOME}.profile",
        "Shape": f"{_HOME}.schedules",
        "Solution": f"{_HOME}.solver",
        "Step": f"{_HOME}.schedules",
        "build": f"{_HOME}.schedules",
        "solve": f"{_HOME}.solver",
    },
)

__all__ = [
    "Continuous",
    "Execution",
    "Operation",
    "Option",
    "Pipeline",
    "PipelineFrequencyOptimizer",
    "Plan",
    "Profile",
    "Shape",
    "Solution",
    "Step",
    "build",
    "solve",
]
