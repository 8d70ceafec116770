"""Messages between the ranks of a pipeline job and the server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from typing import Annotated, Any, NamedTuple

from zeus._rules import Items, Note, Number, Text, Whole, enforce
from zeus.errors import PipelineError, ServerError
from zeus.optimizer.pipeline_frequency._profile import Option

MAX_NAME = 200  # characters in the name of a job, a GPU model or an instruction
MAX_RANKS = 100_000
MAX_INSTRUCTIONS = 10_000  # in one step of a rank
MAX_KINDS = 64  # kinds of instructions per rank
MAX_CLOCKS = 1_000
MAX_PASSAGES = 8
MAX_CHUNKS = 1_000
MAX_STAGES = 1_000_000  # in the whole model
MAX_SECONDS, MAX_JOULES, MAX_WATTS, MAX_MEGAHERTZ = 1e6, 1e9, 1e6, 1e5
MIN_SECONDS = 1e-9  # per instruction: near 0 s, its power would be unbounded
MAX_SLOWDOWN = 1_000.0

NAME = Text(MAX_NAME)
CHUNK = Whole(0, MAX_CHUNKS)
WATTS = Number(0, MAX_WATTS)
SECONDS = Number(MIN_SECONDS, MAX_SECONDS)
JOULES = Number(0, MAX_JOULES)

Name = Annotated[str, NAME]
RankNumber = Annotated[int, Whole(0, MAX_RANKS - 1)]
Degree = Annotated[int, Whole(1, MAX_RANKS)]
Megahertz = Annotated[int, Whole(1, int(MAX_MEGAHERTZ))]
Watts = Annotated[float, WATTS]
Seconds = Annotated[float, SECONDS]
Joules = Annotated[float, JOULES]
_Instants = Annotated[
    tuple[float, ...], Items(Annotated[float, Number(0, 1e12)], 0, MAX_INSTRUCTIONS)
]

FORWARD = "forward"
GRADIENTS = ("backward", "backward_input")
"""Instructions that wait for the gradient from the next stage."""
FIXED = ("communication", "data_loading", "receive", "send")
"""Instructions whose time does not depend on the clock: none is chosen for them."""


class Instruction(NamedTuple):
    """One instruction in a rank's step.

    Attributes:
        name: "forward", "backward", or any other.
        chunk: Index among the rank's model chunks.
        microbatch: Index of the microbatch; `None` to number instructions of a kind in order.
        stage: Index of the stage in the whole model; `None` if stages are assigned to ranks in
            turn.
    """

    name: str
    chunk: int = 0
    microbatch: int | None = None
    stage: int | None = None

    @property
    def kind(self) -> InstructionKind:
        """Kind of the instruction: all of one kind take the same time and energy."""
        return InstructionKind(self.name, self.chunk)


class InstructionKind(NamedTuple):
    """A kind of instruction; all instructions of a kind are measured together."""

    name: str
    chunk: int

    def __str__(self) -> str:
        return f"{self.name} of chunk {self.chunk}" if self.chunk else self.name


@dataclass(frozen=True)
class RankPlace:
    """The position of a rank in its job.

    Attributes:
        rank: Global rank.
        dp_rank: Index of its data-parallel pipeline.
        pp_rank: Its place in the pipeline.
        tp_rank: Index among the tensor-parallel GPUs of the place.
        dp_degree: Number of pipelines.
        pp_degree: Number of places in a pipeline.
        tp_degree: Number of GPUs per place.
        world_size: Number of ranks, the product of the three degrees.

    Raises:
        PipelineError: If a number is out of range.
    """

    rank: RankNumber
    dp_rank: RankNumber
    pp_rank: RankNumber
    tp_rank: RankNumber
    dp_degree: Degree
    pp_degree: Degree
    tp_degree: Degree
    world_size: Degree

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise PipelineError(
                    f"`{each.name}` must be a whole number, but got {each.name}={value!r}"
                )
        product = self.dp_degree * self.pp_degree * self.tp_degree
        degrees = f"dp_degree={self.dp_degree}, pp_degree={self.pp_degree}, "
        degrees += f"tp_degree={self.tp_degree}"
        if min(self.dp_degree, self.pp_degree, self.tp_degree) < 1 or product != self.world_size:
            raise PipelineError(
                "`dp_degree * pp_degree * tp_degree == world_size` must hold, each 1 or more, "
                f"but got ({degrees}, world_size={self.world_size})"
            )
        if self.world_size > MAX_RANKS:
            raise PipelineError(
                f"`world_size <= {MAX_RANKS}` must hold, but got world_size={self.world_size}"
            )
        bounds = {
            "rank": self.world_size,
            "dp_rank": self.dp_degree,
            "pp_rank": self.pp_degree,
            "tp_rank": self.tp_degree,
        }
        for name, bound in bounds.items():
            if not 0 <= getattr(self, name) < bound:
                raise PipelineError(
                    f"`0 <= {name} < {bound}` must hold, but got {name}={getattr(self, name)}"
                )

    @property
    def degrees(self) -> tuple[int, int, int]:
        """Numbers of pipelines, places and GPUs per place."""
        return self.dp_degree, self.pp_degree, self.tp_degree

    @property
    def place(self) -> tuple[int, int, int]:
        """Indices of the pipeline, place and GPU."""
        return self.dp_rank, self.pp_rank, self.tp_rank


@dataclass(frozen=True)
class Registration:
    """A rank's registration with the server.

    Attributes:
        session: Identifies the process; another process of the same rank has a different one.
        seat: Its position in the job.
        gpu: Model of its GPU.
        clocks: MHz that it may measure, the highest first.
        blocking_power: Watts of a waiting GPU, if the user gave it.
        note: Description of the training run, for people.
    """

    session: Name
    seat: RankPlace
    gpu: Name
    clocks: Annotated[tuple[int, ...], Items(Megahertz, 0, MAX_CLOCKS)]
    blocking_power: Watts | None = None
    note: Annotated[str, Note(2_000, 2_000)] = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**asdict(self), "clocks": list(self.clocks)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Registration:
        """Return the registration from its JSON form; the inverse of `to_dict`.

        Raises:
            PipelineError: If the position in the job is invalid.
        """
        seat, clocks = RankPlace(**record["seat"]), tuple(record["clocks"])
        return cls(**{**record, "seat": seat, "clocks": clocks})


@dataclass(frozen=True)
class StepTimes:
    """When the instructions of a step began and ended, each synchronized with the accelerator.

    Attributes:
        step: Number of the step.
        begins: When each instruction began, in order; seconds by the rank's own clock.
        ends: When each instruction ended, likewise.
    """

    step: Annotated[int, Whole(0, 2**53)]
    begins: _Instants
    ends: _Instants


@dataclass(frozen=True)
class Measured:
    """Measurements of one rank.

    Attributes:
        options: Mean time and energy of each kind of instruction at each clock.
        blocking_power: Watts between instructions; `None` if there was no time between any.
        steps: Number of steps measured.
        passages: Start and end times of some of these steps.
        variation: Relative standard deviation of the time of an instruction from its mean.
        shared: Share of that variance that the instructions of a microbatch have in common.
        lag: Seconds from the request for a clock until it is in force.
        revision: Number of the report: later ones are more precise.
        urgent: Whether an earlier report has become wrong.
    """

    options: Mapping[InstructionKind, Sequence[Option]]
    blocking_power: float | None
    steps: int
    passages: tuple[StepTimes, ...] = ()
    variation: float = 0.0
    shared: float = 0.0
    lag: float = 0.0
    revision: int = 1
    urgent: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "options": [
                {
                    "name": kind.name,
                    "chunk": kind.chunk,
                    "clocks": [option.frequency for option in options],
                    "times": [option.time for option in options],
                    "energies": [option.energy for option in options],
                }
                for kind, options in self.options.items()
            ],
            "blocking_power": self.blocking_power,
            "steps": self.steps,
            "passages": [
                {"step": each.step, "begins": list(each.begins), "ends": list(each.ends)}
                for each in self.passages
            ],
            "variation": self.variation,
            "shared": self.shared,
            "lag": self.lag,
            "revision": self.revision,
            "urgent": self.urgent,
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Measured:
        """Return the measurements from their JSON form; the inverse of `to_dict`.

        Raises:
            PipelineError: If the record is invalid.
        """
        options: dict[InstructionKind, Sequence[Option]] = {}
        for each in record["options"]:
            kind = InstructionKind(each["name"], each["chunk"])
            columns = each["clocks"], each["times"], each["energies"]
            if len({len(column) for column in columns}) > 1:
                lengths = ", ".join(str(len(column)) for column in columns)
                raise PipelineError(
                    f"clocks, times and energies must match in number, but got {lengths} for {kind}"
                )
            if kind in options:
                raise PipelineError(f"each kind must be reported once, but got {kind} twice")
            options[kind] = tuple(Option(*row) for row in zip(*columns, strict=True))
        passages = tuple(
            StepTimes(each["step"], tuple(each["begins"]), tuple(each["ends"]))
            for each in record.get("passages", ())
        )
        return cls(
            options,
            record["blocking_power"],
            record["steps"],
            passages,
            record.get("variation", 0.0),
            record.get("shared", 0.0),
            record.get("lag", 0.0),
            record.get("revision", 1),
            record.get("urgent", False),
        )


@dataclass(frozen=True)
class StepSums:
    """Steps of one rank, added up.

    Attributes:
        steps: Number of steps.
        seconds: Their total time, from begin to end of the step.
        squares: Sum of their squared times.
        span: Total time from the first to the last instruction of each.
        measured: Number of those whose energy is known.
        joules: Total energy of these.
    """

    steps: Annotated[int, Whole(0, 2**53)] = 0
    seconds: Annotated[float, Number(0, MAX_SECONDS * 1e6)] = 0.0
    squares: Annotated[float, Number(0, 1e24)] = 0.0
    span: Annotated[float, Number(0, MAX_SECONDS * 1e6)] = 0.0
    measured: Annotated[int, Whole(0, 2**53)] = 0
    joules: Annotated[float, Number(0, 1e18)] = 0.0

    def plus(self, seconds: float, span: float) -> StepSums:
        """Return it with one more step of a time and a span."""
        return replace(
            self,
            steps=self.steps + 1,
            seconds=self.seconds + seconds,
            squares=self.squares + seconds * seconds,
            span=self.span + span,
        )

    def plus_energy(self, joules: float) -> StepSums:
        """Return it with the energy of one more step."""
        return replace(self, measured=self.measured + 1, joules=self.joules + joules)

    def joined(self, other: StepSums) -> StepSums:
        """Return the steps of both."""
        return StepSums(
            *(one + two for one, two in zip(astuple(self), astuple(other), strict=True))
        )

    def minus(self, other: StepSums) -> StepSums:
        """Return these steps without earlier ones, which are among them."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return StepSums(*(max(one - two, 0) for one, two in pairs))

    @property
    def time(self) -> float | None:
        """Mean seconds of a step; `None` without steps."""
        return self.seconds / self.steps if self.steps else None

    @property
    def energy(self) -> float | None:
        """Mean joules of a step; `None` if none is known."""
        return self.joules / self.measured if self.measured else None


