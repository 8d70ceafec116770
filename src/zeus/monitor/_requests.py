"""The energy and the latencies of single requests to a server of language models.

The server answers requests in batches, on GPUs that meter the energy of all of them together.
`RequestMonitor` divides it: it is told when tokens come, finds the server's steps from that, and
divides each interval of the GPUs' counters over steps and requests. Idle energy is apart. What is
divided adds up to the counter. Recording a token takes about a microsecond; the rest happens when
the sensors are refreshed.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Protocol

from zeus.monitor._request_counts import ModelRequests, ModelSums, RequestCounts
from zeus.monitor._request_shares import Account, GpuShares
from zeus.monitor._request_statistics import RequestStatistics
from zeus.monitor._request_steps import BEGIN, END, Phase, StepFinder

_STATED = 2.4  # standard deviations, for 19 of 20, as for windows
_LATE = 0.02  # seconds within which threads have recorded what happened
_OVERDUE = 5.0  # seconds after which a request's energy is final without a refresh of the counter
_MIN_JOULES = 1e-3
_UNSEEN = 0.5  # relative standard deviation of energy that nothing is known of yet
COUNTER, ESTIMATED, UNAVAILABLE = "counter", "estimated", "unavailable"


class MeteredInterval(Protocol):
    """Energy of an interval, as a sensor has shown it."""

    @property
    def begin(self) -> float:
        """Seconds of the clock."""

    @property
    def end(self) -> float:
        """Seconds of the clock."""

    @property
    def joules(self) -> float:
        """Energy."""

    @property
    def variance(self) -> float:
        """Variance of that (J²)."""


#: Returns the intervals of a GPU that ended after an instant, in the order of time.
IntervalSource = Callable[[float], Sequence[MeteredInterval]]


@dataclass(frozen=True)
class RequestEnergy:
    """Energy of a request.

    Attributes:
        joules: Energy, of all GPUs together; `None` if it cannot be measured.
        uncertainty: Joules by which it may be off, in 19 of 20 cases.
        method: "counter" where counters cover all of it; "estimated" as long as they do not cover
            its end; "unavailable".
        prompt_joules: The part due to its prompt, with its first token.
        generated_joules: The part due to its other tokens.
        final: Whether it stays as it is.
    """

    joules: float | None
    uncertainty: float
    method: str
    prompt_joules: float = 0.0
    generated_joules: float = 0.0
    final: bool = False


class Request:
    """A request, from its begin on. Made by `RequestMonitor.begin`.

    Args:
        monitor: Divides the energy.
        prompt_tokens: Tokens of its prompt, or an estimate.
        streams: Whether its tokens are recorded as they come.
        sums: The sums that it counts in.

    Attributes:
        sums: Sums of its model.
        prompt_tokens: Tokens of its prompt.
        generated_tokens: Tokens that were generated so far.
        began: When it began, by the monitor's clock, in seconds.
        first: When its first token came; `None` before.
        last: When its last token came; `None` before the first.
        ended: When it ended; `None` before.
        outcome: "open", "finished", "failed" or "canceled".
    """

    __slots__ = (
        "_accounts", "_final", "_monitor", "_now", "_record", "began", "ended", "first",
        "generated_tokens", "last", "left", "outcome", "prompt_left", "prompt_tokens",
        "seen_tokens", "started", "streams", "sums",
    )  # fmt: skip

    def __init__(
        self, monitor: RequestMonitor, prompt_tokens: int, streams: bool, sums: ModelSums
    ) -> None:
        self._monitor = monitor
        self._now = monitor._now
        self._record: Callable[[tuple[float, Request, int]], None] = monitor._events.append
        self._accounts: list[Account | None] = [None] * monitor._gpus
        self._final: RequestEnergy | None = None
        self.sums = sums
        self.prompt_tokens = prompt_tokens
        self.generated_tokens = self.seen_tokens = 0
        self.began = self._now()
        self.first: float | None = None
        self.last: float | None = None
        self.ended: float | None = None
        self.outcome = "open"
        #: For the finder of steps.
        self.prompt_left = float(prompt_tokens)
        self.started = False
        self.left: float | None = None
        self.streams = streams

    @property
    def model(self) -> str:
        """The name of its model; "other" if it has none, or there are too many."""
        return self.sums.name

    @model.setter
    def model(self, name: str) -> None:
        self.sums = self._monitor._counts.of(name)

    def first_token(self) -> None:
        """Record its first token; the same as `token`."""
        self.token()

    def token(self, count: int = 1) -> None:
        """Record that tokens came. May be called from any thread.

        Args:
            count: Tokens that came at once.
        """
        now = self._now()
        if self.first is None:
            self.first = now
        self.last = now
        self.generated_tokens += count
        self._record((now, self, count))

    def end(
        self,
        *,
        generated_tokens: int | None = None,
        prompt_tokens: int | None = None,
        canceled: bool = False,
        failed: bool = False,
    ) -> RequestEnergy:
        """Record its end and return its energy, as it is known now.

        Args:
            generated_tokens: All its generated tokens, where that is known better than by `token`.
            prompt_tokens: Tokens of its prompt, likewise.
            canceled: Whether its client has given it up.
            failed: Whether it ended in an error.
        """
        if self.ended is None:
            self.ended = self._now()
            self.seen_tokens = self.generated_tokens
            self.outcome = "failed" if failed else "canceled" if canceled else "finished"
            if generated_tokens is not None:
                self.generated_tokens = generated_tokens
            if prompt_tokens is not None:
                self.prompt_tokens = prompt_tokens
            self._record((self.ended, self, END))
        return self.energy

    @property
    def energy(self) -> RequestEnergy:
        """Its energy, up to now or its end, as it is known now."""
        return self._final or self._monitor._energy_of(self)

    @property
    def ttft(self) -> float | None:
        """Seconds to the first token; `None` if there was none."""
        return None if self.first is None else self.first - self.began

    @property
    def tpot(self) -> float | None:
        """Mean seconds per token after the first; `None` if there was no second one."""
        if self.first is None or self.last is None or self.generated_tokens < 2:
            return None
        return (self.last - self.first) / (self.generated_tokens - 1)

    @property
    def e2e(self) -> float | None:
        """Seconds from begin to end; `None` before its end."""
        return None if self.ended is None else self.ended - self.began

    def account(self, gpu: int) -> Account:
        """Return the account of its energy on a GPU.

        Args:
            gpu: Position of the GPU among those measured.
        """
        found = self._accounts[gpu]
        if found is None:
            found = self._accounts[gpu] = Account()
        return found


class RequestMonitor:
    """Divides the energy of GPUs over requests. Thread-safe; also for asyncio.

    Args:
        now: The clock.
        sources: For each GPU, its energies by interval.
        virtual: Whether time is virtual: then nothing is recorded late.
        refresh: Called before energies are returned; collects the latest samples.
    """

    def __init__(
        self,
        now: Callable[[], float],
        sources: Sequence[IntervalSource],
        *,
        virtual: bool = False,
        refresh: Callable[[], None] | None = None,
    ) -> None:
        self._now = now
        self._sources = sources
        self._gpus = len(sources)
        self._refresh = refresh
        self._refreshed = self._processed = -math.inf
        self._late = 0.0 if virtual else _LATE
        self._events: deque[tuple[float, Request, int]] = deque()
        self._finder = StepFinder()
        self._shares = [GpuShares(gpu) for gpu in range(self._gpus)]
        self._ended: deque[Request] = deque()
        self._counts = RequestCounts()
        self._lock = threading.RLock()
        #: When it began; energy before does not count.
        self.since = now()

    # --- requests -----------------------------------------------------------------------------

    def begin(self, prompt_tokens: int, *, streams: bool = True, model: str = "") -> Request:
        """Begin a request: it has arrived at the server.

        Args:
            prompt_tokens: Tokens of its prompt, or an estimate.
            streams: Whether its tokens will be recorded as they come. Otherwise it counts as having
                one in every step of the server.
            model: Name of the model that is asked, for `by_model`.

        Raises:
            ValueError: If the number of tokens is negative.
        """
        if prompt_tokens < 0:
            raise ValueError(f"prompt_tokens must be at least 0, but got {prompt_tokens}")
        request = Request(self, prompt_tokens, streams, self._counts.of(model))
        self._events.append((request.began, request, BEGIN))
        return request

    @property
    def in_flight(self) -> int:
        """Requests in flight."""
        with self._lock:
            self._process(self._now())
            return len(self._counts.open)

    @property
    def waiting(self) -> int:
        """Requests in flight without a token so far."""
        with self._lock:
            self._process(self._now())
            return self._counts.waiting

    # --- sums ---------------------------------------------------------------------------------

    def total(self) -> RequestStatistics:
        """Return the sums over all requests.

        Joules and idle joules together are the energy of the counters from the first refresh to
        the last one that was divided; those of requests in flight are included.
        """
        with self._lock:
            self._catch_up()
            total = self._counts.total()
            total.seconds = self._now() - self.since
            return total

    def last(self, seconds: float = 60.0) -> RequestStatistics:
        """Return the sums of the last seconds.

        Args:
            seconds: At most 60.
        """
        with self._lock:
            self._catch_up()
            return self._counts.last(min(seconds, 60.0), self._now())

    def by_model(self) -> dict[str, ModelRequests]:
        """Return the requests to each model, without idle energy.

        Together they are those of `total`. The first names have sums of their own; "other" are
        those to further ones, and to none.
        """
        with self._lock:
            self._catch_up()
            return self._counts.by_model()

    def energy(self) -> tuple[float, float]:
        """Return the joules that were divided, and of those the idle ones."""
        with self._lock:
            self._catch_up()
            return (
                math.fsum(shares.joules for shares in self._shares),
                math.fsum(shares.idle for shares in self._shares),
            )

    # --- dividing -----------------------------------------------------------------------------

    def process(self) -> None:
        """Divide the energies that have become known. Called whenever sensors were read."""
        now = self._now()
        if now - self._processed < self._late * 3:  # all at once takes less time
            return
        if self._lock.acquire(blocking=False):  # another thread does it otherwise
            try:
                self._processed = now
                self._process(now - self._late)
            finally:
                self._lock.release()

    def _catch_up(self) -> None:
        now = self._now()
        if self._refresh is not None and now - self._refreshed >= self._late / 2:
            self._refreshed = now
            self._refresh()
        self._process(self._now())

    def _process(self, until: float) -> None:
        events, taken = self._events, []
        while events and events[0][0] <= until:
            taken.append(events.popleft())
        if len(taken) > 1:
            taken.sort(key=itemgetter(0))
        if taken:
            self._counts.count(taken)
            self._ended += [request for _, request, tokens in taken if tokens == END]
        self._finder.feed(taken, until)
        for shares, source in zip(self._shares, self._sources, strict=True):
            self._divide(shares, source)
        self._finish(until)

    def _divide(
        self, shares: GpuShares, source: Callable[[float], Sequence[MeteredInterval]]
    ) -> None:
        since = self.since if shares.until is None else shares.until
        settled, steps = self._finder.settled, self._finder.steps
        for each in source(since):
            if each.end > settled:
                break
            idle = shares.idle
            shares.divide(each.begin, each.end, each.joules, each.variance, steps)
            self._counts.idle.at(each.end).idle_joules += shares.idle - idle
            for model, (prompt, generated) in shares.charged.items():
                sums = model.at(each.end)
                sums.prompt_joules += prompt
                sums.generated_joules += generated
                sums.joules += prompt + generated
            # Several steps of one interval, one interval of several GPUs: keep those in use.
            if self._gpus == 1:
                self._finder.forget(each.end)

    def _finish(self, until: float) -> None:
        """Make energies final that counters cover."""
        covered = min((s.until for s in self._shares if s.until is not None), default=-math.inf)
        if any(shares.until is None for shares in self._shares):
            covered = -math.inf
        self._finder.forget(max(covered, until - 3 * _OVERDUE))
        while self._ended:
            request = self._ended[0]
            assert request.ended is not None
            settled = request.left is not None and max(request.left, request.ended) <= covered
            if not settled and until - request.ended < _OVERDUE:
                break
            self._ended.popleft()
            request._final = self._stated(request, math.inf)
            joules = request._final.joules
            if joules is not None:
                request.sums.at(request.ended).request_joules.add(joules)

    # --- energy of one ------------------------------------------------------------------------

    def _energy_of(self, request: Request) -> RequestEnergy:
        with self._lock:
            self._catch_up()
            return request._final or self._stated(
                request, self._now() if request.ended is None else request.ended
            )

    def _stated(self, request: Request, until: float) -> RequestEnergy:
        """Return a request's energy: as divided, and as expected after that."""
        prompt = generated = variance = expected = spread = 0.0
        final, unknown = until == math.inf, not self._shares
        for shares in self._shares:
            account = request.account(shares.gpu)
            prompt += account.prompt
            generated += account.generated
            variance += shares.variance(account)
            if shares.until is None:
                unknown = True
            elif not final:
                more, off = self._expected(shares, request, until)
                expected += more
                spread += off
        if unknown and not prompt + generated:
            return RequestEnergy(None, 0.0, UNAVAILABLE, final=final)
        if request.first is None or request.first == request.last:
            prompt += expected
        else:
            generated += expected
        return RequestEnergy(
            prompt + generated,
            max(_STATED * math.sqrt(variance + spread**2), _MIN_JOULES),
            ESTIMATED if expected or unknown else COUNTER,
            prompt,
            generated,
            final,
        )

    def _expected(self, shares: GpuShares, request: Request, until: float) -> tuple[float, float]:
        """Return joules since the last refresh of the counter, and their standard deviation."""
        assert shares.until is not None
        powers, joules, variance = shares.powers, 0.0, 0.0
        for step in self._finder.steps:
            length = min(step.end, until) - max(step.begin, shares.until)
            own = sum(step.shares.get(request, ()))
            if length > 0 and own > 0:
                energy = powers.power(step.phase, step.batch) * length * own
                joules += energy
                variance += powers.variance(step.phase, step.batch) * (length * own) ** 2
                variance += (powers.spread * energy) ** 2
        begin = max(self._finder.known, shares.until, request.began)
        if until > begin:  # the step under way
            sharing = self._finder.sharing
            energy = powers.power(Phase.DECODE, sharing) * (until - begin) / sharing
            joules += energy
            variance += (_UNSEEN * energy) ** 2
        return joules, math.sqrt(variance)
