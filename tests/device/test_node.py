"""The node in force: this machine, its simulation, or whatever stands in for it."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from tests.device.clients import Clients

from zeus.clock import VirtualClock
from zeus.device import DeviceSet, Gpu, Problem, get_cpus, get_gpus, get_soc
from zeus.device import _node as nodes
from zeus.device._node import Node, current_node, override, simulated_node
from zeus.errors import CapabilityError, Reason, SimulationError, UnknownDeviceError


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """A machine on which nothing is found."""
    monkeypatch.setattr(nodes, "discover_gpus", lambda: ([], []))
    monkeypatch.setattr(nodes, "_host", lambda: (DeviceSet(), None, []))


def virtual(spec: str) -> Node:
    return simulated_node(spec, VirtualClock())


# --- Standing in ----------------------------------------------------------------------------------


def test_the_innermost_node_is_in_force(bare_machine: None) -> None:
    outer, inner = virtual("v100"), virtual("a40x2")
    with override(outer) as entered:
        assert entered is outer is current_node()
        with override(inner):
            assert current_node() is inner
            assert [gpu.name for gpu in get_gpus()] == ["NVIDIA A40"] * 2
        assert current_node() is outer
    assert len(get_gpus()) == 0


def test_the_same_node_may_stand_in_twice(bare_machine: None) -> None:
    one, two = virtual("v100"), virtual("a40")
    with override(one), override(two):
        with override(one):
            assert current_node() is one
        assert current_node() is two


def test_a_node_stands_down_after_an_exception(bare_machine: None) -> None:
    node = virtual("v100")
    with pytest.raises(ZeroDivisionError), override(node):
        _ = 1 // 0
    assert current_node() is not node


def test_blocks_of_two_threads_may_end_in_any_order(bare_machine: None) -> None:
    first, second = virtual("v100"), virtual("a40")
    entered, leave = threading.Event(), threading.Event()

    def stand_in() -> None:
        with override(second):
            entered.set()
            leave.wait(30)

    with override(first):
        thread = threading.Thread(target=stand_in)
        thread.start()
        assert entered.wait(30)
        assert current_node() is second  # for all threads
    assert current_node() is second
    leave.set()
    thread.join(30)
    assert current_node() not in (first, second)


# --- Sets of devices ------------------------------------------------------------------------------


def test_devices_are_selected_by_index_in_the_order_asked_for() -> None:
    gpus = virtual("v100x3").gpus
    assert gpus.select(None) == tuple(gpus) == gpus[:]
    assert [gpu.index for gpu in gpus.select([2, 0])] == [2, 0]
    assert gpus.select([]) == ()


@pytest.mark.parametrize("indices", [[3], [-1], [True], [0, 7], ["0"]])
def test_an_index_that_names_no_device_is_told_with_those_that_do(indices: list[Any]) -> None:
    with pytest.raises(UnknownDeviceError, match=r"among \[0, 1, 2\], but got"):
        virtual("v100x3").gpus.select(indices)


def test_a_repeated_index_is_refused_because_it_would_count_twice() -> None:
    with pytest.raises(UnknownDeviceError, match=r"distinct, but got \[1, 1\]"):
        virtual("v100x3").gpus.select([1, 1])


def test_a_missing_device_is_explained_by_what_stood_in_its_way() -> None:
    problem = Problem("NVIDIA GPUs", CapabilityError(Reason.DRIVER_ABSENT, "no library"))
    with pytest.raises(UnknownDeviceError, match="no library"):
        DeviceSet[Gpu]((), [problem]).select([0])


# --- Discovery ------------------------------------------------------------------------------------


def test_a_machine_with_nothing_gives_empty_sets(bare_machine: None) -> None:
    assert list(get_gpus()) == []
    assert list(get_cpus()) == []
    assert get_soc() is None


def test_a_real_search_never_raises() -> None:
    node = current_node()  # whatever this machine has
    assert node.simulated == ""
    assert all(str(problem) for problem in node.problems)


def test_discovery_happens_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_SIMULATE", "v100")
    assert current_node() is current_node()
    assert get_gpus()[0] is get_gpus()[0]


def test_threads_that_ask_at_once_get_the_same_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_SIMULATE", "v100x4")
    found: list[Node] = []
    threads = [threading.Thread(target=lambda: found.append(current_node())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_a_changed_environment_is_looked_at_anew(
    bare_machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(get_gpus()) == 0
    monkeypatch.setenv("ZEUS_SIMULATE", "v100x4")
    assert current_node().simulated == "v100x4"
    assert len(get_gpus()) == 4
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    keys = [driver.identity.key for driver in current_node().drivers]
    assert [gpu.key for gpu in get_gpus()] == [keys[2], keys[0]]
    assert [gpu.index for gpu in get_gpus()] == [0, 1]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"MIG-{keys[0]}/1/0")
    assert len(get_gpus()) == 0  # and no exception, although no such slice can be made
    monkeypatch.delenv("ZEUS_SIMULATE")
    assert len(get_gpus()) == 0


def test_an_index_of_a_hidden_gpu_is_refused_by_the_name_of_what_hides_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Indices count the GPUs that are left: `CUDA_VISIBLE_DEVICES=1` leaves GPU 0."""
    monkeypatch.setenv("ZEUS_SIMULATE", "v100x4")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    rule = r"must be among \[0\], but got \[1\]; CUDA_VISIBLE_DEVICES=1 hides 3 of 4 GPUs$"
    with pytest.raises(UnknownDeviceError, match=rule):
        get_gpus().select([1])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,2,1,0")
    with pytest.raises(UnknownDeviceError, match=r"\[0, 1, 2, 3\], but got \[4\]$"):
        get_gpus().select([4])


def test_the_rules_of_each_vendor_apply_to_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "2,0")
    node = virtual("mi300xx3,v100x2")
    vendors = [gpu.identity.vendor for gpu in node.gpus]
    assert vendors == ["NVIDIA", "AMD", "AMD"]
    places = [node.drivers.index(gpu.driver) for gpu in node.gpus]
    assert places == [4, 2, 0]


def test_a_wrong_specification_is_the_users_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_SIMULATE", "v101")
    with pytest.raises(SimulationError, match="v101"):
        get_gpus()
    monkeypatch.setenv("ZEUS_SIMULATE", "v100")
    monkeypatch.setenv("ZEUS_SIMULATE_LOAD", "lots")
    with pytest.raises(SimulationError, match="lots"):
        get_gpus()


def test_a_forked_child_looks_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_SIMULATE", "v100x2")
    parents = current_node()
    child = os.fork()
    if child == 0:
        try:
            own = current_node()
            fine = own is not parents and len(own.gpus) == 2 and own is current_node()
            os._exit(0 if fine else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert current_node() is parents


def test_a_child_forked_during_the_search_does_not_wait_for_it() -> None:
    # In a process of its own: the search goes on in a thread that never ends.
    clients = Clients()
    try:
        said = clients.ask(
            """
searching, forever = threading.Event(), threading.Event()

def search():
    if threading.current_thread() is threading.main_thread():
        return [], []
    searching.set()
    forever.wait()

node.discover_gpus = search
threading.Thread(target=get_gpus, daemon=True).start()
searching.wait()
child = os.fork()
if child == 0:
    signal.alarm(120)
    os._exit(len(get_gpus()))
say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
sys.stdout.flush()
os._exit(0)
"""
        )
    finally:
        clients.stop()
    assert said == 0
