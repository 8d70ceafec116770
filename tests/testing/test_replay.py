"""A replayed log gives code that measures the same answers again."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from tests.present import present

from zeus.monitor import Measurement, ZeusMonitor
from zeus.monitor._log import read_log
from zeus.testing import ReplayMonitor, SimulatedNode, Workload

HEADER = "start_time,window_name,elapsed_time,gpu0_energy,gpu2_energy\n"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(
        HEADER + "10.0,inner,1.5,100.0,200.0\n" + "9.0,outer,4.0,300.0,\n" + "20,last,2,50,60\n"
    )
    return path


def measure(monitor):
    """The windows of the log, as a program would open them."""
    monitor.begin_window("outer")
    monitor.begin_window("inner", sync_execution=False)
    inner = monitor.end_window("inner", sync_execution=False)
    outer = monitor.end_window("outer")
    with monitor.window("last") as last:
        pass
    return inner, outer, last.measurement


def test_windows_come_in_the_order_of_their_ends(log):
    monitor = ReplayMonitor(log)
    assert monitor.gpu_indices == [0, 2]
    assert monitor.remaining == 3
    inner, outer, last = measure(monitor)
    assert (inner.time, inner.gpu_energy) == (1.5, {0: 100.0, 2: 200.0})
    assert (last.time, last.total_energy) == (2.0, 110.0)
    assert monitor.remaining == 0
    assert inner.complete
    # What could not be measured then is not 0 now.
    assert (outer.time, outer.gpu_energy) == (4.0, {0: 300.0})
    assert [reading.index for reading in outer.unavailable] == [2]


def test_another_name_is_an_error_that_names_both(log):
    monitor = ReplayMonitor(log)
    monitor.begin_window("outer")
    with pytest.raises(ValueError, match=r"'outer'.*'inner'.*line 2"):
        monitor.end_window("outer")
    # Nothing was taken, and the window is still open.
    assert monitor.remaining == 3
    monitor.begin_window("inner")
    monitor.end_window("inner")
    assert monitor.end_window("outer").time == 4.0


def test_names_may_be_left_out_of_account(log):
    monitor = ReplayMonitor(log, match_window_name=False)
    with monitor.window("anything") as window:
        pass
    assert present(window.measurement).time == 1.5


def test_the_end_of_the_log_is_an_error(log):
    monitor = ReplayMonitor(log)
    measure(monitor)
    monitor.begin_window("more")
    with pytest.raises(ValueError, match=r"'more'.*3 windows"):
        monitor.end_window("more")


def test_cancelled_and_forgotten_windows_take_nothing(log):
    monitor = ReplayMonitor(log)
    monitor.begin_window("warmup")
    cancelled = monitor.end_window("warmup", cancel=True)
    assert math.isnan(cancelled.time)
    assert cancelled.energy is None
    monitor.begin_window("forgotten")
    scope = monitor.window("forgotten too")
    with scope:
        monitor.reset_windows()
    assert scope.measurement is None
    assert monitor.remaining == 3
    measure(monitor)


def test_windows_out_of_order_are_errors(log):
    monitor = ReplayMonitor(log)
    with pytest.raises(ValueError, match="'inner' is not open"):
        monitor.end_window("inner")
    monitor.begin_window("inner")
    with pytest.raises(ValueError, match="'inner' is open already"):
        monitor.begin_window("inner")
    monitor.begin_window("inner", restart=True)
    assert monitor.end_window("inner").time == 1.5


def test_scopes_decorate_functions_and_call_back(log):
    heard: list[Measurement] = []
    with ReplayMonitor(log, match_window_name=False) as monitor:

        @monitor.window("step", callback=heard.append)
        def step():
            return 7

        @monitor.window("step")
        async def wait():
            return 8

        assert step() == 7
        assert asyncio.run(wait()) == 8
    assert [measurement.time for measurement in heard] == [1.5]
    called: list[Any] = [step, wait]
    assert called[0].measurements[0] is heard[0]
    assert called[1].measurements[0].time == 4.0


def test_what_a_monitor_logged_is_replayed(tmp_path):
    path = tmp_path / "windows.csv"
    node = SimulatedNode("v100x2")
    work = Workload("job", gpu_time=0.5, host_time=0.05)

    def program(monitor):
        measurements = []
        monitor.begin_window("epoch")
        for _ in range(3):
            with monitor.window("step") as window:
                work.run(node.gpus)
            measurements.append(window.measurement)
        monitor.begin_window("warmup")
        monitor.end_window("warmup", cancel=True)
        measurements.append(monitor.end_window("epoch"))
        return measurements

    with ZeusMonitor(node=node, log_file=path) as monitor:
        measured = program(monitor)
    replay = ReplayMonitor(path)
    replayed = program(replay)
    assert replay.gpu_indices == monitor.gpu_indices
    assert replay.remaining == 0
    for recorded, again in zip(measured, replayed, strict=True):
        assert again.time == recorded.time
        assert again.gpu_energy == recorded.gpu_energy


def test_the_recorded_profiles(traces):
    logs = sorted((traces / "profiles").glob("*.csv"))
    assert logs
    for path in logs:
        monitor = ReplayMonitor(path)
        rows = read_log(path)
        assert monitor.gpu_indices == list(rows[0].gpu_energy)
        for row in rows:
            monitor.begin_window(row.name)
            measurement = monitor.end_window(row.name)
            assert measurement.time == row.elapsed_time
            assert measurement.gpu_energy == row.gpu_energy
        assert monitor.remaining == 0


def test_what_is_not_a_log_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no log"):
        ReplayMonitor(tmp_path / "absent.csv")
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="line 1"):
        ReplayMonitor(path)


def test_an_empty_log_has_nothing_to_replay(tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text(HEADER)
    assert ReplayMonitor(path).remaining == 0
