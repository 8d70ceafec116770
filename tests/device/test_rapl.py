from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.device.trees import (
    RANGE,
    Powercap,
    follow,
    lock,
    open_directory,
    open_files,
    unprivileged,
)

from zeus.device import _rapl as rapl
from zeus.errors import CapabilityError, Reason


@pytest.fixture
def powercap(tmp_path: Path) -> Powercap:
    return Powercap(tmp_path / "sys")


@pytest.fixture
def shared_powercap():
    with open_directory() as directory:
        yield Powercap(directory / "sys")


def only_cpu(powercap: Powercap):
    cpus, problems = rapl.discover(powercap.root)
    assert problems == []
    assert len(cpus) == 1
    return cpus[0]


# What is counted.


def test_each_package_is_a_cpu_with_its_own_energy(powercap):
    powercap.add("0", "package-0", 1_500_000)
    powercap.add("1", "package-1", 2_500_000)
    cpus, problems = rapl.discover(powercap.root)
    assert [(cpu.index, cpu.name, cpu.energy()) for cpu in cpus] == [
        (0, "package-0", 1.5),
        (1, "package-1", 2.5),
    ]
    assert problems == []


def test_the_package_number_comes_from_the_name(powercap):
    powercap.add("0", "package-1", 1_000_000)
    powercap.add("1", "package-0", 7_000_000)
    cpus, _ = rapl.discover(powercap.root)
    assert [(cpu.index, cpu.energy()) for cpu in cpus] == [(0, 7.0), (1, 1.0)]


def test_more_than_ten_packages_are_in_numeric_order(powercap):
    for number in range(12):
        powercap.add(str(number), f"package-{number}", number)
    cpus, _ = rapl.discover(powercap.root)
    assert [cpu.index for cpu in cpus] == list(range(12))


def test_platform_and_memory_mapped_twins_are_not_counted(powercap):
    powercap.add("0", "package-0", 1_000_000)
    powercap.add("1", "psys", 9_000_000)
    powercap.add("2", "psys-0", 9_000_000)
    powercap.add("0", "package-0", 1_000_000, control="intel-rapl-mmio")
    powercap.add("0:0", "dram", 1_000_000, control="intel-rapl-mmio")
    cpu = only_cpu(powercap)
    assert cpu.energy() == 1.0
    with pytest.raises(CapabilityError) as caught:
        cpu.dram_energy()
    assert caught.value.reason is Reason.UNSUPPORTED


def test_a_second_zone_of_the_same_name_is_not_counted(powercap):
    for zone in ("0", "1"):
        powercap.add(zone, "package-0", 1_000_000)
        powercap.add(f"{zone}:0", "dram", 3_000_000)
    cpu = only_cpu(powercap)
    assert (cpu.energy(), cpu.dram_energy()) == (1.0, 3.0)


def test_dies_and_their_memory_are_summed(powercap):
    for zone, die in (("0", 0), ("1", 1)):
        powercap.add(zone, f"package-0-die-{die}", 1_000_000 + die)
        powercap.add(f"{zone}:0", "dram", 250_000)
    powercap.add("2", "package-1-die-0", 5_000_000)
    cpus, problems = rapl.discover(powercap.root)
    assert problems == []
    assert [(cpu.index, cpu.name, cpu.energy()) for cpu in cpus] == [
        (0, "package-0", 2.000001),
        (1, "package-1", 5.0),
    ]
    assert cpus[0].dram_energy() == 0.5


def test_memory_is_counted_once_and_parts_of_the_package_not_at_all(powercap):
    powercap.add("0", "package-0", 10_000_000)
    powercap.add("0:0", "core", 4_000_000)
    powercap.add("0:1", "uncore", 1_000_000)
    powercap.add("0:2", "dram", 2_000_000)
    assert sorted(path.name for path in powercap.root.iterdir()) == [
        "intel-rapl",
        "intel-rapl:0",
        "intel-rapl:0:0",
        "intel-rapl:0:1",
        "intel-rapl:0:2",
    ]
    cpu = only_cpu(powercap)
    assert (cpu.energy(), cpu.dram_energy()) == (10.0, 2.0)


@pytest.mark.parametrize("below", ["", "intel-rapl"])
def test_zones_that_are_only_nested_are_found(powercap, below):
    powercap.add("0", "package-0", 10_000_000, linked=False)
    powercap.add("0:0", "dram", 2_000_000, linked=False)
    cpus, _ = rapl.discover(powercap.devices / below)
    assert [(cpu.energy(), cpu.dram_energy()) for cpu in cpus] == [(10.0, 2.0)]


