"""Intervals from the metrics of a server: differences, restarts, what is missing."""

from __future__ import annotations

import pytest
from tests.optimizer.serving.pages import LLAMA_CPP, SERVERS, ServerCounts, page
from tests.present import present

from zeus.frontier import All, LatencyBound
from zeus.optimizer.serving._bounds import bounds_of
from zeus.optimizer.serving._engines import ENGINES
from zeus.optimizer.serving._observer import MetricsObserver, UnobservableError
from zeus.optimizer.serving._page import Histogram, Page

BOUNDS = bounds_of(All(LatencyBound("ttft p99", 1.5), LatencyBound("tpot p99", 0.06)))


@pytest.mark.parametrize("server", SERVERS)
def test_the_same_work_is_the_same_interval_whatever_the_server(server):
    names, counts = SERVERS[server], ServerCounts()
    label = "backends" if server == "Zeus proxy" else "model_name"
    labels = f'{label}="m"'
    counts.serve(5, ttft=9.0)  # before it was observed
    observer = MetricsObserver(Page(page(counts, names, labels)), BOUNDS)
    assert (observer.engine.name, observer.models) == (server, ["m"])
    assert observer.interval(Page(page(counts, names, labels)), 10.0) is None
    counts.serve(30, ttft=0.2, tpot=0.03)
    counts.running, counts.waiting = 4, 2
    interval = present(observer.interval(Page(page(counts, names, labels)), 12.0))
    assert (interval.begin, interval.end, interval.finished, interval.arrived) == (10, 12, 30, 36)
    assert (interval.prompt_tokens, interval.generated_tokens) == (30_000, 3000)
    assert (interval.running, interval.waiting, interval.oldest_wait) == (2.0, 2, 2.0)
    assert interval.latencies["ttft"].total == pytest.approx(30)
    # What is known are the buckets, 0.1 to 0.25 s and 0.025 to 0.05 s, and the sums.
    assert present(interval.latencies["ttft"].percentile(1)) >= 0.1
    assert present(interval.latencies["ttft"].percentile(50)) == pytest.approx(0.2, rel=0.05)
    assert interval.latencies["ttft"].sum == pytest.approx(30 * 0.2, rel=0.01)
    assert interval.latencies["ttft"].share_above(1.5) == 0
    assert 0.025 <= present(interval.latencies["tpot"].percentile(99)) <= 0.051


def test_a_restarted_server_begins_again():
    names, counts = SERVERS["vLLM"], ServerCounts()
    counts.serve(100)
    observer = MetricsObserver(Page(page(counts, names)), BOUNDS)
    observer.interval(Page(page(counts, names)), 1.0)
    counts = ServerCounts()
    counts.serve(3)
    assert observer.interval(Page(page(counts, names)), 2.0) is None
    counts.serve(4)
    assert present(observer.interval(Page(page(counts, names)), 3.0)).finished == 4


def test_a_counter_that_vanishes_counts_as_a_restart():
    names, counts = SERVERS["vLLM"], ServerCounts()
    counts.serve(10)
    observer = MetricsObserver(Page(page(counts, names)), BOUNDS)
    observer.interval(Page(page(counts, names)), 1.0)
    fewer = {key: name for key, name in names.items() if key != "generated"}
    assert observer.interval(Page(page(counts, fewer)), 2.0) is None


def test_one_model_of_several_or_all_of_them():
    names, one, other = SERVERS["vLLM"], ServerCounts(), ServerCounts()

    def both():
        text = page(one, names, 'model_name="one",engine="0"')
        return Page(text + page(other, names, 'engine="0",model_name="other"'))

    alone = MetricsObserver(both(), BOUNDS, "one")
    together = MetricsObserver(both(), BOUNDS)
    assert together.models == ["one", "other"]
    for observer in (alone, together):
        observer.interval(both(), 0.0)
    one.serve(3, ttft=0.2)
    other.serve(7, ttft=4.0)
    assert present(alone.interval(both(), 1.0)).latencies["ttft"].share_above(1.5) == 0
    interval = present(together.interval(both(), 1.0))
    assert interval.finished == 10
    assert interval.latencies["ttft"].share_above(1.5) == pytest.approx(0.7)
    with pytest.raises(UnobservableError, match="must be one of one, other, but got 'third'"):
        MetricsObserver(both(), BOUNDS, "third")


