"""Requests of a service in this process, counted for intervals."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from zeus._latencies import Latencies
from zeus.optimizer.serving._interval import E2E, ITL, TPOT, TTFT, ServingInterval


class ServedRequest:
    """A request that is being answered. Made by `ServingOptimizer.begin`.

    Args:
        counter: Counts it.
        prompt_tokens: Tokens of its prompt.
    """

    def __init__(self, counter: RequestCounter, prompt_tokens: int) -> None:
        self._counter = counter
        self._prompt_tokens = prompt_tokens
        self._begin = counter.now()
        self._first: float | None = None
        self._last = 0.0
        self._tokens = 0
        self._ended = False

    def first_token(self) -> None:
        """Note that its first token was generated."""
        self.tokens(1)

    def tokens(self, count: int = 1) -> None:
        """Note that further tokens were generated.

        Args:
            count: Their number.
        """
        counter = self._counter
        with counter.lock:
            now = counter.now()
            if self._ended or count <= 0:
                return
            counter.generated += count
            if self._first is None:
                self._first = now
                counter.first(self, now - self._begin, self._prompt_tokens)
            elif now > self._last:
                counter.latencies[ITL].add((now - self._last) / count, count)
            self._last = now
            self._tokens += count

    def end(self) -> None:
        """Note that it was answered completely, or given up. Safe to call more than once."""
        counter = self._counter
        with counter.lock:
            if self._ended:
                return
            self._ended = True
            now = counter.now()
            if self._first is not None:
                counter.latencies[E2E].add(now - self._begin)
                if self._tokens > 1:
                    spent = (self._last - self._first) / (self._tokens - 1)
                    counter.latencies[TPOT].add(spent)
            counter.end(self)

    @property
    def began(self) -> float:
        """When it arrived, in seconds of the clock."""
        return self._begin

    def __enter__(self) -> ServedRequest:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class RequestCounter:
    """Counts requests between two reports; usable from several threads.

    Args:
        now: Returns the time, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.lock = threading.RLock()
        self._waiting: dict[int, ServedRequest] = {}
        self._running: set[int] = set()
        self._changed = now()
        self._phase: tuple[str, float] | None = None
        self._reset()

    def _reset(self) -> None:
        self._from = self.now()
        self._arrived = self._finished = 0
        self._prompts = 0.0
        self.generated = 0.0
        self._request_seconds = 0.0
        self._busy: dict[str, float] = {}
        self.latencies = {TTFT: Latencies(), TPOT: Latencies(), ITL: Latencies(), E2E: Latencies()}

    def begin(self, prompt_tokens: int) -> ServedRequest:
        """Count a request that arrives."""
        with self.lock:
            request = ServedRequest(self, prompt_tokens)
            self._follow()
            self._arrived += 1
            self._waiting[id(request)] = request
            return request

    def first(self, request: ServedRequest, seconds: float, prompt_tokens: int) -> None:
        """Count a request whose first token was generated."""
        self._follow()
        self._waiting.pop(id(request), None)
        self._running.add(id(request))
        self._prompts += prompt_tokens
        self.latencies[TTFT].add(seconds)

    def end(self, request: ServedRequest) -> None:
        """Count a request that ends."""
        self._follow()
        self._waiting.pop(id(request), None)
        self._running.discard(id(request))
        self._finished += 1

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside as work of a phase."""
        begun = self.now()
        with self.lock:
            self._phase = name, begun
        try:
            yield
        finally:
            with self.lock:
                if self._phase is not None:
                    self._add_phase(self._phase)
                self._phase = None

    def _add_phase(self, phase: tuple[str, float]) -> None:
        name, begun = phase
        spent = self.now() - max(begun, self._from)
        self._busy[name] = self._busy.get(name, 0.0) + max(0.0, spent)

    def _follow(self) -> None:
        now = self.now()
        self._request_seconds += len(self._running) * (now - self._changed)
        self._changed = now

    def report(self) -> ServingInterval:
        """Return the work since the report before."""
        with self.lock:
            self._follow()
            if self._phase is not None:
                self._add_phase(self._phase)
            now = self.now()
            seconds = now - self._from
            waiting = [request.began for request in self._waiting.values()]
            interval = ServingInterval(
                begin=self._from,
                end=now,
                arrived=self._arrived,
                finished=self._finished,
                prompt_tokens=self._prompts,
                generated_tokens=self.generated,
                running=self._request_seconds / seconds if seconds > 0 else 0.0,
                waiting=len(waiting),
                oldest_wait=now - min(waiting) if waiting else 0.0,
                latencies=self.latencies,
                busy=self._busy,
            )
            self._reset()
            return interval
