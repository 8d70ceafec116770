"""One replica of a simulated server: continuous batching, event by event.

Requests wait in the order of their arrival. At the end of each step, those for which there is room
are admitted. By default their prompts are processed at once, in steps of their own, while the
requests that are being answered wait, as in vLLM without chunked prefill. With a chunk size,
prompts are processed in pieces, in steps that generate a token for each running request as well.
Steps that are alike are computed together, up to the next arrival, end of an answer or change of
the clock.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zeus._latencies import Latencies
from zeus.optimizer.serving._interval import E2E, ITL, TPOT, TTFT, ServingInterval, ServingSetting
from zeus.testing._serving_clock import LaggingClock, ServingKnob
from zeus.testing._serving_events import (
    BEGIN,
    DECODE,
    END,
    FIRST_TOKEN,
    IDLE,
    PREFILL,
    TOKENS,
    PowerSegment,
    RequestEvent,
    ServedRequest,
)
from zeus.testing._serving_workload import ServingWorkload
from zeus.testing._traffic import Arrival

Observer = Callable[[PowerSegment | RequestEvent], None]

_MANY_STEPS = 64  # that are computed together, at the context of the middle one


@dataclass(slots=True)
class _Partial:
    """A prompt that is being processed in pieces, and how many of its tokens are left."""

    request: ServedRequest
    left: int


class Replica:
    """A server with its own queue and GPU, or group of GPUs.

    Args:
        workload: Times and powers.
        arrivals: Requests, in the order of arrival.
        setting: Setting at the begin, in force at once.
        index: Index of the replica.
        max_num_seqs: Maximum number of requests that are processed at once.
        max_batched_tokens: Maximum number of prompt tokens in a step; a longer prompt is alone.
        chunk: Tokens per step with chunked prefill; `None` without.
        lag: Seconds from setting a clock to having it.
        power_limits: Whether settings are power limits in watts rather than clocks in MHz.
        reports: Whether reports are to have latencies.
        observer: Called with everything that happens.
    """

    def __init__(
        self,
        workload: ServingWorkload,
        arrivals: Sequence[Arrival],
        setting: ServingSetting,
        *,
        index: int,
        max_num_seqs: int,
        max_batched_tokens: int,
        chunk: int | None,
        lag: float,
        power_limits: bool = False,
        reports: bool = True,
        observer: Observer | None = None,
    ) -> None:
        self.now = 0.0
        self.setting = setting
        self.requests: list[ServedRequest] = []
        self.energy = 0.0
        self.idle_energy = 0.0
        self.busy = {PREFILL: 0.0, DECODE: 0.0}
        self.knob: ServingKnob = LaggingClock(setting.prefill, lag)
        self._workload = workload
        self._arrivals = arrivals
        self.index = index
        self._max_num_seqs = max_num_seqs
        self._max_batched_tokens = max_batched_tokens
        self._chunk = chunk
        self._power_limits = power_limits
        self._reports = reports
        self._observer = observer
        self._arrived = 0
        self._next_arrival = arrivals[0].time if arrivals else math.inf
        self._queue: deque[ServedRequest] = deque()
        self._reserved = 0  # tokens of memory, for whole answers
        # The step under way.
        self._phase = IDLE
        self._fraction = 0.0
        self._prompts: list[tuple[ServedRequest, int]] = []  # with their tokens in this step
        self._prompt_tokens = 0
        self._partial: deque[_Partial] = deque()
        # Requests that are being answered, by the number of the step at which they end.
        self._running: list[tuple[int, int, ServedRequest, float]] = []
        self._steps = 0
        self._context = 0
        self._last_tokens: dict[float, int] = {}  # number of running requests by their last token
        # Joules so far per running request, and per prompt token of the step under way.
        self._per_sequence = 0.0
        self._per_token = 0.0
        self._begin_interval()

    @property
    def unfinished(self) -> bool:
        """Whether requests are waiting, being processed or yet to arrive."""
        return bool(
            self._arrived < len(self._arrivals)
            or self._queue
            or self._prompts
            or self._partial
            or self._running
        )

    # --- reports ------------------------------------------------------------------------------

    def _begin_interval(self) -> None:
        self._begin = self.now
        self._counts = {"arrived": 0, "finished": 0, "prompt_tokens": 0, "generated_tokens": 0}
        self._running_seconds = 0.0
        self._energy_before = self.energy
        self._busy_before = dict(self.busy)
        self._latencies = {TTFT: Latencies(), TPOT: Latencies(), ITL: Latencies(), E2E: Latencies()}

    def report(self) -> ServingInterval:
        """Return the work since the report before, with the exact energy."""
        seconds = self.now - self._begin
        waiting = list(self._queue)
        if self._chunk is None:
            waiting += [request for request, _ in self._prompts]
        else:
            waiting += [entry.request for entry in self._partial]
        oldest = min((request.arrival for request in waiting), default=None)
        interval = ServingInterval(
            begin=self._begin,
            end=self.now,
            energy=self.energy - self._energy_before,
            running=self._running_seconds / seconds if seconds > 0 else 0.0,
            waiting=len(waiting),
            oldest_wait=None if oldest is None else self.now - oldest,
            latencies=self._latencies,
            busy={phase: self.busy[phase] - self._busy_before[phase] for phase in self.busy},
            **self._counts,  # type: ignore[arg-type]
        )
        self._begin_interval()
        return interval

    # --- time ---------------------------------------------------------------------------------

    def set(self, setting: ServingSetting) -> None:
        """Change the setting from now on; the clock follows with its lag."""
        if setting != self.setting:
            self.setting = setting
            self._request_clock()

    def advance(self, until: float, at_least: float = math.inf) -> None:
        """Process requests up to an instant.

        Args:
            until: The instant, in seconds.
            at_least: From here on, stop earlier if all requests are answered.
        """
        while self.now < until:
            if self._next_arrival <= self.now:
                self._take_arrivals()
            if self.knob.changes_at <= self.now:
                self.knob.advance(self.now)
            if self._fraction == 0.0 and not self._prompts:  # no step is under way
                self._schedule()
                if self._phase is IDLE and not self.unfinished:
                    until = min(until, max(self.now, at_least))
            self._advance_segment(until)
        self.knob.advance(self.now)

    def _advance_segment(self, until: float) -> None:
        """Advance while nothing changes."""
        now, knob = self.now, self.knob
        end = min(until, knob.changes_at, self._next_arrival)
        if self._phase is IDLE:
            if math.isinf(end):
                end = now
            self._charge(end, self._workload.waiting_power, knob.value)
            self.now = end
            return
        left = self._steps_ahead() - self._fraction
        clock, seconds, watts = self._step(left)
        finished = now + left * seconds
        if finished <= end:
            self._charge(finished, watts, clock)
            steps, self._fraction = round(left + self._fraction), 0.0
            first = finished - (steps - 1) * seconds
            self.now = finished
            self._complete(steps, first, seconds)
            return
        self._charge(end, watts, clock)
        done = self._fraction + (end - now) / seconds
        steps = int(done)
        first = now + (1 - self._fraction) * seconds
        self._fraction = done - steps
        self.now = end
        if steps and self._phase is DECODE:
            self._complete(steps, first, seconds)
        elif steps:  # by rounding: the step is complete at its end
            self._fraction = 1 - 1e-12

    def _steps_ahead(self) -> int:
        """Return the number of alike steps until something changes, the one under way included."""
        if self._phase is PREFILL or (self._queue and self._has_room(self._queue[0])):
            return 1
        return min(self._running[0][0] - self._steps, _MANY_STEPS)

    def _step(self, steps: float) -> tuple[float, float, float]:
        """Return clock, seconds and watts of the step under way."""
        batch = len(self._running)
        if self._phase is PREFILL:
            batch = batch if self._chunk is not None else 0
            prompt, context = self._prompt_tokens, self._context if batch else 0
        else:
            prompt, context = 0, self._context + batch * int(steps / 2)
        clock = self.knob.value
        if self._power_limits:
            clock = self._workload.clock_at(clock, prompt=prompt, batch=batch, context=context)
        return clock, *self._workload.step(clock, prompt=prompt, batch=batch, context=context)

    def _charge(self, end: float, watts: float, clock: float) -> None:
        """Count the energy up to an instant."""
        seconds = end - self.now
        if seconds <= 0:
            return
        joules = watts * seconds
        self.energy += joules
        batch = len(self._running)
        if self._phase is IDLE:
            self.idle_energy += joules
        else:
            self.busy[self._phase] += seconds
            mixed = self._chunk is not None
            if self._phase is DECODE:
                self._per_sequence += joules / batch
            else:
                share = joules / (self._prompt_tokens + (batch if mixed else 0))
                self._per_token += share
                self._per_sequence += share if mixed else 0.0
                batch += len(self._prompts)
            self._running_seconds += batch * seconds
        if self._observer is not None:
            self._observer(
                PowerSegment(self.now, end, watts, self._phase, batch, clock, self.index)
            )

    # --- work ---------------------------------------------------------------------------------

    def _take_arrivals(self) -> None:
        while self._arrived < len(self._arrivals):
            time, prompt, generated = self._arrivals[self._arrived]
            if time > self.now:
                break
            request = ServedRequest(self._arrived, self.index, time, prompt, generated)
            self._arrived += 1
            self.requests.append(request)
            self._queue.append(request)
            self._counts["arrived"] += 1
            self._notify(BEGIN, request, prompt, time)
        more = self._arrived < len(self._arrivals)
        self._next_arrival = self._arrivals[self._arrived].time if more else math.inf

    def _has_room(self, request: ServedRequest) -> bool:
        active = len(self._running) + len(self._prompts if self._chunk is None else self._partial)
        needed = self._reserved + request.prompt + request.generated
        return active < self._max_num_seqs and (active == 0 or needed <= self._workload.kv_tokens)

    def _schedule(self) -> None:
        """Choose the next step, at the end of one or when there was none."""
        if self._queue or self._partial:
            self._schedule_prompts()
        before = self._phase
        if self._prompts:
            self._phase = PREFILL
        else:
            self._phase = DECODE if self._running else IDLE
        if self._phase is not before:
            self._request_clock()

    def _schedule_prompts(self) -> None:
        if self._chunk is None:
            admitted = 0
            while self._queue and self._has_room(self._queue[0]):
                request = self._queue[0]
                if admitted and admitted + request.prompt > self._max_batched_tokens:
                    break
                self._reserved += request.prompt + request.generated
                self._prompts.append((self._queue.popleft(), request.prompt))
                admitted += request.prompt
            self._prompt_tokens = admitted
            return
        while self._queue and self._has_room(self._queue[0]):
            request = self._queue.popleft()
            self._reserved += request.prompt + request.generated
            self._partial.append(_Partial(request, request.prompt))
        budget = max(1, self._chunk - len(self._running))
        self._prompt_tokens = 0
        for entry in self._partial:
            taken = min(entry.left, budget - self._prompt_tokens)
            if taken == 0:
                break
            self._prompts.append((entry.request, taken))
            self._prompt_tokens += taken

    def _request_clock(self) -> None:
        # While no request is there, the next step processes a prompt.
        decode = self._phase is DECODE
        self.knob.request(self.now, self.setting.decode if decode else self.setting.prefill)

    def _complete(self, steps: int, first: float, seconds: float) -> None:
        """Hand out the tokens of steps that are complete, the first at the instant `first`."""
        if self._phase is PREFILL:
            if self._chunk is not None and self._running:
                self._tokens(1, self.now, 0.0)
            self._complete_prompts()
        else:
            self._tokens(steps, first, seconds)

    def _tokens(self, steps: int, first: float, seconds: float) -> None:
        running, batch = self._running, len(self._running)
        last = first + (steps - 1) * seconds
        self._steps += steps
        self._context += steps * batch
        self._counts["generated_tokens"] += steps * batch
        gaps = self._latencies[ITL]
        if self._reports:
            for emitted, count in self._last_tokens.items():
                gaps.add(first - emitted, count)
            if steps > 1:
                gaps.add(seconds, (steps - 1) * batch)
        if self._observer is not None:
            for _, _, request, _ in running:
                self._observer(RequestEvent(last, TOKENS, request.number, steps, self.index))
        while running and running[0][0] <= self._steps:
            _, _, request, before = heapq.heappop(running)
            request.energy += self._per_sequence - before
            self._context -= request.prompt + request.generated
            self._end(request, last)
        self._last_tokens = {last: len(running)} if running else {}

    def _complete_prompts(self) -> None:
        mixed = self._chunk is not None
        for request, tokens in self._prompts:
            request.energy += self._per_token * tokens
            self._counts["prompt_tokens"] += tokens
            if mixed:
                self._partial[0].left -= tokens
                if self._partial[0].left:
                    continue
                self._partial.popleft()
            request.first = self.now
            if self._reports:
                self._latencies[TTFT].add(request.ttft)
            self._counts["generated_tokens"] += 1
            self._notify(FIRST_TOKEN, request, 1, self.now)
            if request.generated == 1:
                self._end(request, self.now)
                continue
            ends = self._steps + request.generated - 1
            entering = (ends, request.number, request, self._per_sequence)
            heapq.heappush(self._running, entering)
            self._context += request.prompt + 1
            self._last_tokens[self.now] = self._last_tokens.get(self.now, 0) + 1
        self._prompts.clear()
        self._prompt_tokens = 0
        self._per_token = 0.0

    def _end(self, request: ServedRequest, time: float) -> None:
        request.end = time
        self._reserved -= request.prompt + request.generated
        self._counts["finished"] += 1
        if self._reports:
            self._latencies[E2E].add(request.e2e)
            if request.tpot is not None:
                self._latencies[TPOT].add(request.tpot)
        self._notify(END, request, 0, time)

    def _notify(self, kind: str, request: ServedRequest, tokens: int, time: float) -> None:
        if self._observer is not None:
            self._observer(RequestEvent(time, kind, request.number, tokens, self.index))
