"""The load of a real GPU: a process of its own, whose end is never ours."""

from __future__ import annotations

import time

import pytest

from zeus.clock import MonotonicClock
from zeus.verify._kernel_load import KernelLoad, LoadError
from zeus.verify._load_pattern import Segment

CUPY = """
import time

float16 = "half"

def ones(shape, dtype):
    return shape

def matmul(left, right):
    time.sleep(2e-3)

class Event:
    def __init__(self, disable_timing): ...
    def record(self): ...
    def synchronize(self): ...

class Device:
    def __init__(self, ordinal):
        if ordinal > 0:
            raise RuntimeError("invalid device ordinal\\nand more lines")
    def use(self): ...

class cuda:
    Event, Device = Event, Device
"""


@pytest.fixture
def cupy(tmp_path, monkeypatch):
    """A CuPy whose products take 2 ms, where child processes find it."""
    (tmp_path / "cupy.py").write_text(CUPY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")


def run(load: KernelLoad) -> None:
    begun = time.monotonic()
    load.start([Segment(0.02, on=True), Segment(0.03, on=False), Segment(0.02, on=True)])
    edges = load.finish()
    assert [edge.on for edge in edges] == [True, False, True, False]
    instants = [edge.instant for edge in edges]
    assert instants == sorted(instants)
    assert begun <= instants[0]
    assert instants[-1] - instants[0] >= 0.07 - 1e-6
    load.begin_steps(0.05)
    steps = load.finish_steps()
    assert steps
    assert all(took > 0 for _, took in steps)


def test_a_pattern_and_steps(cupy):
    load = KernelLoad("cupy", "cuda", 0, MonotonicClock())
    try:
        assert load.name == "matrix products of 1024 x 1024 with cupy"
        run(load)
    finally:
        load.close()


def test_a_device_that_cannot_be_used_says_why(cupy):
    with pytest.raises(LoadError, match=r"^RuntimeError: invalid device ordinal$"):
        KernelLoad("cupy", "cuda", 1, MonotonicClock())


def test_a_framework_that_crashes_is_an_error(cupy):
    load = KernelLoad("cupy", "cuda", 0, MonotonicClock())
    load._process.kill()
    load._process.wait()
    with pytest.raises(LoadError, match="has ended"):
        load.run(0.01)
    load.close()


@pytest.mark.thorough
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_frameworks(framework):
    pytest.importorskip(framework)
    load = KernelLoad(framework, "cpu", 0, MonotonicClock())
    try:
        run(load)
    finally:
        load.close()
