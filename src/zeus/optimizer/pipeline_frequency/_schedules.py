"""Pipeline schedules: the order in which each rank runs its computations, and the resulting graph.

A schedule is a function from the numbers of ranks, stages and microbatches to one list of `Step`s
per rank. `build` adds the dependencies: a forward waits for that of the previous stage, a backward
for that of the next stage, and every step for the one before it on its rank. What ends an iteration
on each rank (exchange of gradients, step of the optimizer) comes after its last computation.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from zeus._extensions import SCHEDULES as OUTSIDE
from zeus._extensions import extensions
from zeus._rules import shown
from zeus.errors import ExtensionError, PipelineError
from zeus.optimizer.pipeline_frequency._exchanges import (
    Dependency,
    Exchange,
    Location,
    blocking_order,
)
from zeus.optimizer.pipeline_frequency._links import Links, LinkTimes
from zeus.optimizer.pipeline_frequency._pipeline import Pipeline, counted
from zeus.optimizer.pipeline_frequency._profile import (
    COMMUNICATION,
    GRADIENT_EXCHANGE,
    OPTIMIZER_STEP,
    Profile,
)

FORWARD, BACKWARD, RECOMPUTATION = "forward", "backward", "recomputation"
BACKWARD_INPUT, BACKWARD_WEIGHT = "backward_input", "backward_weight"
DATA_LOADING = "data_loading"
_GRADIENTS = (BACKWARD, BACKWARD_INPUT)  # compute the gradient that the previous stage waits for


class Step(NamedTuple):
    """One computation in the order of a rank."""

    instruction: str
    stage: int
    microbatch: int


Order = list[list[Step]]


@dataclass(frozen=True)
class Shape:
    """The dimensions of a pipeline to schedule.

    Attributes:
        devices: Number of pipeline ranks.
        stages: Number of model stages, a multiple of the ranks. Stage `s` is on rank `s % devices`,
            unless the schedule places them in a V.
        microbatches: Number of microbatches.
    """

    devices: int
    stages: int
    microbatches: int

    def __post_init__(self) -> None:
        for name in ("devices", "stages", "microbatches"):
            counted(name, getattr(self, name))
        if self.stages % self.devices:
            raise PipelineError(
                "`stages` must be a multiple of `devices`, but got "
                f"stages={self.stages}, devices={self.devices}"
            )

    @property
    def chunks(self) -> int:
        """Number of stages per rank."""
        return self.stages // self.devices


def _one_stage_per_rank(name: str, shape: Shape) -> None:
    if shape.chunks > 1:
        raise PipelineError(
            f"{name} has one stage per rank, but got {shape.chunks}; interleaved, zero-bubble and "
            "zbv have more"
        )


def gpipe(shape: Shape) -> Order:
    """All forwards, then all backwards."""
    _one_stage_per_rank("gpipe", shape)
    return [
        [Step(FORWARD, rank, microbatch) for microbatch in range(shape.microbatches)]
        + [Step(BACKWARD, rank, microbatch) for microbatch in range(shape.microbatches)]
        for rank in range(shape.devices)
    ]


def one_forward_one_backward(shape: Shape) -> Order:
    """1F1B: the fewest warm-up forwards that keep the last rank busy, then one of each in turn."""
    _one_stage_per_rank("1f1b", shape)
    rounds = _Rounds("1f1b", shape)
    return [list(rounds.alternating(rank, 1, BACKWARD)) for rank in range(shape.devices)]


def interleaved(shape: Shape) -> Order:
    """1F1B with several stages per rank, as in Megatron-LM and PyTorch.

    The microbatches go through each of a rank's stages in rounds of about as many as there are
    ranks; their number must be a multiple of the number of rounds.
    """
    rounds = _Rounds("interleaved 1F1B", shape)
    return [list(rounds.alternating(rank, 2, BACKWARD)) for rank in range(shape.devices)]


class _Rounds:
    """The order in which microbatches go through the several stages of a rank."""

    def __init__(self, name: str, shape: Shape) -> None:
        count = max(1, shape.microbatches // shape.devices)
        if shape.chunks == 1:
            count = 1  # rounds make no difference, so any number of microbatches is valid
        if shape.microbatches % count:
            raise PipelineError(
                f"{name} needs microbatches in equal rounds, but got "
                f"microbatches={shape.microbatches}, devices={shape.devices}: {count} rounds"
            )
        self._shape = shape
        self._length = shape.microbatches // count
        self.total = shape.microbatches * shape.chunks

    def alternating(self, rank: int, per_rank: int, backward: str) -> Iterator[Step]:
        """Yield a rank's forwards and backwards: after the warm-up, one of each in turn.

        The warm-up has `per_rank` more forwards for each rank that follows.
        """
        shape = self._shape
        ahead = (shape.chunks - 1) * self._length + per_rank * (shape.devices - 1 - rank)
        for number in range(min(ahead, self.total)):
            yield self.step(rank, number, FORWARD)
        for number in range(self.total):
            if number + ahead < self.total:
                yield self.step(rank, number + ahead, FORWARD)
            yield self.step(rank, number, backward)

    def step(self, rank: int, number: int, instruction: str) -> Step:
        """Return the stage and microbatch of a rank's n-th instruction of this kind."""
        shape = self._shape
        round_, place = divmod(number, self._length * shape.chunks)
        chunk, within = divmod(place, self._length)
        if instruction != FORWARD:
            chunk = shape.chunks - 1 - chunk
        return Step(instruction, chunk * shape.devices + rank, round_ * self._length + within)


