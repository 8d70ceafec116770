"""The metrics of inference servers: one table of their names, with where they were taken from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from zeus.optimizer.serving._interval import E2E, ITL, TPOT, TTFT


@dataclass(frozen=True, kw_only=True)
class Engine:
    """How a server names what it publishes. Of several names, the first that it has counts.

    Attributes:
        name: Name of the server, for people.
        source: Version and file that the names were taken from.
        histograms: Histograms in seconds, by latency.
        prompt_tokens: Counter of prompt tokens.
        generated_tokens: Counter of generated tokens.
        finished: Counter of answered requests.
        running: Gauge of requests that are being processed.
        waiting: Gauge of requests that wait.
        model_label: Label with the name of the model.
        remark: What is missing, and what to do about it.
    """

    name: str
    source: str
    histograms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    prompt_tokens: tuple[str, ...]
    generated_tokens: tuple[str, ...]
    finished: tuple[str, ...] = ()
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    model_label: str = "model_name"
    remark: str = ""


ENGINES = (
    Engine(
        name="Zeus proxy",
        source="zeus proxy of this version",
        histograms={
            TTFT: ("zeus_request_ttft_seconds",),
            TPOT: ("zeus_request_tpot_seconds",),
            ITL: ("zeus_request_itl_seconds",),
            E2E: ("zeus_request_e2e_seconds",),
        },
        prompt_tokens=("zeus_prompt_tokens_total",),
        generated_tokens=("zeus_generated_tokens_total",),
        finished=("zeus_requests_total",),
        running=("zeus_requests_running",),
        waiting=("zeus_requests_waiting",),
        model_label="backends",
    ),
    Engine(
        name="vLLM",
        source="vLLM 0.10 to 0.11, vllm/v1/metrics/loggers.py and docs/design/metrics.md",
        histograms={
            TTFT: ("vllm:time_to_first_token_seconds",),
            # Before 0.11, "time per output token" is the time between two tokens.
            TPOT: ("vllm:request_time_per_output_token_seconds",),
            ITL: ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
            E2E: ("vllm:e2e_request_latency_seconds",),
        },
        prompt_tokens=("vllm:prompt_tokens_total",),
        generated_tokens=("vllm:generation_tokens_total",),
        finished=("vllm:request_success_total",),
        running=("vllm:num_requests_running",),
        waiting=("vllm:num_requests_waiting",),
        remark="before 0.11 it publishes no mean time per token of each request; bound itl instead",
    ),
    Engine(
        name="SGLang",
        source="SGLang 0.4 to 0.5, python/sglang/srt/metrics/collector.py (--enable-metrics)",
        histograms={
            TTFT: ("sglang:time_to_first_token_seconds",),
            TPOT: (
                "sglang:request_time_per_output_token_seconds",
                "sglang:time_per_output_token_seconds",
            ),
            ITL: ("sglang:inter_token_latency_seconds",),
            E2E: ("sglang:e2e_request_latency_seconds",),
        },
        prompt_tokens=("sglang:prompt_tokens_total",),
        generated_tokens=("sglang:generation_tokens_total",),
        finished=("sglang:num_requests_total",),
        running=("sglang:num_running_reqs",),
        waiting=("sglang:num_queue_reqs",),
        remark="newer ones publish no time per token of each request; bound itl instead",
    ),
    Engine(
        name="TensorRT-LLM",
        source="TensorRT-LLM 1.2, tensorrt_llm/metrics/collector.py (trtllm-serve)",
        histograms={
            TTFT: ("trtllm_time_to_first_token_seconds",),
            TPOT: ("trtllm_time_per_output_token_seconds",),
            E2E: ("trtllm_e2e_request_latency_seconds",),
        },
        prompt_tokens=("trtllm_prompt_tokens_total",),
        generated_tokens=("trtllm_generation_tokens_total",),
        finished=("trtllm_request_success_total",),
        running=("trtllm_num_requests_running",),
        waiting=("trtllm_num_requests_waiting",),
        remark="return_perf_metrics must be on",
    ),
    Engine(
        name="llama.cpp",
        source="llama.cpp b11549, read from its running server (--metrics)",
        prompt_tokens=("llamacpp:prompt_tokens_total",),
        generated_tokens=("llamacpp:tokens_predicted_total",),
        running=("llamacpp:requests_processing",),
        waiting=("llamacpp:requests_deferred",),
        remark="it publishes no distribution of latencies; put `zeus proxy` in front of it",
    ),
)
"""Servers whose metrics can be read. `transformers serve` 5.22 publishes none: use the proxy."""


def engine_of(names: Iterable[str]) -> Engine | None:
    """Return the server that publishes metrics of these names."""
    known = set(names)
    for engine in ENGINES:
        if known.intersection((*engine.generated_tokens, *engine.running)):
            return engine
    return None
