"""A crash-safe record of what knobs were set to before somebody changed them.

One small JSON file per GPU holds, for every knob, a stack of the holds on it: the oldest at the
bottom remembers the value from before Zeus, each later one the value of the hold below it. A hold
that ends takes itself out; if others lie above it, the next one inherits what it remembered. That
makes the order of ending irrelevant, across threads and processes, and a process that was killed
is simply a hold that ended: whoever comes next takes it out the same way.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from zeus.device.state import (
    boot_id,
    locked,
    process_start,
    state_directory,
    write_atomically,
)

logger = logging.getLogger(__name__)

#: A knob's value as JSON knows it: watts, a [lowest, highest] clock pair, a switch, or "free".
Value = float | list[int] | bool | None
Apply = Callable[[str, Value], None]

_VERSION = 1


@dataclass
class Entry:
    """One hold on one knob."""

    value: Value
    previous: Value
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    pid: int = field(default_factory=os.getpid)
    started: str = field(default_factory=lambda: process_start(os.getpid()) or "")
    boot: str = field(default_factory=boot_id)

    def abandoned(self) -> bool:
        """Whether the process behind it is gone."""
        return self.boot != boot_id() or process_start(self.pid) != self.started


Stacks = dict[str, list[Entry]]


class Journal:
    """The record of one GPU. All changes of its knobs go through here, one at a time."""

    def __init__(self, gpu_key: str, apply: Apply, memory: Stacks | None = None) -> None:
        """Open the record.

        Args:
            gpu_key: Names the GPU for ever.
            apply: Sets a knob to a value, for real.
            memory: Where to keep it instead of on disk, for a GPU that lives in this process only.
        """
        self._apply = apply
        self._memory = memory
        self._path = None if memory is not None else journal_path(gpu_key)

    def push(self, knob: str, value: Value, read: Callable[[], Value]) -> Entry:
        """Set a knob, remembering what it was.

        Args:
            knob: Its name.
            value: What to set.
            read: Reads the present value; `None` where the hardware cannot tell.
        """
        with self._open() as stacks:
            stack = stacks.setdefault(knob, [])
            previous = read()
            if previous is None and stack:
                previous = stack[-1].value
            entry = Entry(value, previous)
            stack.append(entry)
            # On disk before the knob moves: a crash in between restores what is set already.
            self._save(stacks)
            try:
                self._apply(knob, value)
            except BaseException:
                stack.remove(entry)
                raise
            return entry

    def change(self, knob: str, entry: Entry, value: Value) -> None:
        """Set a knob anew under a hold that exists."""
        with self._open() as stacks:
            stack = stacks.get(knob, [])
            mine = next((other for other in stack if other.id == entry.id), None)
            if mine is None:
                return
            if stack[-1] is mine:
                self._apply(knob, value)
            mine.value = entry.value = value

    def pop(self, knob: str, entry_id: str) -> None:
        """End a hold: put back what it remembers, or hand that to the hold above it."""
        with self._open() as stacks:
            self._remove(stacks, knob, entry_id)

    def recover(self) -> int:
        """End the holds of processes that are gone; return how many there were."""
        ended = 0
        with self._open() as stacks:
            for knob, stack in stacks.items():
                for entry in [entry for entry in stack if entry.abandoned()]:
                    if entry.boot != boot_id():
                        stack.remove(entry)  # a reboot has put the knob back already
                    else:
                        self._remove(stacks, knob, entry.id)
                    ended += 1
        return ended

    def _remove(self, stacks: Stacks, knob: str, entry_id: str) -> None:
        stack = stacks.get(knob, [])
        at = next((i for i, entry in enumerate(stack) if entry.id == entry_id), None)
        if at is None:
            return
        if at + 1 < len(stack):
            stack[at + 1].previous = stack[at].previous
        else:
            # If this fails the entry stays, and the next start tries again.
            self._apply(knob, stack[at].previous)
        del stack[at]

    @contextmanager
    def _open(self) -> Iterator[Stacks]:
        with critical_section:
            if self._memory is not None:
                yield self._memory
                return
            assert self._path is not None
            with locked(self._path.with_suffix(".lock")):
                stacks = self._load()
                before = _encode(stacks)
                try:
                    yield stacks
                finally:
                    if _encode(stacks) != before or not any(stacks.values()):
                        self._save(stacks)

    def _load(self) -> Stacks:
        assert self._path is not None
        try:
            return _decode(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, KeyError) as error:
            # Written atomically, so this is not a crash of ours. Keep it for a person to read.
            kept = self._path.with_suffix(".unreadable")
            os.replace(self._path, kept)  # noqa: PTH105
            logger.error("the record of changed knobs %s is unreadable (%s); kept", kept, error)
            return {}

    def _save(self, stacks: Stacks) -> None:
        if self._path is None:
            return
        if any(stacks.values()):
            write_atomically(self._path, _encode(stacks))
        else:
            self._path.unlink(missing_ok=True)


def _encode(stacks: Stacks) -> str:
    knobs = {knob: [asdict(entry) for entry in stack] for knob, stack in stacks.items() if stack}
    return json.dumps({"version": _VERSION, "knobs": knobs}, indent=1, sort_keys=True)


def _decode(text: str) -> Stacks:
    record = json.loads(text)
    if record["version"] != _VERSION:
        raise ValueError(f"version {record['version']}, expected {_VERSION}")
    return {
        str(knob): [Entry(**entry) for entry in stack] for knob, stack in record["knobs"].items()
    }


def journal_path(gpu_key: str) -> Path:
    """The file that records the holds on a GPU."""
    directory = state_directory() / "holds"
    directory.mkdir(parents=True, exist_ok=True)
    return directory / (re.sub(r"[^A-Za-z0-9._-]", "_", gpu_key) + ".json")


def recorded_gpus() -> set[str]:
    """File stems of all records that exist; cheap, for the start of every process."""
    try:
        return {path.stem for path in (state_directory() / "holds").glob("*.json")}
    except OSError:
        return set()


def recover(gpu_key: str, apply: Apply) -> int:
    """End the holds of processes that are gone on one GPU; return how many there were.

    Raises:
        CapabilityError: If the GPU refuses the value; the record stays for another try.
    """
    if journal_path(gpu_key).stem not in recorded_gpus():
        return 0
    return Journal(gpu_key, apply).recover()


class _CriticalSection:
    """Serialises changes of knobs in this process, and lets signal handlers wait for the end.

    A handler runs on top of whatever the main thread does. Restoring knobs from within a handler
    while the same thread is changing one would wait for itself for ever; so the handler asks to be
    called back when the section ends.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner: int | None = None
        self._depth = 0
        self._afterwards: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        pending: list[Callable[[], None]] = []
        if self._depth == 0:
            self._owner = None
            pending, self._afterwards = self._afterwards, []
        self._lock.release()
        for action in pending:
            action()

    def when_free(self, action: Callable[[], None]) -> None:
        """Run the action now, or, if this very thread is inside the section, when it leaves."""
        if self._owner == threading.get_ident():
            self._afterwards.append(action)
        else:
            action()

    def reset_after_fork(self) -> None:
        """A forked child must not wait for a thread it does not have."""
        self.__init__()  # type: ignore[misc]


critical_section = _CriticalSection()
os.register_at_fork(after_in_child=critical_section.reset_after_fork)
