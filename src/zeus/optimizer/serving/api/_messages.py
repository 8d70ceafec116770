"""Messages about a service: who controls it, and how its run is going."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from zeus._rules import Items, Note, Number, OneOf, Text, Whole, enforce
from zeus.errors import ServiceError
from zeus.optimizer.serving._bounds import LATENCIES, Bound
from zeus.optimizer.serving._report import Forecast
from zeus.optimizer.serving.api._spans import (
    MAX_BOUNDS,
    MAX_REASON,
    Count,
    Joules,
    Seconds,
    Setting,
)

MAX_NAME = 200  # characters
NAME = Text(MAX_NAME)

Name = Annotated[str, NAME]
Latency = Annotated[float, Number(0, 1e15)]
_Words = Annotated[str, Note(MAX_NAME, 2_000)]
_Share = Annotated[float, Number(0, 1)]
_Minutes = Annotated[int, Whole(0, 2**53)]


def check_name(what: str, name: str) -> None:
    """Raise `ServiceError` if a service cannot have this name, which is a part of URLs."""
    NAME.check(what, name, ServiceError)
    if "/" in name or name in (".", ".."):
        raise ServiceError(f"`{what}` must have no / and not be . or .., but got {name!r}")


@dataclass(frozen=True)
class BoundRecord:
    """A bound on a percentile of a latency; `seconds` is the longest that it may be."""

    latency: Annotated[str, OneOf(LATENCIES)]
    percent: Annotated[float, Number(0, 100, above=True)]
    seconds: Annotated[float, Number(0, 1e9, above=True)]

    def __post_init__(self) -> None:
        enforce(self, ServiceError)
        if self.percent >= 100:
            raise ServiceError(f"`0 < percent < 100` must hold, but got percent={self.percent}")

    def bound(self) -> Bound:
        """Return the bound."""
        return Bound(self.latency, self.percent, self.seconds)


@dataclass(frozen=True, kw_only=True)
class ServiceStart:
    """The begin of a run: a process controls a service from now on.

    Attributes:
        session: Identifies the process.
        engine: What serves, such as "vLLM".
        model: Names of the models that are served.
        where: Address of the server.
        host: Name of the machine that has the GPUs.
        gpu: Name of the GPU model.
        gpus: Number of GPUs.
        knob: "clock" or "power-limit".
        highest: The highest setting, in MHz or watts, which is the one without control.
        lowest: The lowest.
        phases: Whether prefill and decode have settings of their own.
        observe: Whether settings are not carried out.
        interval: Seconds between decisions.
        every: Seconds between reports, about.
        bounds: Bounds on the latencies.
    """

    session: Name
    engine: _Words = ""
    model: _Words = ""
    where: _Words = ""
    host: _Words = ""
    gpu: _Words = ""
    gpus: Annotated[int, Whole(1, 100_000)] = 1
    knob: Annotated[str, OneOf(("clock", "power-limit"))] = "clock"
    highest: Setting = 0.0
    lowest: Setting = 0.0
    phases: bool = False
    observe: bool = False
    interval: Annotated[float, Number(0, 1e6, above=True)] = 1.0
    every: Annotated[float, Number(0, 1e4, above=True)] = 5.0
    bounds: Annotated[tuple[BoundRecord, ...], Items(BoundRecord, 1, MAX_BOUNDS)]

    def __post_init__(self) -> None:
        enforce(self, ServiceError)
        found = [(each.latency, each.percent) for each in self.bounds]
        if len(set(found)) != len(found):
            raise ServiceError(f"`bounds` must differ from each other, but got {found}")

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> ServiceStart:
        """Return the message of a JSON form; the inverse of `to_dict`."""
        bounds = tuple(BoundRecord(**each) for each in record["bounds"])
        return cls(**{**record, "bounds": bounds})


@dataclass(frozen=True)
class BoundKept:
    """How a bound was kept over a run.

    Attributes:
        measured: The percentile in seconds; `None` without requests.
        requests: Number of requests.
        above: Share of them that took longer, 0 to 1.
        minutes: Whole minutes with requests.
        minutes_kept: Those of them in which the bound was kept.
    """

    measured: Latency | None = None
    requests: Count = 0.0
    above: _Share = 0.0
    minutes: _Minutes = 0
    minutes_kept: _Minutes = 0

    def __post_init__(self) -> None:
        enforce(self, ServiceError)
        if self.minutes_kept > self.minutes:
            raise ServiceError(
                f"`minutes_kept <= minutes` must hold, but got minutes_kept={self.minutes_kept}, "
                f"minutes={self.minutes}"
            )


@dataclass(frozen=True, kw_only=True)
class RunState:
    """How a run is going: sums since its begin, and what is so now.

    Attributes:
        seconds: Duration of its intervals.
        finished: Requests that were answered.
        prompt_tokens: Prompt tokens that were processed.
        generated_tokens: Tokens that were generated.
        energy: Joules of all GPUs, where measured; `None` if they never were.
        metered_tokens: Tokens that were generated meanwhile.
        highest: Joules predicted at the highest setting.
        chosen: Joules predicted at the chosen settings.
        measured: Joules measured of what `compared` is of.
        compared: Joules predicted at the highest setting, of intervals that were measured.
        changes: Number of settings that were chosen, one after the other.
        prefill: Setting for prompts now.
        decode: Setting for tokens now.
        reason: Why that.
        threatened: Whether a bound is threatened now.
        trouble: Why settings are not carried out, or nothing is known of the service; else empty.
        bounds: How each bound was kept, in the order of `ServiceStart.bounds`.
    """

    seconds: Seconds = 0.0
    finished: Count = 0.0
    prompt_tokens: Count = 0.0
    generated_tokens: Count = 0.0
    energy: Joules | None = None
    metered_tokens: Count = 0.0
    highest: Joules = 0.0
    chosen: Joules = 0.0
    measured: Joules = 0.0
    compared: Joules = 0.0
    changes: Annotated[int, Whole(0, 2**53)] = 0
    prefill: Setting = 0.0
    decode: Setting = 0.0
    reason: Annotated[str, Note(MAX_REASON, 2_000)] = ""
    threatened: bool = False
    trouble: Annotated[str, Note(500, 10_000)] = ""
    bounds: Annotated[tuple[BoundKept, ...], Items(BoundKept, 0, MAX_BOUNDS)] = ()

    def __post_init__(self) -> None:
        enforce(self, ServiceError)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> RunState:
        """Return the message of a JSON form; the inverse of `to_dict`."""
        bounds = tuple(BoundKept(**each) for each in record.get("bounds", ()))
        return cls(**{**record, "bounds": bounds})

    @property
    def forecast(self) -> Forecast:
        """What was predicted, with what was measured."""
        return Forecast(self.highest, self.chosen, self.measured, self.compared)

    @property
    def joules_per_token(self) -> float | None:
        """Joules per generated token, prompts included; `None` if unknown."""
        if self.energy is None or self.metered_tokens < 1e-3:
            return None
        return self.energy / self.metered_tokens
