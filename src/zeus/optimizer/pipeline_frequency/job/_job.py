"""The server's state of a pipeline job: its ranks, their reports, and what each should do.

Pure rules, without store, clock or network. Every change of a job increments its counter `changes`;
every change of what ranks should do increments its `version` as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from zeus._rules import Number, Text, Whole
from zeus.errors import JobConflictError, PipelineError, UnknownJobError
from zeus.optimizer.pipeline_frequency.job._messages import (
    CHUNK,
    FIXED,
    JOULES,
    MAX_INSTRUCTIONS,
    MAX_KINDS,
    MAX_MEGAHERTZ,
    MAX_STAGES,
    NAME,
    SECONDS,
    WATTS,
    Instruction,
    InstructionKind,
    Measured,
    RankPlace,
    Registration,
    StepTimes,
    Straggler,
)
from zeus.optimizer.pipeline_frequency.job._objective import PipelineObjective
from zeus.optimizer.pipeline_frequency.job._previous import PreviousProfile, previous_profiles

_MICROBATCH, _STAGE = Whole(0, MAX_INSTRUCTIONS), Whole(0, MAX_STAGES)
_CLOCK = Number(0, MAX_MEGAHERTZ, above=True)
_NOTE = Text(2_000, empty=True)
_SHOWN = 8  # ranks listed in a message
STRAGGLES, RECOVERED = 1.04, 1.02
"""From which ratio to its peers' a pipeline straggles, and below which it does not any more."""

Alive = Callable[[int], bool]


@dataclass
class Rank:
    """A rank and its reports.

    Attributes:
        seat: Its position in the job.
        session: Identifies its process.
        gpu: Model of its GPU.
        clocks: MHz that it may measure.
        told_power: Watts of a waiting GPU, as configured by the user.
        registered: When it registered, in seconds since 1970.
        trouble: Why it cannot take part; empty if it can.
        left: Whether it has ended.
        sequence: Instructions of its step; empty until known.
        measured: Its measurements, once known.
        late: Whether its measurements came after the current plan, which does not use them.
        drifted: Whether its instructions have taken another time since it was first measured.
    """

    seat: RankPlace
    session: str
    gpu: str
    clocks: tuple[int, ...]
    told_power: float | None
    registered: float
    trouble: str = ""
    left: bool = False
    sequence: tuple[Instruction, ...] = ()
    measured: Measured | None = None
    late: bool = False
    drifted: bool = False

    @property
    def state(self) -> str:
        """State of the rank, for people."""
        if self.trouble:
            return "in trouble"
        if self.left:
            return "ended"
        if self.measured is not None:
            return "measured"
        return "measuring" if self.sequence else "warming up"


@dataclass
class JobEvent:
    """An event of a job.

    Attributes:
        at: Seconds since 1970.
        kind: Category, one word.
        message: Description for people.
    """

    at: float
    kind: str
    message: str


