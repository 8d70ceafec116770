"""The just-in-time optimizer of a GPU knob: the part that runs in the training loop.

It profiles during training, decides by the user's objective, applies the decision, and watches
whether it still holds. No error here stops the training: the previous settings are restored, one
message says why, and steps have almost no overhead from then on.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from zeus.errors import (
    CapabilityError,
    FrontierError,
    KnobError,
    ProfileError,
    RanksError,
    WindowError,
)
from zeus.frontier import (
    Frontier,
    Objective,
    Point,
    Selection,
    ZeusCost,
    as_objective,
)
from zeus.frontier._base import entry_of
from zeus.frontier._point import freeze
from zeus.monitor import ZeusMonitor
from zeus.monitor._sums import gpu_energy
from zeus.optimizer.jit._drift import MISMATCH, check_drift, watch_drift
from zeus.optimizer.jit._report import Report, Spent, reference_point, savings
from zeus.optimizer.jit._runner import Program, Runner, TroubleElsewhere, check_troubles, idle
from zeus.optimizer.jit._segment import Segment, SegmentResult
from zeus.optimizer.jit._segment_lengths import SegmentLengths
from zeus.optimizer.jit._setting_sweep import SettingSweep
from zeus.optimizer.training._knob_controller import KnobController
from zeus.optimizer.training._knobs import GpuKnobInfo, Knob, Ladder
from zeus.optimizer.training._profiles import Profile, ProfileFile, ProfileKey
from zeus.optimizer.training._ranks import Ranks, merged
from zeus.optimizer.training._rendezvous import Rendezvous
from zeus.optimizer.training._step_optimizer import StepOptimizer
from zeus.optimizer.training._training_meter import TrainingMeter
from zeus.state._files import job_wide, state_directory

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Seconds of an epoch after which steps are checked for drift again: some jobs have only one epoch.
_CHECK_AGAIN = 3600.0
_FEWEST_TO_CHOOSE_FROM = 2  # settings, unless the first one is known to be the best
_MAX_PROFILES = 3  # in one run: a job that keeps changing is not profiled forever


@dataclass(frozen=True)
class Job:
    """The user's description of the job.

    Attributes:
        name: Distinguishes its profiles from those of other jobs.
        batch_size: Distinguishes profiles likewise.
        steps: Number of steps to which objectives in seconds or joules refer.
        run_steps: Steps of the whole run; `None` if unknown.
        max_profile_share: Maximum share of them to spend on profiling.
    """

    name: str | None = None
    batch_size: int | None = None
    steps: int = 1
    run_steps: int | None = None
    max_profile_share: float = 0.05

    @property
    def max_profile_steps(self) -> float:
        """Maximum number of steps to spend on profiling."""
        if self.run_steps is None:
            return math.inf
        return math.floor(self.run_steps * self.max_profile_share + 1e-9)


@dataclass(frozen=True)
class _Hello:
    """The first message of a process to the others.

    Attributes:
        infos: Its GPUs, by key.
        refusal: Why it may not set the knob, or an empty string.
        trouble: Why it cannot take part at all, or an empty string.
    """

    infos: dict[str, GpuKnobInfo]
    refusal: str = ""
    trouble: str = ""


class JitOptimizer(StepOptimizer):
    """Finds the best setting of one GPU knob during training. See the subclasses for each knob.

    Attributes:
        monitor: Measures time and energy.
        objective: The user's objective.
        observing: Whether the decision is only reported, not applied.
        trouble: Why there is no optimization, or no further one; empty if there is no problem.
    """

    def __init__(
        self,
        knob: Knob,
        monitor: ZeusMonitor,
        objective: Any,
        *,
        lengths: SegmentLengths,
        profile_path: str | Path | None,
        job: Job,
        observe: bool,
        raise_limit: bool,
        rank_timeout: float,
        presence_timeout: float,
    ) -> None:
        self.monitor = monitor
        self.objective: Objective = as_objective(
            ZeusCost(eta_knob=0.5) if objective is None else objective
        )
        entry = entry_of(self.objective)
        if entry is not None and entry.needs == "latencies":
            raise FrontierError(
                "an optimizer measures segments of steps, so its objective must be one of their "
                f"time and energy, but got {self.objective!r}; docs/serving.md shows how to use it"
            )
        self.observing = observe
        self.trouble = ""
        self._knob = knob
        self._lengths = lengths
        self._job = job
        self._raise_limit = raise_limit
        self._rendezvous = Rendezvous(f"{self._name} optimizer", rank_timeout, presence_timeout)
        self._file = _profile_file(profile_path, job)
        self._meter = TrainingMeter(monitor)
        self._ranks = Ranks()
        self._controller: KnobController | None = None
        self._ladder: Ladder | None = None
        self._runner: Runner | None = None
        self._idle = False  # steps need no handling
        self._over = False  # optimization has ended
        self._closed = False
        self._steps = 0
        self._wake_at = -1  # the step count at which steps are checked again
        self._profiling: Counter[Any] = Counter()
        self._frontier: Frontier | None = None
        self._selection: Selection | None = None

    # --- results ----------------------------------------------------------------------------

    @property
    def frontier(self) -> Frontier | None:
        """One step, on all GPUs of the job, at each profiled setting; `None` before that."""
        return self._frontier

    @property
    def selection(self) -> Selection | None:
        """The choice; `None` before it is made. Points are per step, the cost per `job_steps`."""
        return self._selection

    @property
    def decided(self) -> bool:
        """Whether the choice is made."""
        return self._selection is not None

    @property
    def profiling_steps(self) -> int:
        """Number of steps spent on profiling."""
        return sum(self._profiling.values())

    @property
    def expected_step(self) -> Point | None:
        """Expected step, on all GPUs of the job, for the rest of the run; `None` if undecided."""
        return None if self._selection is None else self._outcome()[1]

    def report(self) -> Report:
        """Compare the run so far with the same run at the previous setting and the chosen one."""
        self._meter.restart()
        spent = self._meter.total()
        return Report.of(
            Spent(
                {None: self._steps} if self._runner is None else self._runner.tally(self._steps),
                self._profiling,
                spent.time,
                gpu_energy(spent),
            ),
            self._frontier,
            self._selection,
            self._present,
            observing=self.observing,
            unit=self._knob.unit,
            untried=None if self._ladder is None else self._ladder.untried,
            gpus=1 if self._ladder is None else self._ladder.gpus,
            limits_power=self._knob.bounds_power,
        )

    def values_to_log(self) -> dict[str, float]:
        """Return the setting in force, and the savings where they are known."""
        values = {} if self._controller is None else self._controller.values_to_log()
        if self._selection is not None and self._frontier is not None:
            reference = reference_point(self._frontier, self._present)
            run = None if self.observing or self._meter.open else self.report()
            values |= savings(self._selection.point, reference, run, observing=self.observing)
        return values

    # --- events of the training loop --------------------------------------------------------

    def on_epoch_begin(self) -> None:
        """Begin an epoch."""
        if self._closed:
            return
        self._meter.begin()
        if self._runner is None:
            self._rendezvous.announce()
        if self._idle and not self._over:
            self._guarded(self._wake)

    def on_step_begin(self) -> None:
        """Begin a step."""
        if self._steps == self._wake_at and self._idle and not self._over:
            self._guarded(self._wake)
        if not self._idle:
            self._meter.begin()  # for loops that report steps only
            self._guarded(self._step)

    def on_step_end(self) -> None:
        """End a step."""
        if not self._closed:
            self._steps += 1

    def on_epoch_end(self) -> None:
        """End an epoch."""
        self.pause()

    def pause(self) -> None:
        """Pause: other work than training follows."""
        if self._runner is not None and not self._idle:
            self._guarded(self._runner.interrupt)
        self._meter.end()

    def resume(self) -> None:
        """Continue training."""
        if not self._closed:
            self._meter.begin()

    def close(self) -> None:
        """Restore the previous setting, and log how much the run has saved."""
        if self._closed:
            return
        self.pause()
        self._closed = True
        self._stop()
        if self._steps and self._ranks.rank == 0:
            logger.info("%s", self.report())

    # --- error handling: training always continues ------------------------------------------

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except TroubleElsewhere as error:  # every process has it: only the first one warns
            self._give_up(str(error), logging.WARNING if self._ranks.rank == 0 else logging.DEBUG)
        except (CapabilityError, KnobError, RanksError, WindowError, OSError) as error:
            self._give_up(str(error))
        except Exception as error:  # a user's objective may raise anything
            self._give_up(f"{type(error).__name__}: {error}", error=error)

    def _give_up(
        self, why: str, level: int = logging.WARNING, error: Exception | None = None
    ) -> None:
        self.trouble = why
        self._stop()
        logger.log(
            level,
            "the %s is not optimized; training goes on with the previous setting: %s",
            self._name,
            why,
            exc_info=error,
        )

    def _stop(self) -> None:
        self._idle = self._over = True
        if self._runner is not None:
            self._runner.stop(self._steps)
        if self._controller is not None:
            self._controller.release()
        self._ranks.leave()

    @property
    def _name(self) -> str:
        return self._knob.name.replace("_", " ")

    @property
    def _present(self) -> Any:
        """The setting before the run; `None` if unknown, or not the same on all GPUs."""
        return None if self._ladder is None else self._ladder.present

    # --- steps ------------------------------------------------------------------------------

    def _step(self) -> None:
        if self._runner is None:
            self._begin()
        assert self._runner is not None
        self._runner.step_begin(self._steps)
        self._set_idle(self._runner.idle)

    def _wake(self) -> None:
        assert self._runner is not None
        self._runner.wake(self._steps)
        self._set_idle(self._runner.idle)

    def _set_idle(self, idle: bool) -> None:
        self._idle = idle
        expected = self.expected_step if idle else None
        if expected is not None:
            # In steps, as all processes of the job have the same count.
            self._wake_at = self._steps + max(1, math.ceil(_CHECK_AGAIN / expected.time))

    def _begin(self) -> None:
        """Connect to the other processes of the job and agree on a program."""
        self._ranks = self._rendezvous.join()
        answers = self._ranks.share(self._hello())
        check_troubles(self._ranks, [answer.trouble for answer in answers])
        self._ladder = Ladder(merged(answer.infos for answer in answers))
        refusal = next(
            (
                self._ranks.prefixed(rank, answer.refusal)
                for rank, answer in enumerate(answers)
                if answer.refusal
            ),
            "",
        )
        # The first process's file is used: the others may have another one, or none.
        (saved, *_) = self._ranks.share(self._saved() if self._ranks.rank == 0 else None)
        assert self._controller is not None
        self._runner = Runner(self.monitor, self._controller, self._ranks)
        self._runner.start(self._profile_decide_watch(saved, refusal), self._steps)

    def _hello(self) -> _Hello:
        try:
            if not self.monitor.gpus:
                raise KnobError("the monitor must have a GPU, but has none")
            simulated = bool(self.monitor.node.simulated)
            self._controller = KnobController(
                self._knob,
                self.monitor.gpus,
                simulated=simulated,
                raise_limit=self._raise_limit,
                on_takeover=self.close,
            )
        except (CapabilityError, KnobError) as error:
            return _Hello({}, trouble=str(error))
        infos = {job_wide(key): info for key, info in self._controller.infos.items()}
        try:
            self._controller.try_control()
        except (CapabilityError, KnobError, OSError) as error:
            return _Hello(infos, refusal=str(error))
        return _Hello(infos)

    # --- the phases of a run ----------------------------------------------------------------

    def _profile_decide_watch(self, saved: Frontier | None, refusal: str) -> Program:
        """Profile, decide, watch; and again when the job has changed."""
        if refusal:
            self._warn_refused(saved, refusal)
            if saved is None:
                yield from idle(None)
        for _ in range(_MAX_PROFILES):
            sweep = self._new_sweep(saved)
            if not refusal:
                sweep = yield from self._profiled(sweep)
                if len(sweep.points()) < _FEWEST_TO_CHOOSE_FROM and sweep.next_rung() is not None:
                    self._warn_too_short()
                    yield from idle(None)
            yield from self._compared(sweep)
            self._decide(self._frontier_of(sweep.points()))
            if sweep.stays:
                self._keep()
            if self.observing and self._present is None:
                break  # GPUs differ, so the expected cost of a step there is unknown
            setting, point = self._outcome()
            drift = yield from watch_drift(point, setting, at_once=not sweep.stays)
            saved = None
            if refusal:
                self._warn_once("the saved profile is not this job's: %s", drift)
                self._frontier = self._selection = None
                yield from idle(None)
            self._warn_once("profiling again: %s", drift)
        yield from idle(self._outcome()[0])

    def _new_sweep(self, saved: Frontier | None) -> SettingSweep:
        ladder = self._ladder
        assert ladder is not None
        known = {} if saved is None else {point.knob: point for point in saved.combine()}
        if len(ladder.models) == 1:
            known = dict(sorted(known.items(), reverse=True))
        knobs = ladder.along(list(known))
        present, off_ladder = self._present, None
        if present is not None and present not in knobs:
            knobs.append(present)
            if len(ladder.models) == 1:
                knobs.sort(reverse=True)
            off_ladder = knobs.index(present)
        return SettingSweep(
            knobs,
            self._settled,
            self._lengths,
            ladder.limits(knobs) if self._knob.bounds_power else None,
            {rung: known[knob] for rung, knob in enumerate(map(freeze, knobs)) if knob in known},
            off_ladder,
            ladder.gpus,
            self._selected,
        )

    def _profiled(
        self, sweep: SettingSweep
    ) -> Generator[Segment, SegmentResult | None, SettingSweep]:
        """Continue a sweep, or start over if its known points no longer match this job."""
        if sweep.known and sweep.next_rung() is not None:
            last = sweep.points()[-1]
            drift = yield from self._counted(
                check_drift(last, last.knob, cold=True, tolerance=MISMATCH)
            )
            if drift:
                self._warn_once("the saved profile is not continued: %s", drift)
                sweep = self._new_sweep(None)
        yield from self._counted(sweep.run())
        return sweep

    def _compared(self, sweep: SettingSweep) -> Generator[Segment, SegmentResult | None, None]:
        """Measure the previous setting as well, with which the choice is compared."""
        if self._present is None:
            return
        rung = sweep.knobs.index(self._present)
        if not sweep.knows(rung):
            yield from self._counted(sweep.visit(rung, None))

    def _counted(
        self, program: Generator[Segment, SegmentResult | None, T]
    ) -> Generator[Segment, SegmentResult | None, T | None]:
        """Run a program, count its steps as profiling, and end it if they are too many.

        Returns:
            The program's return value; `None` if it was ended.
        """
        result = None
        while True:
            try:
                segment = program.send(result)
            except StopIteration as end:
                return cast(T, end.value)
            if self.profiling_steps + segment.steps > self._job.max_profile_steps:
                program.close()
                return None
            result = yield segment
            self._profiling[freeze(segment.setting)] += segment.steps

    def _settled(self, points: Sequence[Point]) -> bool:
        return self.objective.settled(self._frontier_of(points).scaled(self._job.steps))

    def _selected(self, points: Sequence[Point]) -> Point:
        return self.objective.select(self._frontier_of(points).scaled(self._job.steps)).point

    def _frontier_of(self, points: Sequence[Point]) -> Frontier:
        assert self._ladder is not None
        return Frontier(
            points,
            f"one step of {self._key()}",
            knob_name=self._name,
            knob_unit=self._knob.unit,
            max_power=self._ladder.max_power,
        )

    def _decide(self, frontier: Frontier) -> None:
        selection = self.objective.select(frontier.scaled(self._job.steps))
        chosen = frontier.at(selection.point.knob)
        self._frontier = frontier
        self._selection = Selection(
            chosen,
            feasible=selection.feasible,
            cost=selection.cost,
            note=selection.note,
            runner_up=None
            if selection.runner_up is None
            else frontier.at(selection.runner_up.knob),
            tie=selection.tie,
        )
        if self._ranks.rank == 0:
            logger.info("%s", self.report().headline())

    def _outcome(self) -> tuple[Any, Point]:
        """Return the setting for the rest of the run, and the expected step at it."""
        assert self._frontier is not None
        assert self._selection is not None
        if self.observing:
            return None, reference_point(self._frontier, self._present)
        return self._selection.point.knob, self._selection.point

    def _warn_refused(self, saved: Frontier | None, refusal: str) -> None:
        self.trouble = refusal
        self.observing = True
        self._warn_once(
            "the %s may not be set, so it stays as it is: %s; %s",
            self._name,
            refusal,
            "the possible savings are reported from the saved profile"
            if saved is not None
            else "the possible savings cannot be profiled either, and only the run is measured",
        )

    def _warn_too_short(self) -> None:
        job = self._job
        self.observing = True
        self.trouble = (
            f"a run of {job.run_steps} steps is too short to profile it: only "
            f"{job.max_profile_steps:g} steps may be spent on that "
            f"(max_profile_share={job.max_profile_share:g})"
        )
        self._warn_once(
            "the %s stays as it is, and only the run is measured: %s", self._name, self.trouble
        )

    def _warn_once(self, message: str, *details: object) -> None:
        """Log a warning that every process of the job would have, only once."""
        if self._ranks.rank == 0:
            logger.warning(message, *details)

    # --- profiles of other runs -------------------------------------------------------------

    def _key(self) -> ProfileKey:
        assert self._ladder is not None
        return ProfileKey(
            str(self._ladder),
            self._ladder.gpus,
            self._knob.name,
            self._job.name,
            self._job.batch_size,
        )

    def _saved(self) -> Frontier | None:
        if self._file is None:
            return None
        assert self._ladder is not None
        try:
            profile = self._file.find(self._key())
        except ProfileError as error:
            logger.warning("no saved profile is used: %s", error)
            return None
        if profile is None:
            return None
        rejected = [p.knob for p in profile.frontier if not self._ladder.accepts(p.knob)]
        if rejected:
            logger.warning(
                "no saved profile is used: %s has the setting %r, which the GPUs do not accept",
                self._file.path,
                rejected[0],
            )
            return None
        allowed = [point for point in profile.frontier if self._ladder.allows(point.knob)]
        if not allowed:
            return None
        logger.info("the profile of %s in %s is used", self._key(), self._file.path)
        return self._frontier_of(allowed)

    def _keep(self) -> None:
        if self._file is None or self._ranks.rank != 0:
            return
        assert self._frontier is not None
        try:
            moved = self._file.keep(Profile(self._key(), self._frontier))
        except (OSError, ProfileError) as error:
            logger.warning("the profile could not be kept in %s: %s", self._file.path, error)
            return
        if moved is not None:
            logger.warning("%s was not readable and is now %s", self._file.path, moved)


def _profile_file(path: str | Path | None, job: Job) -> ProfileFile | None:
    if path is not None:
        return ProfileFile(path)
    if job.name is None:
        return None  # this job's profile could not be distinguished from another's
    try:
        return ProfileFile(state_directory() / "profiles.json")
    except OSError as error:
        logger.warning("profiles are not kept: %s", error)
        return None
