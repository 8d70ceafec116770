"""Computes a job's plans from its ranks' reports: the graph, its frontier, and who follows what.

The schedule is inferred, not reported. Within a rank, the order of instructions is as reported;
between ranks, a forward waits for that of the previous stage, a backward for that of the next
stage, both of the same microbatch.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from zeus.errors import PipelineError
from zeus.frontier import Point
from zeus.optimizer.pipeline_frequency._exchanges import (
    Dependency,
    Exchange,
    Location,
    blocking_order,
)
from zeus.optimizer.pipeline_frequency._limit import Limit
from zeus.optimizer.pipeline_frequency._pipeline import Execution, Pipeline
from zeus.optimizer.pipeline_frequency._profile import COMMUNICATION, Option
from zeus.optimizer.pipeline_frequency._solver import PLANS, Solution, solve
from zeus.optimizer.pipeline_frequency.job._job import PipelineJob, Rank
from zeus.optimizer.pipeline_frequency.job._messages import (
    FIXED,
    FORWARD,
    GRADIENTS,
    Instruction,
    InstructionKind,
    StepTimes,
    Straggler,
)
from zeus.optimizer.pipeline_frequency.job._misfit import Passages, misfit
from zeus.optimizer.pipeline_frequency.job._transit import message_times

MAX_OPERATIONS = 50_000
ROOM = 64 << 20  # maximum bytes of the plans of one job
_FEWEST_PLANS = 50
_CHECKED = 1_000  # instructions between two checks of the limit
_GRADIENT = "gradient"
_SLACK = 1e-9  # relative rounding error of a time
_CLEARLY = (
    1e-3  # of the time of a step: messages block only if that predicts it better by this much
)

_Key = tuple[str, int, int]  # forward or gradient, stage, microbatch


@dataclass(frozen=True)
class Planned:
    """The plans of a job.

    Attributes:
        inputs: Version of the job's inputs (`PipelineJob.inputs`) that they were computed from.
        sequences: Instructions of each place.
        blocking_power: Watts assumed for a waiting GPU; `None` if unknown.
        solution: The frontier of plans.
        messages: Message times, as learned.
    """

    inputs: int
    sequences: tuple[tuple[Instruction, ...], ...]
    blocking_power: float | None
    solution: Solution
    messages: Messages

    @cached_property
    def before(self) -> Execution:
        """An iteration without a plan, at the highest clocks."""
        fastest = self.solution.frontier.fastest.knob
        execution: Execution = fastest.pipeline.at_highest_frequency()
        return execution

    @property
    def size(self) -> int:
        """Approximate bytes of the plans."""
        return len(self.solution.frontier) * _plan_size(self.before.pipeline)

    def point(
        self, stragglers: Mapping[int, Straggler], pipeline: int, step_time: float | None = None
    ) -> Point:
        """Return the point that one of the pipelines should follow.

        The worst straggler sets the iteration time. A pipeline that is slow itself gets that time
        divided by its own slowdown.

        Args:
            stragglers: Straggler reports by pipeline.
            pipeline: Index of the pipeline.
            step_time: Seconds of a whole step without stragglers, if known: the part beyond the
                plan is not spent in the pipeline.
        """
        frontier = self.solution.frontier
        fastest = frontier.fastest.time
        straggler = stragglers.get(pipeline)
        slow = 1.0 if straggler is None else _slowdown(straggler, fastest, step_time)
        own = self.pace(stragglers, step_time) / slow
        return frontier.at_time(max(own, fastest) * (1 + _SLACK))

    def pace(self, stragglers: Mapping[int, Straggler], step_time: float | None = None) -> float:
        """Return seconds of an iteration of the slowest pipeline; see `point`."""
        fastest = self.solution.frontier.fastest.time
        slow = (_slowdown(each, fastest, step_time) for each in stragglers.values())
        return fastest * max(slow, default=1.0)

    def clocks(self, point: Point, place: int) -> tuple[float | None, ...]:
        """Return MHz of each instruction of a place, in order."""
        return tuple(option.frequency for _, option in point.knob.of_device(place))

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


def plan(job: PipelineJob, limit: Limit | None = None) -> Planned:
    """Return the plans of a job whose inputs are complete.

    Args:
        job: The job; must not change meanwhile.
        limit: Limits of time and memory; by default no time limit.

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
    return Planned(job.inputs, sequences, power, solve(pipeline, plans, limit), messages)


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
    assembly = _Assembly(sequences, profiles, limit)
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
    """Return watts of a waiting GPU, as configured or else as measured between instructions."""
    told = [rank.told_power for rank in job.ranks.values() if rank.told_power is not None]
    measured = [
        rank.measured.blocking_power
        for rank in job.ranks.values()
        if rank.measured is not None and rank.measured.blocking_power is not None
    ]
    known = told or measured
    return math.fsum(known) / len(known) if known else None


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

    Of tensor-parallel GPUs, the longest time and the mean energy; of pipelines, the mean of both.
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
        merged.append(
            Option(clock, math.fsum(times) / len(times), math.fsum(energies) / len(energies))
        )
    return tuple(merged)


