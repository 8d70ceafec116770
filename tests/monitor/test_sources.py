"""Where samples come from: a helper process if there can be one, and what if it dies or hangs."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from zeus.clock import MonotonicClock, VirtualClock
from zeus.device._node import current_node
from zeus.errors import CapabilityError, Reason
from zeus.monitor._edges import WindowEdges
from zeus.monitor._sample_ring import Slot
from zeus.monitor._sources import SampleSources, helper_possible
from zeus.testing import SimulatedNode

LONG_ENOUGH = 120.0


def eventually(condition):
    deadline = time.monotonic() + LONG_ENOUGH
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- whether there can be a helper ----------------------------------------------------------------


@pytest.mark.parametrize("executable", ["", "/usr/sbin/uwsgi", "/nowhere/python3", None])
def test_only_a_python_is_started(executable: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert helper_possible()
    monkeypatch.setattr(sys, "executable", executable)
    assert not helper_possible()


def test_a_frozen_program_starts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert not helper_possible()


def test_a_helper_starts_no_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_HELPER", "0")
    assert not helper_possible()


# --- in virtual time ------------------------------------------------------------------------------


@pytest.fixture
def virtual():
    node = SimulatedNode("v100x2", load=1.0)
    return node, SampleSources(node.clock, WindowEdges())


def test_a_gpu_has_one_source_whoever_asks(virtual):
    node, sources = virtual
    first, second = sources.of(node.gpus)
    assert sources.of([node.gpus[1]]) == (second,)
    assert first is not second
    assert not sources.followed, "in virtual time there is no helper"


def test_a_source_polls_when_it_is_due(virtual):
    node, sources = virtual
    (source,) = sources.of([node.gpus[0]])
    source.due = node.clock.now()
    source.poll()
    assert source.estimator.status.trouble is None
    assert node.clock.now() < source.due < math.inf


def test_a_gpu_that_hangs_is_left_alone_for_growing_pauses(virtual):
    node, sources = virtual
    (source,) = sources.of([node.gpus[0]])
    error = CapabilityError(Reason.HANGS, "it did not answer")
    pauses = []
    for _ in range(9):
        source.halt(error, now=1000.0)
        pauses.append(source.retry_at - 1000.0)
    assert source.halted
    assert source.estimator.status.trouble is error
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    source.due = math.inf
    source.expedite(0.0)  # a window begins
    assert source.due == math.inf, "only a helper of its own polls it"


# --- a real helper --------------------------------------------------------------------------------


@pytest.fixture
def sources(monkeypatch):
    """Of a simulated GPU that processes share; a helper polls it by now."""
    monkeypatch.setenv("ZEUS_SIMULATE", "v100")
    made = SampleSources(MonotonicClock(), WindowEdges())
    made.of(current_node().gpus)
    eventually(lambda: made.followed)
    yield made
    made.end()


def collected(source):
    """How many refreshes the helper has sent."""
    source.collect()
    return source._reader.read


def test_a_helper_polls_while_it_is_asked_to(sources):
    (source,) = sources.of(current_node().gpus)
    sources.check(time.monotonic())
    sources.window_begins(time.monotonic())
    eventually(lambda: collected(source) > 3)
    assert source.estimator.status.trouble is None


def test_ending_leaves_no_process(sources):
    process = sources._helpers[0]._process
    sources.end()
    assert process.poll() is not None
    assert not Path(f"/proc/{process.pid}").exists()
    assert not sources.followed


def test_a_helper_that_dies_is_done_without(sources):
    (source,) = sources.of(current_node().gpus)
    helper = sources._helpers[0]
    os.kill(helper._process.pid, signal.SIGKILL)
    eventually(helper.failed)
    sources.check(time.monotonic())
    assert not sources.followed
    source.due = 0.0
    source.poll()  # by this process
    assert source.estimator.status.trouble is None


def test_a_helper_in_whose_driver_a_call_hangs_is_left_behind(sources):
    (source,) = sources.of(current_node().gpus)
    helper = sources._helpers[0]
    os.kill(helper._process.pid, signal.SIGSTOP)
    # As if it had been stopped in the midst of a call.
    now = time.monotonic()
    helper.ring.front[Slot.READING] = 0
    helper.ring.front[Slot.READING_SINCE] = now - 60.0
    assert helper.stuck_source(now) is source
    sources.check(now)
    assert source.halted
    assert source.estimator.status.trouble.reason is Reason.HANGS
    assert helper not in sources._helpers


def test_in_a_forked_child_the_helper_is_the_parents(sources):
    (source,) = sources.of(current_node().gpus)
    child = os.fork()
    if child == 0:
        try:
            sources.forget_helper()
            source.due = 0.0
            source.poll()
            polled = source.estimator.status.trouble is None and not sources.followed
            os._exit(0 if polled else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sources.followed
    assert not sources._helpers[0].failed()


def test_without_processes_a_thread_polls(monkeypatch, caplog):
    monkeypatch.setenv("ZEUS_SIMULATE", "v100")
    monkeypatch.setattr(os, "pipe", _refuse)
    made = SampleSources(MonotonicClock(), WindowEdges())
    (source,) = made.of(current_node().gpus)
    assert "no helper process can be started (Too many open files): polling" in caplog.text
    source.due = 0.0
    source.poll()
    assert source.estimator.status.trouble is None


def _refuse():
    raise OSError("Too many open files")


def test_a_virtual_clock_takes_no_helper():
    assert not SampleSources(VirtualClock(), WindowEdges())._usable
