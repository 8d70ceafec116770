"""A simulated server on a simulated GPU with sensors as published, request by request."""

from __future__ import annotations

import dataclasses
import random
from bisect import bisect_left

from zeus.monitor import ZeusMonitor
from zeus.monitor._requests import Request, RequestEnergy
from zeus.testing import SimulatedNode
from zeus.testing._serving_events import BEGIN, END, FIRST_TOKEN, TOKENS, PowerSegment, RequestEvent
from zeus.testing._serving_simulation import simulate_serving
from zeus.testing._serving_workload import ServingWorkload
from zeus.testing._traffic import Traffic
from zeus.testing._workload import simulated_driver

_IDLE = 83.0  # watts of a waiting A100


class ServingWorld:
    """What a server did, what sensors showed meanwhile, and what was divided.

    The simulated server's powers are played on a simulated A100, so that its counter is refreshed
    and late as published; its requests are recorded as a proxy would.

    Args:
        traffic: Requests.
        sensors: Sensors of the GPU.
        gpus: Number of GPUs, all with the same load.
        jitter: Root mean square in seconds of how late tokens are seen, half a normal distribution.
        lateness: Returns how late a token is seen, by random numbers, instead.
        streams: Whether tokens are recorded as they come.
        single: Whether each step of the server sends its tokens; else those of steps that are alike
            are sent at once, at their end.
        options: For `simulate_serving`.
    """

    def __init__(
        self,
        traffic,
        sensors="a100",
        *,
        gpus=1,
        jitter=0.0,
        lateness=None,
        streams=True,
        single=True,
        **options,
    ) -> None:
        workload = dataclasses.replace(
            ServingWorkload.mistral_7b_v100(), static_power=_IDLE, waiting_power=_IDLE
        )
        log: list[PowerSegment | RequestEvent] = []
        self.result = simulate_serving(workload, Traffic(traffic), observer=log.append, **options)
        self.node = SimulatedNode(f"a100x{gpus}", load=0.0, sensors=sensors)
        self.drivers = [simulated_driver(gpu) for gpu in self.node.gpus]
        self.monitor = ZeusMonitor(cpu_indices=[], sync_execution_with=None, node=self.node)
        self.dice = random.Random(1)
        self._streams = streams
        self._loads = self._calibrated()
        self.requests: dict[int, Request] = {}
        self.stated: dict[int, RequestEnergy] = {}
        self.exact_requests = self.exact_idle = 0.0
        self.monitor.requests  # noqa: B018  (from now on)
        self.node.sleep(1.0)
        self.before = self.exact()
        segments = [each for each in log if isinstance(each, PowerSegment)]
        events = [each for each in log if isinstance(each, RequestEvent)]
        # Tokens arrive late, never before they were generated, and in order.
        lateness = lateness or (lambda dice: abs(dice.gauss(0, jitter)))
        seen: dict[int, float] = {}
        late = []
        for each in self._single(events) if single else events:
            instant = max(each.time + lateness(self.dice), seen.get(each.request, 0.0))
            seen[each.request] = instant
            late.append((instant, each))
        self._events = sorted(late, key=lambda pair: (pair[0], pair[1].time))
        for segment in segments:
            self._run(segment)
        self._set(_IDLE)
        while self._events:
            self._fire(self._events.pop(0)[1])
        self.node.sleep(2.0)

    @staticmethod
    def _single(events):
        """Tokens step by step; the simulation reports steps that are alike at once."""
        ends = sorted({each.time for each in events if each.kind in (FIRST_TOKEN, TOKENS)})
        single = []
        for each in events:
            if each.kind == TOKENS and each.tokens > 1:
                begin = ends[bisect_left(ends, each.time) - 1]
                step = (each.time - begin) / each.tokens
                single += [
                    each._replace(time=begin + number * step, tokens=1)
                    for number in range(1, each.tokens)
                ]
            single.append(each if each.kind != TOKENS else each._replace(tokens=1))
        return sorted(single, key=lambda each: each.time)

    def exact(self):
        """Return the true joules of all GPUs so far."""
        return sum(self.node.exact_energy(gpu) for gpu in range(len(self.drivers)))

    def _calibrated(self):
        """Return loads and the watts they draw."""
        found = []
        for step in range(51):
            self.drivers[0].set_load(step / 50)
            before = self.node.exact_energy(0)
            self.node.sleep(1e-3)
            found.append(((self.node.exact_energy(0) - before) / 1e-3, step / 50))
        self._loads = found
        self._set(_IDLE)
        return found

    def _set(self, watts):
        points = self._loads
        at = min(max(bisect_left(points, (watts, 0.0)), 1), len(points) - 1)
        (low, one), (high, two) = points[at - 1], points[at]
        load = one + (two - one) * (watts - low) / (high - low)
        for driver in self.drivers:
            driver.set_load(min(max(load, 0.0), 1.0))

    def _run(self, segment):
        self._set(segment.watts)
        now, before = segment.begin, self.exact()
        while self._events and self._events[0][0] < segment.end - 1e-12:
            instant, event = self._events.pop(0)
            if instant > now:
                self.node.sleep(instant - now)
                now = instant
            self._fire(event)
        if segment.end > now:
            self.node.sleep(segment.end - now)
        while self._events and self._events[0][0] <= segment.end + 1e-12:
            self._fire(self._events.pop(0)[1])
        spent = self.exact() - before
        if segment.phase == "idle":
            self.exact_idle += spent
        else:
            self.exact_requests += spent

    def _fire(self, event):
        if event.kind == BEGIN:
            self.requests[event.request] = self.monitor.requests.begin(
                event.tokens, streams=self._streams
            )
        elif event.kind == END:
            generated = None if self._streams else self.result.requests[event.request].generated
            request = self.requests[event.request]
            self.stated[event.request] = request.end(generated_tokens=generated)
        elif self._streams:
            self.requests[event.request].token(event.tokens)

    def pairs(self, stated=False):
        """Return each request's energy as divided (or stated at its end), and the true one."""
        gpus = len(self.drivers)
        for each in self.result.requests:
            found = self.stated if stated else {each.number: self.requests[each.number].energy}
            yield found[each.number], each.energy * gpus

    def coverage(self, stated=False):
        """Return the share of true energies within the stated uncertainty."""
        pairs = list(self.pairs(stated))
        inside = [abs(found.joules - true) <= found.uncertainty for found, true in pairs]
        return sum(inside) / len(inside)

    def errors(self):
        """Return the relative errors of all requests, sorted."""
        return sorted(abs(found.joules - true) / true for found, true in self.pairs())
