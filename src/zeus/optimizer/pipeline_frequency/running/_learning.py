"""Learns from the steps of a rank, in a thread of its own, and says what follows from them.

The training thread hands over records of steps, and reads what was published: how long
instructions take, how long a clock takes to change, the clocks to explore next, a profile to
report, and the sums of steps under the plan. In virtual time there is no thread, and everything is
computed at once.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zeus.monitor._measurement import Measurement
from zeus.monitor._windows import ZeusMonitor
from zeus.optimizer.pipeline_frequency.job._messages import (
    InstructionKind,
    Measured,
    StepReport,
    StepSums,
)
from zeus.optimizer.pipeline_frequency.job._progress import Progress
from zeus.optimizer.pipeline_frequency.running._exploration import Exploration
from zeus.optimizer.pipeline_frequency.running._profiler import DEFAULT_LAG, Profiler
from zeus.optimizer.pipeline_frequency.running._step_record import StepRecord

logger = logging.getLogger(__name__)

EXPLORED, PLANNED, REFERENCE = "explored", "planned", "reference"
_REVISIONS = (
    6,
    16,
    48,
    150,
)  # steps under the first plan after which a more precise profile is reported
_RECENT = 8  # steps
_LATE = 0.3  # seconds that refreshes of sensors may take to arrive, in real time
_PUBLISH_EVERY = 10  # steps between two refreshed expectations, once there is a plan


class _Task(NamedTuple):
    record: StepRecord
    requests: Sequence[tuple[float, float]]
    what: str
    version: int


class Learning:
    """What a rank learns from its steps.

    Args:
        monitor: Measures the rank's GPU.
        gpu_index: Index of the GPU.
        profiler: Learns times and powers.
        instructions: Number of instructions in a usual step.

    Attributes:
        durations: Seconds by kind and clock, for all clocks of interest.
        lag: Seconds from the request for a clock until it is in force.
        explored: Clocks of the next step to explore; `None` if not decided yet.
        progress: How far exploring has come; `None` while it does not explore.
        pending: A profile to report; the client takes it.
        trouble: Why learning failed; empty while all is well.
    """

    def __init__(
        self, monitor: ZeusMonitor, gpu_index: int, profiler: Profiler, instructions: int
    ) -> None:
        self.durations: Mapping[tuple[InstructionKind, float], float] = {}
        self.lag = DEFAULT_LAG
        self.explored: list[float] | None = None
        self.progress: Progress | None = None
        self.pending: Measured | None = None
        self.trouble = ""
        self.profiler = profiler
        self._monitor = monitor
        self._gpu = gpu_index
        self._instructions = instructions
        self._exploration: Exploration | None = None
        self._together = self._verifies = False
        self._revision = 0
        self._version = 0
        self._since_plan = 0
        self._until = monitor.node.clock.now()
        self._plan = self._reference = self._explored = StepSums()
        self._latest: deque[tuple[float, float]] = deque(maxlen=_RECENT)
        self._unsettled: deque[tuple[Measurement, str, int]] = deque()
        self._queue: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if not monitor.node.clock.virtual:
            self._thread = threading.Thread(target=self._run, name="zeus-profile", daemon=True)
            self._thread.start()

    def explore(self, *, together: bool = False, known: Measured | None = None) -> None:
        """Begin to explore clocks.

        Args:
            together: Whether other ranks must visit the same clocks at the same steps.
            known: Measurements of an earlier run: a few clocks are measured to verify them.
        """
        verified = known is not None and not self._revision and not together
        if verified and known is not None:
            self.profiler.assume(known)
        self._together = together
        self._begin_exploration(known=verified)

    def _begin_exploration(self, *, known: bool) -> None:
        self._exploration = Exploration(
            self.profiler.ladder,
            self._instructions,
            self.profiler,
            together=self._together,
            known=known,
        )
        self._verifies = known
        self.explored = self._exploration.clocks()
        self.progress = self._exploration.progress

    def take(
        self, record: StepRecord, requests: Sequence[tuple[float, float]], what: str, version: int
    ) -> None:
        """Learn from a step.

        Args:
            record: The step.
            requests: When clocks were requested since the step before, and MHz.
            what: `EXPLORED`, `PLANNED` or `REFERENCE`; empty if the step was none of these.
            version: Version of the plan.
        """
        task = _Task(record, requests, what, version)
        if what == EXPLORED:
            self.explored = None
        if self._thread is None:
            self._learn(task)
        else:
            self._queue.put(task)

    def report(self) -> StepReport:
        """Return the steps so far."""
        recent = StepSums()
        for seconds, span in list(self._latest):
            recent = recent.plus(seconds, span)
        return StepReport(self._version, self._plan, self._reference, recent, self._explored)

    def close(self) -> None:
        """Stop learning."""
        if self._thread is not None:
            self._queue.put(None)

    def _run(self) -> None:
        while (task := self._queue.get()) is not None:
            try:
                self._learn(task)
            except Exception as error:
                logger.debug("a step cannot be evaluated", exc_info=True)
                self.trouble = str(error) or type(error).__name__

    def _learn(self, task: _Task) -> None:
        self._monitor.catch_up()
        profiler, record = self.profiler, task.record
        profiler.add_step(record, task.requests, self._instructions)
        until = record.end - (_LATE if self._thread is not None else 0.0)
        if until > self._until:
            profiler.add_energies(self._monitor.integrals(self._gpu, self._until, until))
            self._until = until
        self._count(task)
        if task.what == EXPLORED and self._exploration is not None:
            self._go_on(self._exploration, record)
        elif task.what in (PLANNED, REFERENCE):
            self._check(task)
        if task.what == EXPLORED or profiler.steps % _PUBLISH_EVERY == 0:
            self._publish()

    def _go_on(self, exploration: Exploration, record: StepRecord) -> None:
        exploration.end_step(record.end - record.begin)
        if exploration.done and self._verifies and self.profiler.drift():
            logger.info("the profile of the previous run does not hold: clocks are measured again")
            self._begin_exploration(known=False)
        elif exploration.done:
            self._exploration = self.progress = None
            self._since_plan = 0
            self._send()
        else:
            self.explored = exploration.clocks()
            self.progress = exploration.progress

    def _check(self, task: _Task) -> None:
        """Report a profile that has become more precise, or wrong."""
        if not self._revision:
            return  # it follows the plan of others, and has explored nothing
        drift = self.profiler.drift()
        if drift:
            logger.info(
                "instructions take another time than before: %s",
                ", ".join(f"{kind} {factor:.3g} times" for kind, factor in drift.items()),
            )
            self._send(urgent=True)
            self._publish()
            self._latest.clear()
            self._since_plan = 0  # it is not known well, and becomes more precise again
            return
        if task.what == PLANNED:
            self._since_plan += 1
            if self._since_plan in _REVISIONS:
                self._send()
                self._publish()

    def _send(self, *, urgent: bool = False) -> None:
        measured = self.profiler.measured(self._revision + 1, urgent=urgent)
        if measured is None:
            self.trouble = "energy cannot be measured: the GPU's sensors showed none"
            return
        self._revision += 1
        self.pending = measured

    def _publish(self) -> None:
        profiler = self.profiler
        self.durations = profiler.durations()
        self.lag = DEFAULT_LAG if profiler.lag is None else profiler.lag

    def _count(self, task: _Task) -> None:
        """Add the step to the sums; its energy follows when it is final."""
        record = task.record
        if task.version != self._version:
            self._version, self._plan = task.version, StepSums()
            self._latest.clear()
        seconds = record.end - record.begin
        if task.what == PLANNED:
            self._plan = self._plan.plus(seconds, record.span)
            self._latest.append((seconds, record.span))
        elif task.what == REFERENCE:
            self._reference = self._reference.plus(seconds, record.span)
        elif task.what == EXPLORED:
            self._explored = self._explored.plus(seconds, record.span)
        if record.measurement is not None and task.what in (PLANNED, REFERENCE, EXPLORED):
            self._unsettled.append((record.measurement, task.what, task.version))
        while self._unsettled and self._unsettled[0][0].settled:
            measurement, what, version = self._unsettled.popleft()
            joules = measurement.gpu_energy.get(self._gpu)
            if joules is None:
                continue
            if what == REFERENCE:
                self._reference = self._reference.plus_energy(joules)
            elif what == EXPLORED:
                self._explored = self._explored.plus_energy(joules)
            elif version == self._version:
                self._plan = self._plan.plus_energy(joules)
