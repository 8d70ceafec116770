"""Pipeline schedules: in which order each rank runs its computations, and the graph that makes.

A schedule is a function from the numbers of ranks, stages and microbatches to one list of `Step`s
per rank. `build` adds what waits for what: a forward for that of the stage before, a backward for
that of the stage after, and everything for what its rank does before it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from zeus.errors import PipelineError
from zeus.optimizer.pipeline_frequency.pipeline import Pipeline, counted
from zeus.optimizer.pipeline_frequency.profile import Profile

FORWARD, BACKWARD, RECOMPUTATION = "forward", "backward", "recomputation"
BACKWARD_INPUT, BACKWARD_WEIGHT = "backward_input", "backward_weight"
COMMUNICATION, DATA_LOADING = "communication", "data_loading"


class Step(NamedTuple):
    """A computation in the order of a rank."""

    instruction: str
    stage: int
    microbatch: int


Order = list[list[Step]]


@dataclass(frozen=True)
class Shape:
    """What a schedule is to arrange.

    Attributes:
        devices: Pipeline ranks.
        stages: Parts of the model, a multiple of the ranks; stage `s` is on rank `s % devices`.
        microbatches: Parts of the batch.
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
        """Stages per rank."""
        return self.stages // self.devices


def _one_stage_per_rank(name: str, shape: Shape) -> None:
    if shape.chunks > 1:
        raise PipelineError(
            f"{name} has one stage per rank, but got {shape.chunks}; only interleaved has more"
        )


def _alternating(shape: Shape, rank: int) -> list[Step]:
    """1F1B of one rank."""
    ahead = min(shape.devices - 1 - rank, shape.microbatches)
    steps = [Step(FORWARD, rank, microbatch) for microbatch in range(ahead)]
    for microbatch in range(shape.microbatches):
        if microbatch + ahead < shape.microbatches:
            steps.append(Step(FORWARD, rank, microbatch + ahead))
        steps.append(Step(BACKWARD, rank, microbatch))
    return steps


def gpipe(shape: Shape) -> Order:
    """All forwards, then all backwards."""
    _one_stage_per_rank("gpipe", shape)
    return [
        [Step(FORWARD, rank, microbatch) for microbatch in range(shape.microbatches)]
        + [Step(BACKWARD, rank, microbatch) for microbatch in range(shape.microbatches)]
        for rank in range(shape.devices)
    ]


def one_forward_one_backward(shape: Shape) -> Order:
    """1F1B: as few forwards ahead as keep the last rank busy, then one of each in turn."""
    _one_stage_per_rank("1f1b", shape)
    return [_alternating(shape, rank) for rank in range(shape.devices)]


