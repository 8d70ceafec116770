"""Spans of a service: rules, JSON, and what is kept when they are merged."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.present import present

from zeus._latencies import Latencies
from zeus.errors import ServiceError
from zeus.optimizer.serving._bounds import Bound
from zeus.optimizer.serving.api._spans import (
    COARSE,
    MAX_BINS,
    Span,
    SpanBound,
    SpanLatency,
    merged,
)

TTFT = Bound("ttft", 99.0, 1.5)


def span(begin: float = 1e9, seconds: float = 5.0, **changed) -> Span:
    return Span(begin=begin, end=begin + seconds, seconds=seconds, **changed)


def test_latencies_are_known_to_the_width_of_a_coarse_bin():
    dice = random.Random(1)
    latencies = Latencies.of(dice.lognormvariate(-1, 0.8) for _ in range(5000))
    record = SpanLatency.of("ttft", latencies)
    assert len(record.bins) < len(latencies.counts()) / 3
    again = record.latencies()
    assert again.total == pytest.approx(5000)
    for percent in (50, 95, 99):
        ratio = present(again.percentile(percent)) / present(latencies.percentile(percent))
        assert abs(math.log(ratio)) <= 0.5 * COARSE * math.log(1.01) + 1e-9


def test_a_percentile_of_merged_spans_is_that_of_all_requests():
    quick = Latencies.of([0.1] * 990)
    slow = Latencies.of([2.0] * 30)
    spans = [
        span(1e9, latencies=(SpanLatency.of("ttft", quick),)),
        span(1e9 + 5, latencies=(SpanLatency.of("ttft", slow),)),
    ]
    found = merged(spans)
    assert present(found.percentile(TTFT)) == pytest.approx(2.0, rel=0.03)
    assert present(found.percentile(Bound("ttft", 95.0, 1.5))) == pytest.approx(0.1, rel=0.03)
    assert found.percentile(Bound("itl", 95.0, 1.5)) is None


def test_of_bounds_the_latest_ones_stay():
    old, new = SpanBound("ttft p99 1.5 s", 10, 1), SpanBound("ttft p99 2 s", 20, 2)
    both = merged([span(bounds=(old, new)), span(bounds=(new,))])
    assert both.bounds == (SpanBound("ttft p99 2 s", 40, 4),)
    assert both.counted(TTFT) is None
    assert both.counted(Bound("ttft", 99.0, 2.0)) == SpanBound("ttft p99 2 s", 40, 4)


def test_energy_per_token_counts_only_where_energy_was_measured():
    known = span(energy=100.0, metered=5.0, generated_tokens=50.0, metered_tokens=50.0)
    unknown = span(1e9 + 5, generated_tokens=500.0)
    found = merged([known, unknown])
    assert (found.joules_per_token, found.power, found.generated_tokens) == (2.0, 20.0, 550.0)
    assert (unknown.joules_per_token, unknown.power) == (None, None)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.builds(
            lambda seconds, energy, setting, running, counts: span(
                1e9,
                seconds,
                energy=energy,
                metered=seconds,
                decode=setting,
                running=running,
                latencies=(SpanLatency("tpot", tuple(range(len(counts))), tuple(counts)),),
            ),
            st.floats(0, 1e9),
            st.floats(0, 1e15),
            st.floats(0, 1e6),
            st.floats(0, 1e15),
            st.lists(st.floats(0, 1e15), max_size=5),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_whatever_may_be_sent_can_be_merged_and_stored(spans):
    found = merged(spans)
    again = Span.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False)))
    assert again == found
    assert min(each.decode for each in spans) * (1 - 1e-9) <= found.decode
    assert found.decode <= max(each.decode for each in spans)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seconds": -1.0}, "seconds"),
        ({"energy": math.nan}, "energy"),
        ({"begin": 2e9, "end": 1e9}, "begin <= end"),
        ({"begin": 1e12, "end": 1e12}, "begin"),
        ({"bounds": (SpanBound("a", 1, 0), SpanBound("a", 1, 0))}, "differ from each other"),
        ({"running": True}, "running"),
    ],
)
def test_rules_have_words(changed, message):
    with pytest.raises(ServiceError, match=message):
        Span(**{"begin": 1e9, "end": 1e9 + 5, "seconds": 5.0, **changed})


def test_latencies_have_rules_too():
    with pytest.raises(ServiceError, match="as many as"):
        SpanLatency("ttft", (1, 2), (1.0,))
    with pytest.raises(ServiceError, match="must be one of ttft"):
        SpanLatency("ttfb", (), ())
    with pytest.raises(ServiceError, match="bins"):
        SpanLatency("ttft", tuple(range(MAX_BINS + 1)), (1.0,) * (MAX_BINS + 1))
