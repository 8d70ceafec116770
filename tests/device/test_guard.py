"""Guarded driver calls: hanging ones are given up, and nothing waits for them for ever."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from zeus.device import _guard as guards
from zeus.device._guard import Guard
from zeus.errors import CapabilityError, Reason

PATIENCE = 120.0


class Driver:
    """Calls that hang until they are let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.let_go = threading.Event()
        self.log: list[str] = []

    def hang(self) -> str:
        self.entered.set()
        self.let_go.wait(PATIENCE)
        self.log.append("hung")
        return "late"

    def answer(self) -> str:
        self.log.append("answered")
        return "now"


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    driver.let_go.set()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_values_and_errors_come_through() -> None:
    guard = Guard("GPU 0")
    assert guard.call(lambda: 42) == 42

    def refuse() -> None:
        raise CapabilityError(Reason.LOST, "gone")

    with pytest.raises(CapabilityError, match="gone"):
        guard.call(refuse)
    with pytest.raises(ZeroDivisionError):
        guard.call(lambda: 1 // 0)
    assert guard.call(lambda: "still there") == "still there"


def test_calls_run_in_one_thread_that_does_not_keep_the_program_alive() -> None:
    guard = Guard("GPU 0")
    first, second = (guard.call(threading.current_thread) for _ in range(2))
    assert first is second is not threading.current_thread()
    assert first.daemon


def test_a_hanging_call_is_given_up_and_costs_the_next_ones_no_time(driver: Driver) -> None:
    guard = Guard("GPU 7", timeout=0.05)
    with pytest.raises(CapabilityError, match=r"GPU 7 did not answer within 0\.05 s") as hanging:
        guard.call(driver.hang)
    assert hanging.value.reason is Reason.HANGS
    for _ in range(3):
        with pytest.raises(CapabilityError) as refused:
            guard.call(driver.answer)
        assert refused.value.reason is Reason.HANGS
    assert driver.log == []  # the device was left alone meanwhile


def test_the_device_is_back_once_the_stuck_call_returns(driver: Driver) -> None:
    guard = Guard("GPU 0", timeout=0.05)
    with pytest.raises(CapabilityError):
        guard.call(driver.hang)
    driver.let_go.set()
    wait_until(lambda: driver.log == ["hung"])

    def answers() -> bool:
        try:
            return guard.call(driver.answer) == "now"
        except CapabilityError:
            return False

    wait_until(answers)


def test_a_call_that_was_given_up_while_waiting_is_never_made(driver: Driver) -> None:
    # Otherwise a limit would be set long after its hold was told that it could not be.
    guard = Guard("GPU 0", timeout=0.1)
    failures: list[Reason] = []

    def expect_hanging(call: Callable[[], str]) -> None:
        try:
            guard.call(call)
        except CapabilityError as error:
            failures.append(error.reason)

    first = in_thread(lambda: expect_hanging(driver.hang))
    assert driver.entered.wait(PATIENCE)
    expect_hanging(driver.answer)
    first.join(PATIENCE)
    assert failures == [Reason.HANGS] * 2
    driver.let_go.set()
    wait_until(lambda: driver.log == ["hung"])
    wait_until(lambda: not _refused(guard))
    assert driver.log == ["hung"]


def _refused(guard: Guard) -> bool:
    try:
        guard.call(lambda: None)
    except CapabilityError:
        return True
    return False


@pytest.mark.real_time
def test_waiting_for_others_is_not_hanging() -> None:
    # Callers of a driver that takes a sixth of the limit each: the last waits for longer than it.
    guard = Guard("GPU 0", timeout=1.2)
    answers: list[int] = []

    def slow() -> int:
        time.sleep(0.2)
        return 1

    threads = [in_thread(lambda: answers.append(guard.call(slow))) for _ in range(7)]
    for thread in threads:
        thread.join(PATIENCE)
    assert answers == [1] * 7


def test_the_default_limit_is_read_at_the_time_of_the_call(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = Guard("GPU 0")
    monkeypatch.setattr(guards, "DEFAULT_TIMEOUT", 0.02)
    with pytest.raises(CapabilityError, match=r"within 0\.02 s"):
        guard.call(driver.hang)


def test_a_signal_handler_may_call_while_a_call_is_under_way(driver: Driver) -> None:
    # What SIGTERM does to a program that reads a GPU on which it also holds a limit.
    guard = Guard("GPU 0", timeout=PATIENCE)
    inside: list[str] = []

    def handle(*_: object) -> None:
        driver.let_go.set()
        inside.append(guard.call(driver.answer))

    def interrupt() -> None:
        if driver.entered.wait(PATIENCE):
            os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        in_thread(interrupt)
        assert guard.call(driver.hang) == "late"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert inside == ["now"]
    assert driver.log == ["hung", "answered"]


def test_a_forked_child_starts_afresh_even_if_the_parent_is_stuck(driver: Driver) -> None:
    guard = Guard("GPU 0", timeout=0.05)
    with pytest.raises(CapabilityError):
        guard.call(driver.hang)
    guard._timeout = PATIENCE
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if guard.call(lambda: 42) == 42 else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_thread_ends_with_its_guard() -> None:
    guard = Guard("GPU 0")
    thread = guard.call(threading.current_thread)
    del guard
    gc.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()
