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
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from zeus.device.state import (
    boot_id,
    locked,
    process_namespace,
    process_start,
    signs_of_life,
    state_directory,
    write_atomically,
)
from zeus.errors import CapabilityError, KnobError, Reason

logger = logging.getLogger(__name__)

#: A knob's value as JSON knows it: watts, a [lowest, highest] clock pair, a switch, or "free".
Value = float | list[int] | bool | None
Apply = Callable[[str, Value], None]

_VERSION = 1
_ENDED = "ended"  # in the place of a start time, which is a number: fits no process


@dataclass
class Entry:
    """One hold on one knob."""

    value: Value
    previous: Value
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    pid: int = field(default_factory=os.getpid)
    started: str = field(default_factory=lambda: process_start(os.getpid()) or "")
    boot: str = field(default_factory=boot_id)
    namespace: str = field(default_factory=process_namespace)
    sign_of_life: int = 0

    def abandoned(self) -> bool:
        """Whether the process behind it is gone."""
        if self.boot != boot_id() or self.started == _ENDED:
            return True
        if self.namespace == process_namespace():
            return process_start(self.pid) != self.started
        return not signs_of_life.seen(_signs_path(), self.sign_of_life)

    def abandon(self) -> None:
        """Let whoever comes next end it, although this process lives on."""
        self.started = _ENDED


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
        self._on_disk = ""

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep everybody, here and in other processes, from changing knobs of this GPU."""
        with self._open():
            yield

    def push(self, knob: str, value: Value, read: Callable[[], Value]) -> Entry:
        """Set a knob, remembering what it was.

        Args:
            knob: Its name.
            value: What to set.
            read: Reads the present value; `None` where the hardware cannot tell.
        """
        with self._open() as stacks:
            stack = stacks.setdefault(knob, [])
            with suppress(CapabilityError, KnobError):  # refused: then it stays on record
                self._end_abandoned(stacks, knob)
            previous = read()
            if previous is None and stack:
                previous = stack[-1].value
            entry = Entry(value, previous)
            if self._path is not None:
                entry.sign_of_life = signs_of_life.give(_signs_path())
            stack.append(entry)
            try:
                # On disk before the knob moves: a crash in between restores what is set already.
                self._save(stacks)
                self._apply(knob, value)
            except BaseException as error:
                self._take_back(stack, knob, entry, error)
                raise
            return entry

    def _take_back(self, stack: list[Entry], knob: str, entry: Entry, error: BaseException) -> None:
        """Forget a hold that did not come about, unless the knob may have moved for all that."""
        refused = isinstance(error, KnobError | OSError) or (
            isinstance(error, CapabilityError) and error.reason is not Reason.HANGS
        )
        if not refused:
            try:
                self._apply(knob, entry.previous)
            except Exception:
                entry.abandon()  # stays on record: the next to come puts the value back
                return
        stack.remove(entry)

    def change(self, knob: str, entry: Entry, value: Value, *, lasting: bool = True) -> None:
        """Set a knob anew under a hold that exists.

        Args:
            knob: Its name.
            entry: The hold's.
            value: What to set.
            lasting: Whether the record tells of it, which costs a write to disk. What was there
                before the hold is on record in any case.
        """
        with self._open() as stacks:
            stack = stacks.setdefault(knob, [])
            at = next((i for i, other in enumerate(stack) if other.id == entry.id), None)
            if at is None:  # the record was lost, not the hold: what it remembers, it still knows
                stack.append(entry)
                self._save(stacks)
                at = len(stack) - 1
            if at + 1 < len(stack):
                stack[at + 1].previous = value  # what the hold above it puts back
            else:
                self._apply(knob, value)
                if not lasting:
                    return
            stack[at].value = entry.value = value

    def pop(self, knob: str, entry_id: str) -> None:
        """End a hold: put back what it remembers, or hand that to the hold above it."""
        with self._open() as stacks:
            with suppress(CapabilityError, KnobError):
                # Killed while this one held: nothing else would bring the first value back now.
                self._end_abandoned(stacks, knob)
            self._remove(stacks, knob, entry_id)

    def recover(self) -> int:
        """End the holds of processes that are gone; return how many there were.

        Raises:
            CapabilityError: If the GPU refuses; the record of that knob stays for another try.
            KnobError: If the GPU does not take the value any more; likewise.
        """
        ended = 0
        refusal: CapabilityError | KnobError | None = None
        with self._open() as stacks:
            for knob in stacks:
                try:
                    ended += self._end_abandoned(stacks, knob)
                except (CapabilityError, KnobError) as error:
                    refusal = refusal or error  # one knob's obstacle is not another's
        if refusal is not None:
            raise refusal
        return ended

    def _end_abandoned(self, stacks: Stacks, knob: str) -> int:
        abandoned = [entry for entry in stacks.get(knob, []) if entry.abandoned()]
        for entry in abandoned:
            if entry.boot != boot_id():
                stacks[knob].remove(entry)  # a reboot has put the knob back already
            else:
                self._remove(stacks, knob, entry.id)
        return len(abandoned)

    def _remove(self, stacks: Stacks, knob: str, entry_id: str) -> None:
        stack = stacks.get(knob, [])
        at = next((i for i, entry in enumerate(stack) if entry.id == entry_id), None)
        if at is None:
            return
        if at + 1 < len(stack):
            stack[at + 1].previous = stack[at].previous
        else:
            # If this fails the entry stays, and whoever comes next tries again.
            try:
                self._apply(knob, stack[at].previous)
            except BaseException:
                stack[at].abandon()
                raise
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
                try:
                    yield stacks
                finally:
                    if _encode(stacks) != self._on_disk:
                        self._save(stacks)

    def _load(self) -> Stacks:
        assert self._path is not None
        self._on_disk = _encode({})
        try:
            stacks = _decode(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            # Written atomically, so this is not a crash of ours. Keep it for a person to read.
            kept = self._path.with_suffix(".unreadable")
            os.replace(self._path, kept)  # noqa: PTH105
            logger.error("the record of changed knobs %s is unreadable (%s); kept", kept, error)
            return {}
        self._on_disk = _encode(stacks)
        return stacks

    def _save(self, stacks: Stacks) -> None:
        if self._path is None:
            return
        text = _encode(stacks)
        if any(stacks.values()):
            write_atomically(self._path, text)
        else:
            self._path.unlink(missing_ok=True)
        self._on_disk = text


def _encode(stacks: Stacks) -> str:
    knobs = {knob: [asdict(entry) for entry in stack] for knob, stack in stacks.items() if stack}
    return json.dumps({"version": _VERSION, "knobs": knobs}, indent=1, sort_keys=True)


def _decode(text: str) -> Stacks:
    record = json.loads(text)
    if record["version"] != _VERSION:
        raise ValueError(f"version {record['version']}, expected {_VERSION}")
    stacks = {
        str(knob): [Entry(**entry) for entry in stack] for knob, stack in record["knobs"].items()
    }
    for stack in stacks.values():
        for entry in stack:
            _check(entry)
    return stacks


def _check(entry: Any) -> None:  # not yet known to be what it says
    for value in (entry.value, entry.previous):
        if isinstance(value, list):
            known = len(value) == 2 and all(isinstance(bound, int) for bound in value)
        else:
            known = value is None or isinstance(value, int | float)
        if not known:
            raise ValueError(f"{value!r} is no value of a knob")
    texts = (entry.id, entry.started, entry.boot, entry.namespace)
    numbers = (entry.pid, entry.sign_of_life)
    if not all(isinstance(text, str) for text in texts) or not all(
        isinstance(number, int) for number in numbers
    ):
        raise ValueError(f"{entry} does not name a process")


def journal_path(gpu_key: str) -> Path:
    """The file that records the holds on a GPU."""
    return _directory() / (re.sub(r"[^A-Za-z0-9._-]", "_", gpu_key) + ".json")


def _signs_path() -> Path:
    return _directory() / "alive"


def _directory() -> Path:
    directory = state_directory() / "holds"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def recorded_gpus() -> set[str]:
    """File stems of all records that exist; cheap, for the start of every process."""
    try:
        return {path.stem for path in (state_directory() / "holds").glob("*.json")}
    except OSError:
        return set()


def recorded_stacks() -> dict[str, Stacks]:
    """The holds on record, by the name of the GPU's record and the knob.

    Records are replaced as a whole, so reading needs no lock. What cannot be read is left out:
    whoever changes the knob next keeps such a file and says so.
    """
    found: dict[str, Stacks] = {}
    for gpu in sorted(recorded_gpus()):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            text = (state_directory() / "holds" / f"{gpu}.json").read_text(encoding="utf-8")
            found[gpu] = _decode(text)
    return found


def recover(gpu_key: str, apply: Apply) -> int:
    """End the holds of processes that are gone on one GPU; return how many there were.

    Raises:
        CapabilityError: If the GPU refuses; the record stays for another try.
        KnobError: If the GPU does not take the value any more; likewise.
    """
    if journal_path(gpu_key).stem not in recorded_gpus():
        return 0
    return Journal(gpu_key, apply).recover()


class _CriticalSection:
    """Serialises changes of knobs in this process, and lets signal handlers wait for the end.

    A handler runs on top of whatever the main thread does. Restoring knobs from within a handler
    while the same thread is changing one would wait for itself for ever; so the handler asks to be
    called back when the section ends. Ctrl-C waits for the end as well: an exception from the
    middle would leave a knob changed that no hold knows of.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._afterwards: list[Callable[[], None]] = []
        self._on_interrupt: Any = None

    def __enter__(self) -> None:
        if not self._inside() and threading.current_thread() is threading.main_thread():
            self._postpone_interrupts()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if self._inside() or threading.current_thread() is not threading.main_thread():
            return  # handlers run in the main thread, so only there is anything waiting
        self._allow_interrupts()
        with ExitStack() as actions:  # each of them runs, whatever the others raise
            while self._afterwards:
                actions.callback(self._afterwards.pop())

    def _inside(self) -> bool:
        # Asked of the lock itself: a handler may come between taking it and taking note of that.
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]

    def _postpone_interrupts(self) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler) and handler != self._interrupted:
            self._on_interrupt = handler
            signal.signal(signal.SIGINT, self._interrupted)

    def _allow_interrupts(self) -> None:
        if self._on_interrupt is not None and signal.getsignal(signal.SIGINT) == self._interrupted:
            signal.signal(signal.SIGINT, self._on_interrupt)
        self._on_interrupt = None

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        handler = self._on_interrupt
        if handler is not None:
            self.when_free(lambda: handler(number, frame))

    def when_free(self, action: Callable[[], None]) -> None:
        """Run the action now, or, if this very thread is inside the section, when it leaves."""
        if self._inside():
            self._afterwards.append(action)
        else:
            action()

    def reset_after_fork(self) -> None:
        """A forked child must not wait for a thread it does not have."""
        self._lock = threading.RLock()
        self._afterwards = []


critical_section = _CriticalSection()
os.register_at_fork(after_in_child=critical_section.reset_after_fork)