def _table(rank: Rank, kind: InstructionKind) -> dict[float | None, Option]:
    assert rank.measured is not None
    return {option.frequency: option for option in rank.measured.options[kind]}


class _Assembly:
    """Adds operations to a pipeline in an order in which they could run."""

    def __init__(
        self,
        sequences: Sequence[Sequence[Instruction]],
        profiles: Sequence[Mapping[InstructionKind, tuple[Option, ...]]],
        limit: Limit,
    ) -> None:
        self.dependencies: list[list[Dependency]] = []
        self._limit = limit
        self._profiles = profiles
        self._places = len(sequences)
        chunks = {1 + max(each.chunk for each in sequence) for sequence in sequences}
        self._stages = self._places * max(chunks)
        self._steps = [
            _numbered(sequence, place, self._places) for place, sequence in enumerate(sequences)
        ]
        limit.check()
        self._check_stages()
        self._check_microbatches()
        self._messages: dict[tuple[int, int], float] = {}
        self._places_of = {
            step.key: (place, number)
            for place, steps in enumerate(self._steps)
            for number, step in enumerate(steps)
        }

    def count_messages(
        self, passages: Passages, of_steps: Callable[[Sequence[float]], float]
    ) -> None:
        """Estimate message times, unless ranks report communication as instructions.

        Then `dependencies` has those of each place on others.
        """
        if any(step.instruction.name in FIXED for steps in self._steps for step in steps):
            return
        dependencies: list[list[Dependency]] = [[] for _ in self._steps]
        for place, steps in enumerate(self._steps):
            for number, step in enumerate(steps):
                needed = self._needed(step)
                if needed in self._places_of:
                    sender, sent = self._places_of[needed]
                    if sender != place:
                        dependencies[place].append(Dependency(number, sender, sent))
        self._limit.check()
        self.dependencies = dependencies
        self._messages = message_times(dependencies, passages, of_steps)

    def links(self) -> dict[int, float]:
        """Return seconds of a message between a stage and the next one, where known."""
        owner = {step.stage: place for place, steps in enumerate(self._steps) for step in steps}
        pairs = {
            stage: (owner[stage], owner[stage + 1])
            for stage in range(self._stages - 1)
            if stage in owner and stage + 1 in owner
        }
        return {
            stage: self._messages[min(pair), max(pair)]
            for stage, pair in pairs.items()
            if (min(pair), max(pair)) in self._messages
        }

    def run_blocking(self, pipeline: Pipeline, *, in_turn: bool) -> Pipeline | None:
        """Add everything to a pipeline, with messages that block; see `blocking_order`."""
        order = blocking_order(
            self.dependencies, [len(steps) for steps in self._steps], in_turn=in_turn
        )
        if order is None:
            return None
        numbers: dict[Location | Exchange, int] = {}
        for each, waits in order.items():
            if len(numbers) % _CHECKED == 0:
                self._limit.check()
            after = [numbers[other] for other in waits]
            if isinstance(each, frozenset):
                (lower, number), (upper, _) = sorted(each)
                near = self._steps[lower][max(number - 1, 0)]
                numbers[each] = pipeline.add_fixed(
                    COMMUNICATION,
                    self._messages.get((lower, upper), 0.0),
                    stage=near.stage,
                    microbatch=near.microbatch,
                    after=after,
                )
            else:
                place, number = each
                step = self._steps[place][number]
                numbers[each] = self._operation(pipeline, place, step, after)
        return pipeline

    def run(self, pipeline: Pipeline) -> Pipeline:
        """Add everything to a pipeline, with messages during which ranks go on."""
        self._pipeline = pipeline
        self._done: dict[_Key, int] = {}
        self._next = [0] * self._places
        waiting: dict[_Key, list[int]] = defaultdict(list)
        ready = deque(range(self._places))
        while ready:
            place = ready.popleft()
            steps = self._steps[place]
            while self._next[place] < len(steps):
                step = steps[self._next[place]]
                needed = self._needed(step)
                if needed is not None and needed not in self._done:
                    waiting[needed].append(place)
                    break
                ready.extend(waiting.pop(self._add(place, step, needed), ()))
        for place, steps in enumerate(self._steps):
            if self._next[place] < len(steps):
                step = steps[self._next[place]]
                raise PipelineError(
                    f"the orders of the places must fit together, but place {place} waits forever "
                    f"before {step.instruction.name} of stage {step.stage}, microbatch "
                    f"{step.microbatch}"
                )
        return pipeline

    def _received(self, place: int, step: _Step, needed: _Key | None) -> tuple[int, ...]:
        """Return the operations a step waits for: a message, if its input is from another place."""
        if needed is None:
            return ()
        sender, _ = self._places_of[needed]
        seconds = self._messages.get((min(sender, place), max(sender, place)))
        if seconds is None:
            return (self._done[needed],)
        message = self._pipeline.add_fixed(
            COMMUNICATION,
            seconds,
            stage=needed[1],
            microbatch=step.microbatch,
            after=[self._done[needed]],
        )
        return (message,)

    def _add(self, place: int, step: _Step, needed: _Key | None) -> _Key:
        if len(self._done) % _CHECKED == 0:
            self._limit.check()
        after = self._received(place, step, needed)
        number = self._operation(self._pipeline, place, step, after)
        self._next[place] += 1
        self._done[step.key] = number
        return step.key

    def _operation(self, pipeline: Pipeline, place: int, step: _Step, after: Sequence[int]) -> int:
        return pipeline.add(
            step.instruction.name,
            self._profiles[place][step.instruction.kind],
            device=place,
            stage=step.stage,
            microbatch=step.microbatch,
            after=after,
        )

    def _needed(self, step: _Step) -> _Key | None:
        """Return the key of the step at another stage that a step waits for, if any."""
        what, stage, microbatch = step.key
        if what == FORWARD and stage > 0:
            return FORWARD, stage - 1, microbatch
        if what == _GRADIENT and stage < self._stages - 1:
            return _GRADIENT, stage + 1, microbatch
        return None

    def _check_stages(self) -> None:
        """Every chunk of a place must be one stage, and every stage one chunk."""
        stages: dict[tuple[int, int], int] = {}
        owners: dict[int, tuple[int, int]] = {}
        for place, steps in enumerate(self._steps):
            for step in steps:
                stage, owner = step.stage, (place, step.instruction.chunk)
                if stage >= self._stages:
                    raise PipelineError(
                        f"`stage < {self._stages}` must hold with {self._places} places and as "
                        f"many chunks as were seen, but place {place} says stage={stage}"
                    )
                known = stages.setdefault(owner, stage)
                if known != stage:
                    raise PipelineError(
                        f"each chunk must be one stage, but chunk {owner[1]} of place {place} is "
                        f"reported as {known} and {stage}"
                    )
                other = owners.setdefault(stage, owner)
                if other != owner:
                    raise PipelineError(
                        f"each stage must be one chunk of one place, but stage {stage} is "
                        f"both chunk {other[1]} of place {other[0]} and {owner[1]} of {place}"
                    )

    def _check_microbatches(self) -> None:
        """Every stage must have the same microbatches."""
        for what in (FORWARD, _GRADIENT):
            # Only stages that have instructions: chunk indices may be arbitrary.
            seen: dict[int, set[int]] = defaultdict(set)
            for steps in self._steps:
                for step in steps:
                    if step.key[0] != what:
                        continue
                    if step.microbatch in seen[step.stage]:
                        raise PipelineError(
                            f"each stage must have one {what} of a microbatch, but stage "
                            f"{step.stage} has two of microbatch {step.microbatch}"
                        )
                    seen[step.stage].add(step.microbatch)
            first = range(min(self._stages, len(seen) + 1))  # includes the first missing stage
            for stage in sorted({*first, *seen}):
                microbatches = seen[stage]
                if microbatches != seen[0]:
                    raise PipelineError(
                        f"every stage must have a {what} of each microbatch, but stage {stage} has "
                        f"{len(microbatches)} and stage 0 has {len(seen[0])}, or others"
                    )


@dataclass(frozen=True)
class _Step:
    instruction: Instruction
    stage: int
    microbatch: int

    @property
    def key(self) -> _Key:
        name = self.instruction.name
        return _GRADIENT if name in GRADIENTS else name, self.stage, self.microbatch


def _numbered(sequence: Sequence[Instruction], place: int, places: int) -> list[_Step]:
    """Return the steps with their stages and microbatches, inferred where not given."""
    counts: dict[tuple[str, int], int] = defaultdict(int)
    steps = []
    for each in sequence:
        what = _GRADIENT if each.name in GRADIENTS else each.name
        counted = counts[what, each.chunk]
        counts[what, each.chunk] += 1
        microbatch = counted if each.microbatch is None else each.microbatch
        stage = each.chunk * places + place if each.stage is None else each.stage
        steps.append(_Step(each, stage, microbatch))
    return steps
