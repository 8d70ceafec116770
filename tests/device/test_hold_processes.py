"""Holds of several processes, and of drivers that hang."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.device.clients import SPEC, Client, Clients, onlookers, stand_in
from tests.device.holding import ODD, recovered

from zeus.device import Gpu, get_gpus
from zeus.device._hold import knob_setter
from zeus.device._journal import Journal
from zeus.device._records import recorded_gpus
from zeus.errors import CapabilityError, Reason

# --- Several processes ----------------------------------------------------------------------------


HOLD = "with get_gpus()[0].hold(power_limit={}):\n    say(0); heard()"


def two_holders(clients: Clients, limit: Callable[[], float]) -> list[Client]:
    """Processes that hold the limit at 150 W and then, on top of that, at 120 W."""
    holders = []
    for watts in (150, 120):
        holders.append(clients.start(HOLD.format(watts)))
        holders[-1].hear()
        assert limit() == watts
    return holders


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_holds_of_two_processes_may_end_in_either_order(clients, limit, first_to_end: int) -> None:
    holders = two_holders(clients, limit)
    for number, expected in ((first_to_end, 120 if first_to_end == 0 else 150), (None, ODD)):
        holder = holders[1 - first_to_end] if number is None else holders[number]
        holder.tell()
        assert holder.end() == 0
        assert limit() == expected
    assert not recorded_gpus()


@pytest.mark.parametrize("killed", [0, 1])
def test_one_is_killed_while_the_other_lives(clients, limit, killed: int) -> None:
    holders = two_holders(clients, limit)
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
    holders = two_holders(clients, limit)
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


CHANGING = """
gpu = get_gpus()[0]
rng = random.Random(1)
with gpu.hold(power_limit=150, graphics_clock=900) as hold:
    say(0)
    while True:
        hold.change(power_limit=rng.randint(101, 149))
        hold.retune(135, rng.choice(range(150, 900, 15)))
        time.sleep(rng.random() * 2e-4)
"""

ABOVE = """
gpu = get_gpus()[0]
wrong = []
for turn in range(60):
    with gpu.hold(power_limit=200 + turn % 40) as hold:
        for _ in range(5):
            if gpu.power_limit() != 200 + turn % 40:
                wrong.append([turn, gpu.power_limit()])
    if gpu.power_limit() >= 200:
        wrong.append([turn, "still", gpu.power_limit()])
say(wrong)
"""


def test_changes_below_never_reach_past_a_hold_above(clients, limit) -> None:
    below = clients.start(CHANGING)
    below.hear()
    assert clients.ask(ABOVE) == []
    below.send(signal.SIGKILL)
    below.end()
    assert recovered(clients) == ODD
    assert not recorded_gpus()


def test_killed_while_it_changes_knobs_all_the_time_the_value_is_right(clients, limit) -> None:
    for delay in (0.0, 0.003, 0.017, 0.051):
        changing = clients.start(CHANGING)
        changing.hear()
        time.sleep(delay)
        changing.send(signal.SIGKILL)
        changing.end()
        assert recovered(clients) == ODD
        assert onlookers()[0].locked_graphics_clock() is None
        assert not recorded_gpus()


# --- Driver calls that hang -----------------------------------------------------------------------


@pytest.mark.real_time
def test_a_setter_that_hangs_and_works_later_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zeus.device._guard.DEFAULT_TIMEOUT", 0.5)
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
    assert Journal(gpu.key, knob_setter(gpu)).recover() == 1
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
from zeus.device import _guard as guard
from zeus.device._simulated import SimulatedGpuDriver
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


def test_a_change_under_a_dead_hold_is_in_force(clients, limit) -> None:
    lower = clients.start(
        "hold = get_gpus()[0].hold(power_limit=150); hold.acquire(); say(0); heard()\n"
        "say([hold.change(power_limit=140), hold.overridden_by().pid]); heard()\n"
        "say([hold.change(power_limit=130), hold.overridden_by()]); heard(); hold.release()"
    )
    lower.hear()
    above = clients.start(HOLD.format(120))
    above.hear()
    lower.tell()
    assert lower.hear() == [False, above.pid]
    assert limit() == 120
    above.send(signal.SIGKILL)
    above.end()
    lower.tell()
    assert lower.hear() == [True, None]
    assert limit() == 130
    lower.tell()
    assert lower.end() == 0
    assert limit() == ODD
