"""The page of `zeus proxy` is one that `zeus slo` can read: every bound can be checked by it."""

from __future__ import annotations

import pytest

from zeus.frontier import LatencyBound
from zeus.monitor._requests import RequestMonitor
from zeus.optimizer.serving._bounds import bounds_of
from zeus.optimizer.serving._observer import MetricsObserver
from zeus.optimizer.serving._page import Page
from zeus.proxy._metrics import metrics_page

BOUNDS = [LatencyBound(f"{latency} p99", 1.0) for latency in ("ttft", "tpot", "itl", "e2e")]


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_requests_of_all_models_are_read_from_the_page():
    clock = Clock()
    requests = RequestMonitor(clock, [], virtual=True)

    def page() -> Page:
        return Page(metrics_page({requests: ["http://one", "http://two"]}).decode())

    observer = MetricsObserver(page(), bounds_of(BOUNDS))
    assert observer.engine.name == "Zeus proxy"
    assert observer.interval(page(), 0.0) is None
    answered = requests.begin(100, model="one")
    for clock.now in (0.5, 0.6, 0.7):
        answered.token()
    answered.end()
    running, waiting = requests.begin(10, model="two"), requests.begin(10)
    clock.now = 1.0
    running.token()
    found = observer.interval(page(), 1.0)
    assert found is not None
    assert (found.arrived, found.finished, found.waiting) == (3, 1, 1)
    assert (found.prompt_tokens, found.generated_tokens) == (100, 4)
    assert found.latencies["ttft"].percentile(99) == pytest.approx(0.5, rel=0.25)
    assert found.latencies["tpot"].percentile(50) == pytest.approx(0.1, rel=0.25)
    assert found.latencies["e2e"].total == pytest.approx(1)
    assert waiting.first is None