def early_recomputation(shape: Shape) -> Order:
    """1F1B in which activations are recomputed before a backward's gradient has arrived.

    The last rank's backward follows its forward at once, so it has nothing to recompute.
    """
    _one_stage_per_rank("1f1b-recompute", shape)
    rounds = _Rounds("1f1b-recompute", shape)
    order = []
    for rank in range(shape.devices):
        steps = []
        for step in rounds.alternating(rank, 1, BACKWARD):
            if step.instruction == BACKWARD and rank < shape.devices - 1:
                steps.append(step._replace(instruction=RECOMPUTATION))
            steps.append(step)
        order.append(steps)
    return order


def zero_bubble(shape: Shape) -> Order:
    """1F1B with split backwards: input gradients at once, weight gradients to fill gaps.

    Later ranks have fewer microbatches in flight, so they may postpone as many weight gradients as
    there are ranks before them, within the memory of 1F1B (ZB-H1). A rank may have several stages,
    with rounds as those of `interleaved`.
    """
    rounds = _Rounds("zero-bubble", shape)
    order = []
    for rank in range(shape.devices):
        weights = (rounds.step(rank, number, BACKWARD_WEIGHT) for number in range(rounds.total))
        steps, gradients = [], 0
        for step in rounds.alternating(rank, 1, BACKWARD_INPUT):
            steps.append(step)
            gradients += step.instruction == BACKWARD_INPUT
            if step.instruction == BACKWARD_INPUT and gradients > rank:
                steps.append(next(weights))
        order.append([*steps, *weights])
    return order


def zero_bubble_v(shape: Shape) -> Order:
    """Two stages per rank in a V, down the ranks and up again, with split backwards (ZB-V).

    The first rank has the first stage and the last one, so that it computes the loss and begins the
    first backward itself. If forwards and both halves of backwards take equally long, no rank waits
    between its first computation and its last, within the memory of 1F1B.
    """
    if shape.chunks != 2:
        raise PipelineError(f"zbv has two stages per rank, but got {shape.chunks}")
    # With fewer microbatches, take the order of as many as fill the pipeline, and leave gaps.
    filling = max(shape.microbatches, 2 * shape.devices - 1)
    order = []
    for rank in range(shape.devices):
        following = shape.devices - rank  # ranks from this one on
        line = _Line(down=rank, up=shape.stages - 1 - rank)
        line.run("F", times=2 * following - 1)
        line.run("f F", times=rank)
        line.run("f i w", times=following)
        while line.count("f") < filling:
            if line.count("F") < filling:
                line.run("F")
            line.run("I W f i w")
        line.run("I i", times=rank)
        line.run("I W", times=following)
        line.run("w", times=filling - line.count("w"))
        line.run("W", times=filling - line.count("W"))
        order.append([step for step in line.steps if step.microbatch < shape.microbatches])
    return order


