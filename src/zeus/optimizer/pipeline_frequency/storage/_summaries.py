"""Answers about pipeline jobs: what operators see of a job, its ranks and its plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from zeus.optimizer.pipeline_frequency.job._job import PipelineJob, Rank
from zeus.optimizer.pipeline_frequency.job._messages import Straggler
from zeus.optimizer.pipeline_frequency.job._planning import Planned

Alive = Callable[[int], bool]
"""Whether a rank was seen recently, by its number."""


def summary(job: PipelineJob, alive: Alive) -> dict[str, Any]:
    """Return a `PipelineSummary`."""
    pipelines, places, gpus = job.degrees
    return {
        "name": job.name,
        "note": job.note,
        "status": job.status(),
        "dp_degree": pipelines,
        "pp_degree": places,
        "tp_degree": gpus,
        "created": job.created,
        "updated": job.updated,
        "version": job.version,
        "registered": len(job.ranks),
        "alive": sum(map(alive, job.ranks)),
        "straggling": len(job.stragglers),
    }


def job_info(job: PipelineJob, alive: Alive) -> dict[str, Any]:
    """Return a `PipelineInfo`."""
    return {
        **summary(job, alive),
        "stragglers": [asdict(each) for _, each in sorted(job.stragglers.items())],
        "ranks": [_rank_info(rank, alive(number)) for number, rank in sorted(job.ranks.items())],
    }


def _rank_info(rank: Rank, alive: bool) -> dict[str, Any]:
    measured = rank.measured
    clocks = [] if measured is None else [len(options) for options in measured.options.values()]
    return {
        "rank": rank.seat.rank,
        "dp_rank": rank.seat.dp_rank,
        "pp_rank": rank.seat.pp_rank,
        "tp_rank": rank.seat.tp_rank,
        "gpu": rank.gpu,
        "state": rank.state if alive or rank.left else "lost",
        "trouble": rank.trouble,
        "registered": rank.registered,
        "instructions": len(rank.sequence),
        "clocks_measured": max(clocks, default=0),
        "steps_measured": 0 if measured is None else measured.steps,
    }


def frontier_info(
    planned: Planned | None,
    step_time: float | None,
    stragglers: Mapping[int, Straggler],
    pipelines: int,
) -> dict[str, Any]:
    """Return what a `FrontierInfo` says about the plans.

    Args:
        planned: The plans; `None` if there are none.
        step_time: Seconds of a whole step without stragglers, if known.
        stragglers: Reported stragglers, by pipeline.
        pipelines: Number of pipelines.
    """
    if planned is None:
        return {
            "blocking_power": None,
            "before": None,
            "step_time": None,
            "points": [],
            "active": [],
        }
    active = [planned.point(stragglers, number, step_time) for number in range(pipelines)]
    return {
        "blocking_power": planned.blocking_power,
        "before": {"time": planned.before.time, "energy": planned.before.energy},
        "step_time": step_time,
        "points": [
            {"time": point.time, "energy": point.energy, "lower_bound": point.knob.lower_bound}
            for point in planned.solution.frontier
        ],
        "active": [
            {"pipeline": number, "time": point.time, "energy": point.energy}
            for number, point in enumerate(active)
        ],
    }
