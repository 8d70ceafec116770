"""The record of changed knobs: what it survives, and whom it believes to be gone."""

from __future__ import annotations

import fcntl
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.device.clients import stand_in

from zeus.clock import MonotonicClock
from zeus.device._hold import knob_setter
from zeus.device._journal import Journal, recover
from zeus.device._node import Node
from zeus.device._records import Entry, GpuRecord, Stacks, recorded_gpus
from zeus.errors import CapabilityError, KnobError, Reason

KEY = "GPU-stand-in"


class Knobs:
    """What the driver would set, and whether it is in the mood."""

    def __init__(self, **values: Any) -> None:
        self.values: dict[str, Any] = {"power_limit": 250.0, **values}
        self.writes: list[tuple[str, Any]] = []
        self.refusals: dict[str, Exception] = {}

    def apply(self, knob: str, value: Any) -> None:
        if knob in self.refusals:
            raise self.refusals[knob]
        self.values[knob] = value
        self.writes.append((knob, value))

    def journal(self, memory: Stacks | None = None) -> Journal:
        return Journal(KEY, self.apply, memory)

    def push(self, watts: float) -> Entry:
        return self.journal().push("power_limit", watts, lambda: self.values["power_limit"])


def journal_path(key: str) -> Path:
    """The file of a GPU's record."""
    return GpuRecord(key, private=False).path


def living(value: Any, previous: Any) -> Entry:
    """A hold of this process."""
    return Entry(value, previous, previous)


def gone(value: Any, previous: Any, **more: Any) -> Entry:
    """A hold of a process that has ended."""
    return Entry(value, previous, previous, **{"pid": 2**22 + 1, "started": "1", **more})


def write(stacks: Stacks) -> Path:
    path = journal_path(KEY)
    knobs = {knob: [_fields(entry) for entry in stack] for knob, stack in stacks.items()}
    path.write_text(json.dumps({"version": 1, "knobs": knobs}))
    return path


def _fields(entry: Entry) -> dict[str, Any]:
    """As records were written before they knew more: in order, each with what it found."""
    return {k: v for k, v in vars(entry).items() if k not in ("original", "order", "file", "more")}


def on_record() -> dict[str, list[Any]]:
    path = journal_path(KEY)
    if not path.exists():
        return {}
    knobs = json.loads(path.read_text())["knobs"]
    return {knob: [entry["value"] for entry in stack] for knob, stack in knobs.items()}


# --- Recording ------------------------------------------------------------------------------------


def test_the_record_is_on_disk_before_the_knob_moves() -> None:
    knobs = Knobs()
    seen: list[Any] = []
    journal = Journal(KEY, lambda knob, value: seen.append(on_record()))
    journal.push("power_limit", 120.0, lambda: knobs.values["power_limit"])
    assert seen == [{"power_limit": [120.0]}]


def test_nothing_is_left_once_every_hold_has_ended() -> None:
    knobs = Knobs()
    first, second = knobs.push(150.0), knobs.push(120.0)
    knobs.journal().pop("power_limit", first.id)
    assert on_record() == {"power_limit": [120.0]}
    knobs.journal().pop("power_limit", second.id)
    assert not journal_path(KEY).exists()
    assert knobs.values["power_limit"] == 250.0
    knobs.journal().pop("power_limit", second.id)  # twice changes nothing
    assert knobs.writes[-1] == ("power_limit", 250.0)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), memory=st.booleans())
def test_any_order_of_ending_brings_the_first_value_back(data: Any, memory: bool) -> None:
    journal_path(KEY).unlink(missing_ok=True)  # an example may be given up half-way
    knobs = Knobs(power_limit=187.5)
    stacks: Stacks | None = {} if memory else None
    journal = knobs.journal(stacks)
    alive: list[Entry] = []
    for _ in range(data.draw(st.integers(1, 8))):
        action = data.draw(st.sampled_from(["push", "pop", "change"]))
        watts = float(data.draw(st.integers(100, 249)))
        if action == "push" or not alive:
            alive.append(journal.push("power_limit", watts, lambda: knobs.values["power_limit"]))
        elif action == "change":
            journal.change("power_limit", data.draw(st.sampled_from(alive)), watts)
        else:
            entry = data.draw(st.sampled_from(alive))
            alive.remove(entry)
            journal.pop("power_limit", entry.id)
        # Whatever has happened, the latest hold that lasts decides.
        assert knobs.values["power_limit"] == (alive[-1].value if alive else 187.5)
    for entry in data.draw(st.permutations(alive)):
        journal.pop("power_limit", entry.id)
    assert knobs.values["power_limit"] == 187.5
    assert not (any(stacks.values()) if stacks is not None else on_record())


