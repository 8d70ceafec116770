"""File format of the record of holds on a GPU.

A record is one small JSON file per user and GPU. No process writes another user's file: the end of
another user's hold is noted in the own file. Unreadable files are kept and reported.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from zeus.device._record_places import machine_place, places, private_place
from zeus.errors import CapabilityError, Reason
from zeus.state._files import (
    PinnedFile,
    boot_id,
    process_namespace,
    process_start,
    write_atomically,
)
from zeus.state._locks import signs_of_life

#: A knob's value in JSON: watts, a [lowest, highest] clock pair in MHz, or null (free).
Value = float | list[int] | None

POWER_LIMIT, GRAPHICS_CLOCK, MEMORY_CLOCK = "power_limit", "graphics_clock", "memory_clock"
KNOBS = (POWER_LIMIT, GRAPHICS_CLOCK, MEMORY_CLOCK)

_VERSION = 1
_ENDED = "ended"  # instead of a start time, which is a number: matches no process
_MAX_BYTES = 1 << 20
_MAX_WATTS = 1e6
_MAX_MHZ = 1_000_000
_VALUE_WIDTH = 34  # characters: no value of a knob takes more
_PAGE = 4096  # bytes that a write changes as one, even if its process is killed meanwhile


@dataclass
class Entry:
    """One hold on one knob.

    Attributes:
        value: Value that it set.
        previous: Value restored when it ends and no later hold overrides it.
        original: Value of the knob before the earliest hold.
        order: A hold overrides all holds of a lower number.
        file: File that records it; empty for a hold that is in memory only.
        more: Fields written by a later version, kept as they are.
    """

    value: Value
    previous: Value
    original: Value
    order: int = 0
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    pid: int = field(default_factory=os.getpid)
    started: str = field(default_factory=lambda: process_start(os.getpid()) or "")
    boot: str = field(default_factory=boot_id)
    namespace: str = field(default_factory=process_namespace)
    sign_of_life: int = 0
    file: str = ""
    more: dict[str, Any] = field(default_factory=dict)

    def abandoned(self) -> bool:
        """Whether its process has ended."""
        if self.boot != boot_id() or self.started == _ENDED:
            return True
        if self.namespace == process_namespace():
            started = process_start(self.pid)
            if started != "":
                return started != self.started
        return not signs_of_life.seen(Path(self.file).parent / "alive", self.sign_of_life)

    def is_mine(self) -> bool:
        """Whether it is a hold of this process."""
        return self.pid == os.getpid() and self.namespace == process_namespace()

    def abandon(self) -> None:
        """Let the next process end it, although this process lives on."""
        self.started = _ENDED


Stacks = dict[str, list[Entry]]


class HoldKeeper(Protocol):
    """Sets the knobs of one GPU under holds, and keeps what their ends restore."""

    def push(self, knob: str, value: Value, read: Callable[[], Value]) -> Entry:
        """Set a knob, recording its previous value."""

    def change(self, knob: str, entry: Entry, value: Value) -> bool:
        """Set a knob again under an existing hold; returns whether the value is in force."""

    def above(self, knob: str, entry_id: str) -> Entry | None:
        """Return the hold that is in force instead of this one; `None` if this one is."""

    def in_force(self, knob: str, entry_id: str) -> bool:
        """Whether a hold is in force; false if finding out could take long."""

    def pop(self, knob: str, entry_id: str) -> None:
        """End a hold: restore its previous value, unless a later hold overrides it."""


class RemoteHoldKeeper(HoldKeeper, Protocol):
    """One that belongs to another process, which decides who may hold what."""

    def probe(self, knob: str) -> None:
        """Find out whether this process may hold a knob, without changing it."""


@dataclass(frozen=True)
class UnreadableRecord:
    """A record that cannot be used.

    Attributes:
        gpu: Name of the GPU's record.
        path: Path of the file.
        why: What is wrong with it, as the end of a sentence.
    """

    gpu: str
    path: Path
    why: str

    def to_dict(self) -> dict[str, str]:
        """Return it as a JSON object."""
        return {"gpu": self.gpu, "path": str(self.path), "why": self.why}

    def error(self) -> CapabilityError:
        """Return the error that blocks changes to the knobs of that GPU."""
        return CapabilityError(
            Reason.UNREADABLE,
            f"the record of changed knobs {self.path} {self.why}: its GPU's knobs are left alone",
            "use the version of Zeus that wrote it; or set the GPU's power limit and clocks by "
            "hand, then delete the file",
        )


class GpuRecord:
    """The record of one GPU: this user's own file, and those of others beside it.

    The file is replaced when a hold begins or ends. A value, which may change many times a second,
    is replaced within the file, so its owner need not read it again as long as it is the same file.
    Processes of other users show by locking a byte that they, too, have holds on a knob.

    Args:
        gpu_key: Permanent key of the GPU.
        private: Whether only this user sees the GPU (simulated), and so its holds.

    Raises:
        OSError: If there is no directory for it.
    """

    def __init__(self, gpu_key: str, *, private: bool) -> None:
        self._name = record_name(gpu_key)
        self._place = private_place() if private else machine_place()
        self._place.own.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.path = self._place.own / f"{self._name}.json"
        #: Lock file that every process takes to change this GPU's knobs.
        self.lock_path = self._place.lock(self._name)
        #: Permissions of its files.
        self.mode = 0o644 if self._place.shared else 0o600
        self._holders = self.lock_path.with_suffix(".holders")
        self._on_disk = ""
        self._more: dict[str, Any] = {}
        self._others: set[str] = set()  # holds recorded in files of other users
        self._values: dict[str, int] = {}  # where the values of holds are in the file
        self._pinned: PinnedFile | None = None

    def sign_of_life(self) -> int:
        """Mark this process as alive for processes in other PID namespaces; returns the mark."""
        return signs_of_life.give(self._place.own / "alive")

    def load(self) -> Stacks:
        """Return the holds of all users on this GPU, the earliest first.

        Raises:
            CapabilityError: If a file cannot be used.
        """
        stacks: Stacks = {}
        self._more, self._others, self._on_disk = {}, set(), ""
        own = {self.path, *self._place.moved_from(self._name)}
        ended: set[str] = set()
        for file in self._place.files(self._name):
            found = _read(file)
            if found is None:
                continue
            if isinstance(found, UnreadableRecord):
                raise found.error()
            ended |= found.ended
            if file == self.path:
                self._more, self._on_disk = found.more, found.text
            for knob, stack in found.stacks.items():
                # One may occur twice: moved here, and not yet deleted at its previous place.
                known = {entry.id for entry in stacks.setdefault(knob, [])}
                stacks[knob] += [entry for entry in stack if entry.id not in known]
                if file not in own:
                    self._others |= {entry.id for entry in stack}
        for knob, stack in stacks.items():
            stacks[knob] = linked([entry for entry in stack if entry.id not in ended])
        return stacks

    def save(self, stacks: Stacks) -> None:
        """Write this user's holds, if changed, and which holds of other users have ended."""
        text = self._encoded(stacks)
        if text == self._on_disk:
            return
        if self._only_values_differ(text):
            file = self._pin()
            for at in self._values.values():
                os.pwrite(file.descriptor, text[at : at + _VALUE_WIDTH].encode(), at)
        elif text:
            write_atomically(self.path, text, self.mode)
        else:
            self.path.unlink(missing_ok=True)
        for old in self._place.moved_from(self._name):
            old.unlink(missing_ok=True)
        self._on_disk = text

    def _only_values_differ(self, text: str) -> bool:
        """Whether the file would be the text, if values of holds were replaced in it."""
        new, replaced = text.encode(), bytearray(self._on_disk.encode())
        for at in self._values.values():
            replaced[at : at + _VALUE_WIDTH] = new[at : at + _VALUE_WIDTH]
        return replaced == new

    def announce(self, knob: str) -> None:
        """Show processes of other users that this one is about to hold a knob.

        Raises:
            OSError: If that fails.
        """
        if self._place.shared:
            signs_of_life.join(self._holders, KNOBS.index(knob))

    def pin(self, stacks: Stacks) -> None:
        """Remember the holds that are saved now, for `is_current` and `replace_value`."""
        self._pinned = None
        with contextlib.suppress(OSError):
            self._pinned = self._pin()
        with contextlib.suppress(OSError):
            for byte, knob in enumerate(KNOBS if self._place.shared else ()):
                if not any(entry.is_mine() for entry in stacks.get(knob, [])):
                    signs_of_life.leave(self._holders, byte)

    def _pin(self) -> PinnedFile:
        return PinnedFile(self.path, os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))

    def is_current(self, knob: str, entry_id: str) -> bool:
        """Whether the living holds on a knob are those that were pinned, and all in this file."""
        pinned = self._pinned
        if pinned is None or entry_id not in self._values or not pinned.in_place():
            return False
        return not self._place.shared or not signs_of_life.others_joined(
            self._holders, KNOBS.index(knob)
        )

    def replace_value(self, entry_id: str, value: Value) -> None:
        """Replace the value of a hold in the file, if `is_current`."""
        assert self._pinned is not None
        os.pwrite(self._pinned.descriptor, _padded(value).encode(), self._values[entry_id])

    def _encoded(self, stacks: Stacks) -> str:
        """Return the content of this user's file; empty if there is nothing to record."""
        mine = {str(self.path), *map(str, self._place.moved_from(self._name)), ""}
        own = {
            knob: [entry for entry in stack if entry.file in mine] for knob, stack in stacks.items()
        }
        knobs = {knob: [_encode(entry) for entry in stack] for knob, stack in own.items() if stack}
        left = {entry.id for stack in stacks.values() for entry in stack}
        ended = sorted(self._others - left)
        if not knobs and not ended:
            return ""
        record = self._more | {"version": _VERSION, "knobs": knobs, "ended": ended}
        text = json.dumps(record, indent=1, sort_keys=True)
        self._values = {}
        for entry in (entry for stack in own.values() for entry in stack):
            mark = json.dumps(_mark(entry))
            at = text.index(mark)
            text = text.replace(mark, _padded(entry.value))
            if at // _PAGE == (at + _VALUE_WIDTH - 1) // _PAGE:
                self._values[entry.id] = at
        return text


