"""Holds and the ends of a process: signals, exits, forks and kills."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
from tests.device.clients import onlookers, stand_in
from tests.device.holding import ODD, recovered

from zeus.device import Gpu
from zeus.device._records import recorded_gpus
from zeus.state._critical import critical_section

# --- Signals in the middle of a change ------------------------------------------------------------


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("phase", ["acquire", "change", "release"])
def test_a_signal_in_the_middle_of_a_change_waits_for_its_end(moment: str, phase: str) -> None:
    gpu, driver = stand_in()
    calls: list[tuple[float, bool]] = []
    before = signal.signal(
        signal.SIGTERM, lambda *_: calls.append((driver.limit, critical_section._inside()))
    )
    hold = gpu.hold(power_limit=120)

    def send(knob: str, value: Any) -> None:
        driver.before = driver.after = lambda knob, value: None
        os.kill(os.getpid(), signal.SIGTERM)

    try:
        if phase != "acquire":
            hold.acquire()
        setattr(driver, moment, send)
        step = {"acquire": hold.acquire, "release": hold.release}
        step.get(phase, lambda: hold.change(power_limit=110))()
    finally:
        signal.signal(signal.SIGTERM, before)
    # The user's handler ran once, with everything put back and nothing locked.
    assert calls == [(250.0, False)]
    assert driver.limit == 250.0
    assert not recorded_gpus()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_ctrl_c_in_the_middle_of_acquiring_gives_up_the_hold(moment: str) -> None:
    gpu, driver = stand_in()

    def send(knob: str, value: Any) -> None:
        driver.before = driver.after = lambda knob, value: None
        os.kill(os.getpid(), signal.SIGINT)

    setattr(driver, moment, send)
    with pytest.raises(KeyboardInterrupt):
        gpu.hold(power_limit=120, graphics_clock=900).acquire()
    assert (driver.limit, driver.graphics) == (250.0, None)
    assert not recorded_gpus()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_in_the_middle_of_releasing_comes_after_it() -> None:
    gpu, driver = stand_in()
    hold = gpu.hold(power_limit=120, graphics_clock=900)
    hold.acquire()

    def send(knob: str, value: Any) -> None:
        driver.before = lambda knob, value: None
        os.kill(os.getpid(), signal.SIGINT)

    driver.before = send
    with pytest.raises(KeyboardInterrupt):
        hold.release()
    assert (driver.limit, driver.graphics) == (250.0, None)
    assert not recorded_gpus()


def test_of_two_signals_in_the_middle_neither_is_lost() -> None:
    gpu, driver = stand_in()
    calls: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda *_: calls.append("terminated"))

    def send(knob: str, value: Any) -> None:
        driver.before = lambda knob, value: None
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

    driver.before = send
    try:
        with pytest.raises(KeyboardInterrupt):
            gpu.hold(power_limit=120).acquire()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert calls == ["terminated"]
    assert driver.limit == 250.0


def test_a_signal_while_another_thread_changes_knobs_does_not_deadlock() -> None:
    _, driver = stand_in()
    driver.may_hang = True
    gpu = Gpu(0, driver)
    calls: list[float] = []
    before = signal.signal(signal.SIGTERM, lambda *_: calls.append(driver.limit))
    hold = gpu.hold(power_limit=120)
    hold.acquire()

    def send(knob: str, value: Any) -> None:
        driver.before = lambda knob, value: None
        os.kill(os.getpid(), signal.SIGTERM)

    driver.before = send
    worker = threading.Thread(target=lambda: hold.change(power_limit=110))
    try:
        # The main thread reads the same GPU all the while, as a training loop would.
        worker.start()
        while not calls:
            gpu.power_limit()
    finally:
        signal.signal(signal.SIGTERM, before)
    worker.join(30)
    assert calls == [250.0]


# --- The ends of a process ------------------------------------------------------------------------


HOLDING = """
with get_gpus()[0].hold(power_limit=120):
    say("held")
    {then}
