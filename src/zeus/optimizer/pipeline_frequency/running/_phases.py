"""The phases of a rank's client, from the first step to the last.

It observes steps until they repeat, measures in a clock sweep, idles until there is a plan, and
follows it. The client switches phases only between steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zeus.errors import PipelineError
from zeus.optimizer.pipeline_frequency.job._messages import (
    MAX_INSTRUCTIONS,
    Instruction,
)
from zeus.optimizer.pipeline_frequency.running._clocks import ClockSetter
from zeus.optimizer.pipeline_frequency.running._meter import Meter


class Phase:
    """Base class, and the idle phase: the rank waits for a plan, or takes no part."""

    def begin_step(self) -> None:
        """Called when a step begins."""

    def begin(self, instruction: Instruction) -> None:
        """Called when an instruction begins."""

    def end(self, instruction: Instruction) -> None:
        """Called when the instruction that began last has ended."""

    def end_step(self) -> None:
        """Called when the step has ended."""

    def leave(self) -> None:
        """Called when another phase follows."""


class Watching(Phase):
    """Learns the instructions of a step: those that two consecutive steps have in common.

    Args:
        warm_up: Minimum number of steps to observe.

    Attributes:
        sequence: Instructions of a step; empty until known.
    """

    def __init__(self, warm_up: int) -> None:
        self.sequence: tuple[Instruction, ...] = ()
        self._left = warm_up
        self._before: list[Instruction] = []
        self._now: list[Instruction] = []

    def begin_step(self) -> None:
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


class Measuring(Phase):
    """Measures instructions in a clock sweep.

    Args:
        meter: Measures each instruction.
        setter: Holds the clock meanwhile.
    """

    def __init__(self, meter: Meter, setter: ClockSetter) -> None:
        self.meter = meter
        self._setter = setter

    def begin(self, instruction: Instruction) -> None:
        """Open its window."""
        self.meter.begin_instruction(instruction.kind)

    def end(self, instruction: Instruction) -> None:
        """Close its window."""
        self.meter.end_instruction(instruction.kind)

    def end_step(self) -> None:
        """Have the step evaluated."""
        self.meter.end_step()

    def leave(self) -> None:
        """Stop measuring."""
        self.meter.close()


class Following(Phase):
    """Sets the clock of each instruction when the one before it has ended.

    Args:
        setter: Sets clocks.
        sequence: Instructions of a step.
        clocks: MHz of each instruction; `None` where the clock stays.
        synchronize: Waits for the accelerator; called only where the clock changes, so that the
            clock stays until the work before has ended.

    Attributes:
        clocks: MHz of each instruction.
    """

    def __init__(
        self,
        setter: ClockSetter,
        sequence: Sequence[Instruction],
        clocks: Sequence[float | None],
        synchronize: Callable[[], None],
    ) -> None:
        if len(clocks) != len(sequence):
            raise PipelineError(
                "a plan must have a clock for each instruction, but got "
                f"{len(clocks)} for {len(sequence)}"
            )
        highest = float(setter.ladder[0])
        filled: list[float] = []
        for clock in clocks:
            filled.append(clock if clock is not None else filled[-1] if filled else highest)
        self.clocks = tuple(filled)
        self._setter = setter
        self._sequence = [(each.name, each.chunk) for each in sequence]
        # After the last instruction, set the clock of the next step's first.
        self._clocks = [*filled, filled[0]] if filled else [highest]
        self._highest = highest
        self._synchronize = synchronize
        self._place = 0

    def begin_step(self) -> None:
        """Set the first instruction's clock."""
        self._place = 0
        self._setter.want(self._clocks[0])

    def begin(self, instruction: Instruction) -> None:
        """Check that the instruction is the planned one."""
        place = self._place
        planned = 0 <= place < len(self._sequence)
        if not planned or self._sequence[place] != instruction[:2]:
            # This step differs from the plan, such as a last one with fewer microbatches.
            self._place = -1
            self._setter.want(self._highest)

    def end(self, instruction: Instruction) -> None:  # noqa: ARG002  (checked when it began)
        """Set the next instruction's clock."""
        if self._place < 0:
            return
        self._place += 1
        clock = self._clocks[self._place]
        if clock != self._setter.wanted:
            self._synchronize()
            self._setter.want(clock)
