"""`ServingOptimizer` in a process, on simulated GPUs in virtual time, and its ends."""

from __future__ import annotations

import logging
import random

import pytest
from tests.present import present

from zeus.errors import FrontierError, KnobError, ServerError, ServiceError
from zeus.frontier import All, LatencyBound
from zeus.monitor import ZeusMonitor
from zeus.optimizer import ServingOptimizer
from zeus.testing import SimulatedNode, Workload

BOUNDS = All(LatencyBound("ttft p99", 1.0), LatencyBound("tpot p99", 0.05))
PROMPT = Workload("a prompt", gpu_time=0.05)
TOKEN = Workload("a token", gpu_time=0.02)


def serve(optimizer, node, requests=60, tokens=15):
    traffic = random.Random(4)
    for _ in range(requests):
        with optimizer.begin(prompt_tokens=500) as request:
            with optimizer.phase("prefill"):
                PROMPT.run(node.gpus)
            request.first_token()
            for _ in range(tokens):
                with optimizer.phase("decode"):
                    TOKEN.run(node.gpus)
                request.tokens()
        node.clock.sleep(traffic.expovariate(4))


def clocks(node):
    return [gpu.locked_graphics_clock() for gpu in node.gpus]


def test_it_lowers_the_clock_of_all_gpus_alike_and_restores_it():
    with SimulatedNode("a100x2") as node:
        monitor = ZeusMonitor()
        with ServingOptimizer(monitor, BOUNDS) as optimizer:
            serve(optimizer, node)
            first, second = clocks(node)
            assert first is not None
            assert first == second
            assert first.maximum < 1410
            report = optimizer.report.to_dict()
            assert optimizer.trouble == ""
        assert clocks(node) == [None, None]
    assert report["requests"] == pytest.approx(60, abs=3)
    assert report["generated_tokens"] == pytest.approx(60 * 16, abs=50)
    assert report["energy"] > 0
    assert [bound["kept"] for bound in report["bounds"]] == [True, True]
    assert report["held"][-1]["decode"] == first.maximum


def test_phases_have_clocks_of_their_own():
    bounds = All(LatencyBound("ttft p99", 0.062), LatencyBound("tpot p99", 0.2))
    with (
        SimulatedNode("a100") as node,
        ServingOptimizer(ZeusMonitor(), bounds, phases=True) as optimizer,
    ):
        serve(optimizer, node, 40)
        setting = present(optimizer.decision).setting
        assert setting.prefill > setting.decode
        with optimizer.phase("prefill"):
            assert (clocks(node)[0] is None) or clocks(node)[0].maximum == setting.prefill
        with optimizer.phase("decode"):
            assert clocks(node)[0].maximum == setting.decode


def test_power_limits_are_a_knob_too():
    with SimulatedNode("a100") as node:
        before = node.gpus[0].power_limit()
        with ServingOptimizer(ZeusMonitor(), BOUNDS, knob="power-limit") as optimizer:
            serve(optimizer, node)
            assert node.gpus[0].power_limit() < before
        assert node.gpus[0].power_limit() == before


def test_an_exception_restores_the_clock():
    def fail(node):
        with ServingOptimizer(ZeusMonitor(), BOUNDS) as optimizer:
            serve(optimizer, node)
            assert clocks(node) != [None]
            raise ZeroDivisionError

    with SimulatedNode("a100") as node:
        with pytest.raises(ZeroDivisionError):
            fail(node)
        assert clocks(node) == [None]


def test_observing_changes_nothing():
    with (
        SimulatedNode("a100") as node,
        ServingOptimizer(ZeusMonitor(), BOUNDS, observe=True) as optimizer,
    ):
        serve(optimizer, node)
        assert clocks(node) == [None]
        assert present(optimizer.report.predicted_saving) > 0
        assert "predicted, not measured" in "\n".join(optimizer.report.lines("MHz"))


def test_a_clock_that_was_lowered_before_is_never_exceeded():
    with SimulatedNode("a100") as node, node.gpus[0].hold(graphics_clock=(210, 1200)):
        with ServingOptimizer(ZeusMonitor(), BOUNDS) as optimizer:
            assert present(optimizer.decision).setting.decode <= 1200
            serve(optimizer, node)
            assert clocks(node)[0].maximum < 1200
        assert clocks(node)[0].maximum == 1200


