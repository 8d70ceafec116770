"""Commands on pipeline jobs: the only description of their API; see `zeus.transport._command`.

Commands on a job raise `UnknownJobError` if no job has this name (or the rank is not registered),
`JobConflictError` if another process has registered in place of the calling one, and
`PipelineError` if a value is invalid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic

from zeus._rules import Items, Note, Number, Whole
from zeus.errors import PipelineError
from zeus.optimizer.pipeline_frequency.api._answers import (
    EventInfo,
    FrontierInfo,
    HistoryInfo,
    OperationInfo,
    OptionInfo,
    PipelineInfo,
    PipelineSummary,
)
from zeus.optimizer.pipeline_frequency.job import _messages as messages
from zeus.optimizer.pipeline_frequency.job._messages import (
    Directive,
    Registration,
    StepReport,
    StepTimes,
    Straggler,
)
from zeus.optimizer.pipeline_frequency.job._objective import PipelineObjective
from zeus.optimizer.pipeline_frequency.job._progress import Progress
from zeus.transport._command import Answer, Command

MAX_WAIT = 60.0  # seconds


@dataclass(frozen=True, kw_only=True)
class PipelineCommand(Command[Answer], Generic[Answer]):
    """Base class of commands on pipeline jobs."""

    renamed: ClassVar = {"name": "job"}


@dataclass(frozen=True, kw_only=True)
class OfJob(PipelineCommand[Answer], Generic[Answer]):
    """Base class of commands on one job."""

    job: str


@dataclass(frozen=True, kw_only=True)
class OfRank(OfJob[Answer], Generic[Answer]):
    """Base class of commands of a rank.

    Attributes:
        job: Name of the job.
        rank: The calling rank.
    """

    rank: messages.RankNumber


@dataclass(frozen=True, kw_only=True)
class OfSession(OfRank[Answer], Generic[Answer]):
    """Base class of commands of a registered rank.

    Attributes:
        job: Name of the job.
        rank: The calling rank.
        session: The session that it registered with.
    """

    session: messages.Name


# --- ranks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RegisterRank(OfRank[Directive]):
    """Register a rank. A previous session of that rank is notified, and keeps its old clocks.

    The job is created if it does not exist.
    """

    method = "PUT"
    path = "/api/pipelines/{name}/ranks/{rank}"
    inline = "registration"

    registration: Registration

    def __post_init__(self) -> None:
        rank = self.registration.seat.rank
        if rank != self.rank:
            raise PipelineError(f"the rank must be that of the URL, but got rank={rank}")


@dataclass(frozen=True, kw_only=True)
class PutSequence(OfSession[Directive]):
    """Set the sequence of instructions that a rank runs in every step.

    Attributes:
        session: The session that it registered with.
        instructions: Each a name, chunk, microbatch and optional stage, as in `Instruction`.
    """

    method = "PUT"
    path = "/api/pipelines/{name}/ranks/{rank}/sequence"

    instructions: Annotated[
        Sequence[Sequence[str | int | None]],
        Items(Annotated[list[str | int | None], Items(str | int | None, 3, 4)], 1,
              messages.MAX_INSTRUCTIONS),
    ]  # fmt: skip


@dataclass(frozen=True)
class OptionsRecord:
    """Time (s) and energy (J) of one kind of instruction at each clock (MHz)."""

    name: messages.Name
    chunk: Annotated[int, Whole(0, messages.MAX_CHUNKS)]
    clocks: Annotated[list[Any], Items(messages.Megahertz | float | None, 1, messages.MAX_CLOCKS)]
    times: Annotated[list[float], Items(messages.Seconds, 1, messages.MAX_CLOCKS)]
    energies: Annotated[list[float], Items(messages.Joules, 1, messages.MAX_CLOCKS)]


@dataclass(frozen=True, kw_only=True)
class PutMeasurements(OfSession[Directive]):
    """Report time and energy of the instructions of a rank at each clock.

    All but the first field are those of `Measured.to_dict`.

    Attributes:
        session: The session that it registered with.
        options: Mean time and energy of each kind of instruction at each clock.
        blocking_power: Watts between instructions; `None` if there was no time between any.
        steps: Number of steps measured.
        passages: Start and end times of some of these steps.
        variation: Relative standard deviation of the time of an instruction.
        shared: Share of that variance that the instructions of a microbatch have in common.
        lag: Seconds from the request for a clock until it is in force.
        revision: Number of the report: later ones are more precise.
        urgent: Whether an earlier report has become wrong.
    """

    method = "PUT"
    path = "/api/pipelines/{name}/ranks/{rank}/measurements"

    options: Annotated[list[dict[str, Any]], Items(OptionsRecord, 1, messages.MAX_KINDS)]
    blocking_power: messages.Watts | None = None
    steps: Annotated[int, Whole(0, 1_000_000)] = 0
    passages: Annotated[list[dict[str, Any]] | tuple[()], Items(StepTimes, 0, 8)] = ()
    variation: Annotated[float, Number(0, 10)] = 0.0
    shared: Annotated[float, Number(0, 1)] = 0.0
    lag: Annotated[float, Number(0, 10)] = 0.0
    revision: Annotated[int, Whole(1, 2**31 - 1)] = 1
    urgent: bool = False


@dataclass(frozen=True, kw_only=True)
class ReportProgress(OfSession[Directive]):
    """Report how far a rank has come with measuring.

    Attributes:
        session: The session that it registered with.
        progress: Steps and clocks so far, and how many there will be.
    """

    method = "POST"
    path = "/api/pipelines/{name}/ranks/{rank}/progress"
    inline = "progress"

    progress: Progress


@dataclass(frozen=True, kw_only=True)
class ReportSteps(OfSession[Directive]):
    """Report time and energy of steps under the plan, and of reference steps.

    Attributes:
        session: The session that it registered with.
        report: The steps.
    """

    method = "POST"
    path = "/api/pipelines/{name}/ranks/{rank}/steps"
    inline = "report"

    report: StepReport


@dataclass(frozen=True, kw_only=True)
class ReportTrouble(OfSession[Directive]):
    """Report that a rank cannot measure or set clocks.

    Attributes:
        session: The session that it registered with.
        message: The reason, for people.
    """

    method = "POST"
    path = "/api/pipelines/{name}/ranks/{rank}/trouble"

    message: Annotated[str, Note(10_000, 10_000)]


@dataclass(frozen=True, kw_only=True)
class Leave(OfSession[None]):
    """Report that a rank has ended."""

    method = "POST"
    path = "/api/pipelines/{name}/ranks/{rank}/leave"


@dataclass(frozen=True, kw_only=True)
class ShowPlan(OfSession[Directive]):
    """Return the plan of a rank: when it is newer than `version`, or after `wait` seconds.

    Attributes:
        session: The session that it registered with.
        version: Version that the rank has.
        wait: Seconds to wait for another version, at most.
    """

    method = "GET"
    path = "/api/pipelines/{name}/ranks/{rank}/plan"
    faults = (409,)

    version: Annotated[int, Whole(0, 2**31 - 1)] = 0
    wait: Annotated[float, Number(0, MAX_WAIT)] = 0.0

    @property
    def patience(self) -> float:
        """Seconds that the server may take to answer, besides those of any request."""
        return self.wait


# --- jobs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ListPipelines(PipelineCommand[list[PipelineSummary]]):
    """List all pipeline jobs by name, or the one that the token is for."""

    method = "GET"
    path = "/api/pipelines"


@dataclass(frozen=True, kw_only=True)
class ShowPipeline(OfJob[PipelineInfo]):
    """Return one pipeline job with its ranks."""

    method = "GET"
    path = "/api/pipelines/{name}"


@dataclass(frozen=True, kw_only=True)
class DeletePipeline(OfJob[None]):
    """Delete a pipeline job. Ranks that still run register again."""

    method = "DELETE"
    path = "/api/pipelines/{name}"


@dataclass(frozen=True, kw_only=True)
class ShowFrontier(OfJob[FrontierInfo]):
    """Return all plans of a job, and which of them each pipeline follows."""

    method = "GET"
    path = "/api/pipelines/{name}/frontier"


@dataclass(frozen=True, kw_only=True)
class ShowProfile(OfJob[list[OptionInfo]]):
    """Return the measurements of each computation; empty until there is a plan."""

    method = "GET"
    path = "/api/pipelines/{name}/profile"


@dataclass(frozen=True, kw_only=True)
class ShowOperations(OfJob[list[OperationInfo]]):
    """Return the plan of a pipeline, sorted by start; empty until there is one."""

    method = "GET"
    path = "/api/pipelines/{name}/plan"

    pipeline: messages.RankNumber = 0


@dataclass(frozen=True, kw_only=True)
class ShowHistory(OfJob[HistoryInfo]):
    """Return the plans of a job so far, with time and energy of their steps over time."""

    method = "GET"
    path = "/api/pipelines/{name}/history"


@dataclass(frozen=True, kw_only=True)
class ShowEvents(OfJob[list[EventInfo]]):
    """Return the events of a job, the latest first."""

    method = "GET"
    path = "/api/pipelines/{name}/events"

    most: Annotated[int, Whole(1, 1_000)] = 100


@dataclass(frozen=True, kw_only=True)
class ReportStraggler(OfJob[PipelineInfo]):
    """Report that a pipeline became slower, or is healthy again: the others adapt at once."""

    method = "POST"
    path = "/api/pipelines/{name}/stragglers"
    inline = "straggler"

    straggler: Straggler


@dataclass(frozen=True, kw_only=True)
class SetObjective(OfJob[PipelineInfo]):
    """Set what a running job is planned for: its ranks follow it from their next iteration on."""

    method = "PUT"
    path = "/api/pipelines/{name}/objective"
    inline = "objective"

    objective: PipelineObjective


COMMANDS: tuple[type[PipelineCommand[Any]], ...] = (
    RegisterRank,
    PutSequence,
    PutMeasurements,
    ReportProgress,
    ReportSteps,
    ReportTrouble,
    Leave,
    ShowPlan,
    ListPipelines,
    ShowPipeline,
    DeletePipeline,
    ShowFrontier,
    ShowProfile,
    ShowOperations,
    ShowHistory,
    ShowEvents,
    ReportStraggler,
    SetObjective,
)
"""All commands that a server accepts."""
