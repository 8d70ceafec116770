"""Waiting for the accelerator: found by what is imported and usable, never required.

The frameworks are stand-ins at the outermost edge: modules in `sys.modules` with the few functions
that are called. The real CPU build of PyTorch is tried too.
"""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import pytest

from zeus.monitor import ZeusMonitor
from zeus.monitor._sync import stream_synchronizer, synchronizer
from zeus.testing import SimulatedNode


@pytest.fixture
def calls():
    return []


@pytest.fixture
def node():
    with SimulatedNode("v100x2", load=0.5) as node:
        yield node


def torch_like(calls, *, initialized=True):
    torch: Any = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(
        is_initialized=lambda: initialized, synchronize=lambda index: calls.append(("torch", index))
    )
    return torch


def cupy_like(calls, *, available=True):
    cupy: Any = types.ModuleType("cupy")

    class Device:
        def __init__(self, index):
            self.index = index

        def synchronize(self):
            calls.append(("cupy", self.index))

    cupy.cuda = types.SimpleNamespace(is_available=lambda: available, Device=Device)
    return cupy


def jax_like(calls, platform="gpu"):
    jax: Any = types.ModuleType("jax")

    class Array:
        def __init__(self, device):
            self.device = device

        def __add__(self, other):
            return self

        def block_until_ready(self):
            calls.append(("jax", self.device.id))

    devices = [types.SimpleNamespace(platform=platform, id=i) for i in range(2)]
    jax.local_devices = lambda: devices
    jax.device_put = lambda value, device: Array(device)
    return jax


@pytest.mark.parametrize("make", [torch_like, cupy_like, jax_like])
def test_waits_at_both_ends_for_the_monitored_gpus(node, calls, monkeypatch, make):
    module = make(calls)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monitor = ZeusMonitor(gpu_indices=[1])
    monitor.begin_window("w")
    assert calls == [(module.__name__, 1)]
    monitor.end_window("w")
    assert calls == [(module.__name__, 1)] * 2
    monitor.begin_window("w", sync_execution=False)
    monitor.end_window("w", sync_execution=False)
    assert len(calls) == 2


def test_jax_devices_are_known_by_what_the_driver_calls_them(node, calls, monkeypatch):
    """In a job of several processes, ids count on from process to process."""
    jax = jax_like(calls)
    for device in jax.local_devices():
        device.local_hardware_id, device.id = device.id, device.id + 4
    monkeypatch.setitem(sys.modules, "jax", jax)
    ZeusMonitor(gpu_indices=[1]).begin_window("w")
    assert calls == [("jax", 5)]


@pytest.mark.parametrize("available", [True, False])
def test_the_gpu_of_an_apple_chip_is_waited_for(node, calls, monkeypatch, available):
    torch = torch_like(calls, initialized=False)
    torch.backends = types.SimpleNamespace(
        mps=types.SimpleNamespace(is_available=lambda: available)
    )
    torch.mps = types.SimpleNamespace(synchronize=lambda: calls.append("mps"))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(sys, "platform", "darwin")
    ZeusMonitor(gpu_indices=[]).begin_window("w")
    assert calls == ["mps"] * available


def test_the_wait_comes_before_the_clock_is_read(node, monkeypatch):
    """Work launched before a window does not count, work launched inside does."""
    torch = torch_like([])
    torch.cuda.synchronize = lambda index: node.clock._advancing or node.sleep(1.0)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monitor = ZeusMonitor(gpu_indices=[0])
    monitor.begin_window("w")
    assert monitor.end_window("w").time == pytest.approx(1.0)


