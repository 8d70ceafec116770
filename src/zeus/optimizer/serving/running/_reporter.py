"""Reports what a controller does to a server, from a thread that control never waits for.

Intervals are added up to spans of a few seconds, which wait in a bounded queue: while a server
cannot be reached, older ones are merged, so that an outage costs detail and no sums. A report that
is not answered is sent again, with its number, so that it counts once. In virtual time there is no
thread: reports are sent when they are due.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from zeus._latencies import Latencies
from zeus._thinning import bounded
from zeus.clock import Clock
from zeus.errors import (
    JobConflictError,
    ServerError,
    StorageError,
    TokenError,
    UnknownJobError,
    ZeusError,
)
from zeus.optimizer.serving._bounds import Bound
from zeus.optimizer.serving._interval import Decision, ServingInterval, ServingSetting
from zeus.optimizer.serving._report import Forecast, ServingReport
from zeus.optimizer.serving.api._commands import (
    MAX_SPANS,
    EndService,
    ReportService,
    ServiceCommand,
    StartService,
)
from zeus.optimizer.serving.api._messages import BoundKept, RunState, ServiceStart
from zeus.optimizer.serving.api._spans import Span, SpanBound, SpanLatency, joined

logger = logging.getLogger(__name__)

EVERY = 5.0  # seconds between reports
_STATE_EVERY = 1.0  # seconds between sums
_WAITING = 512  # spans that wait to be sent, before older ones are merged
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 15.0  # seconds
_LAST_WORDS = 3.0  # seconds for the last reports when it is closed


class ServicesApi(Protocol):
    """Executes commands on services, on a server or in a store."""

    def do(self, command: ServiceCommand[Any]) -> Any:
        """Execute a command and return its answer."""


@dataclass
class _Sums:
    """Intervals since the latest span."""

    begin: float
    span: Span
    latencies: dict[str, Latencies]
    above: dict[Bound, tuple[float, float]]


class ServiceReporter:
    """Reports one run of a service, as the `IntervalListener` of its `Steering`.

    Args:
        api: The server.
        service: Name of the service there.
        start: What the run begins with; its session is set here.
        report: Sums of the run.
        clock: The clock of the intervals.
        warn: Is called with a message when reports are not taken any more; by default it is logged.
        wall: Returns seconds since 1970.

    Attributes:
        refused: Why the server takes no reports of this run; else empty.
    """

    def __init__(
        self,
        api: ServicesApi,
        service: str,
        start: ServiceStart,
        report: ServingReport,
        clock: Clock,
        *,
        warn: Callable[[str], None] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.refused = ""
        self._api = api
        self._service = service
        self._start = replace(start, session=uuid.uuid4().hex, every=EVERY)
        self._report = report
        self._clock = clock
        self._warn = warn or logger.warning
        self._wall = wall
        self._origin = wall() - clock.now()
        self._lock = threading.Lock()
        self._sums: _Sums | None = None
        self._waiting: list[Span] = []
        self._sent: tuple[int, list[Span]] | None = None  # without an answer so far
        self._number = 0
        self._now = RunState()
        self._decision: Decision | None = None
        self._state_due = clock.now()
        self._trouble = ""
        self._started = False
        self._quiet = self._odd = False
        self._pause = _FIRST_PAUSE
        self._due = clock.now()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        if not clock.virtual:
            self._thread = threading.Thread(target=self._run, name="zeus-service", daemon=True)
            self._thread.start()

    # --- called by the controller -------------------------------------------------------------

    def note(
        self,
        interval: ServingInterval,
        held: ServingSetting,
        decision: Decision,
        forecast: Forecast | None,
        trouble: str,
    ) -> None:
        """Take an interval; see `IntervalListener`."""
        if self.refused or self._closing.is_set():
            return
        with self._lock, self._only_warning():
            self._trouble = trouble
            self._decision = decision
            self._add(interval, held, decision, forecast or Forecast())
            # Sorting distributions takes a while, so not after each of many short intervals; but
            # sums are never of less than the spans that are sent with them.
            if self._sums is None or interval.end >= self._state_due:
                self._state_due = interval.end + _STATE_EVERY
                self._now = self._state(decision)
        self._step()

    def trouble(self, message: str) -> None:
        """Note why settings are not carried out, or nothing is known of the service.

        Args:
            message: The reason, until the next interval; empty for none.
        """
        with self._lock:
            self._trouble = message
        self._step()

    def close(self) -> None:
        """Send what is left, for some seconds at most, and report the end."""
        if self._closing.is_set():
            return
        with self._lock, self._only_warning():
            self._end_span()
            if self._decision is not None:
                self._now = self._state(self._decision)
        self._closing.set()
        if self._thread is not None:
            self._thread.join(_LAST_WORDS)
        else:
            self._send_all()
            self._say_goodbye()

    @contextlib.contextmanager
    def _only_warning(self) -> Iterator[None]:
        """Warn of an error, once: control goes on, whatever an interval has."""
        try:
            yield
        except Exception as error:
            if not self._odd:
                self._odd = True
                self._warn(f"an interval cannot be reported: {error}")

    # --- intervals ----------------------------------------------------------------------------

    def _add(
        self,
        interval: ServingInterval,
        held: ServingSetting,
        decision: Decision,
        forecast: Forecast,
    ) -> None:
        # Dates follow the clock of the machine, which may be set; durations do not.
        if not self._clock.virtual:
            self._origin = self._wall() - self._clock.now()
        begin, end = self._origin + interval.begin, self._origin + interval.end
        measured = interval.energy is not None
        own = Span(
            begin=begin,
            end=max(begin, end),
            seconds=interval.seconds,
            energy=max(interval.energy or 0.0, 0.0),
            metered=interval.seconds if measured else 0.0,
            metered_tokens=interval.generated_tokens if measured else 0.0,
            arrived=interval.arrived,
            finished=interval.finished,
            prompt_tokens=interval.prompt_tokens,
            generated_tokens=interval.generated_tokens,
            running=interval.running,
            waiting=interval.waiting,
            prefill=held.prefill,
            decode=held.decode,
            threatened=interval.seconds if decision.threatened else 0.0,
            highest=max(forecast.highest, 0.0),
            chosen=max(forecast.chosen, 0.0),
            measured=max(forecast.measured, 0.0),
            compared=max(forecast.metered, 0.0),
            reason=decision.reason,
        )
        if self._sums is None:
            self._sums = _Sums(begin, own, {}, {})
        else:
            self._sums.span = joined(self._sums.span, own)
        sums = self._sums
        for name, seen in interval.latencies.items():
            sums.latencies[name] = sums.latencies.get(name, Latencies()) + seen
        for bound in self._report.bounds:
            found = interval.latencies.get(bound.latency)
            if found is not None:
                total, above = sums.above.get(bound, (0.0, 0.0))
                above += found.total * found.share_above(bound.seconds)
                sums.above[bound] = total + found.total, above
        if end - sums.begin >= EVERY:
            self._end_span()

    def _end_span(self) -> None:
        sums, self._sums = self._sums, None
        if sums is None:
            return
        bounded_names = {bound.latency for bound in self._report.bounds}
        span = replace(
            sums.span,
            latencies=tuple(
                SpanLatency.of(name, seen)
                for name, seen in sums.latencies.items()
                if name in bounded_names and seen.total > 0
            ),
            bounds=tuple(
                SpanBound(str(bound), total, above) for bound, (total, above) in sums.above.items()
            ),
        )
        self._waiting.append(span)

    def _state(self, decision: Decision) -> RunState:
        report = self._report
        forecast = report.forecast
        return RunState(
            seconds=report.seconds,
            finished=report.finished,
            prompt_tokens=report.prompt_tokens,
            generated_tokens=report.generated_tokens,
            energy=report.energy,
            metered_tokens=report.metered_tokens,
            highest=max(forecast.highest, 0.0),
            chosen=max(forecast.chosen, 0.0),
            measured=max(forecast.measured, 0.0),
            compared=max(forecast.metered, 0.0),
            changes=report.settings,
            prefill=decision.setting.prefill,
            decode=decision.setting.decode,
            reason=decision.reason,
            threatened=decision.threatened,
            bounds=tuple(
                BoundKept(
                    seen.percentile(bound.percent),
                    seen.total,
                    min(seen.share_above(bound.seconds), 1.0),
                    *report.minutes(bound),
                )
                for bound, seen in report.latencies.items()
            ),
        )

    # --- sending ------------------------------------------------------------------------------

    def _step(self) -> None:
        """In virtual time, send what is due."""
        if self._thread is None and not self._closing.is_set() and self._clock.now() >= self._due:
            self._due = self._clock.now() + (EVERY if self._send_all() else self._pause)

    def _run(self) -> None:
        while not self.refused:
            closing = self._closing.is_set()
            heard = self._send_all()
            if closing:
                break
            self._closing.wait(EVERY if heard else self._pause)
        self._say_goodbye()

    def _send_all(self) -> bool:
        """Send all that waits; return whether the server has it."""
        try:
            while not self.refused:
                self._bound()
                self._send_one()
                if not self._waiting:
                    break
        except (ServerError, StorageError, TokenError) as error:
            return self._not_heard(error)  # a token may be created later
        except JobConflictError as error:
            self._refuse(str(error))
        except ZeusError as error:
            self._refuse(f"the server refuses reports of the service: {error}")
        except Exception as error:
            self._refuse(f"a report cannot be sent: {error!r}")
        self._quiet, self._pause = False, _FIRST_PAUSE
        return True

    def _bound(self) -> None:
        """Merge older spans where many wait; the controller adds others meanwhile."""
        with self._lock:
            waiting = list(self._waiting)
        if len(waiting) >= _WAITING:
            fewer = bounded(waiting, _WAITING, joined)
            with self._lock:
                self._waiting[: len(waiting)] = fewer

    def _send_one(self) -> None:
        if not self._started:
            self._api.do(StartService(service=self._service, start=self._start))
            self._started = True
        with self._lock:
            if self._sent is None:
                self._number += 1
                self._sent = self._number, self._waiting[:MAX_SPANS]
                del self._waiting[:MAX_SPANS]
            number, spans = self._sent
            state = replace(self._now, trouble=self._trouble)
        command = ReportService(
            service=self._service,
            session=self._start.session,
            number=number,
            spans=[each.to_dict() for each in spans],
            state=state,
        )
        try:
            self._api.do(command)
        except UnknownJobError:  # it was deleted, and begins again
            self._started = False
            self._api.do(StartService(service=self._service, start=self._start))
            self._started = True
            self._api.do(command)
        self._sent = None

    def _not_heard(self, error: ZeusError) -> bool:
        if not self._quiet:
            self._quiet = True
            self._warn(f"{error}; control goes on, and the report is sent again later")
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return False

    def _refuse(self, message: str) -> None:
        self.refused = message
        self._warn(f"{message}; control goes on without reports")

    def _say_goodbye(self) -> None:
        if not self._started or self.refused:
            return
        try:
            self._api.do(EndService(service=self._service, session=self._start.session))
        except ZeusError as error:
            logger.debug("the server was not notified of the end: %s", error)
