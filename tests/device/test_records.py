"""Files of records: what is written comes back, and what cannot be read is kept and named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.device.clients import stand_in

from zeus.clock import MonotonicClock
from zeus.device._node import Node
from zeus.device._records import (
    Entry,
    GpuRecord,
    linked,
    recorded_gpus,
    recorded_stacks,
)
from zeus.errors import CapabilityError, Reason
from zeus.state._files import state_directory

KEY = "GPU-stand-in"


def path_of(key: str) -> Path:
    """The file of a GPU's record."""
    return GpuRecord(key, private=False).path


# --- What is written ------------------------------------------------------------------------------


def test_what_is_saved_is_loaded_by_another() -> None:
    stacks = {
        "power_limit": [Entry(150.0, 250.0, 250.0), Entry(120.0, 150.0, 250.0, order=1)],
        "graphics_clock": [Entry([300, 900], None, None)],
    }
    record = GpuRecord(KEY, private=False)
    record.save(stacks)
    other = GpuRecord(KEY, private=False)
    found = other.load()
    for knob, stack in stacks.items():
        for entry, again in zip(stack, found[knob], strict=True):
            entry.file = str(record.path)
            assert again == entry
    assert recorded_stacks() == ({KEY: found}, [])
    assert recorded_gpus() == {KEY}


def test_without_holds_there_is_no_file() -> None:
    record = GpuRecord(KEY, private=False)
    record.save({"power_limit": [Entry(150.0, 250.0, 250.0)]})
    assert record.path.exists()
    record.save({"power_limit": []})
    assert not record.path.exists()
    assert recorded_gpus() == set()


def test_a_hold_that_begins_or_ends_is_seen_without_reading() -> None:
    entry, other = Entry(150.0, 250.0, 250.0), Entry(120.0, 150.0, 250.0, order=1)
    record = GpuRecord(KEY, private=False)
    assert not record.is_current("power_limit", entry.id)
    record.save({"power_limit": [entry]})
    assert not record.is_current("power_limit", entry.id)
    record.pin({"power_limit": [entry]})
    assert record.is_current("power_limit", entry.id)
    assert not record.is_current("power_limit", other.id)
    for watts, stack in ((140.0, [entry]), (130.0, [entry, other])):
        writer = GpuRecord(KEY, private=False)
        writer.load()
        entry.value = watts
        writer.save({"power_limit": stack})
        assert record.is_current("power_limit", entry.id) == (stack == [entry])
    writer.save({})
    assert not record.is_current("power_limit", entry.id)


def test_keys_with_odd_characters_have_files_of_their_own() -> None:
    paths = {path_of(key) for key in ("0000:3b:00.0", "0000:3b:00.1", "GPU-a", "GPU-b/c")}
    assert len(paths) == 4
    assert all(path.parent == state_directory() / "holds" for path in paths)
    assert all(path.suffix == ".json" for path in paths)


# --- Stacks of holds ------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_each_hold_restores_what_the_one_below_it_has_set(orders: list[int]) -> None:
    stack = linked([Entry(float(n), 1.0, 250.0, order=order) for n, order in enumerate(orders, 1)])
    assert [entry.order for entry in stack] == sorted(orders)
    assert [entry.previous for entry in stack] == [250.0, *(entry.value for entry in stack[:-1])]
    assert {entry.original for entry in stack} == {250.0}


def test_a_hold_is_abandoned_once_its_process_has_ended() -> None:
    own = Entry(150.0, 250.0, 250.0)
    assert not own.abandoned()
    assert Entry(150.0, 250.0, 250.0, pid=2**22 + 1, started="1").abandoned()
    assert Entry(150.0, 250.0, 250.0, started="1").abandoned(), "its number was used again"
    assert Entry(150.0, 250.0, 250.0, boot="an earlier one").abandoned()
    own.abandon()
    assert own.abandoned()


# --- What cannot be read --------------------------------------------------------------------------

GOOD = {
    "value": 120.0, "previous": 187.5, "id": "a", "pid": 2**22 + 1, "started": "1", "boot": "b",
}  # fmt: skip
DAMAGED = {
    "cut short": '{"version": 1, "knobs": {"power_li',
    "empty": "",
    "no object": "[]",
    "null": "null",
    "other version": '{"version": 99, "knobs": {}}',
    "no knobs": '{"version": 1}',
    "knobs as a list": '{"version": 1, "knobs": []}',
    "stack as a number": '{"version": 1, "knobs": {"power_limit": 3}}',
    "entry as a text": '{"version": 1, "knobs": {"power_limit": ["x"]}}',
    "missing field": '{"version": 1, "knobs": {"power_limit": [{"value": 1.0}]}}',
    "text for watts": json.dumps(
        {"version": 1, "knobs": {"power_limit": [{**GOOD, "previous": "lots"}]}}
    ),
    "three clocks": json.dumps(
        {"version": 1, "knobs": {"graphics_clock": [{**GOOD, "previous": [1, 2, 3]}]}}
    ),
    "not a number": json.dumps(
        {"version": 1, "knobs": {"power_limit": [{**GOOD, "previous": float("nan")}]}}
    ),
    "endless": json.dumps(
        {"version": 1, "knobs": {"power_limit": [{**GOOD, "previous": 10**400}]}}
    ),
    "nested deeply": '{"version": 1, "knobs": ' + "[" * 100_000,
    "a number of many digits": '{"version": 1, "knobs": ' + "9" * 10_000 + "}",
    "a clock out of this world": json.dumps(
        {"version": 1, "knobs": {"graphics_clock": [{**GOOD, "previous": [1, 10**40]}]}}
    ),
    "unknown knob": json.dumps({"version": 1, "knobs": {"fan_speed": [GOOD]}}),
    "no text": b"\xff\xfe\x00",
    "huge": b" " * (2 << 20),
    "text for a process": json.dumps(
        {"version": 1, "knobs": {"power_limit": [{**GOOD, "pid": "me"}]}}
    ),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_record_that_cannot_be_read_is_kept_and_its_gpu_left_alone(text: str | bytes) -> None:
    path = path_of(KEY)
    raw = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(raw)
    gpu, driver = stand_in()
    driver.limit = 200.0
    ended, (problem,) = Node(MonotonicClock(), [driver]).restore()
    assert ended == 0
    assert problem.error.reason is Reason.UNREADABLE
    assert str(path) in problem.error.detail
    with pytest.raises(CapabilityError, match="unreadable record"):
        gpu.hold(power_limit=120).acquire()
    assert driver.limit == 200.0
    found, (unreadable,) = recorded_stacks()
    assert (found, unreadable.path) == ({}, path)
    assert unreadable.why
    assert path.read_bytes() == raw


def test_something_else_in_the_place_of_a_record_keeps_nobody_waiting() -> None:
    os.mkfifo(path_of(KEY))
    _, (unreadable,) = recorded_stacks()
    assert "not a regular file" in unreadable.why


def test_a_hold_whose_record_became_unreadable_puts_back_what_nobody_changed() -> None:
    gpu, driver = stand_in()
    path = path_of(KEY)
    with gpu.hold(power_limit=120):
        path.write_text('{"version": 99, "knobs": {}}')
    assert driver.limit == 250.0
    path.unlink()
    with gpu.hold(power_limit=120):
        path.write_text('{"version": 99, "knobs": {}}')
        driver.limit = 140.0  # by the one who wrote it
    assert driver.limit == 140.0
    assert json.loads(path.read_text())["version"] == 99
