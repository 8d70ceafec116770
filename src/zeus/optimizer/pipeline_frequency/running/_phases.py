"""The phases of a rank's client, from the first step to the last.

It observes steps until they repeat, explores clocks, idles until there is a plan, and follows it.
The client switches phases only between steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from zeus.errors import PipelineError
from zeus.optimizer.pipeline_frequency.job._messages import (
    MAX_INSTRUCTIONS,
    Instruction,
)
from zeus.optimizer.pipeline_frequency.running._clocks import ClockSetter
from zeus.optimizer.pipeline_frequency.running._learning import (
    EXPLORED,
    PLANNED,
    REFERENCE,
    Learning,
)
from zeus.optimizer.pipeline_frequency.running._step_record import StepRecorder

REFERENCE_EVERY = 50
"""One step of so many under a plan runs at the highest clocks, to measure what the plan saves."""
_FIRST_ROUNDS = (12, 24)  # the first references are sooner
_REFERENCE_SECONDS = 0.6  # of a reference, at least: shorter ones cannot be measured well
_SYNC_COST = 1e-4  # seconds, about, to wait for the accelerator
_MAX_COST = 0.005  # of the time of an instruction, on average over steps
_GAP_MEMORY = 0.5


class Phase:
    """Base class, and the idle phase: the rank waits for a plan, or takes no part."""

    def begin_step(self, number: int) -> None:
        """Called when a step begins; `number` counts steps."""

    def due(self) -> float | None:
        """Return the instant before which the next instruction must not begin, if there is one."""
        return None

    def begin(self, instruction: Instruction) -> None:
        """Called when an instruction begins."""

    def end(self, instruction: Instruction) -> None:
        """Called when the instruction has ended."""

    def end_step(self) -> None:
        """Called when the step has ended."""

    def leave(self) -> None:
        """Called when another phase begins."""


class Watching(Phase):
    """Observes the instructions of steps, until two in a row are equal.

    Args:
        warm_up_steps: Steps to observe at least.

    Attributes:
        sequence: Instructions of a step, once known.
    """

    def __init__(self, warm_up_steps: int) -> None:
        self.sequence: tuple[Instruction, ...] = ()
        self._left = warm_up_steps
        self._before: list[Instruction] = []
        self._now: list[Instruction] = []

    def begin_step(self, number: int) -> None:  # noqa: ARG002  (any step)
        """Start recording a new step."""
        self._now = []

    def begin(self, instruction: Instruction) -> None:
        """Record the instruction."""
        if len(self._now) >= MAX_INSTRUCTIONS:
            raise PipelineError(
                f"a step must have at most {MAX_INSTRUCTIONS} instructions, but has more"
            )
        self._now.append(instruction)

    def end_step(self) -> None:
        """Check whether the step equals the previous one."""
        self._left -= 1
        if self._now and self._now == self._before and self._left <= 0:
            self.sequence = tuple(self._now)
        self._before = self._now


class Stepping(Phase):
    """Runs each instruction at a clock of its own, and records steps.

    A GPU takes a while to change its clock (`Learning.lag`). So a change is requested that much
    before the instruction is expected to begin, from how long those before it take.

    Args:
        setter: Sets clocks.
        sequence: Instructions of a step.
        learning: Learns from steps.
        recorder: Records steps.
        synchronize: Waits for the accelerator, so that begin and end of an instruction are known.
        version: Version of the plan.
    """

    def __init__(  # noqa: PLR0917  (parts of the client)
        self,
        setter: ClockSetter,
        sequence: Sequence[Instruction],
        learning: Learning,
        recorder: StepRecorder,
        synchronize: Callable[[], None],
        version: int = 0,
    ) -> None:
        self._setter = setter
        self._names = [(each.name, each.chunk) for each in sequence]
        self._kinds = [each.kind for each in sequence]
        self._learning = learning
        self._recorder = recorder
        self._synchronize = synchronize
        self._version = version
        self._highest = float(setter.ladder[0])
        self._gaps = [0.0] * len(sequence)  # seconds from the instruction before to each
        self._clocks: Sequence[float] = [self._highest] * len(sequence)
        self._changes: list[int] = []
        self._what = ""
        self._place = 0
        self._requested = 0
        self._exact = True
        self._delayed = False
        self._ended = 0.0

    def _choose(self, number: int) -> tuple[Sequence[float], str]:  # noqa: ARG002  (for others)
        """Return the clocks of a step, and what it is for."""
        return [self._highest] * len(self._kinds), ""

    def begin_step(self, number: int) -> None:
        """Choose the clocks of the step, and set the first."""
        clocks, self._what = self._choose(number)
        if clocks is not self._clocks:
            self._clocks = clocks
            self._changes = _next_changes(clocks)
        self._place = self._requested = 0
        self._setter.want(clocks[0] if clocks else self._highest)
        self._exact = self._is_exact(number)
        self._recorder.begin_step(number, exact=self._exact, delayed=self._delayed)

    def begin(self, instruction: Instruction) -> None:
        """Record the begin of the instruction, and request the next clock in time."""
        place = self._place
        if place < 0 or place >= len(self._names) or self._names[place] != instruction[:2]:
            # This step differs from the usual one, such as a last one with fewer microbatches.
            self._place, self._what = -1, ""
            self._setter.want(self._highest)
            return
        change = self._changes[place]
        ahead = change < len(self._clocks) and change > self._requested
        if self._exact or (ahead and change == place + 1):
            self._synchronize()
        begin = self._recorder.begin(self._kinds[place])
        if place:
            gap = begin - self._ended
            self._gaps[place] += _GAP_MEMORY * (gap - self._gaps[place])
        if ahead:
            self._request(place, change, begin)

    def end(self, instruction: Instruction) -> None:  # noqa: ARG002  (checked when it began)
        """Record the end of the instruction, and set the next clock if it is not requested yet."""
        if self._place < 0:
            return
        place = self._place + 1
        changes = place < len(self._clocks) and self._clocks[place] != self._clocks[place - 1]
        if self._exact or (changes and self._requested < place):
            self._synchronize()
        self._ended = self._recorder.end()
        self._place = place
        if changes:
            # Where it was requested ahead but is not set yet, the computation was shorter.
            self._requested = max(self._requested, place)
            if self._requested == place:
                self._setter.want(self._clocks[place])

    def end_step(self) -> None:
        """Learn from the step."""
        requests = []
        while self._setter.requests:
            requests.append(self._setter.requests.popleft())
        record = self._recorder.end_step()
        self._setter.confirm()
        if record is not None and self._place == len(self._names) and not self._setter.covered:
            self._learning.take(record, requests, self._what, self._version)
        if self._place >= 0 and self._clocks:
            self._setter.want(self._clocks[0])

    def leave(self) -> None:
        """Discard an unfinished step."""
        self._recorder.close()

    def _request(self, place: int, change: int, begin: float) -> None:
        """Request a clock ahead, if it is due before the next instruction begins."""
        durations = self._learning.durations
        expected = begin
        for number in range(place, change):
            seconds = durations.get((self._kinds[number], self._clocks[number]))
            if seconds is None:
                return
            expected += seconds
            if number == place:
                ends = expected
            expected += self._gaps[number + 1]
        at = expected - self._learning.lag
        if at < ends:
            self._requested = change
            self._setter.want(self._clocks[change], at)

    def _is_exact(self, number: int) -> bool:
        """Whether to wait for the accelerator at each instruction of a step: if that is cheap."""
        # At the highest clock: elsewhere, curves may reach further than they are known.
        known = self._learning.durations.items()
        at_highest = (time for (_, clock), time in known if clock == self._highest)
        shortest = min(at_highest, default=math.inf)
        return number % max(math.ceil(2 * _SYNC_COST / (_MAX_COST * shortest)), 1) == 0


class Exploring(Stepping):
    """Explores clocks, several in each step."""

    def _choose(self, number: int) -> tuple[Sequence[float], str]:
        clocks = self._learning.explored
        return super()._choose(number) if clocks is None else (clocks, EXPLORED)

    def _is_exact(self, number: int) -> bool:  # noqa: ARG002  (every step is measured)
        return True


class Following(Stepping):
    """Follows a plan, with a reference step at the highest clocks now and then.

    Args:
        planned: MHz of each instruction by the plan; `None` where the clock stays.
        step_time: Seconds of a step by the plan.
        setter: As for `Stepping`, and so are the others.
        sequence: Instructions of a step.
        learning: Learns from steps.
        recorder: Records steps.
        synchronize: Waits for the accelerator.
        version: Version of the plan.
        references: Whether some steps run at the highest clocks.
        reference: Number of a step that does, besides the regular ones.
        not_before: Seconds from when the first instruction could begin, before which each must not
            begin; 0 for those that are not delayed.
        now: Returns the present instant; only needed for delays.

    Attributes:
        clocks: MHz of each instruction.
    """

    def __init__(  # noqa: PLR0917  (parts of the client)
        self,
        planned: Sequence[float | None],
        step_time: float,
        setter: ClockSetter,
        sequence: Sequence[Instruction],
        learning: Learning,
        recorder: StepRecorder,
        synchronize: Callable[[], None],
        version: int = 0,
        *,
        references: bool = True,
        reference: int | None = None,
        not_before: Sequence[float] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(setter, sequence, learning, recorder, synchronize, version)
        self._references = references
        if len(planned) != len(sequence):
            raise PipelineError(
                "a plan must have a clock for each instruction, but got "
                f"{len(planned)} for {len(sequence)}"
            )
        if not_before and len(not_before) != len(sequence):
            raise PipelineError(
                "a plan that delays instructions must have a time for each, but got "
                f"{len(not_before)} for {len(sequence)}"
            )
        self._not_before = tuple(not_before)
        self._delayed = any(self._not_before)
        self._now = now
        self._zero: float | None = None  # when the first instruction could begin
        filled: list[float] = []
        for clock in planned:
            filled.append(clock if clock is not None else filled[-1] if filled else self._highest)
        self.clocks = tuple(filled)
        self._fast = (self._highest,) * len(filled)
        self._length = max(math.ceil(_REFERENCE_SECONDS / max(step_time, 1e-3)), 1)
        self._extra = None if reference is None else math.ceil(reference / self._length)

    def begin_step(self, number: int) -> None:
        """Choose the clocks of the step, and set the first."""
        self._zero = None
        super().begin_step(number)

    def due(self) -> float | None:
        """Return when the plan lets the next instruction begin; `None` if it is not delayed.

        Waits for the accelerator first, as what ran before has to have ended, and the input of the
        instruction to be there.
        """
        place = self._place
        if not self._delayed or not 0 <= place < len(self._not_before):
            return None
        if self._zero is None:
            self._synchronize()
            self._zero = self._now()
        if not self._not_before[place]:
            return None
        self._synchronize()
        return self._zero + self._not_before[place]

    def _choose(self, number: int) -> tuple[Sequence[float], str]:
        # By the number of the step, so that all ranks take the same one.
        round_, within = divmod(number, self._length)
        due = round_ % REFERENCE_EVERY == 0 or round_ in (*_FIRST_ROUNDS, self._extra)
        if self._references and due:
            # Its first step still begins at other clocks, if there are several.
            return self._fast, REFERENCE if within or self._length == 1 else ""
        return self.clocks, PLANNED


def _next_changes(clocks: Sequence[float]) -> list[int]:
    """Return for each instruction the next one with another clock, or else their number."""
    found = [len(clocks)] * len(clocks)
    for place in range(len(clocks) - 2, -1, -1):
        same = clocks[place] == clocks[place + 1]
        found[place] = found[place + 1] if same else place + 1
    return found
