"""Holds: whatever happens in a process, the knobs are as they were before it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from typing import Any

import pytest
from tests.device.clients import onlookers, stand_in
from tests.device.holding import ODD, recovered

from zeus.device import Gpu
from zeus.device._base import Capability, ClockRange
from zeus.device._hold import knob_setter
from zeus.device._journal import Journal
from zeus.device._records import recorded_gpus
from zeus.errors import CapabilityError, KnobError, Reason


def test_the_value_from_before_comes_back_not_the_maximum(gpu: Gpu) -> None:
    with gpu.hold(power_limit=120) as hold:
        assert gpu.power_limit() == 120.0
        assert hold.gpu is gpu
    assert gpu.power_limit() == ODD


def test_nothing_changes_before_the_block(gpu: Gpu) -> None:
    hold = gpu.hold(power_limit=120)
    assert gpu.power_limit() == ODD
    hold.release()  # nothing to release
    assert gpu.power_limit() == ODD


def test_a_hold_can_be_used_again_but_not_twice_at_once(gpu: Gpu) -> None:
    hold = gpu.hold(power_limit=120)
    for _ in range(2):
        with hold:
            assert gpu.power_limit() == 120.0
            with pytest.raises(KnobError, match="in force already"):
                hold.acquire()
            assert gpu.power_limit() == 120.0
        assert gpu.power_limit() == ODD
    hold.release()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_the_value_comes_back_after_an_exception(gpu: Gpu, error: type[BaseException]) -> None:
    with pytest.raises(error), gpu.hold(power_limit=120):
        raise error
    assert gpu.power_limit() == ODD


def test_nested_holds_unwind_to_the_first_value(gpu: Gpu) -> None:
    with gpu.hold(power_limit=150):
        with gpu.hold(power_limit=120):
            assert gpu.power_limit() == 120.0
        assert gpu.power_limit() == 150.0
    assert gpu.power_limit() == ODD


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1), (1, 2, 0)])
def test_holds_may_end_in_any_order(gpu: Gpu, order: tuple[int, ...]) -> None:
    holds = [gpu.hold(power_limit=watts) for watts in (150, 140, 130)]
    for hold in holds:
        hold.acquire()
    alive = [0, 1, 2]
    for number in order:
        holds[number].release()
        alive.remove(number)
        expected = (150, 140, 130)[alive[-1]] if alive else ODD
        assert gpu.power_limit() == expected


def test_change_keeps_what_comes_back(gpu: Gpu) -> None:
    with gpu.hold(power_limit=150) as hold:
        for watts in (140, 200.25, 130):
            hold.change(power_limit=watts)
            assert gpu.power_limit() == watts
        with pytest.raises(KnobError, match="100 W <= power_limit <= 250 W"):
            hold.change(power_limit=99)
        with pytest.raises(KnobError, match=r"covers \['power_limit'\], but got graphics_clock"):
            hold.change(power_limit=120, graphics_clock=1380)
        assert gpu.power_limit() == 130.0  # all or nothing
    assert gpu.power_limit() == ODD
    with pytest.raises(KnobError, match="in force"):
        hold.change(power_limit=150)


def test_a_change_below_another_hold_shows_once_that_ends(gpu: Gpu) -> None:
    lower, upper = gpu.hold(power_limit=150), gpu.hold(power_limit=120)
    lower.acquire()
    upper.acquire()
    lower.change(power_limit=180)
    assert gpu.power_limit() == 120.0
    upper.release()
    assert gpu.power_limit() == 180.0
    lower.release()
    assert gpu.power_limit() == ODD


def test_clock_locks_come_back_as_they_were(gpu: Gpu) -> None:
    gpu.driver.lock_graphics_clock(ClockRange(300, 1200))
    with gpu.hold(graphics_clock=900, memory_clock=877):
        assert gpu.locked_graphics_clock() == ClockRange(900, 900)
        assert gpu.locked_memory_clock() == ClockRange(877, 877)
        with gpu.hold(graphics_clock=(600, 700)) as inner:
            assert gpu.locked_graphics_clock() == ClockRange(600, 700)
            inner.change(graphics_clock=(600, 650))
            assert gpu.locked_graphics_clock() == ClockRange(600, 650)
        assert gpu.locked_graphics_clock() == ClockRange(900, 900)
    assert gpu.locked_graphics_clock() == ClockRange(300, 1200)
    assert gpu.locked_memory_clock() is None


def test_retuning_keeps_what_comes_back_and_the_order_of_holds(gpu: Gpu) -> None:
    gpu.driver.lock_graphics_clock(ClockRange(300, 1200))
    with gpu.hold(graphics_clock=(135, 1380)) as hold:
        for clock in (1200, 900, 1050):
            hold.retune(135, clock)
            assert gpu.locked_graphics_clock() == ClockRange(135, clock)
        with gpu.hold(graphics_clock=600):
            hold.retune(135, 750)
            assert gpu.locked_graphics_clock() == ClockRange(600, 600)
        assert gpu.locked_graphics_clock() == ClockRange(135, 750)
    assert gpu.locked_graphics_clock() == ClockRange(300, 1200)
    with pytest.raises(KnobError, match="must be held in this process"):
        hold.retune(135, 900)
    with gpu.hold(power_limit=150) as other, pytest.raises(KnobError, match="must be held"):
        other.retune(135, 900)


def test_a_process_killed_while_it_retunes_is_cleaned_up_after(clients) -> None:
    (driver, *_) = onlookers()
    driver.lock_graphics_clock(ClockRange(300, 1200))
    retuning = clients.start(
        "hold = get_gpus()[0].hold(graphics_clock=(135, 1380)); hold.acquire()\n"
        "hold.retune(135, 900); say('held'); heard()"
    )
    assert retuning.hear() == "held"
    assert driver.locked_graphics_clock() == ClockRange(135, 900)
    retuning.send(signal.SIGKILL)
    retuning.end()
    recovered(clients)
    assert driver.locked_graphics_clock() == ClockRange(300, 1200)


def test_a_retuned_clock_is_back_after_a_hold_above_even_if_it_cannot_be_read() -> None:
    gpu, driver = stand_in(clocks_readable=False)
    with gpu.hold(graphics_clock=(300, 1500)) as hold:
        hold.retune(300, 900)
        with gpu.hold(graphics_clock=600):
            assert driver.graphics == ClockRange(600, 600)
            assert not hold.surely_in_force()
        assert driver.graphics == ClockRange(300, 900)
        assert not hold.surely_in_force()  # the record was replaced: it has to be read
        assert hold.retune(300, 800)
        assert hold.surely_in_force()
    assert driver.graphics is None
    assert not hold.surely_in_force()


def test_locks_that_cannot_be_read_are_remembered_from_hold_to_hold() -> None:
    gpu, driver = stand_in(clocks_readable=False)
    with gpu.hold(graphics_clock=900):
        with gpu.hold(graphics_clock=600):
            assert driver.graphics == ClockRange(600, 600)
        assert driver.graphics == ClockRange(900, 900)
    assert driver.graphics is None


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"power_limit": 99.9}, ["100 W <= power_limit <= 250 W", "got 99.9 W", "Tesla V100"]),
        ({"power_limit": 251}, ["100 W <= power_limit <= 250 W", "got 251 W"]),
        ({"power_limit": float("nan")}, ["got nan W"]),
        ({"power_limit": -1}, ["got -1 W"]),
        ({"graphics_clock": 5000}, ["MHz <= lowest <= highest <= 1380 MHz", "(5000, 5000)"]),
        ({"graphics_clock": (900, 600)}, ["lowest <= highest", "(900, 600)"]),
        ({"graphics_clock": 900.5}, ["whole MHz", "900.5"]),
        ({"graphics_clock": (1, 2, 3)}, ["pair", "(1, 2, 3)"]),
        ({"memory_clock": 100}, ["877 MHz <= lowest", "(100, 100)", "memory_clock"]),
        ({}, ["at least one knob"]),
    ],
)
def test_values_out_of_range_name_the_rule_and_the_value(
    gpu: Gpu, knobs: dict[str, Any], said: list[str]
) -> None:
    with pytest.raises(KnobError) as refused:
        gpu.hold(**knobs)
    assert all(words in str(refused.value) for words in said), str(refused.value)
    assert gpu.power_limit() == ODD


def test_if_one_knob_is_refused_those_set_already_are_put_back() -> None:
    gpu, driver = stand_in()
    driver.limit, driver.graphics = ODD, ClockRange(300, 1200)

    def refuse_memory(knob: str, value: Any) -> None:
        if knob == "memory_clock":
            raise CapabilityError(Reason.NO_PERMISSION, "no", "be root")

    driver.before = refuse_memory
    with pytest.raises(CapabilityError, match="be root"):
        gpu.hold(power_limit=120, graphics_clock=900, memory_clock=800).acquire()
    assert (driver.limit, driver.graphics, driver.memory_clock) == (
        ODD,
        ClockRange(300, 1200),
        None,
    )
    assert not recorded_gpus()


def test_a_refused_hold_does_not_get_in_the_way_of_another() -> None:
    gpu, driver = stand_in()
    with gpu.hold(power_limit=150):

        def refuse(knob: str, value: Any) -> None:
            raise KnobError("the driver refuses")

        driver.before = refuse
        with pytest.raises(KnobError, match="refuses"):
            gpu.hold(power_limit=120).acquire()
        driver.before = lambda knob, value: None
    assert driver.limit == 250.0
    assert not recorded_gpus()


@pytest.mark.parametrize("moved", [False, True])
def test_an_interruption_in_the_middle_of_setting_leaves_nothing_changed(moved: bool) -> None:
    gpu, driver = stand_in()

    def interrupt(knob: str, value: Any) -> None:
        driver.before = driver.after = lambda knob, value: None
        raise TimeoutError if value is None else KeyboardInterrupt

    setattr(driver, "after" if moved else "before", interrupt)
    with pytest.raises(KeyboardInterrupt):
        gpu.hold(power_limit=120).acquire()
    assert driver.limit == 250.0
    assert not recorded_gpus()


def test_threads_share_a_gpu_without_losing_its_value(gpu: Gpu) -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for turn in range(40):
                with gpu.hold(power_limit=100 + (seed * 17 + turn) % 100) as hold:
                    hold.change(power_limit=100 + (seed + turn * 7) % 100)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    assert gpu.power_limit() == ODD
    assert not any(gpu.held.values())


def test_handlers_are_as_before_once_no_hold_is_left(gpu: Gpu) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]
    with gpu.hold(power_limit=120):
        assert signal.getsignal(signal.SIGTERM) is not before[0]
        assert signal.getsignal(signal.SIGINT) is before[2]
    after = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]
    assert after == before


def test_a_handler_of_the_user_set_inside_the_block_stays(gpu: Gpu) -> None:
    def own(*_: object) -> None: ...

    before = signal.getsignal(signal.SIGTERM)
    try:
        with gpu.hold(power_limit=120):
            signal.signal(signal.SIGTERM, own)
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_handler_chained_between_two_holds_is_called_once(gpu: Gpu) -> None:
    calls: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda *_: calls.append("first"))
    try:
        with gpu.hold(power_limit=150):
            ours: Any = signal.getsignal(signal.SIGTERM)

            def chained(number: int, frame: Any) -> None:
                calls.append("second")
                ours(number, frame)

            signal.signal(signal.SIGTERM, chained)
            with gpu.hold(power_limit=120):
                os.kill(os.getpid(), signal.SIGTERM)
        assert calls == ["second", "first"]
        assert gpu.power_limit() == ODD
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_fork_leaves_the_hold_to_the_parent(gpu: Gpu) -> None:
    with gpu.hold(power_limit=120) as hold:
        child = os.fork()
        if child == 0:
            try:
                hold.release()
                fine = gpu.power_limit() == 120.0
                try:
                    hold.change(power_limit=150)
                except KnobError:
                    os._exit(0 if fine else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert gpu.power_limit() == 120.0
    assert gpu.power_limit() == ODD


def test_a_value_that_cannot_be_put_back_is_said_and_stays_on_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gpu, driver = stand_in()
    other = gpu.hold(graphics_clock=900)
    other.acquire()
    with caplog.at_level(logging.ERROR), gpu.hold(power_limit=120):
        driver.before = _refuse_limits
    assert "could not restore the power limit" in caplog.text
    assert "zeus restore" in caplog.text
    assert driver.limit == 120.0
    assert recorded_gpus()
    # While this process lives on: whoever comes next may put it back.
    driver.before = lambda knob, value: None
    assert Journal(gpu.key, knob_setter(gpu)).recover() == 1
    assert driver.limit == 250.0
    other.release()
    assert driver.graphics is None
    assert not recorded_gpus()


def _refuse_limits(knob: str, value: Any) -> None:
    if knob == "power_limit":
        raise CapabilityError(Reason.NO_PERMISSION, "not any more")


def test_asking_for_support_does_not_undo_a_hold_of_somebody_else() -> None:
    # The answer takes a write of what is set already; a hold must not slip in before it.
    gpu, driver = stand_in()
    entered, go_on = threading.Event(), threading.Event()
    read = driver.power_limit

    def read_slowly() -> float:
        watts = read()
        entered.set()
        go_on.wait(30)
        return watts

    driver.power_limit = read_slowly  # type: ignore[method-assign]
    asking = threading.Thread(target=gpu.support, args=(Capability.SET_POWER_LIMIT,))
    asking.start()
    assert entered.wait(30)
    driver.power_limit = read  # type: ignore[method-assign]
    hold = gpu.hold(power_limit=120)
    holding = threading.Thread(target=hold.acquire)
    holding.start()
    holding.join(0.2)  # long enough to slip in, if it could
    go_on.set()
    asking.join(30)
    holding.join(30)
    assert driver.limit == 120.0
    hold.release()


def test_support_tells_when_the_driver_refuses_its_own_value() -> None:
    gpu, driver = stand_in()

    def refuse(knob: str, value: Any) -> None:
        raise KnobError("a limit of 0 W?")

    driver.before = refuse
    for capability in (Capability.SET_POWER_LIMIT, Capability.LOCK_CLOCKS):
        support = gpu.support(capability)
        assert not support.available
        assert support.reason is Reason.UNSUPPORTED
        assert "0 W?" in support.detail
