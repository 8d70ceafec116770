"""State of simulated GPUs, in this process or in a file that all processes of a user share."""

from __future__ import annotations

import mmap
import re
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from zeus.device._simulated_history import MAX_POINTS, History
from zeus.errors import CapabilityError, Reason
from zeus.state._critical import critical_section
from zeus.state._files import boot_id, state_directory
from zeus.state._locks import LockTimeoutError, locked

AMBIENT = 28.0  # degrees Celsius
IDLE = -1.0
"""Activity of an unused GPU. Zero is a resident but waiting job, one is full load."""


MAX_PROCESSES = 8
"""Processes with a load of their own on one GPU, ended ones included."""


@dataclass
class ProcessLoad:
    """Load of one process on a simulated GPU, and what it has used up to the state's `time`.

    Attributes:
        pid: Number of the process.
        activity: As of the GPU; `IDLE` once the process has ended.
        share: Share of time in which its kernels run, if no other process is in the way.
        joules: Energy that it has caused.
        busy: Seconds in which its kernels have run.
        history: Those seconds over recent time, a point at each change.
    """

    pid: float
    activity: float = IDLE
    share: float = 1.0
    joules: float = 0.0
    busy: float = 0.0
    history: History = field(default_factory=History)


@dataclass
class GpuState:
    """State of one simulated GPU from `time` on, until the next change.

    `counter`, `power_reading` and `average_reading` are the sensor values at their last refresh
    before `time`. `share` is the share of time in which kernels run; in the rest the GPU waits at
    static power. `processes` have loads of their own, besides; `idle_energy` is what was drawn for
    no process. `graphics_low` and `graphics_high` are the clocks that were asked for last; they
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
    idle_energy: float = 0.0
    processes: list[ProcessLoad] = field(default_factory=list)


_FIELDS = tuple(each.name for each in fields(GpuState) if each.name not in ("history", "processes"))
_HISTORY = 1 + 2 * MAX_POINTS  # the number of points, their times and joules
_PROCESS_FIELDS = tuple(each.name for each in fields(ProcessLoad) if each.name != "history")
_PROCESS = len(_PROCESS_FIELDS) + _HISTORY
# Fields, the history, the number of processes, and the processes.
_COPY = len(_FIELDS) + _HISTORY + 1 + MAX_PROCESSES * _PROCESS
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
            at = first + len(_FIELDS)
            values = self._numbers[first:at].tolist()
            history = self._history(at)
            at += _HISTORY
            count = int(self._numbers[at])
            processes = [self._process(at + 1 + number * _PROCESS) for number in range(count)]
            if self._numbers[base] == changes:
                return _state(history, values, processes) if changes else None

    def _process(self, first: int) -> ProcessLoad:
        end = first + len(_PROCESS_FIELDS)
        pid, activity, share, joules, busy = self._numbers[first:end].tolist()
        return ProcessLoad(pid, activity, share, joules, busy, self._history(end))

    def _history(self, first: int) -> History:
        times, points = first + 1, int(self._numbers[first])
        return History(self._copied(times, points), self._copied(times + MAX_POINTS, points))

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
        end = first + len(_FIELDS)
        self._write_history(end, state.history)
        end += _HISTORY
        self._numbers[end] = len(state.processes)
        for number, process in enumerate(state.processes):
            begin = end + 1 + number * _PROCESS
            for at, name in enumerate(_PROCESS_FIELDS, begin):
                self._numbers[at] = getattr(process, name)
            self._write_history(begin + len(_PROCESS_FIELDS), process.history)
        self._numbers[base] = changes

    def _write_history(self, first: int, history: History) -> None:
        points, times = len(history.times), first + 1
        self._numbers[first] = points
        self._numbers[times : times + points] = memoryview(history.times)
        times += MAX_POINTS
        self._numbers[times : times + points] = memoryview(history.joules)

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


def _state(history: History, values: list[Any], processes: list[ProcessLoad]) -> GpuState:
    state = GpuState(history, *values)
    state.processes = processes
    return state


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
