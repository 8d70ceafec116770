"""The GPU power limit, optimized just in time: profiled and chosen during training.

The objectives that define "optimal" can be imported from here as well as from `zeus.frontier`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zeus._former import former_names
from zeus.frontier import Objective, _objectives
from zeus.frontier._objectives import *  # noqa: F403
from zeus.monitor import ZeusMonitor
from zeus.optimizer.jit._checks import checked_job, checked_lengths, positive
from zeus.optimizer.jit._optimizer import JitOptimizer
from zeus.optimizer.training._knobs import PowerLimitKnob
from zeus.optimizer.training._rendezvous import PRESENCE_TIMEOUT

__all__ = ["GlobalPowerLimitOptimizer", "Objective"]
__all__ += _objectives.__all__
__all__.sort()

__getattr__ = former_names(__name__)


class GlobalPowerLimitOptimizer(JitOptimizer):
    """Finds the best power limit during training, and uses it from then on.

    From the previous limit down, some steps are measured under each, by default for about a second
    (or a few steps where these are longer), until limits bind and the objective can only get worse.
    Then the limits that may be the best are measured again in turns, until one is known to be, or
    for about half a minute in all. The measured steps are training steps, so none is wasted. Every
    process of a job has its own optimizer; with `torch.distributed` they decide together, and all
    GPUs of a model get the same limit.

    The previous limit is restored by `close`, at exit, and after a crash or kill. If limits may not
    be set here, training continues unchanged, and `trouble` says why.

    Args:
        monitor: Measures the GPUs whose limit is to be set.
        optimum_selector: The objective; by default `ZeusCost(eta_knob=0.5)`. It chooses from a
            frontier of `job_steps` steps on all GPUs.
        wait_steps: Steps to skip at the beginning.
        warmup_steps: Steps after each change of the limit that are not measured. By default as
            many as fit in 0.2 s, and in 1 s before the first.
        profile_steps: Steps to measure at each limit, once. By default until time and energy are
            known to 0.5 % or for a second, and again where limits must be distinguished.
        pl_step: Watts between limits, from the highest that the GPU accepts; the lowest is the
            last. The previous limit is measured too, for comparison.
        profile_path: File in which profiles are kept for the next run, each under its GPU model,
            number of GPUs, job and batch size. By default Zeus's own if the job has a name, none
            otherwise.
        job: Name of the job.
        batch_size: Batch size of the job, of all its processes together; part of the profile's key.
        job_steps: Number of steps to which objectives in seconds or joules, such as `Deadline`,
            refer: those of the whole run, for instance.
        observe: Profile and choose, but keep the previous limit; `report` shows the time and energy
            that the run would have taken.
        raise_limit: Whether limits above the previous one may be tried and chosen. An administrator
            may have lowered it for a reason, so by default it is the highest; the report shows how
            much that may cost.
        rank_timeout: Seconds to wait for other processes of the job; after that, training continues
            unoptimized. Should be less than the timeout of the training's own collectives.
        run_steps: Steps of the whole run, if known. Then profiling ends after `max_profile_share`
            of them, with the best limit known by then; a run that is too short to compare two
            limits keeps the previous one, is only measured, and `trouble` says so.
        max_profile_share: Maximum share of `run_steps` to spend on profiling.
        presence_timeout: Seconds to wait, at the first step, for processes of the job that have
            not created their optimizer; after that, training continues unoptimized.

    Raises:
        ValueError: If an argument is invalid.
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
        presence_timeout: float = PRESENCE_TIMEOUT,
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
            presence_timeout=positive("presence_timeout", presence_timeout),
        )
