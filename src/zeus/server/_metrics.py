"""Request metrics of the server, in the text format of Prometheus."""

from __future__ import annotations

import threading
from collections import Counter

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds


class Metrics:
    """Request counters and a latency histogram."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets = [0] * (len(_BUCKETS) + 1)
        self._seconds = 0.0

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request.

        Args:
            method: HTTP method; nonstandard ones are counted as "other".
            route: Path template of the route, empty if none matched.
            status: Status code of the response.
            seconds: Time to the response.
        """
        known = method if method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS") else "other"
        place = next((i for i, bound in enumerate(_BUCKETS) if seconds <= bound), len(_BUCKETS))
        with self._lock:
            self._requests[known, route, status] += 1
            self._buckets[place] += 1
            self._seconds += seconds

    def lines(self) -> list[str]:
        """Return request counts by route and status, and the latency histogram."""
        with self._lock:
            requests, buckets = dict(self._requests), list(self._buckets)
            seconds = self._seconds
        lines = _head("zeus_http_requests_total", "Requests answered.", "counter")
        for (method, route, status), number in sorted(requests.items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            lines.append(f"zeus_http_requests_total{{{labels}}} {number}")
        lines += _head("zeus_http_request_seconds", "Seconds until the response.", "histogram")
        total = 0
        for bound, number in zip((*_BUCKETS, "+Inf"), buckets, strict=True):
            total += number
            lines.append(f'zeus_http_request_seconds_bucket{{le="{bound}"}} {total}')
        lines.append(f"zeus_http_request_seconds_sum {seconds:.6f}")
        lines.append(f"zeus_http_request_seconds_count {total}")
        return lines


def gauge(name: str, value: float, what: str, kind: str = "gauge") -> list[str]:
    """Return the lines of one metric; `what` is its help text."""
    # Enough digits: a counter that is rounded to tens would distort every rate.
    return [*_head(name, what, kind), f"{name} {value:.15g}"]


def _head(name: str, what: str, kind: str) -> list[str]:
    return [f"# HELP {name} {what}", f"# TYPE {name} {kind}"]