def test_zones_without_a_counter_are_skipped(powercap):
    powercap.add("0", "package-0", 1_000_000)
    powercap.add("0:0", "dram", None)
    powercap.add("1", "package-1", None)
    cpu = only_cpu(powercap)
    assert cpu.index == 0
    with pytest.raises(CapabilityError) as caught:
        cpu.dram_energy()
    assert caught.value.reason is Reason.UNSUPPORTED


def test_zones_without_a_name_are_skipped(powercap):
    powercap.add("0", "package-0", 1_000_000)
    (powercap.add("1", "package-1") / "name").unlink()
    assert only_cpu(powercap).index == 0


def test_zones_without_any_counter_are_reported(powercap):
    powercap.add("0", "psys", 1_000_000)
    powercap.add("1", "package-0", None)
    cpus, problems = rapl.discover(powercap.root)
    assert cpus == []
    assert [problem.error.reason for problem in problems] == [Reason.UNSUPPORTED]


# What is missing.


@pytest.mark.parametrize(
    ("system", "machine"), [("Darwin", "arm64"), ("Linux", "aarch64"), ("Windows", "AMD64")]
)
def test_platforms_without_rapl_have_no_problem(tmp_path, system, machine):
    assert rapl.discover(tmp_path / "absent", system=system, machine=machine) == ([], [])


@pytest.mark.parametrize("create", [False, True])
def test_linux_on_x86_without_zones_says_what_to_load(tmp_path, create):
    root = tmp_path / "powercap"
    if create:
        root.mkdir()
    cpus, [problem] = rapl.discover(root, system="Linux", machine="x86_64")
    assert cpus == []
    assert problem.error.reason is Reason.DRIVER_ABSENT
    assert str(root) in problem.error.detail
    assert "virtual machines" in problem.error.detail
    assert problem.error.cure.startswith("sudo modprobe -a intel_rapl_common intel_rapl_msr")


def test_links_into_a_hidden_directory_are_a_container(powercap):
    powercap.add("0", "package-0")
    powercap.devices.rename(powercap.devices.with_name("hidden"))
    cpus, [problem] = rapl.discover(powercap.root)
    assert cpus == []
    assert problem.error.reason is Reason.DRIVER_ABSENT
    assert "container" in problem.error.detail


def test_this_machine_can_be_asked():
    cpus, problems = rapl.discover()
    assert all(cpu.energy() >= 0 for cpu in cpus)
    assert all(problem.error.detail for problem in problems)


# What is refused.


def test_an_unreadable_package_is_mended_by_its_cure(shared_powercap):
    package = shared_powercap.add("0", "package-0", 1_000_000)
    dram = shared_powercap.add("0:0", "dram", 2_000_000)
    lock(package / "energy_uj", dram / "energy_uj")
    with unprivileged():
        cpus, [problem] = rapl.discover(shared_powercap.root)
    assert cpus == []
    assert problem.error.reason is Reason.NO_PERMISSION
    assert str(shared_powercap.root) in problem.error.cure
    assert "\n" not in problem.error.cure

    follow(problem.error.cure)
    with unprivileged():
        cpu = only_cpu(shared_powercap)
        assert (cpu.energy(), cpu.dram_energy()) == (1.0, 2.0)


def test_the_cure_reaches_zones_that_are_only_nested(shared_powercap):
    package = shared_powercap.add("0", "package-0", 1_000_000, linked=False)
    dram = shared_powercap.add("0:0", "dram", 2_000_000, linked=False)
    lock(package / "energy_uj", dram / "energy_uj")
    with unprivileged():
        _, [problem] = rapl.discover(shared_powercap.devices)
    follow(problem.error.cure)
    with unprivileged():
        [cpu], problems = rapl.discover(shared_powercap.devices)
        assert (cpu.energy(), cpu.dram_energy(), problems) == (1.0, 2.0, [])


def test_unreadable_memory_costs_only_memory(shared_powercap):
    shared_powercap.add("0", "package-0", 1_000_000)
    lock(shared_powercap.add("0:0", "dram", 2_000_000) / "energy_uj")
    with unprivileged():
        [cpu], [problem] = rapl.discover(shared_powercap.root)
        assert cpu.energy() == 1.0
        with pytest.raises(CapabilityError) as caught:
            cpu.dram_energy()
    assert caught.value.reason is problem.error.reason is Reason.NO_PERMISSION
    assert caught.value.cure == problem.error.cure
    assert "DRAM" in problem.what
    follow(problem.error.cure)
    with unprivileged():
        assert only_cpu(shared_powercap).dram_energy() == 2.0


