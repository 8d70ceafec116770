"""Everything that can be observed of a simulated server: requests, tokens, and exact power."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

#: Kinds of `RequestEvent`.
BEGIN, FIRST_TOKEN, TOKENS, END = "begin", "first token", "tokens", "end"

#: Phases of `PowerSegment`.
PREFILL, DECODE, IDLE = "prefill", "decode", "idle"


class RequestEvent(NamedTuple):
    """Something happened to a request.

    Attributes:
        time: When, in seconds.
        kind: "begin" (it arrived), "first token", "tokens" (further ones) or "end".
        request: Number of the request on its replica.
        tokens: Prompt tokens at the begin; otherwise tokens that were generated since the event
            before, 0 at the end.
        replica: Index of the replica.
    """

    time: float
    kind: str
    request: int
    tokens: int
    replica: int


class PowerSegment(NamedTuple):
    """Time in which the power of a replica's GPUs was constant.

    Attributes:
        begin: Seconds.
        end: Seconds.
        watts: Exact power.
        phase: "prefill", "decode" or "idle".
        batch: Requests that were processed.
        clock: MHz in force.
        replica: Index of the replica.
    """

    begin: float
    end: float
    watts: float
    phase: str
    batch: int
    clock: float
    replica: int


@dataclass(slots=True)
class ServedRequest:
    """A request, as far as it was processed.

    Attributes:
        number: Number on its replica.
        replica: Index of the replica.
        arrival: When it arrived, in seconds.
        prompt: Tokens of the prompt.
        generated: Tokens of the answer.
        first: When its first token was generated; infinite until then.
        end: When its last token was generated; infinite until then.
        energy: Joules: of each step that only generates, an equal share among the requests of the
            batch; of each other step, a share by the tokens that were processed for it. Power
            while no request is processed belongs to none.
    """

    number: int
    replica: int
    arrival: float
    prompt: int
    generated: int
    first: float = float("inf")
    end: float = float("inf")
    energy: float = 0.0

    @property
    def ttft(self) -> float:
        """Seconds from arrival to the first token."""
        return self.first - self.arrival

    @property
    def tpot(self) -> float | None:
        """Mean seconds per token after the first; `None` for an answer of one token."""
        return (self.end - self.first) / (self.generated - 1) if self.generated > 1 else None

    @property
    def e2e(self) -> float:
        """Seconds from arrival to the last token."""
        return self.end - self.arrival