def test_a_refused_push_leaves_the_other_holds_as_they_were() -> None:
    knobs = Knobs()
    first = knobs.push(150.0)
    knobs.refusals["power_limit"] = CapabilityError(Reason.NO_PERMISSION, "no")
    with pytest.raises(CapabilityError):
        knobs.push(120.0)
    assert on_record() == {"power_limit": [150.0]}
    knobs.refusals.clear()
    knobs.journal().pop("power_limit", first.id)
    assert knobs.values["power_limit"] == 250.0


def test_a_full_disk_stops_a_change_before_it_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    knobs = Knobs()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("zeus.device._records.write_atomically", full)
    with pytest.raises(OSError, match="No space"):
        knobs.push(120.0)
    assert knobs.writes == []


def test_a_full_disk_does_not_keep_other_knobs_from_coming_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gpu, driver = stand_in()
    hold = gpu.hold(power_limit=120, graphics_clock=900, memory_clock=800)
    hold.acquire()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("zeus.device._records.write_atomically", full)
    with caplog.at_level(logging.ERROR):
        hold.release()
    assert (driver.limit, driver.graphics, driver.memory_clock) == (250.0, None, None)
    assert "No space left" in caplog.text


def test_a_hold_that_ended_on_a_full_disk_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    knobs = Knobs()
    first, second = knobs.push(150.0), knobs.push(120.0)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("zeus.device._records.write_atomically", full)
        with pytest.raises(OSError, match="No space"):
            knobs.journal().pop("power_limit", first.id)
    assert knobs.values["power_limit"] == 120.0
    knobs.journal().pop("power_limit", second.id)
    assert knobs.values["power_limit"] == 250.0
    assert not journal_path(KEY).exists()


def test_a_lost_record_does_not_lose_the_value_to_restore() -> None:
    knobs = Knobs()
    journal = knobs.journal()
    entry = journal.push("power_limit", 150.0, lambda: knobs.values["power_limit"])
    journal_path(KEY).unlink()
    other = knobs.push(130.0)
    journal.pop("power_limit", entry.id)
    assert knobs.values["power_limit"] == 130.0
    knobs.journal().pop("power_limit", other.id)
    assert knobs.values["power_limit"] == 250.0


def test_a_lost_record_does_not_undo_what_was_set_by_hand_since() -> None:
    knobs = Knobs()
    journal = knobs.journal()
    entry = journal.push("power_limit", 150.0, lambda: knobs.values["power_limit"])
    journal_path(KEY).unlink()
    knobs.values["power_limit"] = 200.0
    journal.pop("power_limit", entry.id)
    assert knobs.values["power_limit"] == 200.0


def test_a_lost_record_does_not_lose_a_change() -> None:
    knobs = Knobs()
    entry = knobs.push(150.0)
    journal_path(KEY).unlink()
    knobs.journal().change("power_limit", entry, 130.0)
    assert knobs.values["power_limit"] == 130.0
    knobs.journal().pop("power_limit", entry.id)
    assert knobs.values["power_limit"] == 250.0


def test_a_change_of_the_highest_hold_replaces_its_value_only() -> None:
    knobs = Knobs()
    journal = knobs.journal()
    entry = journal.push("power_limit", 150.0, lambda: 250.0)
    file = journal_path(KEY)
    before, record = file.stat(), json.loads(file.read_text())
    for watts in (187.5, 120.0, 222.2222222222222, 100.0):
        assert journal.change("power_limit", entry, watts)
        assert knobs.values["power_limit"] == watts
        record["knobs"]["power_limit"][0]["value"] = watts
        assert json.loads(file.read_text()) == record
    after = file.stat()
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    journal.pop("power_limit", entry.id)
    assert knobs.values["power_limit"] == 250.0


def test_all_others_are_kept_out_while_a_knob_changes() -> None:
    free: list[bool] = []

    def apply(knob: str, value: Any) -> None:
        with GpuRecord(KEY, private=False).lock_path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                free.append(True)
            except BlockingIOError:
                free.append(False)

    journal = Journal(KEY, apply)
    entry = journal.push("power_limit", 150.0, lambda: 250.0)
    for watts in (140.0, 130.0):
        journal.change("power_limit", entry, watts)
    journal.pop("power_limit", entry.id)
    assert free == [False] * 4


