"""Computes a job's plans from its ranks' reports: the graph, its frontier, and who follows what.

The schedule is inferred, not reported. Within a rank, the order of instructions is as reported;
between ranks, a forward waits for that of the previous stage, a backward for that of the next
stage, both of the same microbatch.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from zeus.errors import PipelineError
from zeus.frontier import Point
from zeus.optimizer.pipeline_frequency._limit import Limit
from zeus.optimizer.pipeline_frequency._pipeline import Execution, Pipeline
from zeus.optimizer.pipeline_frequency._profile import COMMUNICATION, Option
from zeus.optimizer.pipeline_frequency._reserve import (
    Outcome,
    Robust,
    Variation,
    at_highest_clocks,
    solve_robust,
)
from zeus.optimizer.pipeline_frequency._solver import PLANS, Solution
from zeus.optimizer.pipeline_frequency.job._assembly import Assembly
from zeus.optimizer.pipeline_frequency.job._job import PipelineJob, Rank
from zeus.optimizer.pipeline_frequency.job._messages import (
    Directive,
    Instruction,
    InstructionKind,
    StepTimes,
    Straggler,
)
from zeus.optimizer.pipeline_frequency.job._misfit import misfit
from zeus.optimizer.pipeline_frequency.job._objective import PipelineObjective

MAX_OPERATIONS = 50_000
ROOM = 64 << 20  # maximum bytes of the plans of one job
_FEWEST_PLANS = 50
_SLACK = 1e-9  # relative rounding error of a time
_CLEARLY = (
    1e-3  # of the time of a step: messages block only if that predicts it better by this much
)


@dataclass(frozen=True)
class Planned:
    """The plans of a job.

    Attributes:
        inputs: Version of the job's inputs (`PipelineJob.inputs`) that they were computed from.
        sequences: Instructions of each place.
        blocking_power: Watts assumed for a waiting GPU; `None` if unknown.
        solution: The frontier of plans, by expected time and energy.
        messages: Message times, as learned.
        graph: The iteration with all options, also those that the objective rules out.
        expected: Expected time and energy without a plan, at the highest clocks.
        variation: How times vary, as measured.
        reserve: Share of the slack that plans leave unused for it.
    """

    inputs: int
    sequences: tuple[tuple[Instruction, ...], ...]
    blocking_power: float | None
    solution: Solution
    messages: Messages
    graph: Pipeline
    expected: Outcome
    variation: Variation
    reserve: float

    @cached_property
    def before(self) -> Execution:
        """An iteration without a plan, at the highest clocks."""
        return self.graph.at_highest_frequency()

    @property
    def size(self) -> int:
        """Approximate bytes of the plans."""
        return sum(point.knob.size for point in self.solution.frontier)

    def point(
        self,
        stragglers: Mapping[int, Straggler],
        pipeline: int,
        step_time: float | None = None,
        objective: PipelineObjective | None = None,
    ) -> Point:
        """Return the point that one of the pipelines should follow.

        The objective or the worst straggler sets the iteration time. A pipeline that is slow itself
        gets that time divided by its own slowdown.

        Args:
            stragglers: Straggler reports by pipeline.
            pipeline: Index of the pipeline.
            step_time: Seconds of a whole step without stragglers, if known: the part beyond the
                plan is not spent in the pipeline.
            objective: What the job is planned for; by default as fast as possible.
        """
        frontier = self.solution.frontier
        fastest = frontier.fastest.time
        straggler = stragglers.get(pipeline)
        slow = 1.0 if straggler is None else _slowdown(straggler, fastest, step_time)
        own = self.pace(stragglers, step_time)
        if objective is not None:
            own = max(own, objective.time(frontier, self.expected.time))
        return frontier.at_time(max(own / slow, fastest) * (1 + _SLACK))

    def pace(self, stragglers: Mapping[int, Straggler], step_time: float | None = None) -> float:
        """Return seconds of an iteration of the slowest pipeline; see `point`."""
        fastest = self.solution.frontier.fastest.time
        slow = (_slowdown(each, fastest, step_time) for each in stragglers.values())
        return fastest * max(slow, default=1.0)

    def clocks(self, point: Point, place: int) -> tuple[float | None, ...]:
        """Return MHz of each instruction of a place, in order."""
        return tuple(option.frequency for _, option in point.knob.of_device(place))

    def delays(self, point: Point, place: int) -> tuple[float, ...] | None:
        """Return when the plan lets a place begin each of its instructions at the earliest.

        In seconds from when it could begin the first one: when that instruction's input arrives is
        what a rank knows of the time of an iteration, as the clocks of machines need not agree.

        Returns:
            0 for instructions that are not delayed; `None` if none is.
        """
        plan = point.knob
        delayed = plan.not_before
        if not any(delayed):
            return None
        operations, execution = plan.pipeline.operations, plan.execute()
        first: float | None = None
        found = []
        for operation, start, late in zip(operations, execution.starts, delayed, strict=True):
            if operation.device != place:
                continue
            if first is None:
                ends = (execution.starts[at] + execution.options[at].time for at in operation.after)
                first = max(ends, default=0.0)
            # A message is delayed by the rank that needs it.
            messages = any(delayed[at] for at in operation.after if operations[at].device is None)
            found.append(max(start - first, 0.0) if late or messages else 0.0)
        return tuple(found) if any(found) else None

    def directive(self, point: Point, place: int, version: int, *, capped: bool) -> Directive:
        """Return what a rank at a place is to do under a plan.

        Args:
            point: The plan.
            place: Index of the place.
            version: Version of the answer.
            capped: Whether no step may run at the highest clocks.
        """
        clocks, delays = self.clocks(point, place), self.delays(point, place)
        return Directive(
            version, "plan", "", clocks, point.time, point.energy, capped, not_before=delays
        )

    def profile(self) -> list[dict[str, Any]]:
        """Return the measurements used, as rows of a profile's CSV table."""
        found: dict[tuple[int, str], Sequence[Option]] = {}
        for operation in self.before.pipeline.operations:
            if operation.device is None:
                continue  # a message
            found[operation.stage or 0, operation.instruction] = operation.options
        for stage, seconds in self.messages.links.items():
            found[stage, COMMUNICATION] = [Option(None, seconds, 0.0)]
        return [
            {
                "stage": stage,
                "instruction": instruction,
                "frequency": option.frequency,
                "time": option.time,
                "energy": option.energy,
            }
            for (stage, instruction), options in sorted(found.items())
            for option in options
        ]