@dataclass(frozen=True)
class StepReport:
    """Steps of one rank under a plan, and reference steps at the highest clocks.

    Attributes:
        version: Version of the plan.
        plan: All steps under it.
        reference: All reference steps since the rank began.
        recent: The latest steps under the plan.
        explored: All steps since the rank began in which it explored clocks.
    """

    version: Annotated[int, Whole(0, 2**31 - 1)]
    plan: StepSums
    reference: StepSums
    recent: StepSums
    explored: StepSums = StepSums()

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> StepReport:
        """Return the report from its JSON form."""
        names = ("plan", "reference", "recent", "explored")
        sums = {name: StepSums(**record.get(name, {})) for name in names}
        return cls(record["version"], **sums)


@dataclass(frozen=True)
class Directive:
    """The server's answer to a rank.

    Attributes:
        version: Increases whenever the ranks are to do something else.
        state: "measure" until the rank has reported its measurements, "wait" until all ranks
            have, "plan", or "cannot plan".
        message: The reason, for people.
        clocks: MHz of each instruction of the rank's step, `None` where there is nothing to set;
            absent without a plan.
        time: Seconds of an iteration by the plan.
        energy: Joules of an iteration of all pipelines, if all followed this plan.
        capped: Whether the power is capped, so that no step may run at the highest clocks.
        known: To "measure": measurements of the previous run, to be verified.
        reference: Number of a step that runs at the highest clocks in all ranks, besides the
            regular ones: after a drift, what a plan saves is measured again soon.
        not_before: Seconds from when the rank could begin its first instruction of a step, before
            which each must not begin, 0 for those that are not delayed; absent if none is.
    """

    version: int
    state: str
    message: str = ""
    clocks: tuple[float | None, ...] | None = None
    time: float | None = None
    energy: float | None = None
    capped: bool = False
    known: Measured | None = None
    reference: int | None = None
    not_before: tuple[float, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "version": self.version,
            "state": self.state,
            "message": self.message,
            "clocks": None if self.clocks is None else list(self.clocks),
            "time": self.time,
            "energy": self.energy,
            "capped": self.capped,
            "known": None if self.known is None else self.known.to_dict(),
            "reference": self.reference,
            "not_before": None if self.not_before is None else list(self.not_before),
        }

    @classmethod
    def from_dict(cls, record: Any) -> Directive:
        """Return the answer from its JSON form; the inverse of `to_dict`.

        Raises:
            ServerError: If the record is invalid.
        """
        try:
            clocks, delays = record["clocks"], record.get("not_before")
            return cls(
                int(record["version"]),
                str(record["state"]),
                str(record["message"]),
                None if clocks is None else tuple(map(_clock, clocks)),
                record["time"],
                record["energy"],
                bool(record.get("capped", False)),
                None if record.get("known") is None else Measured.from_dict(record["known"]),
                None if record.get("reference") is None else int(record["reference"]),
                None if delays is None else tuple(map(float, delays)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ServerError(f"the server's response is invalid: {error!r}") from None


def _clock(value: Any) -> float | None:
    if value is None:
        return None
    clock = float(value)
    if not 0 < clock <= MAX_MEGAHERTZ:
        raise ValueError(f"a clock of {clock} MHz")
    return clock


@dataclass(frozen=True)
class Straggler:
    """A pipeline that became slower, or is healthy again.

    Exactly one of `slowdown`, `iteration_time` and `healthy` is given.

    Attributes:
        dp_rank: Index of the pipeline.
        slowdown: Factor by which an iteration takes longer, 1 or more.
        iteration_time: Seconds of an iteration.
        healthy: Whether it is as fast as the others again.
        found: Whether this follows from the times of steps, rather than from a report.

    Raises:
        PipelineError: If not exactly one is given, or one is out of range.
    """

    dp_rank: RankNumber
    slowdown: Annotated[float, Number(1, MAX_SLOWDOWN)] | None = None
    iteration_time: Seconds | None = None
    healthy: bool = False
    found: bool = False

    def __post_init__(self) -> None:
        told = [self.slowdown is not None, self.iteration_time is not None, self.healthy]
        if sum(told) != 1:
            raise PipelineError(
                "exactly one of slowdown, iteration_time and healthy must be given, but got "
                f"(slowdown={self.slowdown!r}, iteration_time={self.iteration_time!r}, "
                f"healthy={self.healthy!r})"
            )
        enforce(self, PipelineError, but=("dp_rank",))  # whose bound depends on the job

    def __str__(self) -> str:
        if self.healthy:
            return f"pipeline {self.dp_rank} is healthy"
        if self.slowdown is not None:
            return f"pipeline {self.dp_rank} takes {self.slowdown:.4g} times as long"
        return f"pipeline {self.dp_rank} takes {self.iteration_time:g} s per iteration"


def sequence_from(rows: Iterable[Sequence[Any]]) -> tuple[Instruction, ...]:
    """Return the instructions from their JSON rows.

    Raises:
        PipelineError: If a row is not made of a name and whole numbers.
    """
    return tuple(map(_instruction, rows))


def _instruction(row: Sequence[Any]) -> Instruction:
    name, chunk, *where = row
    whole = isinstance(chunk, int) and all(isinstance(each, int | None) for each in where)
    if not isinstance(name, str) or not whole:
        raise PipelineError(
            f"an instruction must be [name, chunk, microbatch, stage], but got {list(row)!r}"
        )
    return Instruction(name, chunk, *where)
