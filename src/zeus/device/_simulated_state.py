"""State of simulated GPUs, in this process or in a file that all processes of a user share."""

from __future__ import annotations

import mmap
import re
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path

from zeus.device._simulated_history import MAX_POINTS, History
from zeus.errors import CapabilityError, Reason
from zeus.state._critical import critical_section
from zeus.state._files import boot_id, state_directory
from zeus.state._locks import LockTimeoutError, locked

AMBIENT = 28.0  # degrees Celsius
IDLE = -1.0
"""Activity of an unused GPU. Zero is a resident but waiting job, one is full load."""


@dataclass
class GpuState:
    """State of one simulated GPU from `time` on, until the next change.

    `counter`, `power_reading` and `average_reading` are the sensor values at their last refresh
    before `time`. `share` is the share of time in which kernels run; in the rest the GPU waits at
    static power. `graphics_low` and `graphics_high` are the clocks that were asked for last; they
    are in force from `clock_since` on, and `clock_before` is the highest one until then.
    """

    history: History = field(default_factory=History)
    time: float = 0.0
    energy: float = 0.0
    counter: float = 0.0
    power_reading: float = 0.0
    average_reading: float = 0.0
    temperature: float = AMBIENT
    activity: float = IDLE
    power_limit: float = 0.0
    graphics_low: float = 0.0
    graphics_high: float = 0.0
    memory_low: float = 0.0
    memory_high: float = 0.0
    persistence: float = 1.0
    share: float = 1.0
    clock_before: float = 0.0
    clock_since: float = 0.0


_FIELDS = tuple(each.name for each in fields(GpuState) if each.name != "history")
_COPY = len(_FIELDS) + 1 + 2 * MAX_POINTS  # fields, the number of points, their times and joules
_SLOT = 1 + 2 * _COPY  # the number of changes so far, and two copies of the state


class StateMemory:
    """Numbers of all GPUs of a node, in this process or shared through a file.

    Writers are serialized. They write the inactive copy and activate it by storing one number, so
    a writer that dies half-way has changed nothing. Readers never wait: they read the active copy,
    and read again if it was deactivated meanwhile.
    """

    def __init__(self, gpus: int, file: Path | None = None) -> None:
        self._file = file
        size = gpus * _SLOT * 8
        if file is None:
            self._bytes: bytearray | mmap.mmap = bytearray(size)
        else:
            self._bytes = self._map(file, size)
        self._numbers = memoryview(self._bytes).cast("d")

    @staticmethod
    def _map(file: Path, size: int) -> mmap.mmap:
        # The name carries boot and size: a file from another boot holds another clock's times.
        with file.open("a+b") as opened:
            if opened.tell() < size:
                opened.truncate(size)  # safe in several processes at once: all use the same size
            return mmap.mmap(opened.fileno(), size)

    def read(self, gpu: int) -> GpuState | None:
        """Return the state of one GPU; `None` before the first write."""
        base = gpu * _SLOT
        while True:
            changes = self._numbers[base]
            first = _first_number(base, changes)
            times = first + len(_FIELDS) + 1
            values = self._numbers[first : times - 1].tolist()
            points = int(self._numbers[times - 1])
            joules = times + MAX_POINTS
            history = History(self._copied(times, points), self._copied(joules, points))
            if self._numbers[base] == changes:
                return GpuState(history, *values) if changes else None

    def _copied(self, first: int, count: int) -> array[float]:
        numbers = array("d")
        numbers.frombytes(self._numbers[first : first + count].cast("B"))
        return numbers

    def write(self, gpu: int, state: GpuState) -> None:
        """Replace the state of one GPU; only inside `exclusive`."""
        base = gpu * _SLOT
        changes = self._numbers[base] + 1
        first = _first_number(base, changes)
        for at, name in enumerate(_FIELDS, first):
            self._numbers[at] = getattr(state, name)
        points, times = len(state.history.times), first + len(_FIELDS) + 1
        self._numbers[times - 1] = points
        self._numbers[times : times + points] = memoryview(state.history.times)
        times += MAX_POINTS
        self._numbers[times : times + points] = memoryview(state.history.joules)
        self._numbers[base] = changes

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other writers out, in this process and others.

        Signal handlers that set knobs are deferred to the end, as for any change of a knob.
        """
        with critical_section, ExitStack() as alone:
            if self._file is not None:
                try:
                    alone.enter_context(locked(self._file.with_suffix(".lock")))
                except LockTimeoutError as error:
                    raise CapabilityError(Reason.BLOCKED, str(error)) from None
            yield


def _first_number(base: int, changes: float) -> int:
    return base + 1 + int(changes) % 2 * _COPY


def node_name(spec: str) -> str:
    """Return one canonical name for all spellings of a specification."""
    return re.sub(r"[^a-z0-9,]", "", spec.lower())


def shared_memory(spec: str, gpus: int) -> StateMemory:
    """Return the state shared by all processes of this user that simulate the same node."""
    directory = state_directory() / "simulated"
    directory.mkdir(parents=True, exist_ok=True)
    boot = boot_id()[:8] or "0"
    for old in directory.glob("*.state"):  # of another boot, whose simulated GPUs are gone
        if f"-{boot}-" not in old.name:
            with suppress(OSError):
                old.unlink()
                old.with_suffix(".lock").unlink(missing_ok=True)
    return StateMemory(gpus, directory / f"{node_name(spec)}-{boot}-{_SLOT}.state")
