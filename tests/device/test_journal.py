"""The record of changed knobs: what it survives, and whom it believes to be gone."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
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
from zeus.device._records import Entry, GpuRecord, Stacks, recorded_gpus, recorded_stacks
from zeus.errors import CapabilityError, KnobError, Reason
from zeus.state import _files as state
from zeus.state._files import boot_id, process_start, state_directory, write_atomically
from zeus.state._locks import locked

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


def test_a_lost_record_does_not_lose_a_change() -> None:
    knobs = Knobs()
    entry = knobs.push(150.0)
    journal_path(KEY).unlink()
    knobs.journal().change("power_limit", entry, 130.0)
    assert knobs.values["power_limit"] == 130.0
    knobs.journal().pop("power_limit", entry.id)
    assert knobs.values["power_limit"] == 250.0


def test_keys_with_odd_characters_have_files_of_their_own() -> None:
    paths = {journal_path(key) for key in ("0000:3b:00.0", "0000:3b:00.1", "GPU-a", "GPU-b/c")}
    assert len(paths) == 4
    assert all(path.parent == state_directory() / "holds" for path in paths)
    assert all(path.suffix == ".json" for path in paths)


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


# --- Damage ---------------------------------------------------------------------------------------

GOOD = _fields(gone(120.0, 187.5))
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
    "unknown knob": json.dumps({"version": 1, "knobs": {"fan_speed": [GOOD]}}),
    "no text": b"\xff\xfe\x00",
    "huge": b" " * (2 << 20),
    "text for a process": json.dumps(
        {"version": 1, "knobs": {"power_limit": [{**GOOD, "pid": "me"}]}}
    ),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_record_that_cannot_be_read_is_kept_and_its_gpu_left_alone(text: str | bytes) -> None:
    path = journal_path(KEY)
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
    os.mkfifo(journal_path(KEY))
    _, (unreadable,) = recorded_stacks()
    assert "not a regular file" in unreadable.why


def test_a_hold_whose_record_became_unreadable_puts_back_what_nobody_changed() -> None:
    gpu, driver = stand_in()
    path = journal_path(KEY)
    with gpu.hold(power_limit=120):
        path.write_text('{"version": 99, "knobs": {}}')
    assert driver.limit == 250.0
    path.unlink()
    with gpu.hold(power_limit=120):
        path.write_text('{"version": 99, "knobs": {}}')
        driver.limit = 140.0  # by the one who wrote it
    assert driver.limit == 140.0
    assert json.loads(path.read_text())["version"] == 99


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
    _, driver = stand_in()
    with pytest.raises(KnobError, match="number of watts"):
        knob_setter(driver)("power_limit", None)
    assert driver.limit == 250.0


# --- Files and processes --------------------------------------------------------------------------


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("no")))
    with pytest.raises(OSError, match="no"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_ends_with_its_block_even_if_a_child_was_forked_inside(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path):
        ready, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(tell)
            os.read(ready, 1)  # lives on, with a copy of the open file
            os._exit(0)
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(tell)
        os.close(ready)
        os.waitpid(child, 0)


def test_a_lock_keeps_others_out_until_its_end(tmp_path: Path) -> None:
    log: list[str] = []

    def second() -> None:
        with locked(tmp_path / "lock"):
            log.append("second")

    with locked(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.05)
        log.append("first")
    thread.join(30)
    assert log == ["first", "second"]


def test_processes_are_known_by_when_they_started() -> None:
    assert process_start(os.getpid()) == process_start(os.getpid())
    assert process_start(os.getpid()) is not None
    assert process_start(2**22 + 1) is None
    assert boot_id() == boot_id() != ""


def test_a_process_that_ended_unnoticed_is_gone() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    started = process_start(process.pid)
    assert started
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    assert process_start(process.pid) is None
    process.communicate()


def test_a_process_with_an_odd_name_is_found() -> None:
    name = "a) S 1 ("
    code = (
        "import ctypes; ctypes.CDLL(None).prctl(15, b'" + name + "', 0, 0, 0); print('', flush=1)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code + "; input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    before = process_start(process.pid)
    process.stdout.readline()
    assert process_start(process.pid) == before
    process.communicate("\n")


# --- Where it is kept -----------------------------------------------------------------------------


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("ZEUS_STATE_DIR")
    monkeypatch.setattr("zeus.device._record_places.SHARED_PLACES", ())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(state.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path


def test_state_is_kept_in_the_users_directory(unset: Path) -> None:
    assert state_directory() == unset / "home" / "zeus"
    assert stat.S_IMODE(state_directory().stat().st_mode) == 0o700


def test_accounts_without_a_home_have_a_directory_of_their_own(unset: Path) -> None:
    (unset / "home").write_text("no directory")
    own = unset / "temporary" / f"zeus-{os.getuid()}"
    assert state_directory() == own
    assert stat.S_IMODE(own.stat().st_mode) == 0o700


def test_a_directory_that_others_can_write_is_not_trusted(unset: Path) -> None:
    # Whoever writes a record decides what a privileged process sets later.
    (unset / "home").write_text("no directory")
    trap = unset / "temporary" / f"zeus-{os.getuid()}"
    trap.mkdir()
    trap.chmod(0o777)
    with pytest.raises(PermissionError, match="ZEUS_STATE_DIR"):
        state_directory()
    trap.rmdir()
    (unset / "elsewhere").mkdir()
    trap.symlink_to(unset / "elsewhere")
    with pytest.raises(PermissionError, match="ZEUS_STATE_DIR"):
        state_directory()
    assert recorded_gpus() == set()
