"""Request and response bodies of pipeline jobs, as documented by OpenAPI.

Only types and ranges are checked here; `zeus.optimizer.pipeline_frequency` checks the rules between
values.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from zeus.optimizer.pipeline_frequency.job import _messages as messages
from zeus.server._command_routes import _whole

Whole = BeforeValidator(_whole)

Name = Annotated[str, Field(min_length=1, max_length=messages.MAX_NAME)]
RankNumber = Annotated[int, Field(ge=0, lt=messages.MAX_RANKS), Whole]
Degree = Annotated[int, Field(ge=1, le=messages.MAX_RANKS), Whole]
Megahertz = Annotated[int, Field(ge=1, le=int(messages.MAX_MEGAHERTZ)), Whole]
Watts = Annotated[float, Field(ge=0, le=messages.MAX_WATTS)]
Seconds = Annotated[float, Field(ge=messages.MIN_SECONDS, le=messages.MAX_SECONDS)]
Joules = Annotated[float, Field(ge=0, le=messages.MAX_JOULES)]
Chunk = Annotated[int, Field(ge=0, le=messages.MAX_CHUNKS), Whole]
Microbatch = Annotated[int, Field(ge=0, le=messages.MAX_INSTRUCTIONS), Whole]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class SeatBody(_Body):
    """Position of a rank in the job; see `RankPlace`."""

    rank: RankNumber
    dp_rank: RankNumber
    pp_rank: RankNumber
    tp_rank: RankNumber
    dp_degree: Degree
    pp_degree: Degree
    tp_degree: Degree
    world_size: Degree


class RegistrationBody(_Body):
    """Registration of a rank (clocks in MHz, power in W); see `Registration`."""

    session: Name
    seat: SeatBody
    gpu: Name
    clocks: Annotated[list[Megahertz], Field(max_length=messages.MAX_CLOCKS)]
    blocking_power: Watts | None = None
    note: Annotated[str, Field(max_length=2_000)] = ""


class SequenceBody(_Body):
    """Instructions of a rank in a step: each a name, chunk, microbatch and optional stage."""

    session: Name
    # A list of lists, because strict mode does not accept a list as a tuple.
    instructions: Annotated[
        list[Annotated[list[str | int | None], Field(min_length=3, max_length=4)]],
        Field(min_length=1, max_length=messages.MAX_INSTRUCTIONS),
    ]


class OptionsBody(_Body):
    """Time (s) and energy (J) of one kind of instruction at each clock (MHz)."""

    name: Name
    chunk: Chunk
    clocks: Annotated[
        list[Megahertz | float | None], Field(min_length=1, max_length=messages.MAX_CLOCKS)
    ]
    times: Annotated[list[Seconds], Field(min_length=1, max_length=messages.MAX_CLOCKS)]
    energies: Annotated[list[Joules], Field(min_length=1, max_length=messages.MAX_CLOCKS)]


Instants = Annotated[
    list[Annotated[float, Field(ge=0, le=1e12)]], Field(max_length=messages.MAX_INSTRUCTIONS)
]


class PassageBody(_Body):
    """Begin and end of the instructions of a step (s, by the clock of the rank)."""

    step: Annotated[int, Field(ge=0, le=2**53), Whole]
    begins: Instants
    ends: Instants


class MeasurementsBody(_Body):
    """Measurements of a rank; see `Measured`."""

    session: Name
    options: Annotated[list[OptionsBody], Field(min_length=1, max_length=messages.MAX_KINDS)]
    blocking_power: Watts | None = None
    steps: Annotated[int, Field(ge=0, le=1_000_000), Whole] = 0
    passages: Annotated[list[PassageBody], Field(max_length=messages.MAX_PASSAGES)] = []


class TroubleBody(_Body):
    """Reason why a rank cannot measure or set clocks."""

    session: Name
    message: Annotated[str, Field(max_length=10_000)]


class LeaveBody(_Body):
    """Session of a rank that has ended."""

    session: Name


class StragglerBody(_Body):
    """A pipeline that became slower, or is healthy again.

    Exactly one of `slowdown`, `iteration_time` (s) and `healthy` is given.
    """

    dp_rank: RankNumber
    slowdown: Annotated[float, Field(ge=1, le=messages.MAX_SLOWDOWN)] | None = None
    iteration_time: Seconds | None = None
    healthy: bool = False


# --- answers --------------------------------------------------------------------------------------


class StragglerAnswer(BaseModel):
    """A pipeline that straggles; `iteration_time` is in seconds."""

    dp_rank: int
    slowdown: float | None
    iteration_time: float | None
    healthy: bool


class RankAnswer(BaseModel):
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


class JobSummary(BaseModel):
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


class JobAnswer(JobSummary):
    """A pipeline job with its ranks."""

    stragglers: list[StragglerAnswer]
    ranks: list[RankAnswer]


class Outcome(BaseModel):
    """Time (s) and energy (J) of an iteration."""

    time: float
    energy: float


class PointAnswer(Outcome):
    """A plan, with a lower bound on the energy (J) of any plan of its time."""

    lower_bound: float


class ActiveAnswer(Outcome):
    """The plan that a pipeline follows."""

    pipeline: int


class FrontierAnswer(BaseModel):
    """All plans of a job; `points` is empty until there is a plan.

    `step_time` is the measured time of a whole step (s) while no pipeline straggles, and so with
    the fastest plan; null until some ranks have followed it.
    """

    name: str
    version: int
    status: str
    blocking_power: float | None
    before: Outcome | None
    step_time: float | None
    points: list[PointAnswer]
    active: list[ActiveAnswer]


class OptionAnswer(BaseModel):
    """Time (s) and energy (J) of a computation at a clock (MHz), on one GPU."""

    stage: int
    instruction: str
    frequency: float | None
    time: float
    energy: float


class OperationAnswer(OptionAnswer):
    """A computation of a plan; `start` is in seconds from the beginning of the iteration."""

    device: int
    microbatch: int
    start: float


class EventAnswer(BaseModel):
    """An event of a job; `at` is in seconds since 1970."""

    at: float
    kind: str
    message: str
