"""A crash-safe record of the values of knobs before Zeus changed them.

Every GPU and knob has a stack of holds; each entry has the original value, which preceded the first
hold. A hold that ends removes itself; if it was on top, the value of the one below is in force
again, or the original one. So the order of ending is irrelevant, across threads, processes and
users. A process that was killed is simply a hold that ended: the next process removes it the same
way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from zeus.device._records import Entry, GpuRecord, Stacks, Value, linked, record_name, recorded_gpus
from zeus.errors import CapabilityError, KnobError, Reason
from zeus.state._critical import critical_section
from zeus.state._files import boot_id
from zeus.state._locks import LockTimeoutError, locked

Apply = Callable[[str, Value], None]
Read = Callable[[], Value]

#: IDs of holds that this process has ended while their record could not be written.
_ended_unsaved: set[str] = set()


class Journal:
    """The record of one GPU. All changes of its knobs go through here, one at a time."""

    def __init__(
        self,
        gpu_key: str,
        apply: Apply,
        memory: Stacks | None = None,
        *,
        private: bool = False,
        section: AbstractContextManager[Any] = critical_section,
    ) -> None:
        """Open the record.

        Args:
            gpu_key: Permanent key of the GPU.
            apply: Sets a knob of the device to a value.
            memory: Keeps the record instead of the disk, for a GPU of this process only.
            private: Whether no other user can see the GPU, as a simulated one.
            section: Lets one thread of this process change its knobs at a time; by default all
                GPUs have the same one, which signal handlers know of.
        """
        self._section = section
        self._gpu_key = gpu_key
        self._apply = apply
        self._memory = memory
        self._private = private
        self._record: GpuRecord | None = None
        self._highest: dict[str, str] = {}  # IDs of the holds in force when the record was pinned
        self._pushed: dict[str, tuple[Entry, Read]] = {}  # holds that have not ended, by ID

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep all threads and processes from changing knobs of this GPU."""
        with self._open():
            yield

    def push(self, knob: str, value: Value, read: Read) -> Entry:
        """Set a knob, recording its previous value.

        Args:
            knob: Name of the knob.
            value: Value to set.
            read: Reads the current value; returns `None` where the hardware cannot report it.
        """
        with self._open() as stacks:
            stack = stacks.setdefault(knob, [])
            with suppress(CapabilityError, KnobError):  # refused: then it stays recorded
                self._end_abandoned(stacks, knob)
            if self._record is not None:
                self._record.announce(knob)
            previous = read()
            if previous is None and stack:
                previous = stack[-1].value
            original = stack[0].original if stack else previous
            order = max((each.order for each in stack), default=0) + 1
            entry = Entry(value, previous, original, order)
            if self._record is not None:
                entry.file = str(self._record.path)
                entry.sign_of_life = self._record.sign_of_life()
            stack.append(entry)
            try:
                # On disk before the knob changes: a crash in between then restores the same value.
                self._save(stacks)
                self._apply(knob, value)
            except BaseException as error:
                self._take_back(stack, knob, entry, error)
                raise
            self._pushed[entry.id] = entry, read
            return entry

    def _take_back(self, stack: list[Entry], knob: str, entry: Entry, error: BaseException) -> None:
        """Drop a hold that failed, unless the knob may have changed nevertheless."""
        refused = isinstance(error, KnobError | OSError) or (
            isinstance(error, CapabilityError) and error.reason is not Reason.HANGS
        )
        if not refused:
            try:
                self._apply(knob, entry.previous)
            except Exception:
                entry.abandon()  # stays recorded: the next process restores the value
                return
        stack.remove(entry)

    def change(self, knob: str, entry: Entry, value: Value) -> bool:
        """Set a knob again under an existing hold.

        Args:
            knob: Name of the knob.
            entry: Entry of the hold.
            value: Value to set.

        Returns:
            Whether the value is in force. It is not while a later hold overrides this one; it
            will be when that one ends.
        """
        with self._section:
            return self._change_in_place(knob, entry, value) or self._change(knob, entry, value)

    def _change_in_place(self, knob: str, entry: Entry, value: Value) -> bool:
        """Change the value of the highest hold, if no hold began or ended since the last change.

        Its record takes the value only: all else, above all the value to restore, stays the same.
        """
        record = self._record
        if record is None or self._highest.get(knob) != entry.id:
            return False
        with _Locked(record):
            if not record.is_current(knob, entry.id):
                return False
            self._apply(knob, value)
            entry.value = value
            record.replace_value(entry.id, value)
            return True

    def _change(self, knob: str, entry: Entry, value: Value) -> bool:
        with self._open() as stacks:
            stack = stacks.setdefault(knob, [])
            at = _position(stack, entry.id)
            if at is None:  # the record was lost, not the hold: its entry still has all values
                entry.order = max((each.order for each in stack), default=0) + 1
                stack.append(entry)
                self._save(stacks)
                at = len(stack) - 1
            if at + 1 < len(stack):
                with suppress(CapabilityError, KnobError):
                    self._end_abandoned(stacks, knob)  # holds above may be of processes that ended
                at = _position(stack, entry.id)
                assert at is not None  # this process is alive
            highest = at + 1 == len(stack)
            if highest:
                self._apply(knob, value)
            stack[at].value = entry.value = value
            return highest

    def above(self, knob: str, entry_id: str) -> Entry | None:
        """Return the hold that is in force instead of this one; `None` if this one is."""
        if self.in_force(knob, entry_id):
            return None
        with self._open() as stacks:
            stack = stacks.get(knob, [])
            return None if not stack or stack[-1].id == entry_id else stack[-1]

    def in_force(self, knob: str, entry_id: str) -> bool:
        """Whether a hold is in force; false if finding out would need a lock."""
        record = self._record
        if record is None or self._highest.get(knob) != entry_id:
            return False
        return record.is_current(knob, entry_id)

    def pop(self, knob: str, entry_id: str) -> None:
        """End a hold: restore its previous value, unless a later hold overrides it.

        Unlike the other methods, it does not yield to Ctrl-C while it waits for the lock.
        """
        with self._open(patient=True) as stacks:
            with suppress(CapabilityError, KnobError):
                # Killed while this one held: nothing else would restore the original value now.
                self._end_abandoned(stacks, knob)
            self._put_in_again(stacks.setdefault(knob, []), entry_id)
            self._remove(stacks, knob, entry_id)
            self._pushed.pop(entry_id, None)

    def _put_in_again(self, stack: list[Entry], entry_id: str) -> None:
        """Put a hold of which the record was lost below all others, if its value is in force."""
        if entry_id not in self._pushed or _position(stack, entry_id) is not None:
            return
        entry, read = self._pushed[entry_id]
        found = None
        with suppress(CapabilityError):
            found = read()
        if stack or found is None or _same(found, entry.value):  # else somebody else has set it
            entry.order = min((each.order for each in stack), default=1) - 1
            stack.append(entry)
            linked(stack)

    def recover(self) -> int:
        """End the holds of processes that are gone; return how many there were.

        Raises:
            CapabilityError: If the GPU refuses; the record of that knob is kept for a retry.
            KnobError: If the GPU no longer accepts the value; the record is kept, too.
        """
        ended = 0
        refusal: CapabilityError | KnobError | None = None
        with self._open() as stacks:
            for knob in stacks:
                try:
                    ended += self._end_abandoned(stacks, knob)
                except (CapabilityError, KnobError) as error:
                    refusal = refusal or error  # go on with the other knobs
        if refusal is not None:
            raise refusal
        return ended

    def _end_abandoned(self, stacks: Stacks, knob: str) -> int:
        abandoned = [entry for entry in stacks.get(knob, []) if entry.abandoned()]
        for entry in abandoned:
            if entry.boot != boot_id():
                stacks[knob].remove(entry)  # a reboot has reset the knob already
            else:
                self._remove(stacks, knob, entry.id)
        return len(abandoned)

    def _remove(self, stacks: Stacks, knob: str, entry_id: str) -> None:
        stack = stacks.get(knob, [])
        at = _position(stack, entry_id)
        if at is None:
            return
        if at + 1 == len(stack):
            # If this fails the entry stays, and the next process tries again.
            try:
                self._apply(knob, stack[at - 1].value if at else stack[at].original)
            except BaseException:
                stack[at].abandon()
                raise
        del stack[at]

    @contextmanager
    def _open(self, *, patient: bool = False) -> Iterator[Stacks]:
        with self._section:
            if self._memory is not None:
                try:
                    yield self._memory
                finally:
                    for stack in self._memory.values():
                        linked(stack)
                return
            self._highest = {}
            record = self._record = GpuRecord(self._gpu_key, private=self._private)
            with _Locked(record, patient=patient):
                stacks = record.load()
                for stack in stacks.values():
                    stack[:] = [entry for entry in stack if entry.id not in _ended_unsaved]
                before = _ids(stacks)
                try:
                    yield stacks
                finally:
                    try:
                        self._save(stacks)
                    except OSError:  # the knobs have their values, so these are not to come back
                        _ended_unsaved.update(before - _ids(stacks))
                        raise
                    record.pin(stacks)
                    self._highest = {knob: stack[-1].id for knob, stack in stacks.items() if stack}

    def _save(self, stacks: Stacks) -> None:
        for stack in stacks.values():
            linked(stack)
        if self._record is not None:
            self._record.save(stacks)


