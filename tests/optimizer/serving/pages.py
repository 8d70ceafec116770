"""Pages of metrics as servers publish them, from counts that a test moves on."""

from __future__ import annotations

from dataclasses import dataclass, field

TTFT_BOUNDS = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    10.0,
)
TPOT_BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)


@dataclass
class ServerCounts:
    """What a server has counted since its start."""

    prompt: float = 0.0
    generated: float = 0.0
    finished: int = 0
    running: int = 0
    waiting: int = 0
    ttft: list[float] = field(default_factory=list)
    tpot: list[float] = field(default_factory=list)

    def serve(self, requests: int, ttft: float = 0.2, tpot: float = 0.03) -> None:
        self.prompt += 1000 * requests
        self.generated += 100 * requests
        self.finished += requests
        self.ttft += [ttft] * requests
        self.tpot += [tpot] * requests


def histogram(name, values, bounds, labels):
    own = f"{labels}," if labels else ""
    lines = [f"# TYPE {name} histogram"]
    for bound in (*bounds, float("inf")):
        shown = "+Inf" if bound == float("inf") else repr(bound)
        count = sum(value <= bound for value in values)
        lines.append(f'{name}_bucket{{{own}le="{shown}"}} {float(count)}')
    lines.append(f"{name}_sum{{{labels}}} {sum(values)}")
    lines.append(f"{name}_count{{{labels}}} {float(len(values))}")
    return lines


def page(counts, names, labels='model_name="m"'):
    """A page with the names of a server, by what they stand for."""
    lines = [
        "# HELP python_info something else",
        'python_info{version="3.12"} 1.0',
        "a line that is not understood",
    ]
    for key in ("prompt", "generated", "finished", "running", "waiting"):
        if key in names:
            lines.append(f"{names[key]}{{{labels}}} {float(getattr(counts, key))}")
    for key, bounds in (("ttft", TTFT_BOUNDS), ("tpot", TPOT_BOUNDS)):
        if key in names:
            lines += histogram(names[key], getattr(counts, key), bounds, labels)
    return "\n".join(lines) + "\n"


SERVERS = {
    "vLLM": {
        "ttft": "vllm:time_to_first_token_seconds",
        "tpot": "vllm:request_time_per_output_token_seconds",
        "prompt": "vllm:prompt_tokens_total",
        "generated": "vllm:generation_tokens_total",
        "finished": "vllm:request_success_total",
        "running": "vllm:num_requests_running",
        "waiting": "vllm:num_requests_waiting",
    },
    "SGLang": {
        "ttft": "sglang:time_to_first_token_seconds",
        "tpot": "sglang:time_per_output_token_seconds",
        "prompt": "sglang:prompt_tokens_total",
        "generated": "sglang:generation_tokens_total",
        "finished": "sglang:num_requests_total",
        "running": "sglang:num_running_reqs",
        "waiting": "sglang:num_queue_reqs",
    },
    "TensorRT-LLM": {
        "ttft": "trtllm_time_to_first_token_seconds",
        "tpot": "trtllm_time_per_output_token_seconds",
        "prompt": "trtllm_prompt_tokens_total",
        "generated": "trtllm_generation_tokens_total",
        "finished": "trtllm_request_success_total",
        "running": "trtllm_num_requests_running",
        "waiting": "trtllm_num_requests_waiting",
    },
    "Zeus proxy": {
        "ttft": "zeus_request_ttft_seconds",
        "tpot": "zeus_request_tpot_seconds",
        "prompt": "zeus_prompt_tokens_total",
        "generated": "zeus_generated_tokens_total",
        "finished": "zeus_requests_total",
        "running": "zeus_requests_running",
        "waiting": "zeus_requests_waiting",
    },
}

LLAMA_CPP = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed, excluding cached tokens
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 4
llamacpp:prompt_seconds_total 0.058447
llamacpp:tokens_predicted_total 8
llamacpp:tokens_predicted_seconds_total 0.156945
llamacpp:n_decode_total 8
llamacpp:requests_processing 0
llamacpp:requests_deferred 0
llamacpp:n_busy_slots_per_decode 1
"""
"""As the server of xllamacpp 2026.10 publishes it after a request, without what is not read."""
