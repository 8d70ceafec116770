"""Pipeline-parallel training: which computation should run at which clock.

Stages are never perfectly balanced, and pipelines wait for the slowest of them, so many
computations run needlessly fast. A `Profile` has the time and energy of each at each clock, a
schedule turns it into a `Pipeline`, and `solve` finds the frontier of plans between the fastest
iteration and the one of minimum energy, each with a proven bound.

The modules beside this one plan. For jobs that train, as for recurring jobs: `job/` has a job's
reports and rules, `api/` the interface and the client of a server, `storage/` what is kept and the
service on a store, `running/` what runs in training processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeus._lazy import lazy_names

if TYPE_CHECKING:
    from zeus.optimizer.pipeline_frequency._pipeline import Execution, Operation, Pipeline
    from zeus.optimizer.pipeline_frequency._plan import Plan
    from zeus.optimizer.pipeline_frequency._power_cap import solve_capped
    from zeus.optimizer.pipeline_frequency._profile import Option, Profile
    from zeus.optimizer.pipeline_frequency._schedules import Shape, Step, build
    from zeus.optimizer.pipeline_frequency._solver import Continuous, Solution, solve
    from zeus.optimizer.pipeline_frequency._total_power import Phase, TotalPower, total_power
    from zeus.optimizer.pipeline_frequency.running._client import PipelineFrequencyOptimizer

_HOME = "zeus.optimizer.pipeline_frequency"

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Continuous": f"{_HOME}._solver",
        "Execution": f"{_HOME}._pipeline",
        "Operation": f"{_HOME}._pipeline",
        "Option": f"{_HOME}._profile",
        "Phase": f"{_HOME}._total_power",
        "Pipeline": f"{_HOME}._pipeline",
        "PipelineFrequencyOptimizer": f"{_HOME}.running._client",
        "Plan": f"{_HOME}._plan",
        "Profile": f"{_HOME}._profile",
        "Shape": f"{_HOME}._schedules",
        "Solution": f"{_HOME}._solver",
        "Step": f"{_HOME}._schedules",
        "TotalPower": f"{_HOME}._total_power",
        "build": f"{_HOME}._schedules",
        "solve": f"{_HOME}._solver",
        "solve_capped": f"{_HOME}._power_cap",
        "total_power": f"{_HOME}._total_power",
    },
)

__all__ = [
    "Continuous",
    "Execution",
    "Operation",
    "Option",
    "Phase",
    "Pipeline",
    "PipelineFrequencyOptimizer",
    "Plan",
    "Profile",
    "Shape",
    "Solution",
    "Step",
    "TotalPower",
    "build",
    "solve",
    "solve_capped",
    "total_power",
]
