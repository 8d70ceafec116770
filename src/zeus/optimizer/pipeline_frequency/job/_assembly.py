"""The graph of an iteration, from the instructions of all places and what they depend on."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from zeus.errors import PipelineError
from zeus.optimizer.pipeline_frequency._exchanges import (
    Dependency,
    Exchange,
    Location,
    blocking_order,
)
from zeus.optimizer.pipeline_frequency._limit import Limit
from zeus.optimizer.pipeline_frequency._pipeline import Pipeline
from zeus.optimizer.pipeline_frequency._profile import COMMUNICATION, Option
from zeus.optimizer.pipeline_frequency.job._messages import (
    FIXED,
    FORWARD,
    GRADIENTS,
    Instruction,
    InstructionKind,
)
from zeus.optimizer.pipeline_frequency.job._misfit import Passages
from zeus.optimizer.pipeline_frequency.job._transit import message_times

_CHECKED = 1_000  # instructions between two checks of the limit
_GRADIENT = "gradient"

_Key = tuple[str, int, int]  # forward or gradient, stage, microbatch


class Assembly:
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
