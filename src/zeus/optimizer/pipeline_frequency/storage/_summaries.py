"""Answers about pipeline jobs: what operators see of a job, its ranks and its plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from zeus.monitor._measurement import show_joules
from zeus.optimizer.pipeline_frequency._limit import Limit
from zeus.optimizer.pipeline_frequency.job._job import PipelineJob, Rank
from zeus.optimizer.pipeline_frequency.job._planning import Planned
from zeus.optimizer.pipeline_frequency.job._progress import Progress, slowest
from zeus.optimizer.pipeline_frequency.job._supervision import Saved
from zeus.optimizer.pipeline_frequency.storage._history import History

Alive = Callable[[int], bool]
"""Whether a rank was seen recently, by its number."""


def summary(
    job: PipelineJob, alive: Alive, measuring: Mapping[int, Progress], planning: str = ""
) -> dict[str, Any]:
    """Return a `PipelineSummary`.

    Args:
        job: The job.
        alive: Whether a rank was seen recently.
        measuring: Progress of the ranks that measure now.
        planning: Progress of the solver, in words, while it runs.
    """
    pipelines, places, gpus = job.degrees
    return {
        "name": job.name,
        "note": job.note,
        "status": job.status(),
        "progress": planning or _measuring(measuring),
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


def _measuring(ranks: Mapping[int, Progress]) -> str:
    found = slowest(ranks.values())
    return "" if found is None else f"measuring, {found}"


def job_info(
    job: PipelineJob, alive: Alive, measuring: Mapping[int, Progress], planning: str = ""
) -> dict[str, Any]:
    """Return a `PipelineInfo`; see `summary`."""
    return {
        **summary(job, alive, measuring, planning),
        "objective": job.objective.to_dict(),
        "stragglers": [asdict(each) for _, each in sorted(job.stragglers.items())],
        "ranks": [
            _rank_info(rank, alive(number), measuring.get(number))
            for number, rank in sorted(job.ranks.items())
        ],
    }


def _rank_info(rank: Rank, alive: bool, progress: Progress | None) -> dict[str, Any]:
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
        "reports": 0 if measured is None else measured.revision,
        "measuring": None
        if progress is None
        else {
            "steps": progress.steps,
            "expected_steps": progress.expected,
            "clocks": progress.clocks,
            "expected_clocks": progress.targets,
            "seconds_left": progress.left,
        },
    }


def frontier_info(
    job: PipelineJob, planned: Planned | None, step_time: float | None, saved: Saved | None
) -> dict[str, Any]:
    """Return what a `FrontierInfo` says about the plans.

    Args:
        job: The job.
        planned: The plans; `None` if there are none.
        step_time: Seconds of a whole step without stragglers, if known.
        saved: What the plan saves, as measured.
    """
    if planned is None:
        return {
            "blocking_power": None,
            "before": None,
            "step_time": None,
            "saved": None,
            "points": [],
            "active": [],
        }
    active = [
        planned.point(job.stragglers, number, step_time, job.objective)
        for number in range(job.degrees[0])
    ]
    return {
        "blocking_power": planned.blocking_power,
        "before": {"time": planned.expected.time, "energy": planned.expected.energy},
        "step_time": step_time,
        "saved": None if saved is None else _saved_info(saved),
        "points": [
            {"time": point.time, "energy": point.energy, "lower_bound": point.knob.lower_bound}
            for point in planned.solution.frontier
        ],
        "active": [
            {"pipeline": number, "time": point.time, "energy": point.energy}
            for number, point in enumerate(active)
        ],
    }


def _saved_info(saved: Saved) -> dict[str, Any]:
    (time, energy), (reference_time, reference_energy) = saved.plan, saved.reference
    return {
        "energy": saved.energy,
        "slowdown": saved.slowdown,
        "plan": {"time": time, "energy": energy},
        "reference": {"time": reference_time, "energy": reference_energy},
        "steps": saved.steps,
        "references": saved.references,
    }


def history_info(history: History) -> dict[str, Any]:
    """Return a `HistoryInfo`."""
    periods = []
    for each in history.periods:
        planned = None
        if each.planned is not None:
            planned = {"time": each.planned[0], "energy": each.planned[1]}
        periods.append({**asdict(each), "planned": planned})
    return {
        "periods": periods,
        "points": [asdict(each) for each in history.points],
        "energy": None if history.energy is None else asdict(history.energy),
    }


def planning(job: PipelineJob, progress: str) -> str:
    """Return how far the solver has come with the plans of a job, in words."""
    what = "planning the rest" if job.planned and not job.stale else "planning"
    what = "planning again" if job.stale else what
    return f"{what}, {progress}" if progress else what


def plan_message(job: PipelineJob, planned: Planned, limit: Limit | None = None) -> str:
    """Return the description of new plans, for people.

    Args:
        job: The job, with its objective; stragglers are not considered.
        planned: Its plans.
        limit: The limit within which they were to be found; `None` if more are to come.
    """
    frontier, power = planned.solution.frontier, planned.blocking_power
    followed = planned.point({}, 0, None, job.objective)
    said = (
        f"{len(frontier)} plans from {frontier.fastest.time:.4g} to "
        f"{frontier.least_energy.time:.4g} s; {followed.time:.4g} s and "
        f"{show_joules(followed.energy)} per iteration expected"
    )
    if planned.expected.energy:
        slower = 100 * (followed.time / planned.expected.time - 1)
        less = 100 * (1 - followed.energy / planned.expected.energy)
        said += f" ({less:.1f} % less energy and {slower:+.1f} % time than at the highest clocks)"
    counted = "not known, counted as 0 W" if power is None else f"{power:.4g} W"
    said += f"; blocking power {counted}"
    said += f"; {messages}" if (messages := str(planned.messages)) else ""
    if limit is not None and not planned.solution.refined:
        said += f"; not fully refined, as that takes more than {limit.seconds:g} s"
    return said
