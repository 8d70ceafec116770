"""Measures the instructions of steps: one window for each, and one for each gap between two.

The training thread only opens and closes windows, one name for each kind of instruction: windows of
one name are expected to draw similar power. They are evaluated one step later, when their energies
are final, by a thread that lives as long as the sweep does.
"""

from __future__ import annotations

import logging
import queue
import threading
from dataclasses import dataclass, field

from zeus.monitor._measurement import GPU, Measurement
from zeus.monitor._windows import ZeusMonitor
from zeus.optimizer.pipeline_frequency.job._messages import InstructionKind, Measured, StepTimes
from zeus.optimizer.pipeline_frequency.running._clock_sweep import ClockSweep
from zeus.optimizer.pipeline_frequency.running._clocks import ClockSetter, InForce

logger = logging.getLogger(__name__)

_SETTLE = 0.005  # seconds from setting a clock in the driver until the GPU runs at it
_SHORTEST_GAP = 1e-3  # seconds; shorter gaps cannot be separated from the instructions around them
_WAITING = "zeus pipeline, waiting"
_PASSAGES = 4  # steps whose start and end times are kept
_MAX_INSTANTS = 2_000  # per step, to keep the message small


@dataclass
class _StepWindows:
    """Windows of one step, not evaluated yet."""

    instructions: list[tuple[InstructionKind, Measurement, InForce]] = field(default_factory=list)
    gaps: list[Measurement] = field(default_factory=list)


class Meter:
    """Measures instructions at each clock of a sweep, and sets the clock for it.

    Args:
        monitor: Measures the rank's GPU.
        setter: Sets the GPU's clock.
        walk: The sweep that decides at which clock to measure.
        instructions: Number of instructions in a step.
        step: Number of the first step.

    Attributes:
        trouble: Why measuring failed; empty while all is well.
    """

    def __init__(
        self,
        monitor: ZeusMonitor,
        setter: ClockSetter,
        walk: ClockSweep,
        instructions: int = 0,
        step: int = 0,
    ) -> None:
        self.trouble = ""
        self._monitor = monitor
        self._setter = setter
        self._walk = walk
        self._now = monitor.node.clock.now
        self._step, self._previous = _StepWindows(), _StepWindows()
        self._number, self._instructions = step, instructions
        self._begins: list[float] = []
        self._ends: list[float] = []
        self._passages: list[StepTimes] = []
        self._begun: tuple[InForce, float] | None = None
        self._gap_is_open = False
        self._waiting_energy = self._waiting_time = 0.0
        self._queue: queue.SimpleQueue[_StepWindows | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if not monitor.node.clock.virtual:
            self._thread = threading.Thread(target=self._run, name="zeus-walk", daemon=True)
            self._thread.start()

    @property
    def done(self) -> bool:
        """Whether there is nothing left to measure."""
        return self._walk.done

    def measured(self) -> Measured:
        """Return the measurements, once `done`."""
        power = self._waiting_energy / self._waiting_time if self._waiting_time else None
        return Measured(self._walk.options(), power, self._walk.steps, tuple(self._passages))

    def begin_instruction(self, kind: InstructionKind) -> None:
        """Open the window of an instruction."""
        self._end_gap()
        set_ = self._setter.in_force
        self._begun = None if set_ is None else (set_, self._now())
        self._monitor.begin_window(_window(kind), restart=True)
        self._begins.append(self._now())

    def end_instruction(self, kind: InstructionKind) -> None:
        """Close the window of the instruction, and open that of the gap after it."""
        measurement = self._monitor.end_window(_window(kind))
        self._ends.append(self._now())
        begun, self._begun = self._begun, None
        # If the clock changed in between, the window measures neither clock.
        if begun is not None and begun[0] is self._setter.in_force:
            set_, at = begun
            if set_.clock == self._walk.clock and at - set_.since >= self._settle:
                self._step.instructions.append((kind, measurement, set_))
        self._monitor.begin_window(_WAITING, sync_execution=False, restart=True)
        self._gap_is_open = True

    def end_step(self) -> None:
        """End the step, and have the step before it evaluated."""
        if self._gap_is_open:
            # This gap is not a wait for a neighbor, but the optimizer step, or loading data.
            self._monitor.end_window(_WAITING, sync_execution=False, cancel=True)
            self._gap_is_open = False
        self._keep_passage()
        step, self._previous, self._step = self._previous, self._step, _StepWindows()
        if self._thread is None:
            self._digest(step)
        else:
            self._queue.put(step)

    def close(self) -> None:
        """Stop measuring, and discard open windows."""
        if self._thread is not None:
            self._queue.put(None)
        self._monitor.reset_windows()

    def _keep_passage(self) -> None:
        begins, ends = self._begins, self._ends
        self._begins, self._ends = [], []
        whole = len(begins) == len(ends) == self._instructions
        if whole and 2 * len(begins) <= _MAX_INSTANTS and len(self._passages) < _PASSAGES:
            self._passages.append(StepTimes(self._number, tuple(begins), tuple(ends)))
        self._number += 1

    @property
    def _settle(self) -> float:
        return 0.0 if self._thread is None else _SETTLE

    def _end_gap(self) -> None:
        if not self._gap_is_open:
            return
        self._gap_is_open = False
        measurement = self._monitor.end_window(_WAITING, sync_execution=False)
        if measurement.time >= _SHORTEST_GAP:
            self._step.gaps.append(measurement)

    # --- in the background thread -----------------------------------------------------------------

    def _run(self) -> None:
        while (step := self._queue.get()) is not None:
            try:
                self._digest(step)
            except Exception as error:
                logger.debug("the windows of a step cannot be evaluated", exc_info=True)
                self.trouble = str(error) or type(error).__name__

    def _digest(self, step: _StepWindows) -> None:
        self._setter.confirm()
        if self._setter.covered:
            return  # another process has set the clock: these windows do not measure ours
        for measurement in step.gaps:
            reading = _energy(measurement)
            if reading is not None:
                self._waiting_energy += reading[0]
                self._waiting_time += measurement.time
        walk = self._walk
        for kind, measurement, set_ in step.instructions:
            if set_ is not self._setter.in_force or set_.clock != walk.clock or walk.done:
                continue  # measured at a previous clock, or another hold overrode the clock
            reading = _energy(measurement)
            if reading is None:
                notes = "; ".join(each.note for each in measurement.unavailable)
                self.trouble = f"energy cannot be measured: {notes}"
                return
            walk.add(kind, measurement.time, *reading)
        if step.instructions:
            walk.end_of_step()
        self.trouble = self.trouble or walk.trouble
        if not walk.done:
            self._setter.want(walk.clock)


def _window(kind: InstructionKind) -> str:
    return f"zeus pipeline, {kind}"


def _energy(measurement: Measurement) -> tuple[float, float] | None:
    """Return the GPU's energy and its uncertainty, in joules; `None` if unavailable."""
    for reading in measurement.readings:
        if reading.domain == GPU and reading.energy is not None:
            return reading.energy, reading.uncertainty or 0.0
    return None
