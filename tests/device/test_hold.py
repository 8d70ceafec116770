"""Holds: whatever happens to a process, the knobs are as they were before it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.device.clients import SPEC, Clients, onlookers, stand_in

from zeus.clock import VirtualClock
from zeus.device import get_gpus
from zeus.device.base import Capability, ClockRange, Gpu
from zeus.device.journal import Journal, critical_section, recorded_gpus
from zeus.device.node import simulated_node
from zeus.errors import CapabilityError, KnobError, Reason

ODD = 187.5
"""Watts that nobody would put back by mistake: neither the maximum nor the default."""


@pytest.fixture
def clients() -> Iterator[Clients]:
    clients = Clients(ZEUS_SIMULATE=SPEC)
    yield clients
    clients.stop()


@pytest.fixture
def limit() -> Any:
    """Reads the limit that is in force on the shared GPU 0, which begins at an odd value."""
    gpu = onlookers()[0]
    gpu.set_power_limit(ODD)
    return gpu.power_limit


@pytest.fixture
def gpu() -> Gpu:
    """A GPU in virtual time."""
    gpu = simulated_node("v100", VirtualClock()).gpus[0]
    gpu.driver.set_power_limit(ODD)
    return gpu


def recovered(clients: Clients) -> float:
    """The limit after Zeus has started again on the machine."""
    watts: float = clients.ask("say(get_gpus()[0].power_limit())")
    return watts


# --- In one process -------------------------------------------------------------------------------


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
        with pytest.raises(KnobError, match=r"holds \['power_limit'\], but got graphics_clock"):
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
            ours = signal.getsignal(signal.SIGTERM)

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
    assert "could not put back the power_limit" in caplog.text
    assert "zeus restore" in caplog.text
    assert driver.limit == 120.0
    assert recorded_gpus()
    # While this process lives on: whoever comes next may put it back.
    driver.before = lambda knob, value: None
    assert Journal(gpu.key, lambda knob, value: driver.set_power_limit(value)).recover() == 1
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
    holding = threading.Thread(target=gpu.hold(power_limit=120).acquire)
    holding.start()
    holding.join(0.2)  # long enough to slip in, if it could
    go_on.set()
    asking.join(30)
    holding.join(30)
    assert driver.limit == 120.0


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


# --- Several processes ----------------------------------------------------------------------------

HOLD = "with get_gpus()[0].hold(power_limit={}):\n    say(0); heard()"


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_holds_of_two_processes_may_end_in_either_order(clients, limit, first_to_end: int) -> None:
    holders = []
    for watts in (150, 120):
        holders.append(clients.start(HOLD.format(watts)))
        holders[-1].hear()
        assert limit() == watts
    for number, expected in ((first_to_end, 120 if first_to_end == 0 else 150), (None, ODD)):
        holder = holders[1 - first_to_end] if number is None else holders[number]
        holder.tell()
        assert holder.end() == 0
        assert limit() == expected
    assert not recorded_gpus()


@pytest.mark.parametrize("killed", [0, 1])
def test_one_is_killed_while_the_other_lives(clients, limit, killed: int) -> None:
    holders = []
    for watts in (150, 120):
        holders.append(clients.start(HOLD.format(watts)))
        holders[-1].hear()
    holders[killed].send(signal.SIGKILL)
    holders[killed].end()
    survivors_value = (150, 120)[1 - killed]
    assert recovered(clients) == survivors_value  # a third process starts, and looks
    assert limit() == survivors_value
    holders[1 - killed].tell()
    assert holders[1 - killed].end() == 0
    assert limit() == ODD
    assert not recorded_gpus()


@pytest.mark.parametrize("killed", [0, 1])
def test_the_survivor_brings_the_first_value_back_without_help(clients, limit, killed: int) -> None:
    holders = []
    for watts in (150, 120):
        holders.append(clients.start(HOLD.format(watts)))
        holders[-1].hear()
    holders[killed].send(signal.SIGKILL)
    holders[killed].end()
    holders[1 - killed].tell()
    assert holders[1 - killed].end() == 0
    assert limit() == ODD


def test_a_long_lived_process_starts_from_the_first_value_after_anothers_death(
    clients, limit
) -> None:
    # It looked for GPUs before the other one came, so no start cleans up in between.
    lasting = clients.start(
        "gpu = get_gpus()[0]; say(0); heard()\n"
        "with gpu.hold(graphics_clock=600, power_limit=130):\n"
        "    say(gpu.power_limit())\n"
        "lock = gpu.locked_graphics_clock(); say([gpu.power_limit(), lock and lock.maximum])"
    )
    lasting.hear()
    doomed = clients.start(
        "get_gpus()[0].hold(power_limit=120, graphics_clock=900).acquire(); say(0); heard()"
    )
    doomed.hear()
    doomed.send(signal.SIGKILL)
    doomed.end()
    lasting.tell()
    assert lasting.hear() == 130.0
    assert lasting.hear() == [ODD, None]
    assert lasting.end() == 0
    assert not recorded_gpus()


# Children are forked from one process, because a new interpreter for each would take minutes.
AT_RANDOM = """
rng = random.Random({seed})
gpu = get_gpus()[0]
wrong = []
for turn in range({turns}):
    gpu.driver.set_power_limit(first := rng.choice([100, 187.5, 222.25, 250]))
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        own = get_gpus()[0]
        os.write(tell, b"x")
        while True:
            with own.hold(power_limit=rng.uniform(101, 249), graphics_clock=900) as hold:
                hold.change(power_limit=rng.uniform(101, 249))
    os.read(ready, 1)
    os.close(ready); os.close(tell)
    time.sleep(rng.random() * 0.004)
    os.kill(child, {signal})
    os.waitpid(child, 0)
    if {recover}:
        node.Node(MonotonicClock(), node.current_node().drivers).restore()
    lock = gpu.locked_graphics_clock()
    if gpu.power_limit() != first or lock is not None:
        wrong.append([turn, first, gpu.power_limit(), lock and lock.maximum])
