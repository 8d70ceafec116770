"""The GPU clock, optimized just in time: the second knob by which a GPU trades time for energy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zeus.monitor import ZeusMonitor
from zeus.optimizer.jit._checks import checked_job, checked_lengths, positive
from zeus.optimizer.jit._optimizer import JitOptimizer
from zeus.optimizer.training._knobs import ClockKnob
from zeus.optimizer.training._rendezvous import PRESENCE_TIMEOUT


class GlobalFrequencyOptimizer(JitOptimizer):
    """Finds the best maximum graphics clock during training, and uses it from then on.

    Like `GlobalPowerLimitOptimizer`, which documents the arguments in full, except for the knob:
    GPUs are kept from clocking higher, and may still clock lower when idle.

    Args:
        monitor: Measures the GPUs whose clock is to be set.
        optimum_selector: The objective; by default `ZeusCost(eta_knob=0.5)`.
        wait_steps: Steps to skip at the beginning.
        warmup_steps: Steps to skip after each change of the clock.
        profile_steps: Steps to measure at each clock.
        freq_step: Minimum MHz between clocks, from the highest down; only clocks that the GPU
            supports are set.
        profile_path: File of profiles; may also hold those of power limits.
        job: Name of the job.
        batch_size: Batch size of the job, of all its processes together.
        job_steps: Number of steps to which objectives in seconds or joules refer.
        observe: Profile and choose, but keep the previous clock.
        raise_limit: Whether clocks above a lock that the driver reports may be tried.
        rank_timeout: Seconds to wait for other processes of the job.
        run_steps: Steps of the whole run, if known.
        max_profile_share: Maximum share of `run_steps` to spend on profiling.
        presence_timeout: Seconds to wait for processes without an optimizer.

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
        freq_step: float = 75,
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
            ClockKnob(positive("freq_step", freq_step)),
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
