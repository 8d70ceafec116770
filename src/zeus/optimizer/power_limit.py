"""The GPU power limit, optimized just in time: profiled and chosen while training goes on.

The objectives that say what "optimal" means can be imported from here as well as from
`zeus.frontier`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zeus.frontier import (
    Deadline,
    Energy,
    EnergyBudget,
    LatencyBound,
    MaxSlowdownConstraint,
    Objective,
    PowerCap,
    Time,
    ZeusCost,
)
from zeus.monitor import ZeusMonitor
from zeus.optimizer.jit.checks import checked_job, checked_lengths, positive
from zeus.optimizer.jit.knobs import PowerLimitKnob
from zeus.optimizer.jit.optimizer import JitOptimizer

__all__ = [
    "Deadline",
    "Energy",
    "EnergyBudget",
    "GlobalPowerLimitOptimizer",
    "LatencyBound",
    "MaxSlowdownConstraint",
    "Objective",
    "PowerCap",
    "Time",
    "ZeusCost",
]


class GlobalPowerLimitOptimizer(JitOptimizer):
    """Finds the best power limit during training, and uses it from then on.

    From the previous limit down, some steps are measured under each, by default for about a second
    (or a few steps where these are longer), until limits bite and the objective can only get worse.
    Then those that may be the best are measured again in turns, until one is known to be, or for
    about half a minute in all. Training is what is measured, so no
    step is wasted. Every process of a job has an optimizer of its own; with `torch.distributed`
    they decide together, and all GPUs of a model get the same limit.

    The limit from before comes back with `close`, at the end of the program, or whatever ends it.
    If limits may not be set here, training goes on all the same, and `trouble` says why.

    Args:
        monitor: Measures the GPUs whose limit is to be set.
        optimum_selector: The objective; by default `ZeusCost(eta_knob=0.5)`. It chooses from a
            frontier of `job_steps` steps on all GPUs.
        wait_steps: Steps at the beginning that are not looked at.
        warmup_steps: Steps after each change of the limit that are not measured. By default as
            many as 0.2 s take, and a second before the first.
        profile_steps: Steps to measure at each limit, once. By default until time and energy are
            known to 0.5 % or for a second, and again where limits have to be told apart.
        pl_step: Watts between limits, from the highest that the GPU accepts; the lowest is the
            last. The previous limit is measured too, to compare with.
        profile_path: File in which profiles are kept for the next run, each under its GPU model,
            number of GPUs, job and batch size. By default Zeus's own if the job has a name, none
            otherwise.
        job: Name of the job.
        batch_size: Of the job.
        job_steps: Steps that objectives mean which speak of seconds or joules, such as `Deadline`:
            those of the whole run, for instance.
        observe: Profile and choose, but go on with the limit from before; `report` tells what the
            run would have taken.
        raise_limit: Whether limits above the previous one may be tried and chosen. Somebody may
            have lowered it for a reason, so by default it is the highest; the report tells what
            that may give away.
        rank_timeout: Seconds to wait for other processes of the job; after that, training goes on
            unoptimized. Should be less than the training's own collectives wait.
        run_steps: Steps of the whole run, if known. Then profiling ends after `max_profile_share`
            of them, with the best of what is known by then; a run that is too short to compare
            two limits keeps the previous one, is only measured, and `trouble` says so.
        max_profile_share: Share of `run_steps` that profiling may take, at most.

    Raises:
        ValueError: If a value breaks its rule.
    """

    def __init__(  # noqa: PLR0917  (as published)
        self,
        monitor: ZeusMonitor,
        optimum_selector: Any = None,
        wait_steps: int = 1,
        warmup_steps: int | None = None,
        profile_steps: int | None = None,
        pl_step: float = 25,
        profile_path: str | Path | None = None,
        *,
        job: str | None = None,
        batch_size: int | None = None,
        job_steps: int = 1,
        observe: bool = False,
        raise_limit: bool = False,
        rank_timeout: float = 300.0,
        run_steps: int | None = None,
        max_profile_share: float = 0.05,
    ) -> None:
        super().__init__(
            PowerLimitKnob(positive("pl_step", pl_step)),
            monitor,
            optimum_selector,
            lengths=checked_lengths(wait_steps, warmup_steps, profile_steps),
            profile_path=profile_path,
            job=checked_job(job, batch_size, job_steps, run_steps, max_profile_share),
            observe=observe,
            raise_limit=raise_limit,
            rank_timeout=positive("rank_timeout", rank_timeout),
        )