@dataclass
class PipelineJob:
    """A pipeline job.

    Attributes:
        name: Name, the same for all its ranks.
        degrees: Numbers of pipelines, places and GPUs per place.
        created: When it was created, in seconds since 1970; `updated` likewise.
        note: Description of the training run.
        version: Version of what the ranks should do.
        changes: Number of changes of any kind.
        inputs: Number of changes of a plan's inputs.
        planned: Whether a plan is deployed for these inputs.
        stale: Whether it is to be replaced, because more precise measurements have come.
        revision: Number of the measurements that it was made from.
        failure: Why they allow no plan.
        ranks: Ranks by number.
        stragglers: Straggler reports by pipeline.
        objective: What it is planned for.
        previous: Measurements of the run before.
        happenings: New events, to be stored.
        dirty: Numbers of ranks that changed since the last save.
    """

    name: str
    degrees: tuple[int, int, int]
    created: float
    updated: float
    note: str = ""
    version: int = 1
    changes: int = 0
    inputs: int = 0
    planned: bool = False
    stale: bool = False
    revision: int = 1
    failure: str = ""
    ranks: dict[int, Rank] = field(default_factory=dict)
    stragglers: dict[int, Straggler] = field(default_factory=dict)
    objective: PipelineObjective = field(default_factory=PipelineObjective)
    previous: list[PreviousProfile] = field(default_factory=list)
    happenings: list[JobEvent] = field(default_factory=list)
    dirty: set[int] = field(default_factory=set)

    # --- reports ----------------------------------------------------------------------------------

    def register(self, registration: Registration, at: float, alive: Alive) -> None:
        """Register a rank.

        Args:
            registration: Its registration.
            at: Current time, in seconds since 1970.
            alive: Whether a rank was seen recently.

        Raises:
            PipelineError: If a value is invalid, or another rank has the place.
            JobConflictError: If the job has other degrees and ranks that are alive.
        """
        seat = registration.seat
        self._check(registration)
        known = self.ranks.get(seat.rank)
        if known is not None and known.session == registration.session:
            return
        others = [rank for rank in self.ranks if rank != seat.rank and alive(rank)]
        if seat.degrees != self.degrees:
            if others:
                raise JobConflictError(
                    f"pipeline job {self.name!r} runs with (dp, pp, tp) = {self.degrees}, but rank "
                    f"{seat.rank} says {seat.degrees}; give another job another name"
                )
            self.degrees = seat.degrees
        for number, other in self.ranks.items():
            if number != seat.rank and other.seat.place == seat.place and number in others:
                raise PipelineError(
                    f"each place must have one rank, but rank {seat.rank} says it is at (dp, pp, "
                    f"tp) = {seat.place}, and so does rank {number}"
                )
        if self.ranks and not others and not (known is not None and alive(seat.rank)):
            self._begin_anew(at)
        self.ranks[seat.rank] = Rank(
            seat,
            registration.session,
            registration.gpu,
            registration.clocks,
            registration.blocking_power,
            at,
        )
        self.note = registration.note or self.note
        if known is not None:
            self._happen(at, "rank", f"rank {seat.rank} registered again, from a new process")
        self._input_changed(seat.rank, at)

    def put_sequence(
        self, rank: int, session: str, sequence: Sequence[Instruction], at: float
    ) -> None:
        """Store the instructions of a rank's step.

        Raises:
            PipelineError: If a value is invalid.
        """
        record = self.at(rank, session)
        given = tuple(sequence)
        if not 1 <= len(given) <= MAX_INSTRUCTIONS:
            raise PipelineError(
                f"a step must have 1 to {MAX_INSTRUCTIONS} instructions, but got {len(given)}"
            )
        for each in given:
            NAME.check("name", each.name, PipelineError)
            CHUNK.check("chunk", each.chunk, PipelineError)
            if each.microbatch is not None:
                _MICROBATCH.check("microbatch", each.microbatch, PipelineError)
            if each.stage is not None:
                _STAGE.check("stage", each.stage, PipelineError)
        kinds = {each.kind for each in given}
        if len(kinds) > MAX_KINDS:
            raise PipelineError(
                f"a step must have at most {MAX_KINDS} kinds of instructions, but got {len(kinds)}"
            )
        if record.sequence == given:
            return
        record.sequence, record.measured = given, None
        self._input_changed(rank, at)

    def put_measurements(self, rank: int, session: str, measured: Measured, at: float) -> None:
        """Store the measurements of a rank.

        Raises:
            PipelineError: If a value is invalid: a negative time, a clock the rank does not have.
        """
        record = self.at(rank, session)
        kinds = {each.kind for each in record.sequence}
        if set(measured.options) != kinds:
            missing = ", ".join(sorted(map(str, kinds - set(measured.options)))) or "none"
            unknown = ", ".join(sorted(map(str, set(measured.options) - kinds))) or "none"
            raise PipelineError(
                "every kind of instruction of the step must be measured, and no other, but rank "
                f"{rank} lacks {missing} and has in addition {unknown}"
            )
        if measured.blocking_power is not None:
            WATTS.check("blocking_power", measured.blocking_power, PipelineError)
        for kind in kinds:
            _check_options(kind, measured, set(record.clocks))
        for passage in measured.passages:
            _check_passage(passage, len(record.sequence))
        if record.measured == measured:
            return
        revised, record.measured = record.measured is not None, measured
        if self.planned and revised:
            self._revise(rank, measured, at)
            return
        record.late = self.planned
        self._input_changed(rank, at)

    def _revise(self, rank: int, measured: Measured, at: float) -> None:
        """Have the plan replaced once all ranks have measured again; until then it stays.

        What a rank reports after a drift counts at once, as few steps showed the first correction.
        Not while a pipeline straggles: its recovery shows in steps under plans of equal time.
        """
        self._changed(rank, at)
        record = self.ranks[rank]
        if measured.urgent:
            record.drifted = True
            self._happen(at, "drift", f"rank {rank}: instructions take another time than before")
        elif (not record.drifted or self.stragglers) and self._least_revision() <= self.revision:
            return
        self.inputs += 1
        self.stale = True
        self._count_late_ones()

    def _count_late_ones(self) -> None:
        """Let measurements count that came after the plan, now that it is made again."""
        for number, record in self.ranks.items():
            if record.late:
                record.late = False
                self.dirty.add(number)

    def _least_revision(self) -> int:
        return min(
            rank.measured.revision
            for rank in self.ranks.values()
            if rank.measured is not None and not rank.late
        )

    def measure_again(self, said: str, at: float) -> None:
        """Discard all measurements, so that all ranks measure again; `said` is the reason."""
        for number, rank in self.ranks.items():
            rank.measured = None
            self.dirty.add(number)
        self.planned, self.failure, self.stale = False, "", False
        self.inputs += 1
        self.version += 1
        self._happen(at, "slower", said)
        self._changed(None, at)

    def put_trouble(self, rank: int, session: str, said: str, at: float) -> None:
        """Record that a rank cannot take part; `said` is the reason."""
        record = self.at(rank, session)
        said = "".join(c if c.isprintable() else " " for c in said)[:2_000] or "unknown"
        if record.trouble != said:
            record.trouble = said
            self._happen(at, "trouble", f"rank {rank}: {said}")
            self._input_changed(rank, at)

    def leave(self, rank: int, session: str, at: float) -> None:
        """Record that a rank has ended."""
        record = self.at(rank, session)
        if not record.left:
            record.left = True
            self._changed(rank, at)

    def put_straggler(self, straggler: Straggler, at: float) -> None:
        """Record a pipeline that is slow, or is not any more.

        Raises:
            PipelineError: If there is no such pipeline.
        """
        if straggler.dp_rank not in range(self.degrees[0]):
            raise PipelineError(
                f"`0 <= dp_rank < {self.degrees[0]}` must hold, but got dp_rank={straggler.dp_rank}"
            )
        if straggler.healthy:
            if self.stragglers.pop(straggler.dp_rank, None) is None:
                return
        elif self.stragglers.get(straggler.dp_rank) == straggler:
            return
        else:
            self.stragglers[straggler.dp_rank] = straggler
        self._happen(at, "straggler", str(straggler))
        self.version += 1
        self._changed(None, at)

    def put_objective(self, objective: PipelineObjective, at: float) -> None:
        """Set what the job is planned for; from the next iteration on, its ranks follow it."""
        if objective == self.objective:
            return
        capped = objective.bounds != self.objective.bounds
        self.objective = objective
        self._happen(at, "objective", str(objective))
        if capped and self.planned:
            self.inputs += 1
            self.stale = True
        elif capped and self.failure:
            self.inputs += 1
            self.failure = ""
        self.version += 1
        self._changed(None, at)

    def known_before(self, record: Rank) -> Measured | None:
        """Return the measurements of the run before for a rank's place, if it does the same."""
        for each in self.previous:
            if each.fits(record):
                return each.measured
        return None

    def judged(self, pipeline: int, slowdown: float) -> Straggler | None:
        """Return a straggler that the times of steps show, or its recovery; `None` for no change.

        What was reported about a pipeline is not overruled.

        Args:
            pipeline: Index of the pipeline.
            slowdown: How many times as long as its peers it takes.
        """
        known = self.stragglers.get(pipeline)
        if known is not None and not known.found:
            return None
        if known is None:
            found = slowdown >= STRAGGLES
            return Straggler(pipeline, slowdown=slowdown, found=True) if found else None
        if slowdown < RECOVERED:
            return Straggler(pipeline, healthy=True, found=True)
        moved = abs(slowdown / (known.slowdown or 1.0) - 1) > STRAGGLES - 1
        return Straggler(pipeline, slowdown=slowdown, found=True) if moved else None

    def forget_gone_stragglers(self, at: float, alive: Alive) -> None:
        """Drop reports about pipelines with no living rank: no one waits for those."""
        for pipeline in list(self.stragglers):
            ranks = [n for n, rank in self.ranks.items() if rank.seat.dp_rank == pipeline]
            if ranks and not any(map(alive, ranks)):
                del self.stragglers[pipeline]
                self._happen(at, "straggler", f"pipeline {pipeline} is gone")
                self.version += 1
                self._changed(None, at)

    def lose(self, ranks: Sequence[int], at: float) -> None:
        """Record ranks that were not seen for long."""
        self._happen(at, "lost", f"lost contact with {_listed(ranks)}")
        self._changed(None, at)

    def deploy(self, said: str, at: float) -> None:
        """Record that there is a plan for the current inputs."""
        self.planned, self.failure, self.stale = True, "", False
        self.revision = self._least_revision()
        self._happen(at, "plan", said)
        self.version += 1
        self._changed(None, at)

    def fail(self, said: str, at: float) -> None:
        """Record that the current inputs allow no plan; `said` is the reason."""
        self.planned, self.failure, self.stale = False, said, False
        self._happen(at, "plan", f"cannot plan: {said}")
        self.version += 1
        self._changed(None, at)

    def remark(self, kind: str, said: str, at: float) -> None:
        """Record an event that changes nothing."""
        self._happen(at, kind, said)
        self._changed(None, at)

    def inputs_only(self) -> PipelineJob:
        """Return a copy of a plan's inputs, which other threads cannot change meanwhile."""
        return PipelineJob(
            self.name,
            self.degrees,
            self.created,
            self.updated,
            inputs=self.inputs,
            planned=self.planned,
            ranks={number: Rank(**vars(rank)) for number, rank in self.ranks.items()},
            objective=self.objective,
        )

    # --- queries ----------------------------------------------------------------------------------

    def at(self, rank: int, session: str) -> Rank:
        """Return the calling rank.

        Raises:
            UnknownJobError: If it is not registered.
            JobConflictError: If another process has registered in its place.
        """
        record = self.ranks.get(rank)
        if record is None:
            raise UnknownJobError(f"rank {rank} of pipeline job {self.name!r} is not registered")
        if record.session != session:
            raise JobConflictError(
                f"rank {rank} of pipeline job {self.name!r} was registered again by another process"
            )
        return record

    def trouble(self) -> str:
        """Return why there can be no plan: a rank that cannot take part, or inconsistent reports.

        A rank that fails later runs as fast as it can, and the others may follow their plan.
        """
        if self.planned:
            return ""
        for number, rank in sorted(self.ranks.items()):
            if rank.trouble and not rank.left:
                return f"rank {number} cannot take part: {rank.trouble}"
        return self.failure

    def contributions(self) -> list[list[list[Rank]]]:
        """For each place, list the ranks there of every pipeline whose ranks there all measured."""
        pipelines, places, gpus = self.degrees
        found: dict[tuple[int, int], list[Rank]] = {}
        for _, rank in sorted(self.ranks.items()):
            left_out = rank.late if self.planned else bool(rank.trouble)
            if rank.measured is not None and not left_out:
                found.setdefault(rank.seat.place[:2], []).append(rank)
        return [
            [
                found[pipeline, place]
                for pipeline in range(pipelines)
                if len(found.get((pipeline, place), ())) == gpus
            ]
            for place in range(places)
        ]

    def wants_plan(self) -> bool:
        """Return whether all inputs of a plan are known, and there is no plan yet."""
        has_plan = self.planned and not self.stale
        return not (has_plan or self.trouble()) and all(self.contributions())

    def work(self) -> int:
        """Return the number of instructions of a pipeline times the number of clocks of each."""
        longest: dict[int, int] = {}
        clocks = 1
        for rank in self.ranks.values():
            place = rank.seat.pp_rank
            longest[place] = max(longest.get(place, 0), len(rank.sequence))
            if rank.measured is not None:
                clocks = max(clocks, *map(len, rank.measured.options.values()))
        return sum(longest.values()) * clocks

    def status(self) -> str:
        """Return the status of the job, for people."""
        trouble = self.trouble()
        if trouble:
            return f"cannot plan: {trouble}"
        if self.planned:
            sick = [number for number, rank in sorted(self.ranks.items()) if rank.trouble]
            return f"planned, without {_listed(sick)}" if sick else "planned"
        waits = self.waits_for()
        if waits is None:
            return "planning"
        return f"waits for {waits}"

    def waits_for(self) -> str | None:
        """Return which ranks' measurements are missing; `None` if none are."""
        _, places, gpus = self.degrees
        whole = self.contributions()
        missing = [place for place in range(places) if not whole[place]]
        if not missing:
            return None
        expected = self.degrees[0] * places * gpus
        if len(self.ranks) < expected:
            absent = [number for number in range(expected) if number not in self.ranks]
            return f"{_listed(absent)} to register"
        slow = [
            number
            for number, rank in sorted(self.ranks.items())
            if rank.seat.pp_rank in missing and rank.measured is None
        ]
        return f"{_listed(slow)} to measure"

    # --- internals --------------------------------------------------------------------------------

    def _check(self, registration: Registration) -> None:
        NAME.check("session", registration.session, PipelineError)
        NAME.check("gpu", registration.gpu, PipelineError)
        _NOTE.check("note", registration.note, PipelineError)
        for clock in registration.clocks:
            _CLOCK.check("clock", clock, PipelineError)
        if registration.blocking_power is not None:
            WATTS.check("blocking_power", registration.blocking_power, PipelineError)

    def _begin_anew(self, at: float) -> None:
        """Start a new run: no rank of the previous one is left, and its measurements are void."""
        self.previous = previous_profiles(self.ranks.values()) or self.previous
        self.ranks.clear()
        self.stragglers.clear()
        self.planned, self.failure, self.stale = False, "", False
        self.version += 1
        self._happen(at, "run", "a new run begins")

    def _input_changed(self, rank: int, at: float) -> None:
        """Record a changed input. A plan stays valid while its own inputs are still complete."""
        self._changed(rank, at)
        if self.planned and all(self.contributions()):
            return
        self.inputs += 1
        if self.planned or self.failure:
            self.planned, self.failure, self.stale = False, "", False
            self.version += 1
        self._count_late_ones()

    def _changed(self, rank: int | None, at: float) -> None:
        self.changes += 1
        self.updated = at
        if rank is not None:
            self.dirty.add(rank)

    def _happen(self, at: float, kind: str, message: str) -> None:
        self.happenings.append(JobEvent(at, kind, message))