@pytest.mark.parametrize(("first_byte", "in_place"), [(4000, True), (4090, False), (4096, True)])
def test_a_value_across_pages_is_replaced_with_the_whole_file(
    first_byte: int, in_place: bool
) -> None:
    # A process that is killed then leaves the old value or the new one, never half of each.
    knobs = Knobs()
    journal = knobs.journal()
    entry = journal.push("power_limit", 150.0, lambda: 250.0)
    file = journal_path(KEY)

    def fill(length: int) -> int:
        """Where the value is, after that many characters of a later version."""
        record = json.loads(file.read_text()) | {"a": "x" * length}
        file.write_text(json.dumps(record))
        assert journal.change("power_limit", entry, 120.0 + length)
        return file.read_text().index('"value": ') + len('"value": ')

    assert fill(first_byte - fill(0)) == first_byte
    before = file.stat().st_ino
    assert journal.change("power_limit", entry, 101.0)
    assert (file.stat().st_ino == before) == in_place
    assert on_record() == {"power_limit": [101.0]}


def test_a_change_after_another_hold_began_is_not_written_into_its_record() -> None:
    knobs = Knobs()
    journal = knobs.journal()
    entry = journal.push("power_limit", 150.0, lambda: knobs.values["power_limit"])
    assert journal.in_force("power_limit", entry.id)
    above = knobs.push(120.0)
    assert not journal.in_force("power_limit", entry.id)
    assert not journal.change("power_limit", entry, 140.0)
    assert knobs.values["power_limit"] == 120.0
    assert on_record() == {"power_limit": [140.0, 120.0]}
    assert not journal.in_force("power_limit", entry.id)
    knobs.journal().pop("power_limit", above.id)
    assert knobs.values["power_limit"] == 140.0
    for watts in (130.0, 135.0):
        assert journal.change("power_limit", entry, watts)
        assert journal.in_force("power_limit", entry.id)
    assert on_record() == {"power_limit": [135.0]}


def test_a_record_edited_by_hand_is_not_written_into() -> None:
    knobs = Knobs()
    journal = knobs.journal()
    entry = journal.push("power_limit", 150.0, lambda: 250.0)
    journal_path(KEY).write_text('{"version": 99, "knobs": {}}')
    with pytest.raises(CapabilityError, match="unreadable record"):
        journal.change("power_limit", entry, 140.0)
    assert journal_path(KEY).read_text() == '{"version": 99, "knobs": {}}'


# --- Recovery -------------------------------------------------------------------------------------


def test_holds_of_the_dead_are_ended_and_those_of_the_living_kept() -> None:
    knobs = Knobs(power_limit=120.0)
    alive = living(120.0, 150.0)
    write({"power_limit": [gone(150.0, 187.5), alive]})
    assert recover(KEY, knobs.apply) == 1
    assert knobs.writes == []  # the living one's value is in force
    knobs.journal().pop("power_limit", alive.id)
    assert knobs.values["power_limit"] == 187.5


def test_a_dead_hold_on_top_gives_way_to_the_living_one() -> None:
    knobs = Knobs(power_limit=120.0)
    write({"power_limit": [living(150.0, 187.5), gone(120.0, 150.0)]})
    assert recover(KEY, knobs.apply) == 1
    assert knobs.values["power_limit"] == 150.0


def test_a_stack_of_dead_holds_goes_back_to_the_first_value() -> None:
    knobs = Knobs()
    write({"power_limit": [gone(150.0, 187.5), gone(120.0, 150.0)], "graphics_clock": [
        gone([900, 900], None)
    ]})  # fmt: skip
    assert recover(KEY, knobs.apply) == 3
    assert knobs.values["power_limit"] == 187.5
    assert knobs.values["graphics_clock"] is None
    assert not recorded_gpus()


def test_without_a_record_nothing_is_touched() -> None:
    knobs = Knobs()
    assert recover(KEY, knobs.apply) == 0
    assert knobs.writes == []


def test_a_reused_process_number_is_not_the_process() -> None:
    knobs = Knobs()
    write({"power_limit": [gone(120.0, 187.5, pid=os.getpid(), started="1")]})
    assert recover(KEY, knobs.apply) == 1
    assert knobs.values["power_limit"] == 187.5


