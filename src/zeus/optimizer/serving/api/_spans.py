"""What a service did in a span of time: a few intervals, or what older spans are merged into."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from zeus._latencies import Latencies
from zeus._rules import Items, Note, Number, Numbers, OneOf, Text, Whole, enforce
from zeus.errors import ServiceError
from zeus.optimizer.serving._bounds import LATENCIES, Bound

MAX_BOUNDS = 16
MAX_BINS = 600  # of a latency: from microseconds to days
COARSE = 5  # bins of `Latencies` in one of a span: 5 % wide
MAX_REASON = 200  # characters
_MOST_SECONDS, _MOST = 1e9, 1e15
_COUNTS = Number(0, _MOST)
_BINS = Whole(-3_000, 3_000)
_LEAST = 1e-3  # seconds or tokens, of which a mean is taken

#: From 1970 on; a date can be made of all of them.
Instant = Annotated[float, Number(0, 1e11)]
Seconds = Annotated[float, Number(0, _MOST_SECONDS)]
Joules = Annotated[float, Number(0, _MOST)]
Count = Annotated[float, Number(0, _MOST)]
Setting = Annotated[float, Number(0, 1e6)]


@dataclass(frozen=True)
class SpanLatency:
    """Distribution of a latency.

    Attributes:
        latency: Name of the latency.
        bins: Numbers of bins; bin n is at 1.01 to the power of n seconds.
        counts: Number of requests in each.
    """

    latency: Annotated[str, OneOf(LATENCIES)]
    bins: Annotated[tuple[int, ...], Numbers(_BINS, 0, MAX_BINS)]
    counts: Annotated[tuple[float, ...], Numbers(_COUNTS, 0, MAX_BINS)]

    def __post_init__(self) -> None:
        enforce(self, ServiceError)
        if len(self.bins) != len(self.counts):
            raise ServiceError(
                f"`counts` must be as many as `bins`, but got {len(self.counts)} for "
                f"{len(self.bins)}"
            )

    @classmethod
    def of(cls, latency: str, latencies: Latencies) -> SpanLatency:
        """Return the record of a distribution."""
        counts = latencies.coarser(COARSE).counts()
        most = sorted(sorted(counts, key=lambda each: -counts[each])[:MAX_BINS])
        return cls(latency, tuple(most), tuple(min(round(counts[each], 4), _MOST) for each in most))

    def latencies(self) -> Latencies:
        """Return the distribution."""
        return Latencies(dict(zip(self.bins, self.counts, strict=True)))


@dataclass(frozen=True)
class SpanBound:
    """How a bound was kept; counted from single requests, not from the bins of `SpanLatency`.

    Attributes:
        bound: The bound in words, such as "ttft p99 1.5 s".
        requests: Number of requests whose latency became known.
        above: How many of them took longer.
    """

    bound: Annotated[str, Text(100)]
    requests: Count
    above: Count

    def __post_init__(self) -> None:
        enforce(self, ServiceError)


@dataclass(frozen=True, kw_only=True)
class Span:
    """A service's work from one instant to another, in seconds since 1970.

    Attributes:
        begin: Begin of the first interval.
        end: End of the last one.
        seconds: Duration of the intervals together, which may have gaps.
        energy: Joules of all GPUs, where measured.
        metered: Seconds for which that was measured.
        metered_tokens: Tokens that were generated meanwhile.
        arrived: Requests that arrived.
        finished: Requests that were answered.
        prompt_tokens: Prompt tokens that were processed.
        generated_tokens: Tokens that were generated.
        running: Mean number of requests that were processed at once.
        waiting: Mean number of those that waited.
        prefill: Mean setting while prompts are processed: in force, or, where nothing is changed,
            the one that would be.
        decode: Mean setting while tokens are generated.
        threatened: Seconds before which a bound was found to be threatened.
        highest: Joules predicted at the highest setting.
        chosen: Joules predicted at the chosen settings.
        measured: Joules measured of what `compared` is of.
        compared: Joules predicted at the highest setting, of intervals that were measured.
        reason: Of the last decision.
        latencies: Distributions of the latencies that are bounded.
        bounds: How each bound was kept.
    """

    begin: Instant
    end: Instant
    seconds: Seconds
    energy: Joules = 0.0
    metered: Seconds = 0.0
    metered_tokens: Count = 0.0
    arrived: Count = 0.0
    finished: Count = 0.0
    prompt_tokens: Count = 0.0
    generated_tokens: Count = 0.0
    running: Count = 0.0
    waiting: Count = 0.0
    prefill: Setting = 0.0
    decode: Setting = 0.0
    threatened: Seconds = 0.0
    highest: Joules = 0.0
    chosen: Joules = 0.0
    measured: Joules = 0.0
    compared: Joules = 0.0
    reason: Annotated[str, Note(MAX_REASON, 2_000)] = ""
    latencies: Annotated[tuple[SpanLatency, ...], Items(SpanLatency, 0, len(LATENCIES))] = ()
    bounds: Annotated[tuple[SpanBound, ...], Items(SpanBound, 0, MAX_BOUNDS)] = ()

    def __post_init__(self) -> None:
        enforce(self, ServiceError)
        if not self.begin <= self.end:
            raise ServiceError(
                f"`begin <= end` must hold, but got begin={self.begin}, end={self.end}"
            )
        for name, found in (
            ("latencies", [each.latency for each in self.latencies]),
            ("bounds", [each.bound for each in self.bounds]),
        ):
            if len(set(found)) != len(found):
                raise ServiceError(f"`{name}` must differ from each other, but got {found}")

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            **vars(self),
            "latencies": [dict(vars(each)) for each in self.latencies],
            "bounds": [dict(vars(each)) for each in self.bounds],
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Span:
        """Return the span of a JSON form; the inverse of `to_dict`.

        Raises:
            ServiceError: If a value breaks its rule.
        """
        return cls(
            **{
                **record,
                "latencies": tuple(SpanLatency(**each) for each in record.get("latencies", ())),
                "bounds": tuple(SpanBound(**each) for each in record.get("bounds", ())),
            }
        )

    @property
    def power(self) -> float | None:
        """Mean watts; `None` if they were not measured."""
        return self.energy / self.metered if self.metered > _LEAST else None

    @property
    def joules_per_token(self) -> float | None:
        """Joules per generated token, prompts included; `None` if unknown."""
        return self.energy / self.metered_tokens if self.metered_tokens > _LEAST else None

    def percentile(self, bound: Bound) -> float | None:
        """Return the latency that a bound is about, in seconds; `None` without requests."""
        for each in self.latencies:
            if each.latency == bound.latency:
                return each.latencies().percentile(bound.percent)
        return None

    def counted(self, bound: Bound) -> SpanBound | None:
        """Return how a bound was kept; `None` if that is not known."""
        found = (each for each in self.bounds if each.bound == str(bound))
        return next((each for each in found if each.requests > 0), None)


_TIMES = ("seconds", "metered", "threatened")
_SUMS = (
    *("energy", "metered_tokens", "arrived", "finished", "prompt_tokens", "generated_tokens"),
    *("highest", "chosen", "measured", "compared"),
)
_MEANS = ("running", "waiting", "prefill", "decode")


def merged(spans: Sequence[Span]) -> Span:
    """Return one span of several that follow each other, at least one.

    Of bounds, it has those of the last.
    """
    if len(spans) == 1:
        return spans[0]
    seconds = math.fsum(each.seconds for each in spans)
    # Where nothing lasts, all count alike.
    weights = [each.seconds / seconds if seconds > 0 else 1 / len(spans) for each in spans]
    sums = {
        name: min(math.fsum(getattr(each, name) for each in spans), most)
        for names, most in ((_TIMES, _MOST_SECONDS), (_SUMS, _MOST))
        for name in names
    }
    means = {
        # A mean of equal values must not exceed them by rounding.
        name: min(
            math.fsum(w * getattr(each, name) for w, each in zip(weights, spans, strict=True)),
            max(getattr(each, name) for each in spans),
        )
        for name in _MEANS
    }
    return Span(
        begin=min(each.begin for each in spans),
        end=max(each.end for each in spans),
        **sums,
        **means,
        reason=spans[-1].reason,
        latencies=_merged_latencies(spans),
        bounds=_merged_bounds(spans),
    )


def joined(one: Span, other: Span) -> Span:
    """Return the span of two that follow each other; see `merged`."""
    return merged((one, other))


def _merged_latencies(spans: Sequence[Span]) -> tuple[SpanLatency, ...]:
    sums: dict[str, dict[int, float]] = {}
    for each in spans:
        for one in each.latencies:
            own = sums.setdefault(one.latency, {})
            for index, count in zip(one.bins, one.counts, strict=True):
                own[index] = own.get(index, 0.0) + count
    return tuple(SpanLatency.of(name, Latencies(counts)) for name, counts in sums.items())


def _merged_bounds(spans: Sequence[Span]) -> tuple[SpanBound, ...]:
    sums = {each.bound: (0.0, 0.0) for each in spans[-1].bounds}
    for span in spans:
        for each in span.bounds:
            if each.bound in sums:
                requests, above = sums[each.bound]
                sums[each.bound] = requests + each.requests, above + each.above
    return tuple(
        SpanBound(bound, min(requests, _MOST), min(above, _MOST))
        for bound, (requests, above) in sums.items()
    )
