"""Simulated services whose controllers report to a store, in made-up time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from zeus.clock import VirtualClock
from zeus.frontier import All, LatencyBound
from zeus.optimizer.serving._controller import Controller
from zeus.optimizer.serving._report import Forecast, ServingReport
from zeus.optimizer.serving.api._messages import BoundRecord, ServiceStart
from zeus.optimizer.serving.running._reporter import EVERY, ServiceReporter
from zeus.optimizer.serving.storage._service import Services
from zeus.testing import ServingWorkload, Traffic, simulate_serving
from zeus.testing._serving_result import ServingResult

V100 = ServingWorkload.mistral_7b_v100()
BOUNDS = (LatencyBound("ttft p99", 1.5), LatencyBound("tpot p99", 0.08))


@dataclass
class Time:
    """Seconds since 1970, which pass with a run."""

    now: float

    def __call__(self) -> float:
        return self.now


@dataclass
class Run:
    """What a run came to.

    Attributes:
        result: What the simulation knows.
        report: What the controller knows.
        reporter: What it has reported by.
    """

    result: ServingResult
    report: ServingReport
    reporter: ServiceReporter


def run_service(
    services: Services,
    name: str,
    traffic: Traffic,
    time: Time,
    *,
    bounds: tuple[LatencyBound, ...] = BOUNDS,
    observe: bool = False,
    phases: bool = False,
    close: bool = True,
    see: Callable[[float], None] = lambda now: None,
) -> Run:
    """A run beside a simulated server, which reports as `zeus slo` does.

    Args:
        services: Takes the reports.
        name: Of the service.
        traffic: Its requests.
        time: Passes.
        bounds: Its bounds.
        observe: Whether settings are not carried out.
        phases: Whether prefill and decode have clocks of their own.
        close: Whether it says that it ends.
        see: Is called with the time after each interval.
    """
    ladder = _ladder()
    clock = VirtualClock()
    began = time.now
    controller = Controller(ladder, All(*bounds), phases=phases, observe=observe)
    report = ServingReport(controller.bounds, observe=observe)
    start = ServiceStart(
        session="new",
        engine="vLLM",
        model="mistral-7b",
        where="localhost:8000",
        host="gpu1",
        gpu="Tesla V100",
        highest=ladder[0],
        lowest=ladder[-1],
        phases=phases,
        observe=observe,
        bounds=tuple(
            BoundRecord(each.latency, each.percent, each.seconds) for each in controller.bounds
        ),
    )
    reporter = ServiceReporter(services, name, start, report, clock, wall=time)

    def control(_: int):
        highest = decision = controller.first()
        while True:
            interval = yield highest if observe else decision
            time.now = began + interval.end
            clock.sleep(interval.end - clock.now())
            if not phases:
                interval = replace(interval, busy={}, oldest_wait=None)
            held = decision.setting
            report.add(interval)
            decision = controller.decide(interval)
            watts = controller.forecast()
            forecast = None
            if watts is not None:
                first, chosen = (each * interval.seconds for each in watts)
                forecast = Forecast(first, chosen, interval.energy or 0.0, first)
                report.predicted(forecast)
            report.held(interval.end, decision)
            reporter.note(interval, held, decision, forecast, "")
            see(time.now)

    result = simulate_serving(V100, traffic, controller=control)
    if close:
        reporter.close()
    else:
        clock.sleep(EVERY)
        reporter.trouble("")  # all but the end is reported
    return Run(result, report, reporter)


def _ladder() -> list[float]:
    chosen = [V100.highest_clock]
    for clock in V100.clocks():
        if clock <= 0.93 * chosen[-1] and clock >= 0.4 * chosen[0]:
            chosen.append(clock)
    return chosen