def test_a_bound_that_cannot_be_checked_is_refused():
    counts = ServerCounts()
    old = {**SERVERS["vLLM"], "tpot": "vllm:time_per_output_token_seconds"}
    with pytest.raises(UnobservableError, match="bound on tpot cannot be checked: vLLM publishes"):
        MetricsObserver(Page(page(counts, old)), BOUNDS)
    between = bounds_of(LatencyBound("itl p99", 0.05))
    assert MetricsObserver(Page(page(counts, old)), between).engine.name == "vLLM"
    with pytest.raises(UnobservableError, match=r"llama\.cpp publishes no histogram.*zeus proxy"):
        MetricsObserver(Page(LLAMA_CPP), BOUNDS)
    with pytest.raises(UnobservableError, match=r"must have metrics of Zeus proxy, vLLM, .* none"):
        MetricsObserver(Page("up 1\n"), BOUNDS)


def test_how_long_the_oldest_request_waits_follows_from_what_arrives():
    names, counts = SERVERS["vLLM"], ServerCounts()
    observer = MetricsObserver(Page(page(counts, names)), BOUNDS)
    seconds = -3.0  # of a clock that may begin anywhere

    def wait(arrived=0, begun=0):
        """Seconds at the end of the next interval, in which requests arrive and others begin."""
        nonlocal seconds
        seconds += 1.0
        counts.waiting += arrived - begun
        counts.running += begun
        interval = observer.interval(Page(page(counts, names)), seconds)
        return interval and interval.oldest_wait

    assert wait() is None  # the first page
    assert wait() == 0
    assert wait(arrived=2) == 1  # or less
    assert wait(arrived=1, begun=1) == 2
    assert wait(begun=1) == 2
    assert wait() == 3
    assert wait(arrived=5, begun=1) == 1
    assert wait(begun=5) == 0
    counts.waiting = 3  # they arrived and others ended between two pages, or were interrupted
    counts.running -= 3
    assert wait() == 3  # since the last arrivals at least


def test_several_queues_do_not_tell_how_long_the_oldest_request_waits():
    names, one, other = SERVERS["vLLM"], ServerCounts(), ServerCounts()

    def both():
        text = page(one, names, 'model_name="m",engine="0"')
        return Page(text + page(other, names, 'model_name="m",engine="1"'))

    observer = MetricsObserver(both(), BOUNDS)
    observer.interval(both(), 0.0)
    other.waiting = 1
    assert present(observer.interval(both(), 1.0)).oldest_wait is None


def test_a_histogram_that_is_read_while_it_changes():
    names, counts = SERVERS["vLLM"], ServerCounts()
    observer = MetricsObserver(Page(page(counts, names)), BOUNDS)
    observer.interval(Page(page(counts, names)), 0.0)
    counts.serve(4, ttft=0.3)
    name = names["ttft"]
    torn = page(counts, names).replace(
        f'{name}_bucket{{model_name="m",le="0.75"}} 4.0',
        f'{name}_bucket{{model_name="m",le="0.75"}} 3.0',
    )
    interval = present(observer.interval(Page(torn), 1.0))
    assert interval.latencies["ttft"].total == pytest.approx(4)


def test_pages_are_read_tolerantly():
    read = Page(
        'a{x="1",y="q\\"\\n}"} 2\n'
        'a 3 1700000000\nb NaN\nc{x=} 1\n{} 4\nd{le="?"} 1\nh_bucket{le="?"} 1\n'
    )
    assert read.total(("none", "a"), {}) == 5
    assert read.total(("a",), {"x": "1"}) == 2
    assert read.values("y") == {'q"\n}'}
    assert "b" not in read
    assert read.histogram(("h",), {}) == Histogram({})
    assert read.histogram(("a",), {}) is None


def test_every_entry_of_the_table_states_its_source():
    assert {engine.name for engine in ENGINES} == {*SERVERS, "llama.cpp"}
    for engine in ENGINES:
        assert engine.source
        assert engine.generated_tokens
        assert engine.running
