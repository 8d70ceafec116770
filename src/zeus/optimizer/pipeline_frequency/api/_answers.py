"""Answers to the commands on pipeline jobs, as records of plain values."""

from __future__ import annotations

from typing import TypedDict


class StragglerInfo(TypedDict):
    """A pipeline that straggles; `iteration_time` is in seconds."""

    dp_rank: int
    slowdown: float | None
    iteration_time: float | None
    healthy: bool


class RankInfo(TypedDict):
    """State of a rank; `registered` is in seconds since 1970."""

    rank: int
    dp_rank: int
    pp_rank: int
    tp_rank: int
    gpu: str
    state: str
    trouble: str
    registered: float
    instructions: int
    clocks_measured: int
    steps_measured: int


class PipelineSummary(TypedDict):
    """A pipeline job; `created` and `updated` are in seconds since 1970."""

    name: str
    note: str
    status: str
    dp_degree: int
    pp_degree: int
    tp_degree: int
    created: float
    updated: float
    version: int
    registered: int
    alive: int
    straggling: int


class PipelineInfo(PipelineSummary):
    """A pipeline job with its ranks."""

    stragglers: list[StragglerInfo]
    ranks: list[RankInfo]


class OutcomeInfo(TypedDict):
    """Time (s) and energy (J) of an iteration."""

    time: float
    energy: float


class PointInfo(OutcomeInfo):
    """A plan, with a lower bound on the energy (J) of any plan of its time."""

    lower_bound: float


class ActiveInfo(OutcomeInfo):
    """The plan that a pipeline follows."""

    pipeline: int


class FrontierInfo(TypedDict):
    """All plans of a job; `points` is empty until there is a plan.

    `step_time` is the measured time of a whole step (s) while no pipeline straggles, and so with
    the fastest plan; null until some ranks have followed it.
    """

    name: str
    version: int
    status: str
    blocking_power: float | None
    before: OutcomeInfo | None
    step_time: float | None
    points: list[PointInfo]
    active: list[ActiveInfo]


class OptionInfo(TypedDict):
    """Time (s) and energy (J) of a computation at a clock (MHz), on one GPU."""

    stage: int
    instruction: str
    frequency: float | None
    time: float
    energy: float


class OperationInfo(OptionInfo):
    """A computation of a plan; `start` is in seconds from the beginning of the iteration."""

    device: int
    microbatch: int
    start: float


class EventInfo(TypedDict):
    """An event of a job; `at` is in seconds since 1970."""

    at: float
    kind: str
    message: str
