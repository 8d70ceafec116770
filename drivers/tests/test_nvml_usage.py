"""The simulated NVML driver: for how long processes use a GPU."""

from __future__ import annotations

import os
import time

import pytest
from drivers.tests.nvml_clients import Simulate, error

from simulated_drivers import GpuSpec, NvmlReturn

READ = (
    "def read(h, since):\n"
    "    samples = outcome(N.nvmlDeviceGetProcessUtilization, h, since)\n"
    "    if isinstance(samples, str):\n"
    "        return samples\n"
    "    return [[s.pid, s.timeStamp, s.smUtil] for s in samples]\n"
    "h = start()[0]\n"
)


def test_means_since_the_last_sample_in_whole_percent(simulate: Simulate) -> None:
    simulation, clients = simulate(GpuSpec())
    begun = simulation.set_process_usage(0, {11: 0.6, 12: 0.25})
    samples = clients.run(
        READ + "found = read(h, 0)\n"
        "first = time.time()\n"
        "while isinstance(found, str) or found[0][1] < 1e6 * (first + 0.3):\n"
        "    time.sleep(0.01)\n"
        "    found = read(h, int(1e6 * first))\n"
        "answer(found)"
    )
    assert [(pid, percent) for pid, _, percent in samples] == [(11, 60), (12, 25)]
    assert samples[0][1] == samples[1][1]
    assert simulation.process_seconds(0, 11, begun + 10) == pytest.approx(6)


def test_a_process_that_stopped_is_dated_by_when_it_ran(simulate: Simulate) -> None:
    simulation, clients = simulate(GpuSpec())
    since = int(1e6 * time.time())
    simulation.set_process_usage(0, {11: 1.0, 12: 1.0})
    time.sleep(0.4)
    simulation.set_process_usage(0, {12: 1.0})
    gone, stays = clients.run(
        READ + "found = {}\n"
        "while len(found) < 2 or found[12][1] < found[11][1] + 4e5:\n"
        "    time.sleep(0.01)\n"
        f"    rows = read(h, {since})\n"
        "    found = {} if isinstance(rows, str) else {row[0]: row for row in rows}\n"
        "answer([found[11], found[12]])"
    )
    assert stays[2] > 95
    assert 0 < gone[2] < stays[2]
    assert since < gone[1] < stays[1]


def test_without_a_sample_nothing_is_found(simulate: Simulate) -> None:
    simulation, clients = simulate(GpuSpec(compute_processes=[(11, 2**20)]))
    simulation.set_process_usage(0, {11: 0.0})
    assert clients.run(READ + "answer(read(h, 0))") == error(NvmlReturn.NOT_FOUND)
    later = "answer(read(h, int(1e6 * (time.time() + 60))))"
    simulation.set_process_usage(0, {11: 1.0})
    assert clients.run(READ + later) == error(NvmlReturn.NOT_FOUND)


def test_a_gpu_in_slices_does_not_report_it(simulate: Simulate) -> None:
    simulation, clients = simulate(GpuSpec(mig_uuids=["MIG-1"], utilization_gpu=50))
    simulation.set_process_usage(0, {os.getpid(): 1.0})
    assert clients.run(READ + "answer(read(h, 0))") == error(NvmlReturn.NOT_SUPPORTED)