def test_one_unreadable_die_is_not_passed_off_as_the_package(shared_powercap):
    shared_powercap.add("0", "package-0-die-0", 1_000_000)
    lock(shared_powercap.add("1", "package-0-die-1", 1_000_000) / "energy_uj")
    shared_powercap.add("2", "package-1", 3_000_000)
    with unprivileged():
        cpus, [problem] = rapl.discover(shared_powercap.root)
        assert [(cpu.index, cpu.energy()) for cpu in cpus] == [(1, 3.0)]
        assert problem.error.reason is Reason.NO_PERMISSION
    # The readable die was opened first; the problem must not keep it open.
    assert open_files(shared_powercap.devices) == 1


@pytest.mark.parametrize("file", ["name", "max_energy_range_uj"])
def test_other_unreadable_files_are_mended_by_their_cure(shared_powercap, file):
    lock(shared_powercap.add("0", "package-0", 1_000_000) / file)
    with unprivileged():
        cpus, [problem] = rapl.discover(shared_powercap.root)
    assert cpus == []
    assert problem.error.reason is Reason.NO_PERMISSION
    follow(problem.error.cure)
    with unprivileged():
        assert only_cpu(shared_powercap).energy() == 1.0


def test_an_unreadable_root_is_mended_by_its_cure(shared_powercap):
    shared_powercap.add("0", "package-0", 1_000_000)
    shared_powercap.root.chmod(0)
    with unprivileged():
        cpus, [problem] = rapl.discover(shared_powercap.root)
    assert (cpus, problem.error.reason) == ([], Reason.NO_PERMISSION)
    follow(problem.error.cure)
    with unprivileged():
        assert only_cpu(shared_powercap).energy() == 1.0


# What goes wrong later.


@pytest.mark.parametrize("content", ["", "not a number", "-1", "1.5", str(RANGE + 1), "1\n2"])
def test_what_is_not_a_counter_value_is_implausible(powercap, content):
    powercap.add("0", "package-0", 5)
    powercap.add("0:0", "dram", 5)
    cpu = only_cpu(powercap)
    powercap.set("0", content)
    with pytest.raises(CapabilityError) as caught:
        cpu.energy()
    assert caught.value.reason is Reason.IMPLAUSIBLE
    assert cpu.dram_energy() == 5e-6
    # The bad reading has left no trace.
    powercap.set("0", 6)
    assert cpu.energy() == 6e-6


@pytest.mark.parametrize("content", ["", "not a number"])
def test_what_is_not_a_counter_value_is_found_at_once(powercap, content):
    powercap.add("0", "package-0", content)
    cpus, [problem] = rapl.discover(powercap.root)
    assert (cpus, problem.error.reason) == ([], Reason.IMPLAUSIBLE)


@pytest.mark.parametrize(
    ("maximum", "reason"),
    [(None, Reason.UNSUPPORTED), (0, Reason.IMPLAUSIBLE), ("", Reason.IMPLAUSIBLE)],
)
def test_a_counter_of_unknown_range_is_not_used(powercap, maximum, reason):
    powercap.add("0", "package-0", 5, maximum)
    cpus, [problem] = rapl.discover(powercap.root)
    assert (cpus, problem.error.reason) == ([], reason)


def test_a_counter_that_cannot_be_read_from_the_start_is_lost(powercap):
    (powercap.add("0", "package-0", None) / "energy_uj").mkdir()
    cpus, [problem] = rapl.discover(powercap.root)
    assert (cpus, problem.error.reason) == ([], Reason.LOST)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_file_that_the_kernel_takes_away_is_lost(powercap):
    # A process's file in /proc behaves as a device's in /sys: still open, but nothing behind it.
    child = subprocess.Popen(["sleep", "60"])
    try:
        zone = powercap.add("0", "package-0", None)
        (zone / "energy_uj").symlink_to(f"/proc/{child.pid}/timerslack_ns")
        powercap.add("1", "package-1", 3_000_000)
        first, second = rapl.discover(powercap.root)[0]
        assert first.energy() > 0
    finally:
        child.kill()
        child.wait()
    with pytest.raises(CapabilityError) as caught:
        first.energy()
    assert caught.value.reason is Reason.LOST
    assert second.energy() == 3.0


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_files_are_closed_with_the_last_reference(powercap):
    powercap.add("0", "package-0")
    powercap.add("0:0", "dram")
    cpu = only_cpu(powercap)
    assert open_files(powercap.devices) == 2
    del cpu
    assert open_files(powercap.devices) == 0


# Wraparound.


def test_wrap_period_follows_the_counter_that_fills_first(powercap):
    powercap.add("0", "package-0", maximum=262_000_000_000)
    assert only_cpu(powercap).driver.wrap_period == 262.0
    powercap.add("0:0", "dram", maximum=65_000_000_000)
    assert only_cpu(powercap).driver.wrap_period == 65.0


