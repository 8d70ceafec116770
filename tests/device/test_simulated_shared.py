"""Simulated GPUs that all processes of a user share."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Any

import pytest
from tests.device.clients import SPEC, Clients, onlookers

from zeus.clock import MonotonicClock, VirtualClock
from zeus.device import Gpu
from zeus.device import _simulated as simulated
from zeus.device._base import ClockRange
from zeus.device._simulated import build
from zeus.device._simulated_state import IDLE, GpuState, StateMemory, shared_memory
from zeus.state._files import state_directory
from zeus.state._locks import locked


def test_processes_see_each_others_settings(clients: Clients) -> None:
    gpus = onlookers()
    gpus[1].set_power_limit(187.5)
    seen = clients.ask(
        """
drivers = node.current_node().drivers
before = [driver.power_limit() for driver in drivers]
drivers[0].set_power_limit(123.25)
drivers[0].lock_graphics_clock(ClockRange(300, 900))
drivers[1].set_load(0.5, 0.25)
say(before)
"""
    )
    assert seen == [250.0, 187.5]
    assert gpus[0].power_limit() == 123.25
    assert gpus[0].locked_graphics_clock() == ClockRange(300, 900)
    assert gpus[1].utilization() == 0.25
    assert gpus[1].power_limit() == 187.5


def test_processes_agree_on_energy(clients: Clients) -> None:
    mine = onlookers()[0]
    client = clients.start(
        """
driver = node.current_node().drivers[0]
for _ in range(20):
    say([time.monotonic(), driver.exact_energy(), time.monotonic()]); heard()
"""
    )
    for turn in range(20):
        before, theirs, after = client.hear()
        if turn % 5 == 4:
            mine.set_load([1.0, 0.2, IDLE, 0.7][turn // 5])
        # The same instant cannot be asked twice, but the state in force then can be.
        state = mine._state()
        if state.time <= before:
            power = mine._power(state)
            low, high = (state.energy + power * (t - state.time) for t in (before, after))
            assert low - 1e-6 <= theirs <= high + 1e-6
        client.tell()
    assert client.end() == 0


def test_a_shared_node_begins_loaded_and_keeps_the_load_it_was_given(clients: Clients) -> None:
    report = "say([driver.utilization() for driver in node.current_node().drivers])"
    assert clients.ask(report) == [1.0, 1.0]
    onlookers()[0].set_load(IDLE)
    assert clients.ask(report) == [0.0, 1.0]  # a newcomer leaves it as it is
    assert clients.ask(report, ZEUS_SIMULATE_LOAD="0.5") == [1.0, 1.0]
    driver = onlookers()[0]
    driver.clock.sleep(driver.sensors.reach)  # until the meter shows it
    assert driver.instant_power() == pytest.approx(driver.model.busy_power(1.0, 0.5), abs=1e-3)
    assert clients.ask(report, ZEUS_SIMULATE_LOAD="idle") == [0.0, 0.0]


def test_writers_of_different_knobs_do_not_undo_each_other(clients: Clients) -> None:
    begin = "driver = node.current_node().drivers[0]; say(0); heard()\n"
    limits = begin + (
        "for _ in range(300): driver.set_power_limit(driver.power_limit() - 0.125)\n"
        "say(driver.power_limit())"
    )
    clocks = begin + (
        "for mhz in range(300, 600): driver.lock_graphics_clock(ClockRange(mhz, mhz))\n"
        "say(driver.locked_graphics_clock().maximum)"
    )
    running = [clients.start(limits), clients.start(clocks)]
    for client in running:
        client.hear()
    for client in running:
        client.tell()
    assert [client.hear() for client in running] == [250.0 - 300 * 0.125, 599]
    assert [client.end() for client in running] == [0, 0]
    driver = onlookers()[0]
    assert (driver.power_limit(), driver.current_clocks().graphics) == (212.5, 599)


def test_readers_never_see_half_a_change(clients: Clients) -> None:
    writer = clients.start(
        """
driver = node.current_node().drivers[0]
say(0)
while True:
    driver.lock_graphics_clock(ClockRange(300, 300))
    driver.lock_graphics_clock(ClockRange(900, 900))
"""
    )
    writer.hear()
    memory = onlookers()[0]._memory
    pairs = set()
    for _ in range(20_000):
        state = memory.read(0)
        assert state is not None
        pairs.add((state.graphics_low, state.graphics_high))
    assert pairs <= {(0.0, 0.0), (300.0, 300.0), (900.0, 900.0)}


def test_a_writer_killed_in_the_middle_has_changed_nothing(clients: Clients) -> None:
    driver = onlookers()[0]
    driver.set_power_limit(187.5)
    before = driver._state()
    client = clients.start(
        """
import zeus.device._simulated as simulated

