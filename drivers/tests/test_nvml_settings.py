"""The simulated NVML driver: knobs that processes share."""

from __future__ import annotations

from drivers.tests.nvml_clients import (
    Simulate,
    error,
)

from simulated_drivers import ClockSettings, GpuSpec, NvmlReturn


def test_settings_are_shared_between_processes(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec(needs_root=False), GpuSpec(needs_root=False))
    clients.run(
        "a, b = start()\n"
        "N.nvmlDeviceSetPowerManagementLimit(a, 250_000)\n"
        "N.nvmlDeviceSetPowerManagementLimit_v2(b, N.NVML_POWER_SCOPE_GPU, 150_000)\n"
        "N.nvmlDeviceSetPersistenceMode(a, 1)\n"
        "N.nvmlDeviceSetGpuLockedClocks(a, 600, 900)\n"
        "N.nvmlDeviceSetMemoryLockedClocks(a, 1215, 1215)\n"
        "N.nvmlDeviceSetApplicationsClocks(b, 1215, 1200)\n"
        "answer(None)"
    )
    assert [sim.power_limit(0), sim.power_limit(1)] == [250.0, 150.0]
    assert [sim.persistence(0), sim.persistence(1)] == [True, False]
    assert sim.clocks(0) == ClockSettings((600, 900), (1215, 1215), 1215, 1410)
    assert sim.clocks(1) == ClockSettings(None, None, 1215, 1200)
    assert clients.run(
        "a, b = start()\n"
        "answer([N.nvmlDeviceGetPowerManagementLimit(a), N.nvmlDeviceGetEnforcedPowerLimit(b),\n"
        "        N.nvmlDeviceGetPersistenceMode(a), N.nvmlDeviceGetClockInfo(a, 0),\n"
        "        N.nvmlDeviceGetClock(b, 0, 0), N.nvmlDeviceGetApplicationsClock(b, 0)])"
    ) == [250_000, 150_000, 1, 900, 1200, 1200]
    clients.run(
        "a, b = start()\n"
        "N.nvmlDeviceResetGpuLockedClocks(a); N.nvmlDeviceResetMemoryLockedClocks(a)\n"
        "N.nvmlDeviceResetApplicationsClocks(b)\n"
        "answer(None)"
    )
    assert sim.clocks(0) == sim.clocks(1) == ClockSettings(None, None, 1215, 1410)


def test_what_the_driver_refuses_changes_nothing(simulate: Simulate) -> None:
    sim, clients = simulate(
        GpuSpec(needs_root=False, min_power_limit=100, max_power_limit=300, default_power_limit=280)
    )
    invalid = error(NvmlReturn.INVALID_ARGUMENT)
    assert clients.run(
        "h = start()[0]\n"
        "answer([N.nvmlDeviceGetPowerManagementLimitConstraints(h),\n"
        "        N.nvmlDeviceGetPowerManagementDefaultLimit(h),\n"
        "        outcome(N.nvmlDeviceSetPowerManagementLimit, h, 99_999),\n"
        "        outcome(N.nvmlDeviceSetPowerManagementLimit, h, 300_001),\n"
        "        outcome(N.nvmlDeviceSetGpuLockedClocks, h, 900, 600),\n"
        "        outcome(N.nvmlDeviceSetApplicationsClocks, h, 1215, 1201)])"
    ) == [[100_000, 300_000], 280_000, invalid, invalid, invalid, invalid]
    assert sim.power_limit(0) == 280.0


ATTEMPT_CONTROL = """
answer([outcome(N.nvmlDeviceSetPowerManagementLimit, h, 200_000),
        outcome(N.nvmlDeviceSetPersistenceMode, h, 1),
        outcome(N.nvmlDeviceSetGpuLockedClocks, h, 600, 900)])
"""


def test_control_is_refused_on_demand(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec(needs_root=False))
    sim.deny_control()
    refused = [error(NvmlReturn.NO_PERMISSION)] * 3
    assert clients.run("h = start()[0]" + ATTEMPT_CONTROL) == refused
    sim.deny_control(False)
    assert clients.run("h = start()[0]" + ATTEMPT_CONTROL) == [None] * 3
    assert sim.power_limit(0) == 200.0


def test_control_may_need_root(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec(needs_root=True))
    become_nobody = "h = start()[0]\nif os.geteuid() == 0: os.seteuid(65534)\n"
    refused = [error(NvmlReturn.NO_PERMISSION)] * 3
    assert clients.run(become_nobody + ATTEMPT_CONTROL) == refused
    assert sim.power_limit(0) == 400.0


def test_clocks_are_listed(simulate: Simulate) -> None:
    _, clients = simulate(GpuSpec(memory_clocks=[810, 1593], graphics_clocks=[900, 1980, 1200]))
    assert clients.run(
        "h = start()[0]\n"
        "answer([N.nvmlDeviceGetSupportedMemoryClocks(h),\n"
        "        N.nvmlDeviceGetSupportedGraphicsClocks(h, 1593),\n"
        "        outcome(N.nvmlDeviceGetSupportedGraphicsClocks, h, 1),\n"
        "        N.nvmlDeviceGetMaxClockInfo(h, 0), N.nvmlDeviceGetMaxClockInfo(h, 2)])"
    ) == [[1593, 810], [1980, 1200, 900], error(NvmlReturn.NOT_FOUND), 1980, 1593]
