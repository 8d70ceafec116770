"""Real and virtual time, and the alarms that go off in both."""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.clock import MonotonicClock, Runner, VirtualClock, every, to_monotonic

PATIENCE = 120.0


class Bell:
    """An alarm that remembers when it rang and is set anew by the test."""

    def __init__(self, due: float | None, period: float | None = None) -> None:
        self.next = due
        self.period = period
        self.rang = threading.Semaphore(0)
        self.times = 0

    def due(self) -> float | None:
        return self.next

    def fire(self) -> None:
        self.times += 1
        if self.next is not None:
            self.next = None if self.period is None else self.next + self.period
        self.rang.release()

    def wait(self) -> None:
        assert self.rang.acquire(timeout=PATIENCE)


@pytest.fixture
def run() -> Iterator[Callable[[Bell], Runner]]:
    runners: list[Runner] = []

    def run(bell: Bell) -> Runner:
        runners.append(MonotonicClock().run(bell, "test-bell"))
        return runners[-1]

    yield run
    for runner in runners:
        runner.stop()


def threads_named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


# --- Real time ------------------------------------------------------------------------------------


def test_real_time_is_the_monotonic_clock() -> None:
    clock = MonotonicClock()
    before = time.monotonic()
    now = clock.now()
    assert before <= now <= time.monotonic()
    assert not clock.virtual
    clock.sleep(0.01)
    assert clock.now() - now >= 0.01


def test_an_alarm_rings_again_and_again_and_not_too_early(run) -> None:
    start = time.monotonic()
    bell = Bell(start + 0.02, period=0.02)
    run(bell)
    for number in range(1, 4):
        bell.wait()
        assert time.monotonic() >= start + 0.02 * number


def test_a_resting_alarm_rings_when_woken(run) -> None:
    bell = Bell(None)
    runner = run(bell)
    bell.next = 0.0
    runner.wake()
    bell.wait()
    assert bell.times == 1


def test_waking_brings_a_distant_alarm_forward(run) -> None:
    bell = Bell(time.monotonic() + 1e6)
    runner = run(bell)
    runner.wake()  # for nothing: it is not due
    bell.next = 0.0
    runner.wake()
    bell.wait()
    assert bell.times >= 1


@pytest.mark.parametrize("due", [math.inf, 1e12])
def test_an_alarm_that_is_never_due_waits_without_harm(run, due: float) -> None:
    bell = Bell(due)
    runner = run(bell)
    assert bell.times == 0
    bell.next = 0.0
    runner.wake()
    bell.wait()
    assert bell.times >= 1


def test_a_stopped_alarm_does_not_ring_again(run) -> None:
    bell = Bell(0.0, period=0.0)  # rings without pause
    runner = run(bell)
    bell.wait()
    runner.stop()
    for thread in threads_named("test-bell"):  # there is none left, unless the host is busy
        thread.join(PATIENCE)
        assert not thread.is_alive()
    runner.stop()  # twice is fine
    runner.wake()


def test_an_alarm_may_stop_itself(run) -> None:
    runner: list[Runner] = []
    ready = threading.Event()

    class Once(Bell):
        def fire(self) -> None:
            ready.wait(PATIENCE)
            runner[0].stop()
            super().fire()

    bell = Once(0.0, period=0.0)
    runner.append(run(bell))
    ready.set()
    bell.wait()
    for thread in threads_named("test-bell"):
        thread.join(PATIENCE)
    assert bell.times == 1


def test_an_alarm_that_fails_says_so_and_ends(run, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Bell):
        def fire(self) -> None:
            super().fire()
            raise ValueError("out of order")

    bell = Broken(0.0, period=0.0)
    with caplog.at_level(logging.ERROR):
        run(bell)
        bell.wait()
        for thread in threads_named("test-bell"):
            thread.join(PATIENCE)
    assert "out of order" in caplog.text
    assert bell.times == 1


def test_stopping_does_not_wait_for_ever_for_a_stuck_alarm(run) -> None:
    let_go = threading.Event()

    class Stuck(Bell):
        def fire(self) -> None:
            super().fire()
            let_go.wait(PATIENCE)

    bell = Stuck(0.0, period=0.0)
    runner = run(bell)
    bell.wait()
    runner.stop()
    assert threads_named("test-bell")
    let_go.set()
    for thread in threads_named("test-bell"):
        thread.join(PATIENCE)
    assert bell.times == 1


def test_periodic_work_starts_one_period_from_now_and_skips_what_it_missed() -> None:
    clock = VirtualClock(10.0)
    alarm = every(2.0, lambda: None, clock)
    assert alarm.due() == 12.0
    clock.sleep(2.0)
    alarm.fire()
    assert alarm.due() == 14.0
    clock.sleep(100.0)
    alarm.fire()
    assert alarm.due() == 112.0  # not 49 times in a row


# --- Instants -------------------------------------------------------------------------------------


@pytest.mark.real_time
def test_instants_of_either_clock_are_understood() -> None:
    clock = MonotonicClock()
    now = time.monotonic()
    assert to_monotonic(now, clock) == now
    for ago in (0.0, 100.0):
        before = time.monotonic() - ago
        found = to_monotonic(time.time() - ago, clock)
        assert before - 0.1 <= found <= time.monotonic() - ago + 0.1
    assert to_monotonic(2e9, VirtualClock()) == 2e9


# --- Virtual time ---------------------------------------------------------------------------------


