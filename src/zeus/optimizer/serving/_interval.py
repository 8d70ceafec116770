"""Reports of a server, interval by interval, and the settings that a controller answers with.

The contract between whoever observes a server (its metrics, a proxy, a simulation) and the
controller, which knows none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zeus._latencies import Latencies

#: Names of latencies: to the first token; per generated token after the first, as a mean of each
#: request; between two tokens of a request; of the whole request.
TTFT, TPOT, ITL, E2E = "ttft", "tpot", "itl", "e2e"


@dataclass(frozen=True, kw_only=True)
class ServingInterval:
    """A server's work in an interval.

    Attributes:
        begin: Begin, in seconds of the clock.
        end: End.
        energy: Joules of all its GPUs; `None` if unknown.
        energy_uncertainty: Standard error of that, joules.
        arrived: Requests that arrived.
        finished: Requests that were answered completely.
        prompt_tokens: Prompt tokens that were processed.
        generated_tokens: Tokens that were generated.
        running: Mean number of requests that were being processed.
        waiting: Requests that waited for their first token at the end.
        oldest_wait: Seconds for which the oldest of those has waited; `None` if unknown.
        latencies: Distributions by name (`TTFT` and so on) of what became known in the interval.
        busy: Seconds in which work ran, by phase ("prefill", "decode"), where the phases are
            known apart.
        setting: The setting that was in force, where that is not the one that was decided (another
            hold overrides it, the service was not reachable); `None` if it is.
    """

    begin: float
    end: float
    energy: float | None = None
    energy_uncertainty: float = 0.0
    arrived: int = 0
    finished: int = 0
    prompt_tokens: float = 0
    generated_tokens: float = 0
    running: float = 0.0
    waiting: int = 0
    oldest_wait: float | None = None
    latencies: Mapping[str, Latencies] = field(default_factory=dict)
    busy: Mapping[str, float] = field(default_factory=dict)
    setting: ServingSetting | None = None

    @property
    def seconds(self) -> float:
        """Its duration."""
        return self.end - self.begin


@dataclass(frozen=True)
class ServingSetting:
    """Value of the knob for each phase: MHz of a clock, or watts of a power limit.

    Attributes:
        prefill: While prompts are processed.
        decode: While tokens are generated; the same unless the phases are known apart.
    """

    prefill: float
    decode: float


@dataclass(frozen=True)
class Decision:
    """A setting for the next interval.

    Attributes:
        setting: The setting.
        reason: Why, for people.
        threatened: Whether a bound is threatened, so that the highest setting follows.
    """

    setting: ServingSetting
    reason: str = ""
    threatened: bool = False
