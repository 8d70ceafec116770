"""Communicates with the server from background threads, so that training never waits for it.

One thread sends reports until the server has received them; one polls for the plan. A server that
cannot be reached is retried at growing intervals; one that does not know this rank any more is sent
everything again. In virtual time there are no threads: `step` sends the requests synchronously.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from zeus.errors import (
    JobConflictError,
    ServerError,
    StorageError,
    TokenError,
    UnknownJobError,
    ZeusError,
)
from zeus.optimizer.pipeline_frequency.api._api import PipelinesApi
from zeus.optimizer.pipeline_frequency.api._commands import (
    Leave,
    PipelineCommand,
    PutMeasurements,
    PutSequence,
    RegisterRank,
    ReportProgress,
    ReportSteps,
    ReportStraggler,
    ReportTrouble,
    ShowPlan,
)
from zeus.optimizer.pipeline_frequency.job._messages import (
    Directive,
    Instruction,
    Measured,
    Registration,
    StepReport,
    Straggler,
)
from zeus.optimizer.pipeline_frequency.job._progress import Progress

logger = logging.getLogger(__name__)

POLL = 20.0  # seconds of a long poll for the plan
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0  # seconds
_LAST_WORDS = 2.0  # seconds to wait for the last reports when closing


class Link:
    """One rank's connection to the server.

    Args:
        api: The server's interface.
        job: Name of the job.
        registration: The rank's registration.
        virtual: Whether to send requests in `step` only, without threads.

    Attributes:
        standing: The server's latest answer; `None` until it has answered.
        replaced: The server's message, if another process has taken the rank's place, or the
            server refused the registration; else empty.
        refused: The server's message, if it rejected a report; else empty.
    """

    def __init__(
        self, api: PipelinesApi, job: str, registration: Registration, *, virtual: bool
    ) -> None:
        self.standing: Directive | None = None
        self.replaced = ""
        self.refused = ""
        self._api = api
        self._job = job
        rank = registration.seat.rank
        self._registration = RegisterRank(job=job, rank=rank, registration=registration)
        self._me: dict[str, Any] = {"job": job, "rank": rank, "session": registration.session}
        self._facts: dict[str, PipelineCommand[Directive]] = {}
        self._untold: dict[str, PipelineCommand[Directive]] = {"registration": self._registration}
        self._stragglers: deque[Straggler] = deque()
        self._registered = threading.Event()
        self._news = threading.Event()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._warned = False
        self._answers = 0  # to reports
        self._virtual = virtual
        self._pause, self._skip = _FIRST_PAUSE, 0
        self._threads: list[threading.Thread] = []
        if not virtual:
            for name, run in (("zeus-report", self._report_on), ("zeus-plan", self._listen)):
                thread = threading.Thread(target=run, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)

    # --- called by the training thread ------------------------------------------------------------

    def report_sequence(self, sequence: Sequence[Instruction]) -> None:
        """Report the instructions of the rank's step."""
        self._tell("sequence", PutSequence(**self._me, instructions=tuple(sequence)))
        self.step()  # in virtual time, get the answer at once

    @property
    def sequence_is_told(self) -> bool:
        """Whether the server had the rank's sequence when it sent `standing`."""
        with self._lock:
            return "sequence" in self._facts and "sequence" not in self._untold

    def report_measurements(self, measured: Measured) -> None:
        """Report the measurements."""
        self._tell("measurements", PutMeasurements(**self._me, **measured.to_dict()))
        self.step()  # in virtual time, others wait for it

    @property
    def measurements_are_pending(self) -> bool:
        """Whether measurements were reported that the server has not received yet."""
        with self._lock:
            return "measurements" in self._untold

    def report_progress(self, progress: Progress) -> None:
        """Report how far measuring has come; of several reports, only the latest counts."""
        self._tell("progress", ReportProgress(**self._me, progress=progress))

    def report_steps(self, report: StepReport) -> None:
        """Report the steps under the plan."""
        self._tell("steps", ReportSteps(**self._me, report=report))

    def report_trouble(self, said: str) -> None:
        """Report that this rank cannot take part."""
        self._tell("trouble", ReportTrouble(**self._me, message=said))
        self.step()  # in virtual time, `step` is not called any more

    def report_straggler(self, straggler: Straggler) -> None:
        """Report a pipeline that is slow, or is not any more."""
        self._stragglers.append(straggler)
        self._news.set()
        if self._virtual and self._registered.is_set():
            self._report_stragglers()

    def step(self) -> None:
        """In virtual time, exchange pending messages with the server now."""
        if not self._virtual or self.replaced:
            return
        if self._skip > 0:
            self._skip -= 1
            return
        if self._report() and self._registered.is_set():
            self._ask_for_plan(0.0)

    def close(self, *, wait: bool = True) -> None:
        """Report that the rank has ended.

        Args:
            wait: Whether to wait until that is reported, at most 2 s.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        self._news.set()
        if self._virtual:
            self._say_goodbye()
        for thread in self._threads:
            if wait and thread.name == "zeus-report":
                thread.join(_LAST_WORDS)

    # --- reporting --------------------------------------------------------------------------------

    def _tell(self, what: str, command: PipelineCommand[Directive]) -> None:
        with self._lock:
            self._facts[what] = self._untold[what] = command
        self._news.set()

    def _report_on(self) -> None:
        while not self._closing.is_set() and not self.replaced:
            heard = self._report()
            if heard:
                self._news.wait()
            else:
                self._closing.wait(self._pause)
            self._news.clear()
        self._report_stragglers()
        self._say_goodbye()

    def _report(self) -> bool:
        """Send the pending reports; return whether the server received all of them."""
        while True:
            with self._lock:
                what, command = next(iter(self._untold.items()), ("", None))
            if command is None:
                return self._report_stragglers()
            try:
                answer = self._api.do(command)
                if command is self._registration:
                    self._registered.set()
                self._answers += 1
                self.standing = self._newer(answer)
            except (ServerError, StorageError) as error:
                return self._not_heard(error)
            except UnknownJobError:
                self._start_over()
                continue
            except JobConflictError as error:
                self.replaced = str(error)
                return False
            except TokenError as error:
                return self._not_heard(error)  # the token may be created later
            except ZeusError as error:
                if what == "registration":
                    self.replaced = str(error)
                    return False
                self.refused = f"the server rejected its {what}: {error}"
            self._heard()
            with self._lock:
                if self._untold.get(what) is command:
                    del self._untold[what]

    def _report_stragglers(self) -> bool:
        while self._stragglers:
            try:
                self._api.do(ReportStraggler(job=self._job, straggler=self._stragglers[0]))
            except (ServerError, StorageError, UnknownJobError) as error:
                return self._not_heard(error)
            except ZeusError as error:
                logger.warning("the server rejected the report of a straggler: %s", error)
            self._stragglers.popleft()
        return True

    def _start_over(self) -> None:
        """Register and report everything again: the server does not know this rank (any more)."""
        self._registered.clear()
        self.standing = None  # the server counts versions from the start again
        with self._lock:
            self._untold = {"registration": self._registration, **self._facts}
        self._news.set()

    def _not_heard(self, error: ZeusError) -> bool:
        if not self._warned:
            self._warned = True
            logger.warning(
                "%s; training goes on at its current clocks, and the request is retried", error
            )
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._skip = int(self._pause)
        return False

    def _heard(self) -> None:
        self._warned = False
        self._pause, self._skip = _FIRST_PAUSE, 0

    def _say_goodbye(self) -> None:
        if not self._registered.is_set() or self.replaced:
            return
        try:
            self._api.do(Leave(**self._me))
        except ZeusError as error:
            logger.debug("the server was not notified of the end: %s", error)

    # --- polling ----------------------------------------------------------------------------------

    def _listen(self) -> None:
        pause = _FIRST_PAUSE
        while not self._closing.is_set() and not self.replaced:
            if not self._registered.wait(1.0):
                continue
            known, asked = self.standing, time.monotonic()
            if not self._ask_for_plan(POLL):
                self._closing.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            if self.standing == known and time.monotonic() - asked < _FIRST_PAUSE:
                self._closing.wait(_FIRST_PAUSE)  # a server that is shutting down answers at once

    def _ask_for_plan(self, wait: float) -> bool:
        version = 0 if self.standing is None else self.standing.version
        answers = self._answers
        try:
            heard = self._api.do(ShowPlan(**self._me, version=version, wait=wait))
        except UnknownJobError:
            self._start_over()
            return False
        except JobConflictError as error:
            self.replaced = str(error)
            self._news.set()
            return False
        except ZeusError as error:
            return self._not_heard(error)
        # This answer may be older than one to a report sent meanwhile, and not include its effect.
        self.standing = heard if answers == self._answers else self._newer(heard, strictly=True)
        self._warned = False
        return True

    def _newer(self, heard: Directive, *, strictly: bool = False) -> Directive:
        """Return the newer of an answer and `standing`: the other thread may have been faster."""
        known = self.standing
        return heard if known is None or heard.version >= known.version + strictly else known