def test_a_value_exactly_at_the_range_is_a_value(powercap):
    powercap.add("0", "package-0", 1_000_000, maximum=1_000_000)
    cpu = only_cpu(powercap)
    assert cpu.energy() == 1.0
    assert cpu.energy() == 1.0
    powercap.set("0", 0)
    assert cpu.energy() == 1.000001
    powercap.set("0", 1_000_000)
    assert cpu.energy() == 2.000001


def test_package_and_memory_wrap_apart(powercap):
    powercap.add("0", "package-0", 900, maximum=999)
    powercap.add("0:0", "dram", 90, maximum=99)
    cpu = only_cpu(powercap)
    powercap.set("0:0", 10)
    assert (cpu.energy(), cpu.dram_energy()) == (900e-6, 110e-6)
    powercap.set("0", 100)
    assert (cpu.energy(), cpu.dram_energy()) == (1100e-6, 110e-6)


@st.composite
def histories(draw, counters: int):
    """Ranges, first raw values, and steps: increments of each counter, and whether one reads."""
    ranges = draw(st.lists(st.integers(1, 2**40), min_size=counters, max_size=counters))
    starts = [draw(st.integers(0, limit)) for limit in ranges]
    step = st.tuples(st.tuples(*(st.integers(0, limit) for limit in ranges)), st.booleans())
    return ranges, starts, draw(st.lists(step, max_size=20))


def replay(ranges, starts, steps) -> None:
    """Let the counters of the dies of one package count, and compare with what is true."""
    with open_directory() as directory:
        powercap = Powercap(directory)
        for die, (limit, start) in enumerate(zip(ranges, starts, strict=True)):
            powercap.add(str(die), f"package-0-die-{die}", start, limit)
        cpu = only_cpu(powercap)
        true, unread = list(starts), [0] * len(ranges)
        for increments, wants_reading in steps:
            after = [sum(pair) for pair in zip(unread, increments, strict=True)]
            # More than a range between two readings is lost, and `wrap_period` is there for that.
            if any(amount > limit for amount, limit in zip(after, ranges, strict=True)):
                assert cpu.energy() == sum(true) / 1e6
                after = list(increments)
            unread = after
            for die, increment in enumerate(increments):
                true[die] += increment
                powercap.set(str(die), true[die] % (ranges[die] + 1))
            if wants_reading:
                assert cpu.energy() == sum(true) / 1e6
                unread = [0] * len(ranges)
        assert cpu.energy() == sum(true) / 1e6


@settings(deadline=None, max_examples=100)
@given(histories(counters=1))
def test_wraps_are_undone_exactly(history):
    replay(*history)


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 4).flatmap(histories))
def test_dies_that_wrap_apart_are_summed_exactly(history):
    replay(*history)


# Threads and processes.


def test_threads_that_overtake_each_other_see_no_false_wrap(powercap, monkeypatch):
    powercap.add("0", "package-0", 0, maximum=999)
    cpu = only_cpu(powercap)
    counter_lock = threading.Lock()
    count = 0

    def slow_pread(descriptor: int, size: int, offset: int) -> bytes:
        nonlocal count
        with counter_lock:
            count += 7
            value = count
        # Others may run between the kernel's answer and its use.
        time.sleep(random.random() * 1e-4)
        return b"%d\n" % (value % 1000)

    monkeypatch.setattr(os, "pread", slow_pread)
    readings: list[list[float]] = [[] for _ in range(4)]

    def read(mine: list[float]) -> None:
        mine.extend(cpu.energy() for _ in range(100))

    threads = [threading.Thread(target=read, args=(mine,)) for mine in readings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in readings)
    everything = sorted(reading for mine in readings for reading in mine)
    assert everything == [7 * (index + 1) / 1e6 for index in range(400)]


def test_a_process_forked_in_the_middle_of_a_reading_can_read(powercap, monkeypatch):
    powercap.add("0", "package-0", 5_000_000)
    cpu = only_cpu(powercap)
    real_pread = os.pread
    inside, go_on = threading.Event(), threading.Event()

    def stuck_pread(descriptor: int, size: int, offset: int) -> bytes:
        inside.set()
        go_on.wait()
        return real_pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", stuck_pread)
    thread = threading.Thread(target=cpu.energy)
    thread.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # not the deadline of this test
        signal.alarm(120)
        os.pread = real_pread
        os._exit(0 if cpu.energy() == 5.0 else 1)
    _, status = os.waitpid(child, 0)
    go_on.set()
    thread.join()
    assert status == 0