say(wrong)
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_any_instant_the_value_is_right_after_recovery(clients, limit, seed: int) -> None:
    script = AT_RANDOM.format(seed=seed, turns=25, signal="signal.SIGKILL", recover=True)
    assert clients.ask(script) == []
    assert not recorded_gpus()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_ended_at_any_instant_the_value_is_right_without_recovery(clients, limit, name) -> None:
    ending = AT_RANDOM.replace("while True:", "while quiet():")
    quiet = "sys.stderr = open(os.devnull, 'w')\ndef quiet():\n    return True\n"
    script = quiet + ending.format(seed=3, turns=25, signal=f"signal.{name}", recover=False)
    assert clients.ask(script) == []
    assert not recorded_gpus()


def test_many_processes_at_once_leave_the_first_value(clients, limit) -> None:
    script = """
rng = random.Random(int(os.environ["SEED"]))
gpu = get_gpus()[0]
for _ in range(25):
    with gpu.hold(power_limit=rng.uniform(101, 249)):
        with gpu.hold(power_limit=rng.uniform(101, 249)):
            pass
say(0)
"""
    running = [clients.start(script, SEED=str(seed)) for seed in range(3)]
    for client in running:
        assert client.hear() == 0
        assert client.end() == 0
    assert limit() == ODD
    assert not recorded_gpus()


# --- Driver calls that hang -----------------------------------------------------------------------


def test_a_setter_that_hangs_and_works_later_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zeus.device.guard.DEFAULT_TIMEOUT", 0.05)
    _, driver = stand_in()
    driver.may_hang = True
    gpu = Gpu(0, driver)
    let_go, done = threading.Event(), threading.Event()

    def hang(knob: str, value: Any) -> None:
        let_go.wait(30)

    driver.before, driver.after = hang, lambda knob, value: done.set()
    with pytest.raises(CapabilityError) as hanging:
        gpu.hold(power_limit=120).acquire()
    assert hanging.value.reason is Reason.HANGS
    let_go.set()
    assert done.wait(30)
    assert driver.limit == 120.0  # behind everybody's back
    driver.before = driver.after = lambda knob, value: None
    assert recorded_gpus()
    assert Journal(gpu.key, lambda knob, value: driver.set_power_limit(value)).recover() == 1
    assert driver.limit == 250.0
    assert not recorded_gpus()


def test_recovery_does_not_wait_for_a_hanging_driver(
    clients, limit, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = clients.start("get_gpus()[0].hold(power_limit=120).acquire(); say(0); heard()")
    client.hear()
    client.send(signal.SIGKILL)
    client.end()
    script = """
from zeus.device import guard
from zeus.device.simulated import SimulatedGpuDriver
guard.DEFAULT_TIMEOUT = 0.05
SimulatedGpuDriver.may_hang = True
SimulatedGpuDriver.set_power_limit = lambda self, watts: threading.Event().wait()
_, problems = node.current_node().restore()
say([str(problem) for problem in problems])
os._exit(0)
"""
    problems = clients.ask(script)
    assert len(problems) == 1
    assert "did not answer" in problems[0]
    assert recovered(clients) == ODD


def test_the_limit_set_here_is_seen_by_the_framework_of_this_process(
    monkeypatch: pytest.MonkeyPatch, limit
) -> None:
    monkeypatch.setenv("ZEUS_SIMULATE", SPEC)
    with get_gpus()[0].hold(power_limit=120):
        assert limit() == 120.0
        assert recorded_gpus() == {get_gpus()[0].key}
    assert limit() == ODD
