"""Runs segments of steps inside a training loop, and measures them.

It uses only the loop's thread; between the ends of segments a step costs a comparison and a count.
Segments continue across epochs, measured in pieces that exclude work between epochs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NoReturn

from zeus.errors import CapabilityError, KnobError
from zeus.frontier._point import freeze
from zeus.monitor import Measurement, Method, ZeusMonitor
from zeus.monitor._measurement import GPU
from zeus.optimizer.jit._late import late_time
from zeus.optimizer.jit._segment import Idle, Segment, SegmentResult
from zeus.optimizer.training._knob_controller import KnobController
from zeus.optimizer.training._ranks import Ranks
from zeus.optimizer.training._training_meter import TrainingMeter

_VAGUE = 0.02  # of the energy of a segment: from this uncertainty on, wait for the next tick
_TICK = 0.1  # seconds between ticks of an energy counter, on most GPUs
_SOME_TICKS = 2
_LONGEST_WAIT = 0.3  # seconds

#: A program of segments: yields what to do, is sent the result of each measured segment.
Program = Generator[Segment | Idle, SegmentResult | None, None]


class TroubleElsewhere(Exception):
    """A process of the job cannot continue; says which and why."""


def check_troubles(ranks: Ranks, troubles: Sequence[str]) -> None:
    """Check that all processes can continue.

    Args:
        ranks: The processes of the job.
        troubles: Why each of them cannot continue, by rank; empty if it can.

    Raises:
        TroubleElsewhere: If one cannot.
    """
    for rank, trouble in enumerate(troubles):
        if trouble:
            raise TroubleElsewhere(ranks.prefixed(rank, trouble))


def idle(setting: Any) -> Generator[Idle, SegmentResult | None, NoReturn]:
    """Yield nothing to do, for the rest of the run."""
    while True:
        yield Idle(setting)


class Runner:
    """Runs a program of segments.

    Attributes:
        idle: Whether steps need not be reported until `wake`.
    """

    def __init__(self, monitor: ZeusMonitor, controller: KnobController, ranks: Ranks) -> None:
        self._monitor = monitor
        self._controller = controller
        self._ranks = ranks
        self._program: Program | None = None
        self._segment: Segment | None = None
        self._end = 0  # the step count at which the segment ends
        self._setting: Any = None
        self._since = 0  # the step count at which the setting was applied
        self._tally: Counter[Any] = Counter()
        self._stay = _Stay(monitor, "")
        self._trouble = ""
        self.idle = False

    def start(self, program: Program, step: int) -> None:
        """Begin with the first segment, at step count `step`."""
        self._program = program
        self._advance(None, step)

    def wake(self, step: int) -> None:
        """Continue the program after an idle time, at step count `step`."""
        self.idle = False
        self._advance(None, step)

    def step_begin(self, step: int) -> None:
        """Begin a step at step count `step`; ends a segment that is complete."""
        while self._segment is not None and step >= self._end:
            segment, self._segment = self._segment, None
            self._advance(self._reduced(segment) if segment.measured else None, step)
        if self._segment is not None and self._segment.measured:
            self._stay.step_begin()

    def interrupt(self) -> None:
        """Exclude the work that follows from the segment: it is not training."""
        self._stay.interrupt()

    def stop(self, step: int) -> None:
        """Stop at step count `step`; the caller restores the previous setting."""
        self._tally, self._since = self.tally(step), step
        self._segment = self._setting = None
        self._stay.discard()
        self._monitor.change_setting("")

    def tally(self, step: int) -> Counter[Any]:
        """Return the steps at each setting, after `step` in all; `None` is the previous one."""
        return self._tally + Counter({self._setting: step - self._since})

    # --- internal ---------------------------------------------------------------------------

    def _advance(self, result: SegmentResult | None, step: int) -> None:
        assert self._program is not None
        self._tally, self._since = self.tally(step), step
        order = self._program.send(result)
        if isinstance(order, Idle) or not order.continues:
            self._stay.interrupt()
            self._apply(order.setting)
            label = "" if order.setting is None else f"setting {order.setting}"
            self._stay = _Stay(self._monitor, label)
        if isinstance(order, Idle):
            self.idle = True
        else:
            self._segment, self._end = order, step + order.steps

    def _apply(self, setting: Any) -> None:
        try:
            self._controller.apply(setting)
        except (CapabilityError, KnobError, OSError) as error:
            if self._ranks.size == 1:
                raise
            self._trouble = str(error)  # the others wait for our results: sent along with them
        self._setting = None if setting is None else freeze(setting)

    def _reduced(self, segment: Segment) -> SegmentResult:
        """Return the time and energy of the segment on all GPUs of the job."""
        try:
            self._controller.check_in_force()
        except (CapabilityError, OSError) as error:
            # Measured at another setting than it would be recorded under.
            self._trouble = self._trouble or str(error)
        reports = self._ranks.share(self._stay.report(self._trouble))
        check_troubles(self._ranks, [report.trouble for report in reports])
        return self._stay.last_of(segment.steps, reports)


class _Stay:
    """Consecutive measured segments at one setting, as one window.

    Each segment is a difference of the window. So the uncertainty at the ends of windows shorter
    than a counter tick occurs only at the two ends of the stay.

    Args:
        monitor: Measures it.
        setting: Name of the setting, which is already in force.
    """

    def __init__(self, monitor: ZeusMonitor, setting: str) -> None:
        self._monitor = monitor
        self._setting = setting
        monitor.change_setting(setting)
        self._meter = TrainingMeter(monitor, "profile")
        self._stamps: list[float] = []  # when the steps of the window began
        self._step_times: list[float] = []  # seconds, of the segment so far
        self._before = SegmentResult(0, 0.0, 0.0)  # sum of the previous segments
        self._late = 0.0

    def step_begin(self) -> None:
        """Begin a step."""
        if not self._meter.open:
            self._meter.begin()
            self._stamps = []
        self._stamps.append(self._monitor.node.clock.now())

    def interrupt(self) -> None:
        """Exclude the work that follows from the stay."""
        if self._meter.open:
            self._meter.end()
            self._take_stamps()

    def discard(self) -> None:
        """End the stay without a result."""
        self._meter.discard()

    def _take_stamps(self) -> None:
        now = self._monitor.node.clock.now()
        self._step_times += [end - begin for begin, end in pairwise([*self._stamps, now])]
        self._stamps = []

    def report(self, trouble: str) -> _RankReport:
        """Return the time and energy of the stay so far, in this process."""
        so_far = self._meter.peek()
        if so_far is not None:
            self._take_stamps()
            if self._is_vague(so_far):
                self._wait_for_tick()
                so_far = None
        self._late += late_time(self._step_times)
        self._step_times = []
        measured = self._meter.total(so_far)
        return _RankReport(trouble or _unmeasured(measured), self._late, measured)

    def _is_vague(self, so_far: Measurement) -> bool:
        """Return whether the open window would be known much better after a counter tick.

        Power after the last tick is assumed to be the mean of the window. That holds for many
        short steps, but not for the end of a long one, where the GPU may idle.
        """
        alike = max(self._step_times) < _TICK < so_far.time / _SOME_TICKS
        energy = self._meter.total(so_far).energy or 0.0
        if alike or (so_far.uncertainty or 0.0) <= _VAGUE * energy:
            return False
        gpus = [reading.method for reading in so_far.readings if reading.domain == GPU]
        # Without a counter that could tick, waiting would only change the load.
        return any(method is not Method.INTEGRATED for method in gpus)

    def _wait_for_tick(self) -> None:
        self._meter.end()
        self._monitor.change_setting("idle")
        self._monitor.settle(_LONGEST_WAIT)
        self._monitor.change_setting(self._setting)

    def last_of(self, steps: int, reports: Sequence[_RankReport]) -> SegmentResult:
        """Return the time and energy of the last segment, from the reports of all processes."""
        whole = _together(self._before.steps + steps, reports)
        before, self._before = self._before, whole
        time = whole.time - before.time
        return SegmentResult(
            steps,
            time,
            whole.energy - before.energy,
            math.hypot(whole.uncertainty, before.uncertainty),
            whole.highest_power,
            min(max(whole.late - before.late, 0.0), time),
            whole.uncertainty,
        )


@dataclass(frozen=True)
class _RankReport:
    """A stay so far, as a process reports it to the others.

    Attributes:
        trouble: Why it cannot continue, or an empty string.
        late: Seconds by which single steps were late.
        measured: Time and energies.
    """

    trouble: str
    late: float
    measured: Measurement


def _unmeasured(measured: Measurement) -> str:
    for reading in measured.readings:
        if reading.domain == GPU and reading.energy is None:
            device = f"the energy of {reading.device} cannot be measured: " * bool(reading.device)
            return f"{device}{reading.note}"
    return ""


def _together(steps: int, reports: Sequence[_RankReport]) -> SegmentResult:
    whole = Measurement.combined(report.measured for report in reports)
    gpus = [reading for reading in whole.readings if reading.domain == GPU]
    energies = [reading.energy or 0.0 for reading in gpus]
    return SegmentResult(
        steps,
        whole.time,
        math.fsum(energies),
        math.hypot(*(reading.uncertainty or 0.0 for reading in gpus)),
        max((energy / whole.time for energy in energies), default=0.0),
        max((report.measured.time, report.late) for report in reports)[1],
    )