class _Line:
    """Builds the order of a rank from letters: upper case on the way down the V, lower case up."""

    _LETTERS: ClassVar = {"f": FORWARD, "i": BACKWARD_INPUT, "w": BACKWARD_WEIGHT}

    def __init__(self, down: int, up: int) -> None:
        self.steps: list[Step] = []
        self._stages = down, up
        self._counts: Counter[str] = Counter()

    def run(self, letters: str, times: int = 1) -> None:
        """Append the steps of the letters, each for its next microbatch."""
        for letter in letters.split() * times:
            stage = self._stages[letter.islower()]
            instruction = self._LETTERS[letter.lower()]
            self.steps.append(Step(instruction, stage, self._counts[letter]))
            self._counts[letter] += 1

    def count(self, letter: str) -> int:
        """Return the number of steps of a letter so far."""
        return self._counts[letter]


SCHEDULES: dict[str, Callable[[Shape], Order]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "interleaved": interleaved,
    "1f1b-recompute": early_recomputation,
    "zero-bubble": zero_bubble,
    "zbv": zero_bubble_v,
}
"""Schedules of Zeus by their names on the command line."""


def all_schedules() -> dict[str, Callable[[Shape], Order]]:
    """Return the schedules of Zeus, and those that other distributions add, by name."""
    return SCHEDULES | extensions(OUTSIDE, SCHEDULES, _usable)


def _usable(_: str, schedule: Any) -> Any:
    if not callable(schedule):
        raise ExtensionError(f"it must be a function of a Shape, but is {shown(schedule)}")
    return schedule


MAX_OPERATIONS = 200_000  # per iteration; takes minutes and a gigabyte
_CHUNKS = {"zbv": 2}  # stages per rank, where there is no choice


