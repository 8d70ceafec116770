"""Simulated servers: time, tokens and energy follow from the steps, whatever is interrupted."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeus.optimizer.serving._interval import ITL, TPOT, TTFT, Decision, ServingSetting
from zeus.testing import (
    CounterMeter,
    PowerSegment,
    RequestEvent,
    ServingWorkload,
    Traffic,
    simulate_serving,
)

V100 = ServingWorkload.mistral_7b_v100()
CALM = Traffic.poisson(1.0, 120, prompt=700, generated=120, seed=5)


def alone(prompt, generated, clock=1530):
    """Time to the first token, and of the whole, of a request that is alone; step by step."""
    first, watts = V100.prefill(clock, prompt)
    now, joules = first, first * watts
    for token in range(generated - 1):
        seconds, watts = V100.decode(clock, 1, prompt + 1 + token)
        now += seconds
        joules += seconds * watts
    return first, now, joules


def test_a_lone_request_takes_the_time_and_energy_of_its_steps():
    (request,) = simulate_serving(V100, Traffic([(3.0, 900, 300)])).requests
    first, whole, joules = alone(900, 300)
    assert request.ttft == pytest.approx(first, rel=1e-9)
    assert request.e2e == pytest.approx(whole, rel=1e-4)
    assert request.energy == pytest.approx(joules, rel=1e-4)


def test_reports_in_between_change_nothing():
    def controller(_):
        while True:
            yield Decision(V100.highest)

    # Pairs that overlap, but not so that a hair decides which step one is admitted at.
    pairs = Traffic([(15.0 * index + late, 900, 200) for index in range(9) for late in (0, 1.01)])
    plain = simulate_serving(V100, pairs)
    reported = simulate_serving(V100, pairs, controller=controller, interval=0.7)
    assert reported.energy == pytest.approx(plain.energy, rel=1e-3)
    for one, other in zip(plain.requests, reported.requests, strict=True):
        assert other.ttft == pytest.approx(one.ttft, rel=1e-3)
        assert other.e2e == pytest.approx(one.e2e, rel=1e-3)
        assert other.energy == pytest.approx(one.energy, rel=1e-3)


@pytest.mark.parametrize("chunk", [None, 512])
def test_energy_is_conserved_and_shared_by_requests(chunk):
    segments: list[Any] = []
    joules: dict[Any, float] = defaultdict(float)

    def observe(event):
        if isinstance(event, PowerSegment):
            segments.append(event)
            joules[event.phase] += event.watts * (event.end - event.begin)

    result = simulate_serving(
        V100, CALM, setting=ServingSetting(1300, 900), chunk=chunk, observer=observe
    )
    assert sum(joules.values()) == pytest.approx(result.energy)
    assert joules["idle"] == pytest.approx(result.idle_energy)
    shared = math.fsum(each.energy for each in result.requests)
    assert shared + result.idle_energy == pytest.approx(result.energy)
    assert all(each.energy > 0 for each in result.requests)
    for before, after in pairwise(segments):
        assert after.begin == pytest.approx(before.end)


@pytest.mark.parametrize("chunk", [None, 512])
def test_events_give_every_token_in_order(chunk):
    tokens: dict[Any, int] = defaultdict(int)
    last: dict[Any, float] = defaultdict(float)
    ends: dict[Any, Any] = {}

    def observe(event):
        if isinstance(event, RequestEvent):
            assert event.time >= last[event.request] - 1e-9
            last[event.request] = event.time
            if event.kind != "begin":
                tokens[event.request] += event.tokens
            if event.kind == "end":
                ends[event.request] = event.time

    result = simulate_serving(V100, CALM, observer=observe, chunk=chunk)
    assert [tokens[each.number] for each in result.requests] == [g for _, _, g in CALM]
    assert [ends[each.number] for each in result.requests] == [e.end for e in result.requests]


def test_intervals_add_up_to_the_whole():
    seen = []

    def controller(_):
        while True:
            seen.append((yield Decision(V100.highest)))

    result = simulate_serving(V100, CALM, controller=controller, interval=1.0)
    assert sum(each.energy for each in seen) == pytest.approx(result.energy)
    assert sum(each.arrived for each in seen) == len(CALM)
    assert sum(each.finished for each in seen) == len(CALM)
    assert sum(each.prompt_tokens for each in seen) == sum(p for _, p, _ in CALM)
    assert sum(each.generated_tokens for each in seen) == sum(g for _, _, g in CALM)
    assert sum(each.latencies[TTFT].total for each in seen) == len(CALM)
    gaps = sum(each.latencies[ITL].total for each in seen)
    assert gaps == sum(g - 1 for _, _, g in CALM)
    total = seen[0].latencies[TPOT]
    for each in seen[1:]:
        total += each.latencies[TPOT]
    assert total.percentile(99) == pytest.approx(result.percentile("tpot", 99), rel=0.02)
    busy = sum(sum(each.busy.values()) for each in seen)
    assert busy == pytest.approx(sum(result.busy.values()))
    assert all(each.end - each.begin == pytest.approx(1.0) for each in seen[:-1])


def test_requests_that_wait_are_seen():
    seen = []

    def controller(_):
        while True:
            seen.append((yield Decision(V100.highest)))

    many = Traffic([(0.0, 4000, 50)] * 30)
    simulate_serving(V100, many, controller=controller, interval=0.5, max_num_seqs=4)
    assert seen[0].waiting >= 26
    assert seen[0].oldest_wait == pytest.approx(0.5)
    assert max(each.running for each in seen) <= 4
    assert seen[-1].waiting == 0
    assert seen[-1].oldest_wait is None


def test_a_change_of_the_clock_is_charged_with_its_lag():
    """The first 15 ms of each phase run at the clock of the phase before."""
    segments = []

    def observe(event):
        if isinstance(event, PowerSegment):
            segments.append(event)

    traffic = Traffic([(1.0, 2000, 100)])
    simulate_serving(V100, traffic, setting=ServingSetting(1530, 900), observer=observe)
    busy = [each for each in segments if each.phase != "idle"]
    assert {each.clock for each in busy if each.phase == "prefill"} == {1530}
    late = sum(e.end - e.begin for e in busy if e.phase == "decode" and e.clock == 1530)
    assert late == pytest.approx(0.015)
    # The next request finds the clock of the decode phase in force if it comes while one runs.
    segments.clear()
    traffic = Traffic([(1.0, 2000, 400), (3.0, 2000, 100)])
    simulate_serving(V100, traffic, setting=ServingSetting(1530, 900), observer=observe)
    late = sum(e.end - e.begin for e in segments if e.phase == "prefill" and e.clock == 900)
    assert late == pytest.approx(0.015)


def test_a_controller_is_obeyed_from_the_next_interval_on():
    def controller(replica):
        for clock in (1530, 1200, 900):
            yield Decision(ServingSetting(clock, clock), f"{replica}: {clock}")

    result = simulate_serving(V100, CALM, replicas=2, controller=controller, interval=2.0)
    assert [(each.time, each.replica, each.setting.decode) for each in result.held] == [
        (0, 0, 1530), (2, 0, 1200), (4, 0, 900), (0, 1, 1530), (2, 1, 1200), (4, 1, 900),
    ]  # fmt: skip
    assert result.held[1].reason == "0: 1200"
    slow = simulate_serving(V100, CALM, replicas=2, setting=ServingSetting(900, 900))
    assert result.energy == pytest.approx(slow.energy, rel=0.05)


def test_a_latched_counter_loses_nothing_in_the_long_run():
    exact: list[Any] = []
    latched: list[Any] = []

    def controller(kept):
        def run(_):
            while True:
                kept.append((yield Decision(V100.highest)))

        return run

    simulate_serving(V100, CALM, controller=controller(exact))
    simulate_serving(V100, CALM, controller=controller(latched), meter=CounterMeter())
    differences = [
        (one.energy - other.energy) / other.energy_uncertainty
        for one, other in zip(exact, latched, strict=True)
    ]
    assert max(map(abs, differences)) > 0.1
    assert sum(abs(each) < 3 for each in differences) > 0.9 * len(differences)
    total = sum(each.energy for each in exact)
    assert sum(each.energy for each in latched) == pytest.approx(total, rel=0.01)


def test_a_power_limit_saves_power():
    limited = simulate_serving(V100, CALM, knob="power-limit", setting=ServingSetting(120, 120))
    free = simulate_serving(V100, CALM, knob="power-limit")
    assert free.energy == pytest.approx(simulate_serving(V100, CALM).energy)
    assert limited.energy < 0.9 * free.energy


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 20), st.integers(1, 9000), st.integers(1, 60)), max_size=25),
    st.integers(1, 5),
    st.sampled_from([None, 64, 2048]),
    st.floats(0.05, 3),
    st.floats(0, 0.1),
)
def test_whatever_comes_is_answered_once(arrivals, most, chunk, interval, lag):
    traffic = Traffic(arrivals)
    seen = []

    def controller(_):
        clock = 1530.0
        while True:
            seen.append((yield Decision(ServingSetting(clock, 2000 - clock))))
            clock = 700.0 if clock == 1530.0 else 1530.0

    result = simulate_serving(
        V100, traffic, controller=controller, interval=interval, lag=lag, max_num_seqs=most,
        chunk=chunk,
    )  # fmt: skip
    assert sum(each.finished for each in seen) == len(traffic)
    shared = math.fsum(each.energy for each in result.requests)
    assert shared + result.idle_energy == pytest.approx(result.energy)
    assert all(each.running <= most + 1e-9 for each in seen)
    for request in result.requests:
        assert request.arrival < request.first <= request.end < math.inf


def test_prompts_have_priority_unless_they_come_in_chunks():
    traffic = Traffic([(0.0, 100, 400), (2.0, 6000, 10)])
    whole, _ = simulate_serving(V100, traffic).requests
    chunked, late = simulate_serving(V100, traffic, chunk=256).requests
    assert whole.tpot == pytest.approx(chunked.tpot, rel=0.2)
    waits = {}

    for chunk in (None, 256):
        longest = 0.0

        def controller(_):
            nonlocal longest
            while True:
                interval = yield Decision(V100.highest)
                longest = max(longest, interval.latencies[ITL].percentile(100) or 0.0)

        simulate_serving(V100, traffic, chunk=chunk, controller=controller)
        waits[chunk] = longest
    assert waits[None] > 1.0
    assert waits[256] < 0.2
    assert late.ttft > V100.prefill(1530, 6000)[0]


def test_without_requests_the_power_is_that_of_waiting():
    result = simulate_serving(V100, Traffic([]), duration=10, replicas=3)
    assert result.energy == pytest.approx(30 * V100.waiting_power)
    assert result.percentile("ttft", 99) is None
    assert result.kept([("ttft", 99, 1.0)]) == 1.0


def test_the_share_of_kept_intervals_counts_minutes():
    traffic = Traffic([(10, 100, 2), (70, 6000, 2), (130, 100, 2)])
    result = simulate_serving(V100, traffic)
    assert result.kept([("ttft", 99, 0.5)]) == pytest.approx(2 / 3)
    assert result.kept([("ttft", 99, 0.5), ("tpot", 99, 1e-3)]) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"replicas": 0},
        {"interval": 0},
        {"interval": math.nan},
        {"lag": -1},
        {"max_num_seqs": 0},
        {"chunk": 1},
        {"knob": "voltage"},
        {"setting": ServingSetting(0, 900)},
        {"setting": ServingSetting(900, math.nan)},
    ],
)
def test_impossible_servers_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        simulate_serving(V100, CALM, **options)