def test_after_a_reboot_the_record_goes_and_the_knob_is_left_alone() -> None:
    knobs = Knobs()
    write({"power_limit": [gone(120.0, 187.5, boot="another")]})
    assert recover(KEY, knobs.apply) == 1
    assert knobs.writes == []
    assert not recorded_gpus()


def test_what_was_held_before_a_reboot_is_not_put_back_later() -> None:
    # A lock that cannot be read back is remembered from hold to hold, but not across a boot.
    knobs = Knobs()
    write({"graphics_clock": [gone([600, 600], None, boot="another")]})
    entry = knobs.journal().push("graphics_clock", [900, 900], lambda: None)
    knobs.journal().pop("graphics_clock", entry.id)
    assert knobs.writes == [("graphics_clock", [900, 900]), ("graphics_clock", None)]


def test_a_new_hold_starts_from_the_value_before_the_dead_one() -> None:
    knobs = Knobs(power_limit=120.0)
    write({"power_limit": [gone(120.0, 187.5)]})
    entry = knobs.push(150.0)
    assert entry.previous == 187.5
    knobs.journal().pop("power_limit", entry.id)
    assert knobs.values["power_limit"] == 187.5


def test_a_refused_recovery_keeps_the_record_for_another_try() -> None:
    knobs = Knobs(power_limit=120.0)
    write({"power_limit": [gone(120.0, 187.5)], "graphics_clock": [gone([900, 900], [300, 600])]})
    knobs.refusals["power_limit"] = CapabilityError(Reason.NO_PERMISSION, "no", "be root")
    for _ in range(2):
        with pytest.raises(CapabilityError, match="be root"):
            recover(KEY, knobs.apply)
        assert on_record() == {"power_limit": [120.0]}
    assert knobs.values["graphics_clock"] == [300, 600]  # one's obstacle is not another's
    knobs.refusals.clear()
    assert recover(KEY, knobs.apply) == 1
    assert knobs.values["power_limit"] == 187.5


@pytest.mark.parametrize(
    "obstacle",
    [
        CapabilityError(Reason.LOST, "fallen off the bus"),
        KnobError("100 W <= power_limit <= 150 W must hold, but got 187.5 W"),
    ],
)
def test_a_node_starts_even_if_nothing_can_be_put_back(obstacle: Exception) -> None:
    _, driver = stand_in()
    write({"power_limit": [gone(120.0, 187.5)]})

    def refuse(knob: str, value: Any) -> None:
        raise obstacle

    driver.before = refuse
    node = Node(MonotonicClock(), [driver])
    ended, problems = node.restore()
    assert ended == 0
    assert [problem.what for problem in problems] == ["restoring Stand-in"]
    assert str(obstacle) in str(problems[0]) or obstacle.args[0] in str(problems[0])
    driver.before = lambda knob, value: None
    assert node.restore() == (1, [])
    assert driver.limit == 187.5


def test_a_record_that_may_not_be_opened_is_a_problem_not_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, driver = stand_in()
    write({"power_limit": [gone(120.0, 187.5)]})

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("zeus.device._records.os.open", forbidden)
    ended, problems = Node(MonotonicClock(), [driver]).restore()
    assert (ended, len(problems)) == (0, 1)
    assert "Permission denied" in problems[0].error.detail


# --- Other versions, and nonsense -----------------------------------------------------------------


def test_what_a_later_version_notes_is_kept() -> None:
    knobs = Knobs()
    entry = knobs.push(150.0)
    path = journal_path(KEY)
    record = json.loads(path.read_text())
    record["later"] = {"a": 1}
    record["knobs"]["power_limit"][0]["later"] = [2]
    path.write_text(json.dumps(record))
    other = knobs.push(120.0)
    record = json.loads(path.read_text())
    assert record["later"] == {"a": 1}
    assert [e.get("later") for e in record["knobs"]["power_limit"]] == [[2], None]
    knobs.journal().pop("power_limit", entry.id)
    knobs.journal().pop("power_limit", other.id)
    assert knobs.values["power_limit"] == 250.0


def test_a_limit_that_is_no_number_is_refused_not_set() -> None:
    gpu, driver = stand_in()
    with pytest.raises(KnobError, match="number of watts"):
        knob_setter(gpu)("power_limit", None)
    assert driver.limit == 250.0