class _Locked(locked):
    """The lock on the knobs of a GPU."""

    def __init__(self, record: GpuRecord, *, patient: bool = False) -> None:
        give_up = _never if patient else critical_section.interrupt_pending
        super().__init__(record.lock_path, give_up, mode=record.mode)

    def __enter__(self) -> None:
        try:
            super().__enter__()
        except LockTimeoutError as error:
            raise CapabilityError(
                Reason.BLOCKED,
                f"the record of changed knobs cannot be used: {error}",
                "let that process continue, or end it",
            ) from None


def _never() -> bool:
    return False


def _position(stack: list[Entry], entry_id: str) -> int | None:
    return next((at for at, entry in enumerate(stack) if entry.id == entry_id), None)


def _ids(stacks: Stacks) -> set[str]:
    return {entry.id for stack in stacks.values() for entry in stack}


def _same(found: Value, value: Value) -> bool:
    """Whether a knob has a value, but for a driver's rounding to milliwatts."""
    if isinstance(found, int | float) and isinstance(value, int | float):
        return abs(found - value) < 0.01
    return found == value


def recover(gpu_key: str, apply: Apply, *, private: bool = False) -> int:
    """End the holds of processes that are gone on one GPU; return how many there were.

    Raises:
        CapabilityError: If the GPU refuses, or its record cannot be used; the record is kept for a
            retry.
        KnobError: If the GPU no longer accepts the value; the record is kept, too.
    """
    if record_name(gpu_key) not in recorded_gpus():
        return 0
    return Journal(gpu_key, apply, private=private).recover()
