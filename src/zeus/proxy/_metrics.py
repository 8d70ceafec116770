"""The proxy's page of metrics, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from zeus._latencies import Latencies
from zeus.monitor._request_counts import ModelRequests
from zeus.monitor._request_statistics import E2E, ITL, TPOT, TTFT
from zeus.monitor._requests import RequestMonitor

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

#: Upper bounds of buckets: 12 for each factor of 10, so that percentiles are known to 10 %.
SECONDS = tuple(float(f"{10 ** (step / 12):.3g}") for step in range(-36, 34))
JOULES = tuple(float(f"{10 ** (step / 6):.3g}") for step in range(-12, 37))

_HISTOGRAMS = {
    TTFT: ("zeus_request_ttft_seconds", "Time to the first token."),
    TPOT: (
        "zeus_request_tpot_seconds",
        "Time per generated token after the first, as a mean of each request.",
    ),
    ITL: ("zeus_request_itl_seconds", "Time between two tokens of a request."),
    E2E: ("zeus_request_e2e_seconds", "Time from the request to the end of its answer."),
}
_OUTCOMES = ("finished", "failed", "canceled")


def metrics_page(monitors: Mapping[RequestMonitor, Sequence[str]]) -> bytes:
    """Return the page.

    Args:
        monitors: Monitors of requests, each with the URLs of its back ends, which are a label.
    """
    models: list[tuple[str, ModelRequests]] = []
    idle: list[tuple[str, float]] = []
    for monitor, urls in monitors.items():
        own = f'backends="{_label(" ".join(urls))}"'
        idle.append((own, monitor.total().idle_joules))
        for name, requests in monitor.by_model().items():
            models.append((f'{own},model="{_label(name)}"', requests))
    lines: list[str] = []
    for kind, (name, help_text) in _HISTOGRAMS.items():
        lines += _head(name, help_text, "histogram")
        for labels, requests in models:
            lines += _histogram(name, labels, requests.total.latencies[kind], SECONDS)
    lines += _head("zeus_request_joules", "Energy of requests that have ended.", "histogram")
    for labels, requests in models:
        lines += _histogram("zeus_request_joules", labels, requests.total.request_joules, JOULES)
    lines += _head("zeus_requests_total", "Requests that have ended.", "counter")
    for labels, requests in models:
        for outcome in _OUTCOMES:
            value = getattr(requests.total, outcome)
            lines.append(f'zeus_requests_total{{{labels},outcome="{outcome}"}} {value}')
    for name, help_text, field in _COUNTERS:
        lines += _head(name, help_text, "counter")
        lines += [f"{name}{{{labels}}} {getattr(each.total, field)!r}" for labels, each in models]
    lines += _head("zeus_idle_joules_total", "Energy without a request.", "counter")
    lines += [f"zeus_idle_joules_total{{{labels}}} {joules!r}" for labels, joules in idle]
    lines += _head("zeus_requests_running", "Requests that have a token so far.", "gauge")
    lines += [f"zeus_requests_running{{{labels}}} {each.running}" for labels, each in models]
    lines += _head("zeus_requests_waiting", "Requests without a token so far.", "gauge")
    lines += [f"zeus_requests_waiting{{{labels}}} {each.waiting}" for labels, each in models]
    return ("\n".join(lines) + "\n").encode()


_COUNTERS = (
    ("zeus_prompt_tokens_total", "Prompt tokens, once answered.", "prompt_tokens"),
    ("zeus_generated_tokens_total", "Generated tokens.", "generated_tokens"),
    ("zeus_prompt_joules_total", "Energy due to prompts.", "prompt_joules"),
    ("zeus_generated_joules_total", "Energy due to generation.", "generated_joules"),
)


def _head(name: str, help_text: str, kind: str) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]


def _histogram(name: str, labels: str, found: Latencies, bounds: Sequence[float]) -> Iterator[str]:
    for bound, count in zip(bounds, found.cumulative(bounds), strict=True):
        yield f'{name}_bucket{{{labels},le="{bound:g}"}} {round(count)}'
    total = round(found.total)
    yield f'{name}_bucket{{{labels},le="+Inf"}} {total}'
    yield f"{name}_sum{{{labels}}} {found.sum!r}"
    yield f"{name}_count{{{labels}}} {total}"


def _label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
