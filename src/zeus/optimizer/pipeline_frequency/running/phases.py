"""What a rank does about its instructions, from the first step to the last.

It watches steps until they repeat, measures along the walk, rests until there is a plan, and
follows it. Which of these is on is decided between steps, by the client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zeus.errors import PipelineError
from zeus.optimizer.pipeline_frequency.running.clocks import ClockSetter
from zeus.optimizer.pipeline_frequency.running.messages import (
    MOST_INSTRUCTIONS,
    Instruction,
)
from zeus.optimizer.pipeline_frequency.running.meter import Meter


class Phase:
    """Nothing is done: the rank rests, or takes no part."""

    def begin_step(self) -> None:
        """A step begins."""

    def begin(self, instruction: Instruction) -> None:
        """An instruction begins."""

    def end(self, instruction: Instruction) -> None:
        """The instruction that began last has ended."""

    def end_step(self) -> None:
        """The step has ended."""

    def leave(self) -> None:
        """Another phase follows."""


class Watching(Phase):
    """Learns what a step consists of: what two steps in a row have done alike.

    Args:
        warm_up: Steps that must have passed, whatever they did.

    Attributes:
        sequence: What a step does, once it is known.
    """

    def __init__(self, warm_up: int) -> None:
        self.sequence: tuple[Instruction, ...] = ()
        self._left = warm_up
        self._before: list[Instruction] = []
        self._now: list[Instruction] = []

    def begin_step(self) -> None:
        """Watch anew."""
        self._now = []

    def begin(self, instruction: Instruction) -> None:
        """Take note."""
        if len(self._now) >= MOST_INSTRUCTIONS:
            raise PipelineError(
                f"a step must have at most {MOST_INSTRUCTIONS} instructions, but has more"
            )
        self._now.append(instruction)

    def end_step(self) -> None:
        """See whether that was the same again."""
        self._left -= 1
        if self._now and self._now == self._before and self._left <= 0:
            self.sequence = tuple(self._now)
        self._before = self._now


class Measuring(Phase):
    """Measures along the walk.

    Args:
        meter: Measures.
        setter: Put back afterwards.
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
        """Have it worked out."""
        self.meter.end_step()

    def leave(self) -> None:
        """No measuring any more."""
        self.meter.close()


class Following(Phase):
    """Sets the clock of each instruction when the one before it has ended.

    Args:
        setter: Sets clocks.
        sequence: What a step does.
        clocks: MHz of each of these; `None` where the clock stays.
        synchronize: Waits for the accelerator; done only where the clock changes, so that it
            changes after the work that it was for.

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
        # After the last one, the clock of the next step's first.
        self._clocks = [*filled, filled[0]] if filled else [highest]
        self._highest = highest
        self._synchronize = synchronize
        self._place = 0

    def begin_step(self) -> None:
        """Begin with the first instruction's clock."""
        self._place = 0
        self._setter.want(self._clocks[0])

    def begin(self, instruction: Instruction) -> None:
        """Check that it is the one that was planned."""
        place = self._place
        planned = 0 <= place < len(self._sequence)
        if not planned or self._sequence[place] != instruction[:2]:
            # Another step than was planned for, such as a last one with fewer microbatches.
            self._place = -1
            self._setter.want(self._highest)

    def end(self, instruction: Instruction) -> None:  # noqa: ARG002  (checked when it began)
        """Have the next one's clock set."""
        if self._place < 0:
            return
        self._place += 1
        clock = self._clocks[self._place]
        if clock != self._setter.wanted:
            self._synchronize()
            self._setter.want(clock)