"""


@pytest.mark.parametrize(
    ("then", "code"),
    [
        ("heard()", 0),
        ("heard(); raise ValueError('mine')", 1),
        ("heard(); sys.exit(7)", 7),
    ],
)
def test_the_value_is_back_after_the_process(clients, limit, then: str, code: int) -> None:
    client = clients.start(HOLDING.format(then=then))
    assert client.hear() == "held"
    assert limit() == 120.0  # seen from another process
    client.tell()
    assert client.end() == code
    assert limit() == ODD
    assert not recorded_gpus()


def test_a_hold_that_is_never_left_ends_with_the_interpreter(clients, limit) -> None:
    script = "hold = get_gpus()[0].hold(power_limit=120, graphics_clock=900); hold.acquire(); "
    clients.ask(script + "say(0)")
    assert limit() == ODD
    assert onlookers()[0].locked_graphics_clock() is None
    assert not recorded_gpus()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_process_puts_back_and_dies_of_the_signal(clients, limit, number) -> None:
    client = clients.start(HOLDING.format(then="heard()"))
    assert client.hear() == "held"
    client.send(number)
    assert client.end() == -number
    assert limit() == ODD
    assert not recorded_gpus()


def test_ctrl_c_puts_back(clients, limit) -> None:
    client = clients.start(HOLDING.format(then="heard()"))
    assert client.hear() == "held"
    client.send(signal.SIGINT)
    assert client.end() in (-signal.SIGINT, 130, 1)
    assert limit() == ODD


def test_the_users_own_handler_is_called_after_putting_back(clients, limit) -> None:
    client = clients.start(
        """
def own(number, frame):
    say([number, get_gpus()[0].power_limit()])
    sys.exit(3)
signal.signal(signal.SIGTERM, own)
"""
        + HOLDING.format(then="heard()")
    )
    assert client.hear() == "held"
    client.send(signal.SIGTERM)
    assert client.hear() == [signal.SIGTERM, ODD]
    assert client.end() == 3
    assert limit() == ODD


def test_an_ignored_signal_stays_ignored(clients, limit) -> None:
    client = clients.start(
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + HOLDING.format(then="heard(); say(1)")
    )
    assert client.hear() == "held"
    client.send(signal.SIGHUP)
    client.tell()
    assert client.hear() == 1
    assert client.end() == 0
    assert limit() == ODD


def test_a_hold_of_another_thread_ends_with_the_process_too(clients, limit) -> None:
    client = clients.start(
        """
def work():
    get_gpus()[0].hold(power_limit=120).acquire()
    say("held")
threading.Thread(target=work).start()
heard()
"""
    )
    assert client.hear() == "held"
    assert limit() == 120.0
    client.tell()
    assert client.end() == 0
    assert limit() == ODD


def test_a_killed_process_is_cleaned_up_after_by_the_next(clients, limit) -> None:
    client = clients.start(
        "get_gpus()[0].hold(power_limit=120, graphics_clock=900).acquire(); say(0); heard()"
    )
    client.hear()
    client.send(signal.SIGKILL)
    assert client.end() == -signal.SIGKILL
    assert limit() == 120.0  # there was nobody to put it back
    assert recovered(clients) == ODD
    assert onlookers()[0].locked_graphics_clock() is None
    assert not recorded_gpus()


def test_a_forked_child_that_exits_puts_nothing_back(clients, limit) -> None:
    client = clients.start(
        """
with get_gpus()[0].hold(power_limit=120):
    child = os.fork()
    if child == 0:
        sys.exit(0)  # leaves the block and runs the exit handlers
    os.waitpid(child, 0)
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
    died = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    say([died, get_gpus()[0].power_limit()])
"""
    )
    assert client.hear() == [-signal.SIGTERM, 120.0]
    assert client.end() == 0
    assert limit() == ODD


def test_a_forked_child_has_holds_of_its_own(clients, limit) -> None:
    seen = clients.ask(
        """
with get_gpus()[0].hold(power_limit=150):
    child = os.fork()
    if child == 0:
        with get_gpus()[0].hold(power_limit=120):
            os._exit(0)  # without cleaning up
    os.waitpid(child, 0)
    seen = [get_gpus()[0].power_limit()]
seen.append(get_gpus()[0].power_limit())
say(seen)
"""
    )
    assert seen == [120.0, ODD]
    assert limit() == ODD