def test_another_hold_overrides_and_is_not_learned_from():
    with SimulatedNode("a100") as node:
        with ServingOptimizer(ZeusMonitor(), BOUNDS) as optimizer:
            serve(optimizer, node)
            with node.gpus[0].hold(graphics_clock=(210, 300)):
                serve(optimizer, node, 10)
                assert clocks(node)[0].maximum == 300
                knowledge = present(optimizer._steering).controller.knowledge
                assert knowledge.decode.factor(1, 1.0) < 1.3
        assert clocks(node) == [None]


def test_gpus_that_cannot_be_controlled_do_not_stop_the_service(caplog):
    with SimulatedNode("a100") as node, caplog.at_level(logging.WARNING):
        with ServingOptimizer(ZeusMonitor([]), BOUNDS) as optimizer:
            serve(optimizer, node, 3)
        assert optimizer.decision is None
        assert "there must be at least one GPU" in optimizer.trouble
        assert "the service is not optimized" in caplog.text


def test_what_was_learned_is_kept_for_the_next_start(tmp_path):
    with SimulatedNode("a100") as node:
        with ServingOptimizer(
            ZeusMonitor(), BOUNDS, service="m", directory=tmp_path / "kept"
        ) as optimizer:
            serve(optimizer, node)
        with ServingOptimizer(
            ZeusMonitor(), BOUNDS, service="m", directory=tmp_path / "kept"
        ) as optimizer:
            serve(optimizer, node, 8)
            assert clocks(node)[0].maximum < 1100
        with ServingOptimizer(
            ZeusMonitor(), BOUNDS, service="n", directory=tmp_path / "kept"
        ) as optimizer:
            serve(optimizer, node, 8)
            assert clocks(node)[0] is None or clocks(node)[0].maximum > 1100
        assert len(list((tmp_path / "kept").iterdir())) == 2


def test_a_file_that_cannot_be_read_is_named_and_kept(tmp_path, caplog):
    directory = tmp_path / "kept"
    with SimulatedNode("a100") as node:
        with ServingOptimizer(ZeusMonitor(), BOUNDS, service="m", directory=directory) as optimizer:
            serve(optimizer, node, 5)
        (file,) = directory.iterdir()
        file.write_text('{"service": []}')
        with ServingOptimizer(ZeusMonitor(), BOUNDS, service="m", directory=directory) as optimizer:
            assert f"{file} is not used, and kept under another name" in caplog.text
            serve(optimizer, node, 5)
    assert file.with_suffix(".refused").read_text() == '{"service": []}'
    assert file.exists()


def test_requests_from_several_threads_and_given_up_ones():
    with SimulatedNode("a100") as node, ServingOptimizer(ZeusMonitor(), BOUNDS) as optimizer:
        first, second = optimizer.begin(10), optimizer.begin(20)
        node.clock.sleep(0.5)
        second.first_token()
        node.clock.sleep(0.1)
        second.tokens(4)
        second.end()
        second.end()
        second.tokens(5)
        first.end()  # without a token
        node.clock.sleep(2.0)
        report = optimizer.report
    assert (report.finished, report.generated_tokens, report.prompt_tokens) == (2, 5, 20)
    (ttft, tpot) = (report.latencies[bound] for bound in report.bounds)
    assert ttft.percentile(50) == pytest.approx(0.5, rel=0.01)
    assert tpot.percentile(50) == pytest.approx(0.025, rel=0.01)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"knob": "fan"}, KnobError),
        ({"interval": 0}, ValueError),
        ({"bounds": LatencyBound("p99", 1)}, FrontierError),
    ],
)
def test_wrong_arguments(options, error):
    bounds = options.pop("bounds", BOUNDS)
    with SimulatedNode("a100"), pytest.raises(error):
        ServingOptimizer(ZeusMonitor(), bounds, **options)


def test_a_phase_has_one_of_two_names():
    wrong = pytest.raises(ValueError, match="'prefill' or 'decode', but got 'idle'")
    with SimulatedNode("a100"), ServingOptimizer(ZeusMonitor(), BOUNDS) as optimizer, wrong:
        optimizer.phase("idle").__enter__()


def test_what_cannot_be_reported_to_is_an_error_at_once(tmp_path):
    with SimulatedNode("a100"):
        with pytest.raises(ServiceError, match="`service` must not be empty"):
            ServingOptimizer(ZeusMonitor(), BOUNDS, server_url="http://127.0.0.1:9")
        with pytest.raises(ServerError, match="http://HOST:PORT"):
            ServingOptimizer(ZeusMonitor(), BOUNDS, service="m", server_url="nowhere")
        # One that does not answer is none.
        with ServingOptimizer(
            ZeusMonitor(), BOUNDS, service="m", directory=tmp_path, server_url="http://127.0.0.1:9"
        ) as optimizer:
            assert optimizer.trouble == ""