def record_name(gpu_key: str) -> str:
    """Return the name of the record of a GPU: its file name without the suffix."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", gpu_key)


def recorded_gpus() -> set[str]:
    """Return the names of all records; cheap enough for the start of every process."""
    return {file.stem for place in places() for file in place.all_files()}


def recorded_stacks() -> tuple[dict[str, Stacks], list[UnreadableRecord]]:
    """Return the holds by name of the GPU's record and by knob, and the unreadable records.

    Records are replaced atomically, apart from single values, so reading needs no lock.
    """
    found: dict[str, Stacks] = {}
    unreadable: list[UnreadableRecord] = []
    ended: set[str] = set()
    for place in places():
        for file in place.all_files():
            record = _read(file)
            if isinstance(record, UnreadableRecord):
                record = _read(file)  # a value may have been replaced just then
            if isinstance(record, UnreadableRecord):
                unreadable.append(record)
            elif record is not None:
                ended |= record.ended
                for knob, stack in record.stacks.items():
                    found.setdefault(file.stem, {}).setdefault(knob, []).extend(stack)
    return {
        gpu: {
            knob: linked([entry for entry in stack if entry.id not in ended])
            for knob, stack in stacks.items()
        }
        for gpu, stacks in sorted(found.items())
    }, unreadable


def linked(stack: list[Entry]) -> list[Entry]:
    """Sort holds by order, and set the value each restores to that of the hold before it."""
    stack.sort(key=lambda entry: entry.order)  # stable, for holds without an order
    for below, entry in pairwise(stack):
        entry.previous, entry.original = below.value, below.original
    if stack:
        stack[0].previous = stack[0].original
    return stack


@dataclass(frozen=True)
class _File:
    """Content of one file.

    Attributes:
        stacks: Holds of its user.
        ended: Holds of other users that its user has ended.
        more: Fields written by a later version, kept as they are.
        text: The text as read.
    """

    stacks: Stacks
    ended: set[str]
    more: dict[str, Any]
    text: str


def _read(file: Path) -> _File | UnreadableRecord | None:
    """Return the content of a file; `None` if there is no file."""
    try:
        # In a shared directory there may be a pipe instead of a file: opening it must not block.
        with open(file, "rb", opener=_without_waiting) as opened:
            raw = opened.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise ValueError(f"has more than {_MAX_BYTES} bytes")
        text = raw.decode("utf-8")
        return _decode(json.loads(text, parse_constant=_no_constant), file, text)
    except FileNotFoundError:
        return None
    except RecursionError:
        why = "is nested too deeply"
    except json.JSONDecodeError as error:
        why = f"is not JSON ({error})"
    except UnicodeDecodeError:
        why = "is not UTF-8 text"
    except OSError as error:
        why = f"cannot be read ({error.strerror or error})"
    except ValueError as error:
        why = str(error)
    return UnreadableRecord(file.stem, file, why)


def _without_waiting(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("is not a regular file")
    return descriptor


def _no_constant(text: str) -> float:
    raise ValueError(f"has a value that is not a number ({text})")


def _decode(record: Any, file: Path, text: str) -> _File:
    if not isinstance(record, dict) or not isinstance(record.get("knobs"), dict):
        raise ValueError("is not a record of holds")
    if record.get("version") != _VERSION:
        raise ValueError(
            f"was written by another version of Zeus (format {record.get('version')!r:.20}, "
            f"this version reads {_VERSION})"
        )
    stacks: Stacks = {}
    for knob, stack in record["knobs"].items():
        if knob not in KNOBS:
            raise ValueError(f"has the unknown knob {knob!r:.40} (known: {', '.join(KNOBS)})")
        if not isinstance(stack, list):
            raise ValueError(f"has no list of holds on the {knob}")
        stacks[knob] = [_entry(knob, found, file) for found in stack]
    ended = record.get("ended", [])
    if not isinstance(ended, list) or not all(isinstance(each, str) for each in ended):
        raise ValueError("has no list of holds that have ended")
    more = {key: record[key] for key in record if key not in ("version", "knobs", "ended")}
    return _File(stacks, set(ended), more, text)


_TEXTS = ("id", "started", "boot", "namespace")
_NUMBERS = ("pid", "sign_of_life", "order")


def _entry(knob: str, found: Any, file: Path) -> Entry:
    if isinstance(found, dict) and "previous" in found:  # as in older records
        found = {"original": found["previous"], **found}
        del found["previous"]
    if not isinstance(found, dict) or not {"value", "original", "pid", "id"} <= found.keys():
        raise ValueError(f"has a hold on the {knob} without value, original, pid or id")
    known = {name: found[name] for name in (*_VALUES, *_TEXTS, *_NUMBERS) if name in found}
    for name in _VALUES:
        _check_value(knob, known[name])
    if not all(isinstance(known.get(name, ""), str) for name in _TEXTS) or not all(
        type(known.get(name, 0)) is int for name in _NUMBERS
    ):
        raise ValueError(f"has a hold on the {knob} that does not identify its process")
    more = {name: value for name, value in found.items() if name not in known}
    return Entry(**known, previous=known["original"], file=str(file), more=more)


_VALUES = ("value", "original")


def _check_value(knob: str, value: Any) -> None:
    if knob == POWER_LIMIT:
        good = type(value) in (int, float) and 0 < value < _MAX_WATTS
    else:
        good = value is None or (
            isinstance(value, list)
            and len(value) == 2
            and all(type(each) is int and 0 <= each < _MAX_MHZ for each in value)
        )
    if not good:
        raise ValueError(f"has {value!r:.40} as a {knob.replace('_', ' ')}")


def _padded(value: Value) -> str:
    text = "null" if value is None else str(value)  # as JSON, but faster than its encoder
    return text.ljust(_VALUE_WIDTH)


def _mark(entry: Entry) -> str:
    """Return a text that stands for the value of an entry, as wide as a padded value in JSON."""
    return f"{id(entry):0{_VALUE_WIDTH - 2}d}"


def _encode(entry: Entry) -> dict[str, Any]:
    found = asdict(entry)
    more = found.pop("more")
    del found["file"], found["previous"]  # follow from place and order
    return {**more, **found, "value": _mark(entry)}
