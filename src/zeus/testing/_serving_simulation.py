"""Simulated servers in virtual time, under a fixed setting or under a controller."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import replace

from zeus._rules import Number, Whole
from zeus.errors import SimulationError
from zeus.optimizer.serving._interval import Decision, ServingInterval, ServingSetting
from zeus.testing._serving_events import PowerSegment, RequestEvent
from zeus.testing._serving_meter import CounterMeter, MeterState
from zeus.testing._serving_replica import Observer, Replica
from zeus.testing._serving_result import Held, ServingResult
from zeus.testing._serving_workload import ServingWorkload
from zeus.testing._traffic import Traffic

Controller = Generator[Decision, ServingInterval, None]


def simulate_serving(
    workload: ServingWorkload,
    traffic: Traffic,
    *,
    replicas: int = 1,
    setting: ServingSetting | None = None,
    controller: Callable[[int], Controller] | None = None,
    interval: float = 1.0,
    lag: float = 0.015,
    max_num_seqs: int = 256,
    max_batched_tokens: int = 8192,
    chunk: int | None = None,
    knob: str = "clock",
    meter: CounterMeter | None = None,
    observer: Observer | None = None,
    duration: float = 0.0,
) -> ServingResult:
    """Simulate servers with continuous batching, each with its own GPU, in virtual time.

    Replicas take turns with requests. Prompts have priority: as soon as a step ends, waiting ones
    are processed in a step of their own while running requests wait, unless `chunk` is given.
    Where the phases have different clocks, the clock is requested when the phase begins and comes
    into force after `lag`, so the begin of each phase runs at the clock of the one before.

    Args:
        workload: Model and GPU.
        traffic: Requests.
        replicas: Number of servers.
        setting: Setting at the begin; by default the highest clock, or no power limit.
        controller: Makes the controller of each replica from its index: a generator that yields a
            decision, is sent the interval that followed and yields the next. If it ends, the
            setting stays.
        interval: Seconds between decisions.
        lag: Seconds from setting a clock to having it.
        max_num_seqs: Maximum number of requests that are processed at once.
        max_batched_tokens: Maximum number of prompt tokens in a step; a longer prompt is alone.
        chunk: Tokens per step with chunked prefill, where steps mix prompts and running requests.
        knob: "clock" if settings are MHz, "power-limit" if they are watts.
        meter: Counter by which energies in intervals are measured; exact by default.
        observer: Called with each `PowerSegment` and each `RequestEvent`.
        duration: Seconds that are simulated at least; otherwise until all is answered.

    Raises:
        ValueError: If an argument is out of range.
    """
    Number(0, above=True).check("interval", interval, SimulationError)
    Number(0, 1).check("lag", lag, SimulationError)
    Number(0).check("duration", duration, SimulationError)
    Whole(1).check("max_num_seqs", max_num_seqs, SimulationError)
    Whole(1).check("max_batched_tokens", max_batched_tokens, SimulationError)
    if chunk is not None:
        Whole(2).check("chunk", chunk, SimulationError)
    if knob not in ("clock", "power-limit"):
        raise SimulationError(f"knob must be one of clock, power-limit, but got {knob!r}")
    held: list[Held] = []
    servers: list[Replica] = []
    for index, part in enumerate(traffic.split(replicas)):
        state = MeterState(meter, index)
        server = Replica(
            workload,
            list(part),
            _checked(setting) if setting is not None else _unlimited(workload, knob),
            index=index,
            max_num_seqs=max_num_seqs,
            max_batched_tokens=max_batched_tokens,
            chunk=chunk,
            lag=lag,
            power_limits=knob == "power-limit",
            reports=controller is not None,
            observer=observer if meter is None else _metered(state, observer),
        )
        servers.append(server)
        running = controller(index) if controller is not None else None
        held += _run(server, running, interval, max(duration, traffic.seconds), state)
    end = max(server.now for server in servers)
    for server in servers:
        server.advance(end)
    return ServingResult(
        seconds=end,
        replicas=replicas,
        energy=sum(server.energy for server in servers),
        idle_energy=sum(server.idle_energy for server in servers),
        busy={phase: sum(server.busy[phase] for server in servers) for phase in servers[0].busy},
        requests=[request for server in servers for request in server.requests],
        held=held,
    )


def _unlimited(workload: ServingWorkload, knob: str) -> ServingSetting:
    return workload.highest if knob == "clock" else ServingSetting(1e6, 1e6)


def _checked(setting: ServingSetting) -> ServingSetting:
    Number(0, above=True).check("setting.prefill", setting.prefill, SimulationError)
    Number(0, above=True).check("setting.decode", setting.decode, SimulationError)
    return setting


def _metered(state: MeterState, observer: Observer | None) -> Observer:
    joules = 0.0

    def observe(event: PowerSegment | RequestEvent) -> None:
        nonlocal joules
        if isinstance(event, PowerSegment):
            joules += (event.end - event.begin) * event.watts
            state.add(event.end, joules)
        if observer is not None:
            observer(event)

    return observe


def _run(
    server: Replica,
    running: Controller | None,
    interval: float,
    duration: float,
    state: MeterState,
) -> list[Held]:
    """Run a replica until its requests are answered and the duration has passed."""
    held: list[Held] = []
    decision = next(running, None) if running is not None else None
    initial = decision is not None
    while True:
        if decision is not None and (initial or decision.setting != server.setting):
            server.set(_checked(decision.setting))
            held.append(Held(server.now, server.index, decision.setting, decision.reason))
            initial = False
        if not (server.unfinished or server.now < duration):
            break
        if running is None:
            server.advance(math.inf, duration)
            continue
        server.advance(server.now + interval, duration)
        report = server.report()
        assert report.energy is not None
        energy, uncertainty = state.reading(server.now, report.energy)
        sent = replace(report, energy=energy, energy_uncertainty=uncertainty)
        try:
            decision = running.send(sent)
        except StopIteration:
            running = decision = None
    if running is not None:
        running.close()
    return held
