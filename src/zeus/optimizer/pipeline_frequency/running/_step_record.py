"""Records when the instructions of a step begin and end, and lets the monitor see them as windows.

Windows are only marks of where the load changes; energies come from all of them together
(`_power_curves`). The whole step is a window that is measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zeus.monitor._measurement import Measurement
from zeus.monitor._windows import ZeusMonitor
from zeus.optimizer.pipeline_frequency.job._messages import InstructionKind

_STEP = "zeus pipeline, step"


@dataclass
class StepRecord:
    """One step of a rank.

    Attributes:
        number: Number of the step.
        begin: When it began, in seconds.
        end: When it ended.
        kinds: Kind of each instruction.
        begins: When each began.
        ends: When each ended.
        exact: Whether the accelerator was waited for at each of these instants.
        delayed: Whether the plan delays instructions, so that pauses do not say how long messages
            take.
        measurement: Time and energy of the whole step.
    """

    number: int
    begin: float
    end: float = 0.0
    kinds: list[InstructionKind] = field(default_factory=list)
    begins: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    exact: bool = True
    delayed: bool = False
    measurement: Measurement | None = None

    @property
    def span(self) -> float:
        """Seconds from the begin of the first instruction to the end of the last."""
        return self.ends[-1] - self.begins[0] if self.ends else 0.0


class StepRecorder:
    """Records one step after the other.

    Args:
        monitor: Measures the rank's GPU.
    """

    def __init__(self, monitor: ZeusMonitor) -> None:
        self._monitor = monitor
        self._now = monitor.node.clock.now
        self._record: StepRecord | None = None
        self._open = ""

    def begin_step(self, number: int, *, exact: bool, delayed: bool = False) -> None:
        """Begin a step; `exact` if instructions will begin and end synchronized."""
        self._discard()
        self._monitor.begin_window(_STEP, sync_execution=False, restart=True)
        self._record = StepRecord(number, self._now(), exact=exact, delayed=delayed)

    def begin(self, kind: InstructionKind) -> float:
        """Begin an instruction; return the instant."""
        now = self._now()
        if self._record is not None:
            self._open = f"zeus pipeline, {kind}"
            self._monitor.begin_window(self._open, sync_execution=False, restart=True)
            self._record.kinds.append(kind)
            self._record.begins.append(now)
        return now

    def end(self) -> float:
        """End the instruction; return the instant."""
        now = self._now()
        if self._record is not None and self._open:
            self._monitor.end_window(self._open, sync_execution=False, cancel=True)
            self._open = ""
            self._record.ends.append(now)
        return now

    def end_step(self) -> StepRecord | None:
        """End the step; return its record, or `None` if it did not begin here."""
        record, self._record = self._record, None
        if record is None:
            return None
        record.measurement = self._monitor.end_window(_STEP, sync_execution=False)
        record.end = self._now()
        return record if len(record.begins) == len(record.ends) else None

    def close(self) -> None:
        """Discard the step that is open."""
        self._discard()

    def _discard(self) -> None:
        if self._record is not None:
            self._record, self._open = None, ""
            self._monitor.reset_windows()
