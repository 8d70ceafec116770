"""Jobs whose ranks have told all, without any training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zeus.optimizer.pipeline_frequency import Option
from zeus.optimizer.pipeline_frequency._schedules import Step
from zeus.optimizer.pipeline_frequency.api._commands import RegisterRank
from zeus.optimizer.pipeline_frequency.job._job import PipelineJob
from zeus.optimizer.pipeline_frequency.job._messages import (
    Instruction,
    InstructionKind,
    Measured,
    RankPlace,
    Registration,
    StepTimes,
)

CLOCKS = (1410, 1200, 1005, 810)


def registration(
    rank: int = 0, degrees: tuple[int, int, int] = (1, 2, 1), session: str = "", **other: Any
) -> Registration:
    """Of a rank, in the order dp, pp, tp."""
    dp, pp, tp = degrees
    seat = RankPlace(rank, rank // (pp * tp), rank // tp % pp, rank % tp, dp, pp, tp, dp * pp * tp)
    return Registration(session or f"session {rank}", seat, "NVIDIA A100", CLOCKS, **other)


def registering(job: str, registration: Registration) -> RegisterRank:
    """The command that registers a rank."""
    return RegisterRank(job=job, rank=registration.seat.rank, registration=registration)


def instructions(
    steps: Sequence[Step], devices: int, told: bool = False, in_turn: bool = True
) -> list[Instruction]:
    """A rank's part of a schedule, as it would be seen."""
    return [
        Instruction(
            step.instruction,
            step.stage // devices,
            step.microbatch if told else None,
            None if in_turn else step.stage,
        )
        for step in steps
    ]


def options(seconds: float, joules: float) -> tuple[Option, ...]:
    """Slower and cheaper at lower clocks."""
    return tuple(
        Option(clock, seconds * (0.2 + 0.8 * 1410 / clock), joules * (clock / 1410) ** 1.5)
        for clock in CLOCKS
    )


def measured(
    sequence: Sequence[Instruction],
    loads: Mapping[tuple[str, int], float] | None = None,
    power: float | None = 80.0,
) -> Measured:
    """What these instructions take."""
    kinds = dict.fromkeys(each.kind for each in sequence)
    at_once = (0.0,) * len(sequence)
    return Measured(
        {kind: taken(kind, loads) for kind in kinds}, power, 7, (StepTimes(1, at_once, at_once),)
    )


def taken(
    kind: InstructionKind, loads: Mapping[tuple[str, int], float] | None = None
) -> tuple[Option, ...]:
    """By one kind; a backward takes twice as long as a forward."""
    seconds = 0.1 if kind.name == "forward" else 0.2
    seconds *= (loads or {}).get((kind.name, kind.chunk), 1.0)
    if kind.name == "communication":
        return (Option(None, 0.01, 1.0),)
    return options(seconds, 300 * seconds)


def complete(
    orders: Sequence[Sequence[Instruction]],
    *,
    loads: Sequence[float] = (),
    degrees: tuple[int, int, int] | None = None,
) -> PipelineJob:
    """A job all of whose ranks have told all."""
    degrees = degrees or (1, len(orders), 1)
    job = PipelineJob("test", degrees, 0.0, 0.0)
    for rank in range(degrees[0] * degrees[1] * degrees[2]):
        who = registration(rank, degrees)
        job.register(who, 1.0, lambda _: True)
        place = who.seat.pp_rank
        job.put_sequence(rank, who.session, orders[place], 2.0)
        load = loads[place] if loads else 1.0
        share = {(name, 0): load for name in ("forward", "backward")}
        job.put_measurements(rank, who.session, measured(orders[place], share), 3.0)
    return job
