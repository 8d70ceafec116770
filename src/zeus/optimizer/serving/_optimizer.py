"""The optimizer of a service in this process."""

from __future__ import annotations

import contextlib
import logging
import platform
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from zeus._rules import Number
from zeus.errors import CapabilityError, KnobError
from zeus.frontier import All, LatencyBound
from zeus.monitor import ZeusMonitor
from zeus.optimizer.serving._bounds import bounds_of
from zeus.optimizer.serving._controller import Controller
from zeus.optimizer.serving._group import KNOBS, GpuGroup, settings_of
from zeus.optimizer.serving._interval import Decision, ServingInterval
from zeus.optimizer.serving._knowledge import Knowledge
from zeus.optimizer.serving._memory import Memory
from zeus.optimizer.serving._report import ServingReport
from zeus.optimizer.serving._requests import RequestCounter, ServedRequest
from zeus.optimizer.serving._steering import Steering
from zeus.optimizer.serving.api._messages import BoundRecord, ServiceStart, check_name
from zeus.optimizer.serving.api._remote import RemoteServices
from zeus.optimizer.serving.running._reporter import ServiceReporter

logger = logging.getLogger(__name__)

_SAVE_EVERY = 300  # intervals


class ServingOptimizer:
    """Serves with the least energy that keeps bounds on latencies.

    Report each request (`begin`, then its tokens and its end), and, if the service knows, the phase
    that runs (`phase`). Every `interval` seconds a setting is chosen for all GPUs of the monitor,
    and held until the next. `close`, an exception, the end of the program and, after a crash, the
    next start restore the previous setting. Errors of GPUs never reach the service: they end in a
    warning and the previous setting, and `trouble` has the reason.

    Args:
        monitor: Measures the GPUs of the service.
        bounds: Bounds on latencies: `LatencyBound("ttft p99", 1.5)`, or several in `All`. Latencies
            are "ttft" (to the first token), "tpot" (per further token, mean of a request), "itl"
            (between tokens) and "e2e" (of the whole request).
        knob: "clock" for the highest graphics clock, or "power-limit".
        phases: Whether prefill and decode may have different settings; needs `phase`.
        interval: Seconds between decisions.
        service: Name of the model that is served, under which what was learned is kept for the next
            start; nothing is kept without a name.
        observe: Whether to change nothing, and only predict.
        directory: Where what was learned is kept; the state directory by default.
        server_url: URL of a `zeus serve` that shows what happens, under the name `service`, or what
            follows its last "/". Reports never delay anything.
        token: Token for that server; by default `ZEUS_TOKEN`, or on this machine that of this
            user's own server.

    Raises:
        ValueError: If a bound, the knob or the interval is out of range, or a service that reports
            has no name.
        ServerError: If `server_url` is not a server URL.
        TokenError: If the token is malformed.
    """

    def __init__(
        self,
        monitor: ZeusMonitor,
        bounds: All | LatencyBound | Iterable[LatencyBound],
        *,
        knob: str = "clock",
        phases: bool = False,
        interval: float = 1.0,
        service: str = "",
        observe: bool = False,
        directory: Path | None = None,
        server_url: str = "",
        token: str | None = None,
    ) -> None:
        Number(0, above=True).check("interval", interval, ValueError)
        if knob not in KNOBS:
            raise KnobError(f"the knob must be one of {', '.join(KNOBS)}, but got {knob!r}")
        api = None
        if server_url:
            check_name("service", service.rpartition("/")[2])
            api = RemoteServices(server_url, token)
        self._bounds = bounds_of(bounds)
        self._clock = monitor.node.clock
        self._requests = RequestCounter(self._clock.now)
        self._interval = interval
        self._due: float | None = None
        self._steering: Steering | None = None
        self._memory: Memory | None = None
        self._reporter: ServiceReporter | None = None
        self.trouble = ""
        try:
            ladder = settings_of(monitor.gpus, knob)
            names = [bound.latency for bound in self._bounds]
            knowledge = Knowledge(ladder, names)
            if service:
                gpus = list(monitor.gpus)
                self._memory = Memory(gpus[0].name, len(gpus), service, knob, directory)
                self._memory.load(knowledge)
            controller = Controller(
                ladder, bounds, phases=phases, knowledge=knowledge, observe=observe
            )
            group = GpuGroup(list(monitor.gpus), knob)
            self._steering = Steering(monitor, controller, group, group, observe=observe)
            self._steering.begin_interval()
            if api is not None:
                self._reporter = self._reporting(api, service, knob, self._steering)
        except (CapabilityError, KnobError) as error:
            self.trouble = str(error)
            logger.warning("the service is not optimized: %s", error)
            return
        self._due = self._clock.now() + interval
        self._runner = self._clock.run(self, "zeus-serving")

    def _reporting(
        self, api: RemoteServices, service: str, knob: str, steering: Steering
    ) -> ServiceReporter:
        """Return the reporter of this run, which has begun."""
        controller, gpus = steering.controller, steering.gpus
        start = ServiceStart(
            session="new",
            engine="a program",
            model=service,
            host=platform.node(),
            gpu=gpus[0].name,
            gpus=len(gpus),
            knob=knob,
            highest=controller.ladder[0],
            lowest=controller.ladder[-1],
            phases=controller.phases,
            observe=steering.observe,
            interval=self._interval,
            bounds=tuple(BoundRecord(b.latency, b.percent, b.seconds) for b in self._bounds),
        )
        name = service.rpartition("/")[2]
        reporter = ServiceReporter(api, name, start, steering.report, self._clock)
        steering.listener = reporter
        return reporter

    # --- requests ---------------------------------------------------------------------------

    def begin(self, prompt_tokens: int = 0) -> ServedRequest:
        """Note that a request arrives; returns an object that is notified of its tokens and end.

        Args:
            prompt_tokens: Tokens of its prompt.
        """
        return self._requests.begin(prompt_tokens)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Run work of a phase in a `with` block; blocks of one process must not overlap.

        Args:
            name: "prefill" or "decode".
        """
        if name not in ("prefill", "decode"):
            raise ValueError(f"a phase must be 'prefill' or 'decode', but got {name!r}")
        if self._steering is not None:
            self._steering.use(name)
        with self._requests.phase(name):
            yield

    # --- results ----------------------------------------------------------------------------

    @property
    def decision(self) -> Decision | None:
        """The decision in force; `None` if the GPUs cannot be controlled."""
        return None if self._steering is None else self._steering.decision

    @property
    def report(self) -> ServingReport:
        """Energy per token, bounds kept, and what was held when."""
        return ServingReport(self._bounds) if self._steering is None else self._steering.report

    def decide(self, interval: ServingInterval) -> None:
        """Use an interval from another source than `begin`, such as the metrics of a server.

        Args:
            interval: Work of the server; without an energy, that of the monitor is added.
        """
        steering = self._steering
        if steering is None:
            return
        if interval.energy is None:
            energy, uncertainty = steering.measured()
            interval = replace(interval, energy=energy, energy_uncertainty=uncertainty)
        steering.decide(interval)
        self.trouble = steering.trouble
        if self._memory is not None and steering.controller.knowledge.intervals % _SAVE_EVERY == 0:
            self._memory.save(steering.controller.knowledge)

    # --- time -------------------------------------------------------------------------------

    def due(self) -> float | None:
        """Return when to decide next, for the clock."""
        return self._due

    def fire(self) -> None:
        """Decide, called by the clock; errors end in a warning and the previous setting."""
        if self._due is None:
            return
        self._due = self._clock.now() + self._interval
        try:
            self.decide(self._requests.report())
        except Exception as error:
            logger.warning("the service is no longer optimized: %r", error)
            self.trouble = repr(error)
            self._due = None
            if self._steering is not None:
                self._steering.release()

    def close(self) -> None:
        """Restore the previous setting, and keep what was learned. Safe to call more than once."""
        steering = self._steering
        if self._due is not None:
            self._due = None
            self._runner.stop()
        if steering is not None:
            steering.close()
            if self._memory is not None and steering.controller.knowledge.intervals:
                self._memory.save(steering.controller.knowledge)
        if self._reporter is not None:
            self._reporter.close()

    def __enter__(self) -> ServingOptimizer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
