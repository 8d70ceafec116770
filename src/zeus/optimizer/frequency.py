"""The GPU clock, optimized just in time: the second knob by which a GPU trades time for energy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zeus.monitor import ZeusMonitor
from zeus.optimizer.jit.checks import checked_job, checked_lengths, positive
from zeus.optimizer.jit.knobs import ClockKnob
from zeus.optimizer.jit.optimizer import JitOptimizer


class GlobalFrequencyOptimizer(JitOptimizer):
    """Finds the best highest graphics clock during training, and uses it from then on.

    As `GlobalPowerLimitOptimizer` in everything but the knob: GPUs are kept from clocking higher,
    and may still go lower when they have nothing to do.

    Args:
        monitor: As there.
        optimum_selector: As there.
        wait_steps: As there.
        warmup_steps: As there.
        profile_steps: As there.
        freq_step: MHz between clocks, at least, from the highest down; only clocks that the GPU
            supports are set.
        profile_path: As there; both kinds of profiles may be in one file.
        job: As there.
        batch_size: As there.
        job_steps: As there.
        observe: As there.
        raise_limit: As there, for clocks above a lock that the driver tells of.
        rank_timeout: As there.
        run_steps: As there.
        max_profile_share: As there.

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
        )
