"""The order in which the recorded engine runs an iteration: 1F1B, with merged messages.

Stage `s` of `P` runs `P - s` forwards, then one backward and one forward in turn, then the
remaining backwards. What one stage sends and what it receives at the same moment is one
instruction, so a message of two neighbors is one exchange, in which both take part.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from zeus.errors import TraceError


class Kind(Enum):
    """Kinds of instructions."""

    LOAD = "load"
    FORWARD = "forward"
    BACKWARD = "backward"
    EXCHANGE = "exchange"
    END = "end"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a stage.

    Attributes:
        kind: What it does.
        index: Its microbatch; for an exchange, its link: link `s` joins stages `s` and `s + 1`.
    """

    kind: Kind
    index: int


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction in the order of the whole pipeline.

    Attributes:
        kind: What is done.
        stage: Stage that does it; for an exchange, the lower of the two.
        microbatch: Its microbatch; 0 for an exchange.
    """

    kind: Kind
    stage: int
    microbatch: int


def instructions(stage: int, stages: int, microbatches: int) -> list[Instruction]:
    """Return the instructions of one stage in one iteration, in order.

    Args:
        stage: Number of the stage, from 0.
        stages: Number of stages.
        microbatches: Microbatches in an iteration.
    """
    found: list[Instruction] = []
    previous = -1
    for step in range(2 * (microbatches + stages - 1)):
        forward = step % 2 == stage % 2
        if forward:
            current = step // 2 - stage // 2
        elif step % 2 == 0:
            current = step // 2 - stages + (stage + 1) // 2
        else:
            current = (step - 1) // 2 - stages + 1 + stage // 2
        valid = 0 <= current < microbatches
        link = stage - 1 if forward else stage
        if (valid or 0 <= previous < microbatches) and 0 <= link < stages - 1:
            found.append(Instruction(Kind.EXCHANGE, link))
        if valid:
            if forward and stage in (0, stages - 1):
                found.append(Instruction(Kind.LOAD, current))
            found.append(Instruction(Kind.FORWARD if forward else Kind.BACKWARD, current))
        previous = current
    # Tied gradients, gradients, optimizer step.
    return found + [Instruction(Kind.END, number) for number in range(3)]


def shape_of(lengths: list[int]) -> tuple[int, int]:
    """Return the numbers of stages and microbatches of schedules with these lengths.

    Args:
        lengths: Number of instructions of each rank, by rank; stages repeat in pipelines of their
            own if there are more ranks than stages.

    Raises:
        TraceError: If no pipeline has these lengths.
    """
    shortest = min(lengths)
    stages, microbatches = lengths[0] - shortest + 2, shortest // 4 - 1
    expected = [
        4 * microbatches + (stages if stage == 0 else 2 * (stages - stage)) + 2
        for stage in range(stages)
    ]
    if microbatches < 1 or len(lengths) % stages or lengths != expected * (len(lengths) // stages):
        raise TraceError(
            "ranks must have as many clocks as 1F1B with merged messages has instructions, but got "
            f"{', '.join(map(str, lengths))}"
        )
    return stages, microbatches


def program(stages: int, microbatches: int) -> list[Step]:
    """Return loads, computations and exchanges of all stages, each after what it waits for.

    Args:
        stages: Number of stages.
        microbatches: Microbatches in an iteration.
    """
    waiting = [
        [each for each in instructions(stage, stages, microbatches) if each.kind is not Kind.END]
        for stage in range(stages)
    ]
    position = [0] * stages
    ready = list(range(stages))
    found: list[Step] = []
    arrived: dict[int, int] = {}  # link -> stage that waits there
    while ready:
        stage = ready.pop()
        while position[stage] < len(waiting[stage]):
            each = waiting[stage][position[stage]]
            if each.kind is not Kind.EXCHANGE:
                found.append(Step(each.kind, stage, each.index))
            elif arrived.get(each.index, stage) == stage:
                arrived[each.index] = stage
                break
            else:
                found.append(Step(Kind.EXCHANGE, each.index, 0))
                other = arrived.pop(each.index)
                position[other] += 1
                ready.append(other)
            position[stage] += 1
    return found