def build(
    profile: Profile,
    schedule: str | Callable[[Shape], Order],
    microbatches: int,
    blocking_power: float,
    *,
    chunks: int | None = None,
    tensor_parallel: int = 1,
    data_parallel: int = 1,
    communication: LinkTimes | None = None,
    blocking_messages: bool = False,
    data_loading: float = 0.0,
    name: str = "",
) -> Pipeline:
    """Return the graph of an iteration.

    A profile without "recomputation" is assumed to repeat its forward. One without
    "backward_input" and "backward_weight" is assumed to spend half of its backward on each.

    A stage whose profile has a "gradient_exchange" or an "optimizer_step" gets these operations
    after the last computation of its rank, first the exchange, with options of their own. The
    exchange is between the same stages of all pipelines, which arrive at the same time as all do
    the same; no rank waits for other stages.

    Args:
        profile: Times and energies of the stages.
        schedule: Name of one of `all_schedules()`, or a function like those.
        microbatches: Number of microbatches.
        blocking_power: Watts of a GPU that waits.
        chunks: Stages per rank; by default 1, or 2 with "zbv", which requires 2. "interleaved"
            and "zero-bubble" may also have more than 1.
        tensor_parallel: GPUs per rank; the profile is of each one.
        data_parallel: Number of pipelines that do the same.
        communication: Seconds from the end of a computation until the next stage has its result,
            if that is on another rank: one value for all links, or one for each of the `stages - 1`
            links between neighboring stages. A value of a list may be a pair: of activations, and
            of gradients, which go the other way. By default as in the profile, or none. No GPU is
            busy with it.
        blocking_messages: Whether a message begins when both ranks have arrived, and neither
            computes until it has ended, as in engines that synchronize around each message. By
            default ranks go on meanwhile.
        data_loading: Seconds that the first stage waits for the data of each microbatch.
        name: Name of the model; by default that of the profile.

    Raises:
        PipelineError: If a value is out of range, or the schedule cannot be followed.
        StageProfileError: If the profile lacks what the schedule needs.
    """
    if isinstance(schedule, str):
        known = all_schedules()
        if schedule not in known:
            raise PipelineError(
                f"`schedule` must be one of {', '.join(known)}, but got {schedule!r}"
            )
        chunks = _CHUNKS.get(schedule, 1) if chunks is None else chunks
        schedule = known[schedule]
    chunks = 1 if chunks is None else chunks
    if profile.stages % counted("chunks", chunks):
        raise PipelineError(
            f"`chunks` must divide the number of stages, but got chunks={chunks} and "
            f"{profile.stages} stages"
        )
    shape = Shape(profile.stages // chunks, profile.stages, microbatches)
    if 2 * shape.stages * shape.microbatches > MAX_OPERATIONS:
        raise PipelineError(
            f"an iteration must have at most {MAX_OPERATIONS} operations, but forwards and "
            f"backwards of {shape.stages} stages and {shape.microbatches} microbatches are "
            f"{2 * shape.stages * shape.microbatches}"
        )
    pipeline = Pipeline(
        shape.devices,
        blocking_power,
        tensor_parallel=tensor_parallel,
        data_parallel=data_parallel,
        name=name or profile.name,
    )
    if communication is None:
        links = Links.measured(profile)
    else:
        links = Links.of(communication, profile.stages)
    order = schedule(shape)
    builder = _Builder(pipeline, completed(profile, order), order, links, data_loading)
    if blocking_messages:
        builder.run_blocking()
    else:
        builder.run()
    builder.finish()
    return pipeline


def completed(profile: Profile, order: Order) -> Profile:
    """Return the profile with instructions derived from measured ones, if the order needs them."""
    needed = {step.instruction for steps in order for step in steps}
    if RECOMPUTATION in needed and not profile.has(RECOMPUTATION):
        profile = profile.with_copy(FORWARD, RECOMPUTATION)
    halves = (BACKWARD_INPUT, BACKWARD_WEIGHT)
    if needed.intersection(halves) and not all(map(profile.has, halves)):
        profile = profile.with_parts(BACKWARD, dict.fromkeys(halves, 0.5))
    return profile


class _Builder:
    """Adds operations in the order in which they would start at the highest clocks."""

    def __init__(
        self,
        pipeline: Pipeline,
        profile: Profile,
        order: Order,
        links: Links,
        data_loading: float,
    ) -> None:
        self._pipeline = pipeline
        self._profile = profile
        self._order = order
        self._links = links
        self._data_loading = data_loading
        self._steps = {step: rank for rank, steps in enumerate(order) for step in steps}
        if len(self._steps) < sum(map(len, order)):
            raise PipelineError("a schedule must run every step once, but one occurs twice")
        self._done: dict[Step, tuple[int, float]] = {}
        self._next = [0] * len(order)
        self._free = [0.0] * len(order)

    def run(self) -> None:
        waiting: dict[Step, list[int]] = defaultdict(list)  # ranks that wait for a step
        ready: list[tuple[float, int]] = []
        for rank in range(len(self._order)):
            self._offer(rank, ready, waiting)
        while ready:
            _, rank = heapq.heappop(ready)
            step = self._add(rank)
            for other in (rank, *waiting.pop(step, ())):
                self._offer(other, ready, waiting)
        for rank, steps in enumerate(self._order):
            if self._next[rank] < len(steps):
                raise PipelineError(
                    f"the schedule cannot be followed: rank {rank} waits forever before "
                    f"{steps[self._next[rank]]}"
                )

    def run_blocking(self) -> None:
        """Add everything, with messages that block both ranks."""
        where = {
            step: (rank, number)
            for rank, steps in enumerate(self._order)
            for number, step in enumerate(steps)
        }
        dependencies: list[list[Dependency]] = [[] for _ in self._order]
        times: dict[Exchange, float] = {}
        for step, (rank, number) in where.items():
            for other in self._inputs(step):
                sender, sent = where[other]
                if sender != rank:
                    dependencies[rank].append(Dependency(number, sender, sent))
                    exchange = frozenset(((sender, sent + 1), (rank, number)))
                    times[exchange] = max(self._message_time(other), times.get(exchange, 0.0))
                elif sent > number:
                    raise PipelineError(
                        f"the schedule cannot be followed: rank {rank} waits forever before {step}"
                    )
        lengths = [len(steps) for steps in self._order]
        order = blocking_order(dependencies, lengths, in_turn=True)
        if order is None:
            order = blocking_order(dependencies, lengths, in_turn=False)
        if order is None:
            raise PipelineError(
                "the schedule cannot be followed if messages block: ranks wait for each other "
                "forever"
            )
        numbers: dict[Location | Exchange, int] = {}
        for each, waits in order.items():
            after = [numbers[other] for other in waits]
            if isinstance(each, frozenset):
                rank, number = min(each)
                near = self._order[rank][max(number - 1, 0)]
                numbers[each] = self._pipeline.add_fixed(
                    COMMUNICATION,
                    times[each],
                    stage=near.stage,
                    microbatch=near.microbatch,
                    after=after,
                )
            else:
                rank, number = each
                numbers[each] = self._operation(rank, self._order[rank][number], after)

    def finish(self) -> None:
        """Add what ends an iteration on each rank, for each of its stages that has it."""
        for rank, steps in enumerate(self._order):
            for instruction in (GRADIENT_EXCHANGE, OPTIMIZER_STEP):
                for stage in sorted({step.stage for step in steps}):
                    if (stage, instruction) in self._profile:
                        options = self._profile.of(stage, instruction)
                        self._pipeline.add(instruction, options, device=rank, stage=stage)

    def _offer(
        self, rank: int, ready: list[tuple[float, int]], waiting: dict[Step, list[int]]
    ) -> None:
        """Queue the rank's next step as ready, or as waiting for another step."""
        if self._next[rank] == len(self._order[rank]):
            return
        start = self._free[rank]
        for other in self._inputs(self._order[rank][self._next[rank]]):
            if other not in self._done:
                waiting[other].append(rank)
                return
            start = max(start, self._done[other][1])
        heapq.heappush(ready, (start, rank))

    def _add(self, rank: int) -> Step:
        step = self._order[rank][self._next[rank]]
        self._next[rank] += 1
        stage, microbatch = step.stage, step.microbatch
        inputs = [self._done[other] for other in self._inputs(step)]
        number = self._operation(rank, step, [other for other, _ in inputs])
        start = max([self._free[rank], *(end for _, end in inputs)])
        end = self._free[rank] = start + self._profile.of(stage, step.instruction)[0].time
        message = self._message_time(step)
        if message:
            number = self._pipeline.add_fixed(
                COMMUNICATION,
                message,
                stage=stage,
                microbatch=microbatch,
                after=[number],
            )
            end += message
        self._done[step] = number, end
        return step

    def _operation(self, rank: int, step: Step, after: list[int]) -> int:
        """Add a computation, after the data of the microbatch is loaded."""
        stage, microbatch = step.stage, step.microbatch
        if step.instruction == FORWARD and stage == 0 and self._data_loading:
            self._pipeline.add_fixed(
                DATA_LOADING, self._data_loading, device=rank, stage=stage, microbatch=microbatch
            )
        return self._pipeline.add(
            step.instruction,
            self._profile.of(stage, step.instruction),
            device=rank,
            stage=stage,
            microbatch=microbatch,
            after=after,
        )

    def _inputs(self, step: Step) -> list[Step]:
        """Return the steps that a step waits for, besides the one before it on its rank."""
        if step.instruction == FORWARD:
            found = self._found(FORWARD, step.stage - 1, step.microbatch)
        elif step.instruction not in _GRADIENTS:
            found = None
        elif step.stage < self._profile.stages - 1:
            found = self._gradient(step.stage + 1, step.microbatch)
        else:
            found = self._found(FORWARD, step.stage, step.microbatch)
        return [] if found is None else [found]

    def _message_time(self, step: Step) -> float:
        """Return seconds until the stage that needs the result has it; 0 if on the same rank."""
        receiver, seconds = None, 0.0
        if step.instruction == FORWARD:
            receiver = self._found(FORWARD, step.stage + 1, step.microbatch)
            seconds = 0.0 if receiver is None else self._links.activations[step.stage]
        elif step.instruction in _GRADIENTS:
            receiver = self._gradient(step.stage - 1, step.microbatch)
            seconds = 0.0 if receiver is None else self._links.gradients[step.stage - 1]
        if receiver is None or self._steps[receiver] == self._steps[step]:
            return 0.0
        return seconds

    def _found(self, instruction: str, stage: int, microbatch: int) -> Step | None:
        step = Step(instruction, stage, microbatch)
        return step if step in self._steps else None

    def _gradient(self, stage: int, microbatch: int) -> Step | None:
        """Return the step that computes the gradient of a stage's input, split or not."""
        kinds = (self._found(instruction, stage, microbatch) for instruction in _GRADIENTS)
        return next((step for step in kinds if step is not None), None)