def test_unusable_builds_are_left_alone(node, calls, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", torch_like(calls, initialized=False))
    monkeypatch.setitem(sys.modules, "cupy", cupy_like(calls, available=False))
    monkeypatch.setitem(sys.modules, "jax", jax_like(calls, platform="cpu"))
    monitor = ZeusMonitor()
    monitor.begin_window("w")
    monitor.end_window("w")
    assert calls == []


def test_named_frameworks_only(node, calls, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", torch_like(calls))
    monkeypatch.setitem(sys.modules, "cupy", cupy_like(calls))
    ZeusMonitor(gpu_indices=[0], sync_execution_with="cupy").begin_window("w")
    assert calls == [("cupy", 0)]
    ZeusMonitor(gpu_indices=[0], sync_execution_with=None).begin_window("w")
    assert calls == [("cupy", 0)]
    with pytest.raises(ValueError, match="'tensorflow'"):
        ZeusMonitor(sync_execution_with="tensorflow")


# --- the current stream only ----------------------------------------------------------------------


class Streams:
    """Streams of two GPUs: seconds until which each has work; the one of index 0 is current."""

    def __init__(self, node, *until):
        self.node, self.until = node, until
        self.recorded = []

    def wait(self, time):
        self.node.sleep(max(0.0, time - self.node.clock.now()))

    def event(self):
        streams = self

        class Event:
            def record(self, stream):
                streams.recorded.append(stream)
                gpu, index = stream
                self.time = streams.until[gpu][index]

            def synchronize(self):
                streams.wait(self.time)

        return Event()


def torch_with(streams, *, initialized=True):
    torch: Any = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(
        is_initialized=lambda: initialized,
        synchronize=lambda gpu: streams.wait(max(streams.until[gpu])),
        current_stream=lambda gpu: (gpu, 0),
        Event=streams.event,
    )
    return torch


def cupy_with(streams, *, initialized=True):
    cupy: Any = types.ModuleType("cupy")
    current = [0]

    class Device:
        def __init__(self, gpu):
            self.gpu = gpu

        def __enter__(self):
            current.append(self.gpu)

        def __exit__(self, *_):
            current.pop()

        def synchronize(self):
            streams.wait(max(streams.until[self.gpu]))

    cupy.cuda = types.SimpleNamespace(
        is_available=lambda: initialized,
        Device=Device,
        get_current_stream=lambda: (current[-1], 0),
        Event=lambda disable_timing: streams.event(),
    )
    return cupy


@pytest.mark.parametrize("make", [torch_with, cupy_with])
def test_other_streams_and_gpus_are_not_waited_for(node, monkeypatch, make):
    began = node.clock.now()
    streams = Streams(node, (began + 20.0, began + 30.0), (began + 1.0, began + 10.0))
    module = make(streams)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    gpus = node.gpus.select([1])
    wait = stream_synchronizer("auto", gpus)
    assert streams.recorded == []
    wait()
    assert node.clock.now() - began == pytest.approx(1.0)
    assert streams.recorded == [(1, 0)]
    wait()  # nothing is left on that stream
    assert node.clock.now() - began == pytest.approx(1.0)
    synchronizer("auto", gpus)()
    assert node.clock.now() - began == pytest.approx(10.0)


@pytest.mark.parametrize("make", [torch_with, cupy_with])
def test_streams_are_left_alone_where_nothing_was_launched(node, monkeypatch, make):
    streams = Streams(node, (1e6, 1e6), (1e6, 1e6))
    module = make(streams, initialized=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    stream_synchronizer("auto", node.gpus)()
    stream_synchronizer(None, node.gpus)()
    assert streams.recorded == []


def test_the_stream_on_which_jax_computes_is_waited_for(node, calls, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", jax_like(calls))
    stream_synchronizer("jax", node.gpus.select([1]))()
    assert calls == [("jax", 1)]
    with pytest.raises(ValueError, match="'tensorflow'"):
        stream_synchronizer("tensorflow", node.gpus)


SCRIPT = """
import sys
{imports}
from zeus.monitor import ZeusMonitor
monitor = ZeusMonitor({arguments})
monitor.begin_window("w")
{work}
measurement = monitor.end_window("w")
assert measurement.time > 0
assert set(measurement.gpu_energy) == {{0}}, measurement
print("torch" in sys.modules, "jax" in sys.modules, "cupy" in sys.modules)
"""


@pytest.mark.parametrize(
    ("imports", "arguments", "work", "printed"),
    [
        ("", "", "", "False False False"),
        ("", "sync_execution_with='torch'", "", "False False False"),
        ("import torch", "", "torch.ones(100) @ torch.ones(100)", "True False False"),
    ],
)
def test_measuring_works_without_any_framework_and_with_a_cpu_build(
    monkeypatch, imports, arguments, work, printed
):
    if "torch" in imports:
        pytest.importorskip("torch")
    monkeypatch.setenv("ZEUS_SIMULATE", "v100")
    script = SCRIPT.format(imports=imports, arguments=arguments, work=work)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == printed