class Deadly(simulated.GpuState):
    def __getattribute__(self, name):
        if name == "power_limit" and deadly:  # half of the fields are written by now
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getattribute__(name)

driver, deadly = node.current_node().drivers[0], False
with driver._memory.exclusive():
    state = Deadly(**vars(driver._state()))
    state.time, state.energy, state.power_limit = 0.0, 0.0, 120.0
    deadly = True
    driver._memory.write(0, state)
"""
    )
    assert client.end() == -signal.SIGKILL
    assert driver._state() == before  # and reading does not hang
    driver.set_power_limit(150.0)  # nor does writing
    assert driver.power_limit() == 150.0


def test_processes_killed_at_random_leave_a_node_that_works(clients: Clients) -> None:
    said = clients.ask(
        """
driver = node.current_node().drivers[0]
rng = random.Random(5)
last = driver.energy()
for _ in range(25):
    child = os.fork()
    if child == 0:
        own = node.current_node().drivers[0]
        while True:
            own.set_load(rng.random())
    time.sleep(rng.random() * 0.004)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    driver.set_power_limit(rng.uniform(100, 250))
    assert driver.energy() >= last, "backwards"
    last = driver.energy()
say("fine")
"""
    )
    assert said == "fine"


def test_an_interrupted_change_in_this_process_does_not_hang_readers() -> None:
    memory = StateMemory(1)
    memory.write(0, GpuState(power_limit=200.0))

    class Interrupted(GpuState):
        def __getattribute__(self, name: str) -> Any:
            if name == "graphics_low":
                raise KeyboardInterrupt
            return super().__getattribute__(name)

    with pytest.raises(KeyboardInterrupt), memory.exclusive():
        memory.write(0, Interrupted(power_limit=100.0))
    assert memory.read(0) == GpuState(power_limit=200.0)


def test_a_signal_during_a_change_waits_until_it_is_done() -> None:
    # The handler sets a knob of the same GPU, which takes the same file lock.
    gpu = Gpu(0, onlookers()[0])
    driver = onlookers()[0]
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        hold = gpu.hold(power_limit=120)
        hold.acquire()
        with driver._change() as state:
            os.kill(os.getpid(), signal.SIGTERM)
            state.share = 0.5
        assert driver.power_limit() == 250.0
        assert driver.utilization() == 0.5
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("size", [0, 8, 100, 100_000])
def test_a_file_of_another_size_is_made_to_fit(size: int) -> None:
    memory = shared_memory(SPEC, 2)
    assert memory.read(0) is None
    assert memory._file is not None
    memory._file.write_bytes(b"\0" * size)
    assert [driver.power_limit() for driver in onlookers()] == [250.0, 250.0]


def test_a_node_of_another_boot_is_another_node(monkeypatch: pytest.MonkeyPatch) -> None:
    onlookers()[0].set_power_limit(150.0)
    monkeypatch.setattr("zeus.device._simulated_state.boot_id", lambda: "another-boot")
    fresh = onlookers()[0]
    assert fresh.power_limit() == 250.0
    assert fresh.exact_energy() < 250.0 * 60  # counted from now, not from some other clock's zero


def test_a_stopped_process_that_holds_the_lock_keeps_nobody_from_reading() -> None:
    driver = onlookers()[0]
    file = driver._memory._file
    assert file is not None
    with locked(file.with_suffix(".lock")):
        assert driver.power_limit() == 250.0
        assert driver.energy() >= 0.0


def test_states_of_neighbours_do_not_mix() -> None:
    memory = StateMemory(3)
    states = [GpuState(energy=float(gpu), share=gpu / 10) for gpu in range(3)]
    for turn in range(3):  # so that either copy has been in use
        for gpu, state in enumerate(states):
            memory.write(gpu, replace(state, counter=float(turn)))
    for gpu, state in enumerate(states):
        assert memory.read(gpu) == replace(state, counter=2.0)


def test_a_real_clock_shares_and_a_virtual_one_does_not() -> None:
    shared, private = build(SPEC, MonotonicClock(), None)[0], build(SPEC, VirtualClock(), None)[0]
    assert shared.shared
    assert not private.shared
    shared.set_power_limit(150.0)
    assert build(SPEC, MonotonicClock(), None)[0].power_limit() == 150.0
    assert private.power_limit() == 250.0


def test_the_state_of_another_boot_is_removed() -> None:
    directory = state_directory() / "simulated"
    directory.mkdir(parents=True)
    old = directory / "v100x2-0badb007-41.state"
    old.write_bytes(bytes(8))
    simulated.build(SPEC, MonotonicClock(), None)
    (kept,) = directory.glob("*.state")
    assert kept != old
    simulated.build("a40", MonotonicClock(), None)
    assert len(list(directory.glob("*.state"))) == 2