def _slowdown(straggler: Straggler, fastest: float, step_time: float | None) -> float:
    if straggler.slowdown is not None:
        return straggler.slowdown
    beyond = 0.0 if step_time is None else max(step_time - fastest, 0.0)
    return max(((straggler.iteration_time or 0.0) - beyond) / fastest, 1.0)


def plan(
    job: PipelineJob,
    limit: Limit | None = None,
    first: Callable[[Planned], None] | None = None,
) -> Planned:
    """Return the plans of a job whose inputs are complete.

    Args:
        job: The job; must not change meanwhile.
        limit: Limits of time and memory; by default no time limit.
        first: Called with plans near the fastest before all are known, if that takes seconds.

    Raises:
        PipelineError: If the reports are inconsistent, or there is no plan within the limit; the
            message says why.
        NativeCodeError: If the solver is missing and cannot be built.
        SolvingCancelledError: If the limit was cancelled.
    """
    limit = limit or Limit(room=ROOM)
    pipeline, sequences, power, messages = assemble(job, limit)
    # Aim at fewer plans for a large pipeline, as refining finds several times as many.
    plans = max(min(PLANS, limit.room // (4 * _plan_size(pipeline))), _FEWEST_PLANS)
    variation = _variation(job)
    capped = job.objective.peak_power is not None
    highest = at_highest_clocks(pipeline, variation) if capped else None

    def planned(robust: Robust) -> Planned:
        return Planned(
            job.inputs,
            sequences,
            power,
            robust.solution,
            messages,
            pipeline,
            highest or robust.before,
            variation,
            robust.reserve,
        )

    early = None if first is None else lambda robust: first(planned(robust))
    limited, swing = job.objective.limited(pipeline), job.objective.power_swing
    return planned(solve_robust(limited, variation, plans, limit, early, swing=swing))


def _variation(job: PipelineJob) -> Variation:
    """Return how times vary: the median of the ranks' measurements, and the longest lag."""
    known = [rank.measured for rank in job.ranks.values() if rank.measured is not None]
    return Variation(
        statistics.median(each.variation for each in known),
        statistics.median(each.shared for each in known),
        max(each.lag for each in known),
    )


def _plan_size(pipeline: Pipeline) -> int:
    return 2 * len(pipeline.operations)


class Messages(NamedTuple):
    """Message times of a pipeline.

    Attributes:
        links: Seconds between a stage and the next one, by stage; absent where unknown, or none.
        block: Whether neither rank computes meanwhile.
    """

    links: dict[int, float]
    block: bool

    def __str__(self) -> str:
        if not self.links:
            return "messages block" if self.block else ""
        stage = max(self.links, key=lambda link: self.links[link])
        said = f"messages take up to {1e3 * self.links[stage]:.3g} ms"
        if len(set(self.links.values())) > 1:
            said += f" (between stages {stage} and {stage + 1})"
        return said + (", and block both ranks" if self.block else "")


class Assembled(NamedTuple):
    """The graph of an iteration.

    Attributes:
        pipeline: The graph.
        sequences: Instructions of each place.
        blocking_power: Watts of a waiting GPU; `None` if unknown.
        messages: Message times.
    """

    pipeline: Pipeline
    sequences: tuple[tuple[Instruction, ...], ...]
    blocking_power: float | None
    messages: Messages


def assemble(job: PipelineJob, limit: Limit | None = None) -> Assembled:
    """Return the graph of an iteration, and what it is made of.

    Raises:
        PipelineError: If the reports are inconsistent, or the limit is reached; says why.
        SolvingCancelledError: If the limit was cancelled.
    """
    limit = limit or Limit()
    limit.check()
    contributions = job.contributions()
    if not all(contributions):
        raise PipelineError("every place must be measured, but one is not")
    sequences = tuple(
        _same_sequence(place, pipelines) for place, pipelines in enumerate(contributions)
    )
    if sum(map(len, sequences)) > MAX_OPERATIONS:
        raise PipelineError(
            f"an iteration must have at most {MAX_OPERATIONS} instructions, but has "
            f"{sum(map(len, sequences))}"
        )
    power = blocking_power(job)

    def empty() -> Pipeline:
        return Pipeline(
            len(sequences),
            power or 0.0,
            tensor_parallel=job.degrees[2],
            data_parallel=job.degrees[0],
            name=job.name,
        )

    profiles = [
        {kind: _merged(place, kind, pipelines) for kind in {each.kind for each in sequence}}
        for place, (sequence, pipelines) in enumerate(zip(sequences, contributions, strict=True))
    ]
    assembly = Assembly(sequences, profiles, limit)
    passages = _passages(job, sequences)

    def graphs() -> Iterator[tuple[Pipeline, Messages]]:
        for of_steps in (min, statistics.median):
            assembly.count_messages(passages, of_steps)
            links = assembly.links()
            yield assembly.run(empty()), Messages(links, block=False)
            for in_turn in (True, False):
                blocking = assembly.run_blocking(empty(), in_turn=in_turn)
                if blocking is not None:
                    yield blocking, Messages(links, block=True)

    found: tuple[Pipeline, Messages] | None = None
    least = math.inf
    for graph in graphs():
        wrong = (misfit(graph[0], passages) or 0.0) if assembly.dependencies else 0.0
        if wrong < least - _CLEARLY:
            found, least = graph, wrong
        if least <= _CLEARLY:
            break
    assert found is not None
    pipeline, messages = found
    return Assembled(pipeline, sequences, power, messages)


def blocking_power(job: PipelineJob) -> float | None:
    """Return watts of a waiting GPU, as configured or else as measured between instructions.

    Ranks that hardly wait do not know it well, so the median of all counts.
    """
    told = [rank.told_power for rank in job.ranks.values() if rank.told_power is not None]
    measured = [
        rank.measured.blocking_power
        for rank in job.ranks.values()
        if rank.measured is not None and rank.measured.blocking_power is not None
    ]
    known = told or measured
    return statistics.median(known) if known else None


def _passages(
    job: PipelineJob, sequences: Sequence[tuple[Instruction, ...]]
) -> dict[Hashable, list[tuple[StepTimes, ...]]]:
    """Return the passages of the first GPU of each place, by pipeline."""
    pipelines, places, _ = job.degrees
    found: dict[Hashable, list[tuple[StepTimes, ...]]] = {
        pipeline: [()] * places for pipeline in range(pipelines)
    }
    for rank in job.ranks.values():
        pipeline, place, gpu = rank.seat.place
        if rank.measured is not None and gpu == 0 and rank.sequence == sequences[place]:
            found[pipeline][place] = rank.measured.passages
    return found


def _same_sequence(place: int, pipelines: Sequence[Sequence[Rank]]) -> tuple[Instruction, ...]:
    first = pipelines[0][0]
    for ranks in pipelines:
        for rank in ranks:
            if rank.sequence != first.sequence:
                raise PipelineError(
                    f"all ranks at place {place} must have the same instructions, but ranks "
                    f"{first.seat.rank} and {rank.seat.rank} do not"
                )
    return first.sequence


def _merged(
    place: int, kind: InstructionKind, pipelines: Sequence[Sequence[Rank]]
) -> tuple[Option, ...]:
    """Return the options of a kind at a place, at the clocks that all ranks measured.

    Of tensor-parallel GPUs, the longest time and the mean energy; of pipelines the (lower) median
    of both, so that one that straggles does not slow the plan of all.
    """
    tables = [[_table(rank, kind) for rank in ranks] for ranks in pipelines]
    shared = set.intersection(*(set(table) for tables_ in tables for table in tables_))
    if not shared:
        raise PipelineError(f"ranks at place {place} must have a clock of {kind} in common")
    merged = []
    for clock in sorted(shared, key=lambda clock: clock or 0.0, reverse=True):
        times = [max(table[clock].time for table in tables_) for tables_ in tables]
        energies = [
            math.fsum(table[clock].energy for table in tables_) / len(tables_) for tables_ in tables
        ]
        merged.append(Option(clock, statistics.median_low(times), statistics.median_low(energies)))
    return tuple(merged)


def _table(rank: Rank, kind: InstructionKind) -> dict[float | None, Option]:
    assert rank.measured is not None
    return {option.frequency: option for option in rank.measured.options[kind]}