def interleaved(shape: Shape) -> Order:
    """1F1B with several stages per rank, as in Megatron-LM and PyTorch.

    The microbatches go through each of a rank's stages in rounds of about as many as there are
    ranks; their number must be a multiple of the number of rounds.
    """
    rounds = max(1, shape.microbatches // shape.devices)
    if shape.microbatches % rounds:
        raise PipelineError(
            f"interleaved 1F1B needs microbatches in equal rounds, but got "
            f"microbatches={shape.microbatches}, devices={shape.devices}: {rounds} rounds"
        )
    length = shape.microbatches // rounds
    total = shape.microbatches * shape.chunks
    order = []
    for rank in range(shape.devices):

        def step(number: int, instruction: str, rank: int = rank) -> Step:
            round_, place = divmod(number, length * shape.chunks)
            chunk, within = divmod(place, length)
            if instruction == BACKWARD:
                chunk = shape.chunks - 1 - chunk
            return Step(instruction, chunk * shape.devices + rank, round_ * length + within)

        ahead = (shape.chunks - 1) * length + 2 * (shape.devices - 1 - rank)
        ahead = min(ahead, total)
        steps = [step(number, FORWARD) for number in range(ahead)]
        for number in range(total - ahead):
            steps += [step(ahead + number, FORWARD), step(number, BACKWARD)]
        steps += [step(number, BACKWARD) for number in range(total - ahead, total)]
        order.append(steps)
    return order


def early_recomputation(shape: Shape) -> Order:
    """1F1B in which activations are computed again before a backward, not waiting for its gradient.

    The last rank's backward follows its forward at once, so it has nothing to compute again.
    """
    _one_stage_per_rank("1f1b-recompute", shape)
    order = []
    for rank in range(shape.devices):
        steps = []
        for step in _alternating(shape, rank):
            if step.instruction == BACKWARD and rank < shape.devices - 1:
                steps.append(step._replace(instruction=RECOMPUTATION))
            steps.append(step)
        order.append(steps)
    return order


def zero_bubble(shape: Shape) -> Order:
    """1F1B with the backward in two: gradients of inputs at once, those of weights to fill gaps.

    Later ranks have fewer microbatches under way, so they may put off as many gradients of weights
    as there are ranks before them, within the memory of 1F1B (ZB-H1).
    """
    _one_stage_per_rank("zero-bubble", shape)
    order = []
    for rank in range(shape.devices):
        steps: list[Step] = []
        for step in _alternating(shape, rank):
            if step.instruction == FORWARD:
                steps.append(step)
                continue
            steps.append(step._replace(instruction=BACKWARD_INPUT))
            if step.microbatch >= rank:
                steps.append(Step(BACKWARD_WEIGHT, rank, step.microbatch - rank))
        put_off = range(max(shape.microbatches - rank, 0), shape.microbatches)
        order.append(steps + [Step(BACKWARD_WEIGHT, rank, microbatch) for microbatch in put_off])
    return order


SCHEDULES: dict[str, Callable[[Shape], Order]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "interleaved": interleaved,
    "1f1b-recompute": early_recomputation,
    "zero-bubble": zero_bubble,
}
"""By the names that the command line knows."""


def build(
    profile: Profile,
    schedule: str | Callable[[Shape], Order],
    microbatches: int,
    blocking_power: float,
    *,
    chunks: int = 1,
    tensor_parallel: int = 1,
    data_parallel: int = 1,
    communication: float = 0.0,
    data_loading: float = 0.0,
    name: str = "",
) -> Pipeline:
    """The graph of an iteration.

    A profile without "recomputation" is taken to compute its forward again. One without
    "backward_input" and "backward_weight" is taken to spend half of its backward on each.

    Args:
        profile: What the stages take.
        schedule: One of `SCHEDULES`, or a function like those.
        microbatches: Parts of the batch.
        blocking_power: Watts of a GPU that waits.
        chunks: Stages per rank; more than 1 only with "interleaved".
        tensor_parallel: GPUs per rank; each takes what the profile says.
        data_parallel: Pipelines that do the same.
        communication: Seconds from the end of a computation until the next stage has its result.
            No GPU is busy with it.
        data_loading: Seconds that the first stage waits for the data of each microbatch.
        name: What is trained; that of the profile if not given.

    Raises:
        PipelineError: If a value is out of range, or the order cannot be followed.
        StageProfileError: If the profile lacks what the schedule needs.
    """
    if isinstance(schedule, str):
        if schedule not in SCHEDULES:
            raise PipelineError(
                f"`schedule` must be one of {', '.join(SCHEDULES)}, but got {schedule!r}"
            )
        schedule = SCHEDULES[schedule]
    if profile.stages % counted("chunks", chunks):
        raise PipelineError(
            f"`chunks` must divide the number of stages, but got chunks={chunks} and "
            f"{profile.stages} stages"
        )
    shape = Shape(profile.stages // chunks, profile.stages, microbatches)
    pipeline = Pipeline(
        shape.devices,
        blocking_power,
        tensor_parallel=tensor_parallel,
        data_parallel=data_parallel,
        name=name or profile.name,
    )
    order = schedule(shape)
    _Builder(pipeline, completed(profile, order), order, communication, data_loading).run()
    return pipeline


def completed(profile: Profile, order: Order) -> Profile:
    """With the instructions that follow from those measured, if the order needs them."""
    needed = {step.instruction for steps in order for step in steps}
    if RECOMPUTATION in needed and not profile.has(RECOMPUTATION):
        profile = profile.with_copy(FORWARD, RECOMPUTATION)
    halves = (BACKWARD_INPUT, BACKWARD_WEIGHT)
    if needed.intersection(halves) and not all(map(profile.has, halves)):
        profile = profile.with_parts(BACKWARD, dict.fromkeys(halves, 0.5))
    return profile


class _Builder:
    """Adds operations in the order in which they could run at the highest clocks."""

    def __init__(
        self,
        pipeline: Pipeline,
        profile: Profile,
        order: Order,
        communication: float,
        data_loading: float,
    ) -> None:
        self._pipeline = pipeline
        self._profile = profile
        self._order = order
        self._communication = communication
        self._data_loading = data_loading
        self._steps = {step: rank for rank, steps in enumerate(order) for step in steps}
        if len(self._steps) < sum(map(len, order)):
            raise PipelineError("a schedule must run every step once, but one occurs twice")
        self._done: dict[Step, tuple[int, float]] = {}
        self._place = [0] * len(order)
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
            if self._place[rank] < len(steps):
                raise PipelineError(
                    f"the schedule cannot be followed: rank {rank} waits for ever before "
                    f"{steps[self._place[rank]]}"
                )

    def _offer(
        self, rank: int, ready: list[tuple[float, int]], waiting: dict[Step, list[int]]
    ) -> None:
        """The rank's next step is ready, or has to wait for another."""
        if self._place[rank] == len(self._order[rank]):
            return
        start = self._free[rank]
        for other in self._inputs(self._order[rank][self._place[rank]]):
            if other not in self._done:
                waiting[other].append(rank)
                return
            start = max(start, self._done[other][1])
        heapq.heappush(ready, (start, rank))

    def _add(self, rank: int) -> Step:
        step = self._order[rank][self._place[rank]]
        self._place[rank] += 1
        stage, microbatch = step.stage, step.microbatch
        if step.instruction == FORWARD and stage == 0 and self._data_loading:
            self._pipeline.add_fixed(
                DATA_LOADING, self._data_loading, device=rank, stage=stage, microbatch=microbatch
            )
        inputs = [self._done[other] for other in self._inputs(step)]
        options = self._profile.of(step.stage, step.instruction)
        number = self._pipeline.add(
            step.instruction,
            options,
            device=rank,
            stage=stage,
            microbatch=microbatch,
            after=[other for other, _ in inputs],
        )
        start = max([self._free[rank], *(end for _, end in inputs)])
        end = self._free[rank] = start + options[0].time
        if self._communication and self._sends(step):
            number = self._pipeline.add_fixed(
                COMMUNICATION,
                self._communication,
                stage=stage,
                microbatch=microbatch,
                after=[number],
            )
            end += self._communication
        self._done[step] = number, end
        return step

    def _inputs(self, step: Step) -> list[Step]:
        """What a step waits for, besides what its rank does before it."""
        stage, found = step.stage, []
        if step.instruction == FORWARD and stage > 0:
            found.append(step._replace(stage=stage - 1))
        elif step.instruction in (BACKWARD, BACKWARD_INPUT):
            if stage < self._profile.stages - 1:
                found.append(step._replace(stage=stage + 1))
            elif Step(FORWARD, stage, step.microbatch) in self._steps:
                found.append(Step(FORWARD, stage, step.microbatch))
        return [other for other in found if other in self._steps]

    def _sends(self, step: Step) -> bool:
        if step.instruction == FORWARD:
            return step.stage < self._profile.stages - 1
        return step.instruction in (BACKWARD, BACKWARD_INPUT) and step.stage > 0
