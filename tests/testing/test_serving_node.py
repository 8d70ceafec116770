"""A simulated server on simulated GPUs: sensors show what the server draws, clocks slow it down."""

from __future__ import annotations

import math

import pytest

from zeus.monitor import ZeusMonitor
from zeus.testing import (
    PowerSegment,
    ServingWorkload,
    SimulatedNode,
    Traffic,
    draw_power,
    serve_on,
    simulate_serving,
)

TRAFFIC = Traffic.poisson(1.5, 60, prompt=900, generated=80, seed=2)
A100 = ServingWorkload.on("a100")


def test_the_gpu_draws_what_the_server_draws():
    with SimulatedNode("a100") as node:
        monitor = ZeusMonitor()
        before, began = node.exact_energy(), node.clock.now()
        with monitor.window("traffic") as window:
            result = serve_on(node.gpus, A100, TRAFFIC)
        drawn = node.exact_energy() - before
        assert node.clock.now() - began == pytest.approx(result.seconds)
        assert drawn == pytest.approx(result.energy, rel=1e-6)
        node.sleep(1.0)
        assert window.measurement is not None
        assert window.measurement.energy == pytest.approx(result.energy, rel=0.01)
        shares = math.fsum(each.energy for each in result.requests)
        assert shares + result.idle_energy == pytest.approx(drawn, rel=1e-6)
        plain = simulate_serving(A100, TRAFFIC)
        assert result.energy == pytest.approx(plain.energy, rel=0.01)
        assert result.percentile("ttft", 50) == pytest.approx(plain.percentile("ttft", 50), rel=0.1)


def test_a_clock_that_is_held_slows_the_server_down():
    clocks = []

    def observe(event):
        if isinstance(event, PowerSegment):
            clocks.append(event.clock)

    with SimulatedNode("a100x2", clock_lag=0.01) as node:
        work = ServingWorkload.on("a100", gpus=2)
        fast = serve_on(node.gpus, work, TRAFFIC)
        with node.gpus[0].hold(graphics_clock=705), node.gpus[1].hold(graphics_clock=705):
            slow = serve_on(node.gpus, work, TRAFFIC, observer=observe)
        assert clocks[0] == 1410  # the lag has not passed
        assert set(clocks[1:]) <= {1410, 705}
        assert clocks[-1] == 705
        medians = [each.percentile("ttft", 50) or 0.0 for each in (slow, fast)]
        assert medians[0] > 1.5 * medians[1] > 0
        assert slow.energy < fast.energy


def test_power_is_drawn_within_what_the_gpu_can():
    with SimulatedNode("a100x2") as node:
        draw_power(node.gpus, 500)
        before = node.exact_energy(1)
        node.sleep(2)
        assert node.exact_energy(1) - before == pytest.approx(500)
        draw_power(node.gpus[0], 1)
        before = node.exact_energy(0)
        node.sleep(1)
        assert node.exact_energy(0) - before == pytest.approx(83)  # while it waits
        for wrong in (-1, math.nan):
            with pytest.raises(ValueError, match="watts"):
                draw_power(node.gpus, wrong)
