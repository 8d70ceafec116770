"""The seam of devices: what a back end does not offer is unsupported, and costs only itself."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from tests.device.clients import stand_in

from zeus.device import Gpu
from zeus.device._base import (
    AbsentGpuDriver,
    Capability,
    ClockRange,
    Cpu,
    CpuDriver,
    GpuDriver,
    GpuIdentity,
    Problem,
    Soc,
    Support,
    implausible,
    suppress_unsupported,
    unsupported,
)
from zeus.errors import CapabilityError, KnobError, Reason

IDENTITY = GpuIdentity("GPU-bare", "Bare", "NVIDIA", "0000:3b:00.0")
ARGUMENTS: dict[str, Any] = {
    "seen_as_slice": ["MIG-a"],
    "process_usage": [0.0],
    "power_samples": [0.0],
    "set_power_limit": [200.0],
    "lock_graphics_clock": [ClockRange(300, 900)],
    "lock_memory_clock": [None],
    "set_persistence": [True],
}
# What a back end may leave out without lacking anything.
NEVER_REFUSED = {"version", "sample", "locked_graphics_clock", "locked_memory_clock"}


def methods(kind: type) -> set[str]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name for name, _ in found if not name.startswith("_")}


def bare() -> GpuDriver:
    driver = GpuDriver()
    driver.identity = IDENTITY
    return driver


def ask(driver: GpuDriver, name: str) -> object:
    return getattr(driver, name)(*ARGUMENTS.get(name, []))


# --- Back ends ------------------------------------------------------------------------------------


def test_only_what_is_missing_is_passed_over() -> None:
    with suppress_unsupported():
        raise unsupported(Capability.MEMORY)
    with pytest.raises(CapabilityError, match="-3 W"), suppress_unsupported():
        raise implausible(Capability.AVERAGE_POWER, "-3 W")
    with pytest.raises(ZeroDivisionError), suppress_unsupported():
        raise ZeroDivisionError


@pytest.mark.parametrize("name", sorted(methods(GpuDriver) - NEVER_REFUSED))
def test_what_a_back_end_does_not_override_is_unsupported(name: str) -> None:
    with pytest.raises(CapabilityError) as refused:
        ask(bare(), name)
    assert refused.value.reason is Reason.UNSUPPORTED
    assert refused.value.detail


def test_a_sample_has_errors_in_the_place_of_readings() -> None:
    class Metered(GpuDriver):
        def instant_power(self) -> float:
            return 321.0

    joules, watts = Metered().sample()
    assert isinstance(joules, CapabilityError)
    assert joules.reason is Reason.UNSUPPORTED
    assert watts == 321.0


def test_a_back_end_that_tells_no_locks_and_no_version_is_complete() -> None:
    assert bare().version() == ""
    assert bare().locked_graphics_clock() is bare().locked_memory_clock() is None


@pytest.mark.parametrize("name", sorted(methods(GpuDriver)))
def test_a_gpu_that_is_absent_refuses_everything_for_the_same_reason(name: str) -> None:
    why = CapabilityError(Reason.LOST, "fell off the bus", "reboot")
    driver = AbsentGpuDriver(IDENTITY, why)
    for _ in range(2):
        with pytest.raises(CapabilityError) as refused:
            ask(driver, name)
        error = refused.value
        assert (error.reason, error.detail, error.cure) == (why.reason, why.detail, why.cure)
        assert error is not why, "each has a traceback of its own"
    assert driver.identity is IDENTITY


# --- GPUs -----------------------------------------------------------------------------------------


def test_a_gpu_answers_every_question_that_a_back_end_does() -> None:
    setters = {"set_power_limit", "lock_graphics_clock", "lock_memory_clock", "set_persistence"}
    assert methods(GpuDriver) - methods(Gpu) == setters | {"seen_as_slice"}


def test_a_gpu_is_known_by_its_number_name_and_key() -> None:
    gpu = Gpu(3, bare())
    assert (gpu.index, gpu.name, gpu.key) == (3, "Bare", "GPU-bare")
    assert "3" in repr(gpu)
    assert "Bare" in repr(gpu)


@pytest.mark.parametrize("capability", Capability)
def test_nothing_is_supported_by_a_bare_back_end(capability: Capability) -> None:
    support = Gpu(0, bare()).support(capability)
    assert not support.available
    assert support.reason is Reason.UNSUPPORTED
    assert support.detail


def test_asking_what_is_supported_changes_nothing() -> None:
    gpu, driver = stand_in()
    driver.limit = 187.5
    found = {capability for capability in Capability if gpu.support(capability).available}
    assert found == {
        Capability.POWER_LIMIT,
        Capability.SET_POWER_LIMIT,
        Capability.LOCK_CLOCKS,
    }
    assert (driver.limit, driver.graphics, driver.memory_clock) == (187.5, None, None)


def test_a_refusal_says_why_and_what_would_help() -> None:
    gpu, driver = stand_in()

    def refuse(knob: str, value: object) -> None:
        raise CapabilityError(Reason.NO_PERMISSION, "not you", "be root")

    driver.before = refuse
    wanted = Support(False, Reason.NO_PERMISSION, "not you", "be root")
    assert gpu.support(Capability.SET_POWER_LIMIT) == wanted
    assert gpu.support(Capability.LOCK_CLOCKS) == wanted

    def mistake(knob: str, value: object) -> None:
        raise KnobError("a limit of 0 W?")

    driver.before = mistake
    assert gpu.support(Capability.SET_POWER_LIMIT).detail == "a limit of 0 W?"


# --- Others ---------------------------------------------------------------------------------------


def test_a_package_without_counters_says_which_are_missing() -> None:
    cpu = Cpu(0, "package-0", CpuDriver())
    for question, missing in ((cpu.energy, "package"), (cpu.dram_energy, "DRAM")):
        with pytest.raises(CapabilityError, match=f"{missing} energy counter"):
            question()


def test_a_chip_tells_neither_energy_nor_power_by_default() -> None:
    assert Soc().energies() is Soc().powers() is None


def test_a_problem_is_told_with_what_it_stands_in_the_way_of() -> None:
    problem = Problem("NVIDIA GPUs", CapabilityError(Reason.DRIVER_ABSENT, "no library"))
    assert str(problem) == "NVIDIA GPUs: driver absent: no library"
