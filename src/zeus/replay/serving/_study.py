"""Compare the default, static clocks, the controller and the oracle on one traffic."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from zeus._rules import Number
from zeus.errors import TraceError
from zeus.optimizer.serving._interval import TPOT, TTFT, ServingSetting
from zeus.replay.serving._metrics_page import by_metrics
from zeus.replay.serving._oracle import find_oracle
from zeus.replay.serving._runs import PERCENT, Bounds, Runs, suitable_replicas
from zeus.testing import ServingResult, ServingWorkload, Traffic
from zeus.testing._serving_simulation import Controller

FACTORS = (1.1, 1.3, 2.0)
APPROACHES = ("default", "static", "controller", "oracle")
INTERVAL = 1.0

#: Makes, from clocks (highest first) and bounds, what makes the controller of each replica.
ControllerMaker = Callable[[Sequence[float], Bounds], Callable[[int], Controller]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Traffic under one approach and one bound.

    Attributes:
        approach: "default", "static", "controller" or another name of a controller, "best static",
            "best per phase", "oracle" or "oracle, minutes kept".
        factor: Bounds in units of the default's percentiles.
        setting: Clocks in MHz; `None` if they changed.
        energy: Joules of all replicas.
        saved: Share of the default's energy.
        of_oracle: That in units of the oracle's saving, if there is an oracle that saves.
        ttft_p99: Seconds.
        tpot_p99: Seconds.
        within: Whether both are within the bounds.
        kept: Share of 60-s intervals in which both were.
        changes: How often a replica's setting was changed, on average.
    """

    approach: str
    factor: float
    setting: ServingSetting | None
    energy: float
    saved: float
    of_oracle: float | None = None
    ttft_p99: float | None
    tpot_p99: float | None
    within: bool
    kept: float
    changes: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Study:
    """All outcomes on one traffic.

    Attributes:
        traffic: Name of the traffic.
        workload: Name of the workload.
        requests: Number of requests.
        seconds: Duration.
        replicas: Number of servers.
        busy: Share of the time in which they were busy at the default.
        outcomes: Outcomes.
        missing: Approaches that were asked for and are not available, and why.
    """

    traffic: str
    workload: str
    requests: int
    seconds: float
    replicas: int
    busy: float
    outcomes: Sequence[Outcome]
    missing: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def study(
    traffic: Traffic,
    workload: ServingWorkload,
    *,
    replicas: int | None = None,
    factors: Sequence[float] = FACTORS,
    approaches: Sequence[str] = APPROACHES,
    controllers: Mapping[str, ControllerMaker] | None = None,
    interval: float = INTERVAL,
    options: Mapping[str, Any] | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> Study:
    """Replay traffic under several approaches.

    Args:
        traffic: Requests.
        workload: Model and GPU.
        replicas: Number of servers; by default as many as are 60 % busy at the highest clock.
        factors: Bounds in units of the default's 99th percentiles of TTFT and TPOT.
        approaches: Of "default", "static" (every clock), "controller" and "oracle".
        controllers: Controllers by name; by default that of `zeus.optimizer.serving`, with one
            clock, the same beside a server that only publishes metrics, and with one clock per
            phase.
        interval: Seconds between a controller's decisions.
        options: Further arguments of `simulate_serving`.
        progress: Called with the share that is done, 0 to 1.

    Raises:
        ValueError: If there is no request, or an argument is out of range.
    """
    if not len(traffic):
        raise TraceError(f"{traffic.name} must have requests, but has none")
    unknown = [each for each in approaches if each not in APPROACHES]
    if unknown:
        raise TraceError(f"approaches are {', '.join(APPROACHES)}, but got {', '.join(unknown)}")
    for factor in factors:
        Number(1, 100).check("factor", factor, TraceError)
    number = replicas or suitable_replicas(workload, traffic, options)
    runs = Runs(workload, traffic, number, options)
    missing: dict[str, str] = {}
    if "controller" in approaches and controllers is None:
        controllers, why = own_controllers()
        if why:
            missing["controller"] = why
    outcomes: list[Outcome] = []
    for place, factor in enumerate(factors):
        found = _under(runs, factor, approaches, controllers or {}, interval)
        outcomes += found
        progress((place + 1) / len(factors))
    return Study(
        traffic=traffic.name,
        workload=workload.name,
        requests=len(traffic),
        seconds=runs.default.seconds,
        replicas=number,
        busy=runs.default.busy_share,
        outcomes=outcomes,
        missing=missing,
    )


def own_controllers() -> tuple[dict[str, ControllerMaker], str]:
    """Return our controllers by name, and why there is none."""
    try:
        module = importlib.import_module("zeus.optimizer.serving._controller")
        frontier = importlib.import_module("zeus.frontier")
    except ImportError:
        return {}, "this installation has none"

    def made(*, phases: bool = False, metrics: bool = False) -> ControllerMaker:
        def maker(clocks: Sequence[float], bounds: Bounds) -> Callable[[int], Controller]:
            wanted = [
                frontier.LatencyBound(f"{TTFT} p{PERCENT:g}", bounds.ttft),
                frontier.LatencyBound(f"{TPOT} p{PERCENT:g}", bounds.tpot),
            ]

            def controller(_: int) -> Controller:
                plain: Controller = module.control(clocks, wanted, phases=phases)
                return by_metrics(plain, wanted) if metrics else plain

            return controller

        return maker

    return {
        "controller": made(),
        "controller, by metrics": made(metrics=True),
        "controller, phases": made(phases=True),
    }, ""


def _under(
    runs: Runs,
    factor: float,
    approaches: Sequence[str],
    controllers: Mapping[str, ControllerMaker],
    interval: float,
) -> list[Outcome]:
    bounds = runs.bounds(factor)
    found: list[tuple[str, ServingSetting | None, ServingResult]] = []
    best = None
    if "default" in approaches:
        found.append(("default", runs.workload.highest, runs.default))
    if "static" in approaches:
        settings = [ServingSetting(clock, clock) for clock in runs.clocks()]
        found += [("static", each, runs.static(each)) for each in settings]
    if "oracle" in approaches:
        oracle = find_oracle(runs, bounds)
        best = runs.static(oracle.best).energy
        for name, setting in (
            ("best static", oracle.static),
            ("best per phase", oracle.phases),
            ("oracle", oracle.best),
            ("oracle, minutes kept", oracle.steady),
        ):
            found.append((name, setting, runs.static(setting)))
    if "controller" in approaches:
        for name, maker in controllers.items():
            result = runs.controlled(maker(runs.rungs(), bounds), interval)
            found.append((name, None, result))
    default = runs.default.energy
    possible = 1 - best / default if best is not None else 0.0
    return [
        Outcome(
            approach=name,
            factor=factor,
            setting=setting,
            energy=result.energy,
            saved=1 - result.energy / default,
            of_oracle=(1 - result.energy / default) / possible if possible > 0 else None,
            ttft_p99=result.percentile(TTFT, PERCENT),
            tpot_p99=result.percentile(TPOT, PERCENT),
            within=bounds.kept_by(result),
            kept=bounds.kept_share(result),
            changes=len(result.held) / runs.replicas,
        )
        for name, setting, result in found
    ]
