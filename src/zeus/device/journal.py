"""A crash-safe record of what knobs were set to before somebody changed them.

For every GPU and knob there is a stack of the holds on it; all know the value from before the
lowest. A hold that ends takes itself out; if it was the highest, the one below it is in force
again, or the value from before. That makes the order of ending irrelevant, across threads,
processes and users, and a process that was killed is simply a hold that ended: whoever comes next
takes it out the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from zeus.device.critical import critical_section
from zeus.device.locks import LockTimeoutError, locked
from zeus.device.records import Entry, GpuRecord, Stacks, Value, linked, record_name, recorded_gpus
from zeus.device.state import boot_id
from zeus.errors import CapabilityError, KnobError, Reason

Apply = Callable[[str, Value], None]


class Journal:
    """The record of one GPU. All changes of its knobs go through here, one at a time."""

    def __init__(
        self,
        gpu_key: str,
        apply: Apply,
        memory: Stacks | None = None,
        *,
        private: bool = False,
    ) -> None:
        """Open the record.

        Args:
            gpu_key: Names the GPU for ever.
            apply: Sets a knob to a value, for real.
            memory: Where to keep it instead of on disk, for a GPU that lives in this process only.
            private: Whether no other user can see the GPU, as a simulated one.
        """
        self._gpu_key = gpu_key
        self._apply = apply
        self._memory = memory
        self._private = private
        self._record: GpuRecord | None = None

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
            original = stack[0].original if stack else previous
            order = max((each.order for each in stack), default=0) + 1
            entry = Entry(value, previous, original, order)
            if self._record is not None:
                entry.file = str(self._record.path)
                entry.sign_of_life = self._record.sign_of_life()
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

    def change(self, knob: str, entry: Entry, value: Value, *, lasting: bool = True) -> bool:
        """Set a knob again under a hold that exists.

        Args:
            knob: Its name.
            entry: The hold's.
            value: What to set.
            lasting: Whether the record tells of it, which costs a write to disk. What was there
                before the hold is on record in any case.

        Returns:
            Whether the value is in force; not so while another hold lies above this one, and then
            it will be when that one ends.
        """
        with self._open() as stacks:
            stack = stacks.setdefault(knob, [])
            at = _position(stack, entry.id)
            if at is None:  # the record was lost, not the hold: what it remembers, it still knows
                entry.order = max((each.order for each in stack), default=0) + 1
                stack.append(entry)
                self._save(stacks)
                at = len(stack) - 1
            if at + 1 < len(stack):
                with suppress(CapabilityError, KnobError):
                    self._end_abandoned(stacks, knob)  # what lies above may be of the dead
                at = _position(stack, entry.id)
                assert at is not None  # this process lives
            highest = at + 1 == len(stack)
            if highest:
                self._apply(knob, value)
            if lasting or not highest:
                stack[at].value = entry.value = value
            return highest

    def above(self, knob: str, entry_id: str) -> Entry | None:
        """The hold that is in force instead of this one; `None` if this one is."""
        with self._open() as stacks:
            stack = stacks.get(knob, [])
            return None if not stack or stack[-1].id == entry_id else stack[-1]

    def pop(self, knob: str, entry_id: str) -> None:
        """End a hold: put back what it remembers, unless another hold lies above it.

        Unlike the others, it does not give way to Ctrl-C while it waits for its turn.
        """
        with self._open(patient=True) as stacks:
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
        at = _position(stack, entry_id)
        if at is None:
            return
        if at + 1 == len(stack):
            # If this fails the entry stays, and whoever comes next tries again.
            try:
                self._apply(knob, stack[at - 1].value if at else stack[at].original)
            except BaseException:
                stack[at].abandon()
                raise
        del stack[at]

    @contextmanager
    def _open(self, *, patient: bool = False) -> Iterator[Stacks]:
        with critical_section:
            if self._memory is not None:
                try:
                    yield self._memory
                finally:
                    for stack in self._memory.values():
                        linked(stack)
                return
            record = self._record = GpuRecord(self._gpu_key, private=self._private)
            give_up = _never if patient else critical_section.interrupt_pending
            with ExitStack() as alone:
                try:
                    alone.enter_context(locked(record.lock_path, give_up, mode=record.lock_mode))
                except LockTimeoutError as error:
                    raise _blocked(error) from None
                stacks = record.load()
                try:
                    yield stacks
                finally:
                    self._save(stacks)

    def _save(self, stacks: Stacks) -> None:
        for stack in stacks.values():
            linked(stack)
        if self._record is not None:
            self._record.save(stacks)


def _never() -> bool:
    return False


def _position(stack: list[Entry], entry_id: str) -> int | None:
    return next((at for at, entry in enumerate(stack) if entry.id == entry_id), None)


def _blocked(error: LockTimeoutError) -> CapabilityError:
    return CapabilityError(
        Reason.BLOCKED,
        f"the record of changed knobs cannot be used: {error}",
        "let that process go on, or end it",
    )


def recover(gpu_key: str, apply: Apply, *, private: bool = False) -> int:
    """End the holds of processes that are gone on one GPU; return how many there were.

    Raises:
        CapabilityError: If the GPU refuses, or its record cannot be used; that stays for another
            try.
        KnobError: If the GPU does not take the value any more; likewise.
    """
    if record_name(gpu_key) not in recorded_gpus():
        return 0
    return Journal(gpu_key, apply, private=private).recover()