def _check_options(kind: InstructionKind, measured: Measured, clocks: set[int]) -> None:
    options = measured.options[kind]
    if not options:
        raise PipelineError(f"{kind} must be measured at one clock at least, but got none")
    for option in options:
        SECONDS.check(f"time of {kind}", option.time, PipelineError)
        JOULES.check(f"energy of {kind}", option.energy, PipelineError)
        if kind.name in FIXED:
            if option.frequency is not None or len(options) > 1:
                raise PipelineError(f"{kind} has no clock to choose, but got {option.frequency}")
        elif option.frequency not in clocks:
            raise PipelineError(
                f"clocks must be among those that the rank registered, but got {option.frequency} "
                f"MHz for {kind}"
            )
    if len({option.frequency for option in options}) < len(options):
        raise PipelineError(f"each clock must be reported once, but {kind} has one twice")


def _check_passage(passage: StepTimes, instructions: int) -> None:
    instants = [each for both in zip(passage.begins, passage.ends, strict=False) for each in both]
    if not len(passage.begins) == len(passage.ends) == instructions:
        raise PipelineError(
            f"every instruction of a step must begin and end, but of {instructions} in step "
            f"{passage.step} {len(passage.begins)} begin and {len(passage.ends)} end"
        )
    if any(later < earlier for earlier, later in pairwise(instants)):
        raise PipelineError(
            f"instructions must come one after the other, but do not in step {passage.step}"
        )


def _listed(ranks: Iterable[int]) -> str:
    numbers = list(ranks)
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    return f"rank{'s' if len(numbers) > 1 else ''} {shown}{more}"
