"""Answers to the commands on pipeline jobs, as records of plain values."""

from __future__ import annotations

from typing import TypedDict


class StragglerInfo(TypedDict):
    """A pipeline that straggles; `iteration_time` is in seconds."""

    dp_rank: int
    slowdown: float | None
    iteration_time: float | None
    healthy: bool
    found: bool


class MeasuringInfo(TypedDict):
    """How far a rank has come with measuring; `seconds_left` is null until it can be estimated.

    `expected_steps` and `expected_clocks` may still change, with what is measured.
    """

    steps: int
    expected_steps: int
    clocks: int
    expected_clocks: int
    seconds_left: float | None


class RankInfo(TypedDict):
    """State of a rank; `registered` is in seconds since 1970.

    `reports` counts its measurements: the first is made by exploring clocks, later ones are more
    precise, from steps under a plan. `measuring` is null unless it explores clocks now.
    """

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
    reports: int
    measuring: MeasuringInfo | None


class PipelineSummary(TypedDict):
    """A pipeline job; `created` and `updated` are in seconds since 1970.

    `progress` describes how far measuring or planning has come, for people; empty otherwise.
    """

    name: str
    note: str
    status: str
    progress: str
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

    objective: dict[str, float]
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


class SavedInfo(TypedDict):
    """What a plan saves, as measured: shares of energy and time, of steps under it and without.

    Energies (J) are those of all ranks; `steps` and `references` count steps of each kind.
    """

    energy: float
    slowdown: float
    plan: OutcomeInfo
    reference: OutcomeInfo
    steps: int
    references: int


class FrontierInfo(TypedDict):
    """All plans of a job; `points` is empty until there is a plan.

    Their times and energies, and `before` (at the highest clocks), are what is expected where times
    vary. `saved` is what was measured, null until it was.

    `step_time` is the measured time of a whole step (s) while no pipeline straggles, and so with
    the fastest plan; null until some ranks have followed it.
    """

    name: str
    version: int
    status: str
    blocking_power: float | None
    before: OutcomeInfo | None
    step_time: float | None
    saved: SavedInfo | None
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


class PeriodInfo(TypedDict):
    """Steps under one version of the plan; `since` is in seconds since 1970.

    `steps` is that of the rank with the most, `time` the mean of a step (s), and `energy` that of
    a step (J) of all `ranks` that measured it, null without any. `planned` is what the plan
    expected of an iteration of all pipelines.
    """

    version: int
    since: float
    planned: OutcomeInfo | None
    steps: int
    time: float
    ranks: int
    energy: float | None


class StepPointInfo(TypedDict):
    """Steps from `begin` to `end`, in seconds since 1970; other fields as in `PeriodInfo`.

    `steps` is the mean over ranks.
    """

    begin: float
    end: float
    version: int
    steps: float
    time: float
    ranks: int
    energy: float | None


class EnergyUseInfo(TypedDict):
    """Energy (J) of the measured steps of a job; `since` is in seconds since 1970."""

    since: float
    joules: float
    steps: int


class HistoryInfo(TypedDict):
    """Plans of a job, the latest first, and their steps over time, in bounded numbers.

    Older points cover more time each. `energy` includes steps that are in none of them: for
    reference, while clocks were explored, and under plans that were dropped here.
    """

    periods: list[PeriodInfo]
    points: list[StepPointInfo]
    energy: EnergyUseInfo | None


class EventInfo(TypedDict):
    """An event of a job; `at` is in seconds since 1970."""

    at: float
    kind: str
    message: str