def test_virtual_time_moves_only_by_sleeping() -> None:
    clock = VirtualClock(5.0)
    assert clock.virtual
    assert clock.now() == 5.0
    clock.sleep(0.0)
    assert clock.now() == 5.0
    clock.sleep(1e9)
    assert clock.now() == 1e9 + 5.0


@pytest.mark.parametrize("seconds", [-1.0, -1e-12, math.nan])
def test_virtual_time_does_not_run_backwards(seconds: float) -> None:
    clock = VirtualClock()
    with pytest.raises(ValueError, match="seconds >= 0"):
        clock.sleep(seconds)
    assert clock.now() == 0.0


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_real_time_does_not_wait_for_what_is_over(seconds: float) -> None:
    MonotonicClock().sleep(seconds)


Log = list[tuple[str, float]]


def rings(clock: VirtualClock, period: float, log: Log, name: str) -> Runner:
    return clock.run(every(period, lambda: log.append((name, clock.now())), clock), name)


def test_alarms_ring_in_order_each_at_its_time() -> None:
    clock = VirtualClock()
    log: Log = []
    rings(clock, 3.0, log, "slow")
    rings(clock, 2.0, log, "fast")
    clock.sleep(6.0)
    assert log == [
        ("fast", 2.0), ("slow", 3.0), ("fast", 4.0), ("slow", 6.0), ("fast", 6.0),
    ]  # fmt: skip
    assert clock.now() == 6.0


@given(st.lists(st.floats(0.0, 3.0), max_size=20), st.lists(st.floats(0.1, 2.0), max_size=4))
def test_however_time_is_cut_alarms_see_it_pass_in_order(
    sleeps: list[float], periods: list[float]
) -> None:
    clock = VirtualClock()
    log: Log = []
    for number, period in enumerate(periods):
        rings(clock, period, log, str(number))
    for seconds in sleeps:
        clock.sleep(seconds)
    instants = [instant for _, instant in log]
    assert instants == sorted(instants)
    assert all(instant <= clock.now() for instant in instants)
    for number, period in enumerate(periods):
        own = [instant for name, instant in log if name == str(number)]
        assert len(own) == pytest.approx(clock.now() / period, abs=1.01)


def test_a_day_is_dense_at_both_ends_and_costs_little() -> None:
    clock = VirtualClock()
    log: Log = []
    rings(clock, 0.01, log, "fast")
    clock.sleep(86400.0)
    instants = [instant for _, instant in log]
    assert 60 <= len(instants) <= 70
    assert instants[:3] == pytest.approx([0.01, 0.02, 0.03])
    assert instants[-1] == pytest.approx(86400.0, abs=0.011)
    gaps = [later - earlier for earlier, later in itertools.pairwise(instants)]
    assert sum(gap > 0.011 for gap in gaps) == 1


def test_a_crowd_of_alarms_is_dense_at_both_ends_too() -> None:
    clock = VirtualClock()
    log: Log = []
    for number in range(50):
        rings(clock, 1.0, log, str(number))
    clock.sleep(1e6)
    for number in range(50):
        own = [instant for name, instant in log if name == str(number)]
        assert len(own) >= 60
        assert own[:2] == [1.0, 2.0]
        assert own[-1] >= 1e6 - 1.0


def test_a_slow_alarm_is_not_lost_next_to_a_fast_one() -> None:
    clock = VirtualClock()
    log: Log = []
    rings(clock, 0.01, log, "fast")
    rings(clock, 600.0, log, "slow")
    clock.sleep(86400.0)
    assert "slow" in dict(log)


def test_a_stopped_alarm_is_silent_in_virtual_time() -> None:
    clock = VirtualClock()
    log: Log = []
    runner = rings(clock, 1.0, log, "bell")
    clock.sleep(1.0)
    runner.stop()
    runner.stop()
    runner.wake()
    clock.sleep(10.0)
    assert log == [("bell", 1.0)]


def test_an_alarm_may_stop_another_while_time_passes() -> None:
    clock = VirtualClock()
    log: Log = []
    victim = rings(clock, 2.0, log, "victim")
    clock.run(every(3.0, victim.stop, clock), "killer")
    clock.sleep(20.0)
    assert log == [("victim", 2.0)]


def test_an_alarm_cannot_move_its_own_clock() -> None:
    clock = VirtualClock()
    clock.run(every(1.0, lambda: clock.sleep(1.0), clock), "impatient")
    with pytest.raises(RuntimeError, match="must not move the clock"):
        clock.sleep(5.0)


def test_the_next_alarm_is_the_earliest_of_those_that_are_set():
    clock = VirtualClock()
    assert clock.next_due() is None
    early, late, unset = Bell(2.0), Bell(5.0), Bell(None)
    for bell in (late, early, unset):
        clock.run(bell, "test-bell")
    assert clock.next_due() == 2.0
    clock.sleep(3.0)
    assert (early.times, clock.next_due()) == (1, 5.0)
    clock.forget(late)
    assert clock.next_due() is None
    unset.next = 9.0
    assert clock.next_due() == 9.0


def test_an_alarm_that_is_overdue_is_due_in_the_past():
    """It rings with the next sleep, however short."""
    clock = VirtualClock(10.0)
    bell = Bell(4.0)
    clock.run(bell, "test-bell")
    assert clock.next_due() == 4.0
    clock.sleep(0.0)
    assert (bell.times, clock.next_due()) == (1, None)
