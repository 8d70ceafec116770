"""The part of a controller that is the same for every simulated driver library.

A `SimulatedState` owns the state file that a C library maps: it schedules the power that the GPUs
draw, injects faults and counts calls. It also answers, from the same numbers, what a perfect
measurement would have found.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import re
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from simulated_drivers import _power, _sensors, _usage
from simulated_drivers._build import SOURCES
from simulated_drivers._power import Power, fields

VERSION = 4
MAX_GPUS = 16
MAX_FUNCTIONS = 128
MAX_PROCESSES = 32
TEXT_LENGTH = 96

ANY_FUNCTION = "*"
NEEDS_ROOT = 1 << 0
DENY_CONTROL = 1 << 1
_FOR_EVER = 2**62

FaultKind = Literal["error", "hang", "delay", "sentinel"]
_FAULT_KINDS: dict[str, int] = {"error": 1, "hang": 2, "delay": 3, "sentinel": 4}

Text = ctypes.c_char * TEXT_LENGTH


class Fault(ctypes.Structure):
    """Must mirror `struct fault` in common/layout.h."""

    _fields_ = [
        *fields(ctypes.c_uint32, "kind", "code"),
        ("seconds", ctypes.c_double),
        *fields(ctypes.c_int64, "skip", "left"),
    ]


class Header(ctypes.Structure):
    """Must mirror `struct header` in common/layout.h."""

    _fields_ = [
        ("magic", ctypes.c_char * 8),
        *fields(ctypes.c_uint32, "version", "gpu_count"),
        ("size", ctypes.c_uint64),
        *fields(ctypes.c_uint32, "function_count", "unused"),
        ("calls", ctypes.c_uint64 * MAX_FUNCTIONS),
        ("faults", Fault * MAX_FUNCTIONS * (MAX_GPUS + 1)),
    ]


class FunctionNumbers:
    """The functions of one library that can be counted and made to fail, by name."""

    def __init__(self, library: str, **aliases: str) -> None:
        """Read the list in the `state.h` of a library; `aliases` are further names."""
        text = (SOURCES / library / "state.h").read_text()
        names = re.findall(r"^\s+FUNCTION\((\w+)\)", text, re.MULTILINE)
        self._numbers = {name: number for number, name in enumerate([ANY_FUNCTION, *names])}
        self._aliases = aliases
        self._library = library

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __getitem__(self, name: str) -> int:
        plain = re.sub(r"_v\d+$", "", name)  # versions of one function share a number
        plain = self._aliases.get(plain, plain)
        if plain not in self._numbers:
            raise ValueError(f"the simulated {self._library} library has no function {name!r}")
        return self._numbers[plain]


def fill(gpu: Any, spec: Any, **defaults: str | int) -> None:
    """Copy numbers and texts that have the same name in a spec and in the layout of a GPU.

    Args:
        gpu: A GPU of a state file that is not in use yet.
        spec: What describes it.
        defaults: Values where the spec has none.
    """
    for name, *_ in gpu._fields_:
        value = getattr(spec, name, None)
        if value is None:
            value = defaults.get(name)
        if isinstance(value, str):
            value = value.encode()
        if isinstance(value, int | float | bytes):
            setattr(gpu, name, value)


def chosen_flags(chosen: dict[Any, bool]) -> int:
    """All flags that were chosen, in one number."""
    return sum(flag for flag, on in chosen.items() if on)


def describe_power(power: Power, spec: Any, index: int) -> None:
    """Fill in what a `spec` of any library says about its sensors."""
    _sensors.describe(power, spec.sensors, index)
    power.counter_offset = spec.counter_offset


class SimulatedState:
    """The state file of one simulated library, seen from the side that decides what happens.

    A subclass names its library's layout, functions and codes. A GPU of that layout has at least
    `flags`, `unsupported`, `memory_used` and `power`; the state has a `header` and `gpus`.
    """

    variable: ClassVar[str]
    """The environment variable that names the state file to the library."""

    _layout: ClassVar[type[Any]]
    _magic: ClassVar[bytes]
    _functions: ClassVar[FunctionNumbers]
    _code_of_errors: ClassVar[int]
    _code_when_lost: ClassVar[int]

    def __init__(self, path: Path) -> None:
        """Map an existing state file; `create` makes a new one."""
        self.path = Path(path)
        self._lock = threading.Lock()
        self._file = os.open(self.path, os.O_RDWR)
        self._close_file = weakref.finalize(self, os.close, self._file)
        size, expected = os.fstat(self._file).st_size, ctypes.sizeof(self._layout)
        if size != expected:
            self._close_file()
            raise ValueError(f"{self.path} has {size} bytes, not {expected}")
        self._map = mmap.mmap(self._file, size)
        self._state = self._layout.from_buffer(self._map)
        if (self._state.header.magic, self._state.header.version) != (self._magic, VERSION):
            self.close()
            raise ValueError(f"{self.path} is no state file of this version")

    @classmethod
    def _create(cls, path: Path, gpus: Sequence[Any], **settings: Any) -> Self:
        """Write a new state file that describes `gpus` and map it."""
        if len(gpus) > MAX_GPUS:
            raise ValueError(f"at most {MAX_GPUS} GPUs")
        state = cls._layout(**settings)
        state.header.version = VERSION
        state.header.gpu_count = len(gpus)
        state.header.size = ctypes.sizeof(cls._layout)
        state.header.function_count = len(cls._functions)
        now = time.monotonic()
        for index, spec in enumerate(gpus):
            gpu = state.gpus[index]
            cls._describe(gpu, spec, index)
            for function in spec.unsupported:
                gpu.unsupported[cls._functions[function]] = 1
            _power.begin(gpu.power, spec.watts, now)
        state.header.magic = cls._magic
        Path(path).write_bytes(bytes(state))
        return cls(path)

    @classmethod
    def from_environment(cls) -> Self:
        """Map the state file that this process was started with, see `environment`."""
        return cls(Path(os.environ[cls.variable]))

    @staticmethod
    def _describe(gpu: Any, spec: Any, index: int) -> None:
        """Fill in a GPU of a state file that is not in use yet."""
        raise NotImplementedError

    def close(self) -> None:
        """Unmap the state file; the file stays."""
        if not self._close_file.alive:
            return
        del self._state
        # A part of the state that is still referred to keeps the mapping until it is not.
        with suppress(BufferError):
            self._map.close()
        self._close_file()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._state.header.gpu_count

    def environment(self, library_dir: Path) -> dict[str, str]:
        """Variables that make a process load the library from `library_dir` and this state."""
        earlier = os.environ.get("LD_LIBRARY_PATH")
        folders = [str(library_dir), *([earlier] if earlier else [])]
        return {"LD_LIBRARY_PATH": os.pathsep.join(folders), self.variable: str(self.path)}

    # What the GPUs draw.

    def set_power(self, gpu: int, watts: float, after: float = 0.0) -> float:
        """From now on `gpu` draws `watts`; forgets what was scheduled. Returns that instant.

        That takes a tenth of a millisecond. Who wants to do something at the instant itself asks
        for it to come `after` some more seconds, and waits for it.
        """
        with self._rewriting(gpu) as state:
            # Readers wait while the state is being rewritten: a reading after this instant is of
            # the new power, and there was none with the old one.
            now = time.monotonic()
            self._draw(state, [(now + after, watts)], now)
        return now + after

    def set_wave(self, gpu: int, low: float, high: float, period: float, duty: float) -> float:
        """From now on `gpu` draws `high` watts for a share `duty` of each period, then `low`.

        Until the next `set_power`, `schedule` or `set_wave`. Returns that instant.
        """
        if period <= 0 or not 0 <= duty <= 1:
            raise ValueError(
                f"`period > 0` and `0 <= duty <= 1` must hold, but got {period!r}, {duty!r}"
            )
        with self._rewriting(gpu) as state:
            now = time.monotonic()
            self._draw(state, [(now, low)], now)
            _power.swing(state.power, high - low, period, duty * period)
        return now

    def set_process_usage(self, gpu: int, shares: Mapping[int, float]) -> float:
        """From now on kernels of these processes run for these shares of the time, and no others.

        By process number; power does not follow. Returns the instant of the change.
        """
        with self._rewriting(gpu) as state:
            now = time.monotonic()
            _usage.change(state.uses, shares, now)
        return now

    def process_seconds(self, gpu: int, pid: int, instant: float) -> float:
        """The seconds for which kernels of a process have run by an instant."""
        uses = self._gpu(gpu).uses
        return sum(_usage.busy(use, instant) for use in uses.of[: uses.count] if use.pid == pid)

    def schedule(self, gpu: int, points: Sequence[tuple[float, float]]) -> None:
        """Draw `watts` from each absolute CLOCK_MONOTONIC instant on: (instant, watts) pairs.

        Replaces whatever was known from the first instant on. A first instant in the past
        rewrites history, which readers may already have seen differently.
        """
        instants = [instant for instant, _ in points]
        if not points or instants != sorted(instants):
            raise ValueError("the schedule needs instants in ascending order")
        with self._rewriting(gpu) as state:
            self._draw(state, points, time.monotonic())

    def _draw(self, state: Any, points: Sequence[tuple[float, float]], now: float) -> None:
        """What the GPU draws from the first of the points on; only while rewriting it."""
        _power.schedule(state.power, points, now, self._sensor_memory(state))

    def power(self, gpu: int, instant: float) -> float:
        """The watts that `gpu` really draws at one instant."""
        with self._lock:
            return _power.watts_at(self._gpu(gpu).power, instant)

    def energy(self, gpu: int, start: float, end: float) -> float:
        """The exact joules that `gpu` draws between two CLOCK_MONOTONIC instants."""
        with self._lock:
            return _power.energy_between(self._gpu(gpu).power, start, end)

    def counted_energy(self, gpu: int, start: float, end: float) -> float:
        """Likewise, times the gain of the energy counter: what it would count without ticks."""
        return self._gpu(gpu).power.counter.gain * self.energy(gpu, start, end)

    def instant_reading(self, gpu: int, instant: float) -> float:
        """What the sensor of instantaneous power shows at `instant`, in watts."""
        with self._lock:
            power = self._gpu(gpu).power
            return _power.sensed_watts(power, power.instant, instant)

    def average_reading(self, gpu: int, instant: float) -> float:
        """What the sensor of average power shows at `instant`, in watts."""
        with self._lock:
            power = self._gpu(gpu).power
            return _power.sensed_watts(power, power.average, instant)

    def last_tick(self, gpu: int, instant: float) -> float:
        """The instant of the last refresh of the energy counter at or before `instant`."""
        return _power.last_tick(self._gpu(gpu).power, instant)

    def _counted_joules(self, gpu: int, instant: float) -> float:
        with self._lock:
            return _power.counted_joules(self._gpu(gpu).power, instant)

    def _sensor_memory(self, state: Any) -> float:
        """For how many seconds the sensors of a GPU still report what was drawn."""
        power = state.power
        return max(map(_sensors.memory, (power.counter, power.instant, power.average)))

    # What clients see, may set and have called.

    def set_memory_used(self, gpu: int, used: int) -> None:
        """Bytes of memory in use, without what the driver reserves."""
        self._gpu(gpu).memory_used = used

    def deny_control(self, denied: bool = True, gpu: int | None = None) -> None:
        """Refuse changes for lack of permission, even to root, on one GPU or on all of them."""
        for index in range(len(self)) if gpu is None else [gpu]:
            self._set_flag(index, DENY_CONTROL, denied)

    def calls(self, function: str) -> int:
        """How often processes have called a function so far, all versions of it together."""
        if function == ANY_FUNCTION:
            return sum(self._state.header.calls)
        return self._state.header.calls[self._functions[function]]

    # Faults.

    def fault(
        self,
        gpu: int | None,
        function: str,
        kind: FaultKind,
        *,
        code: int | None = None,
        seconds: float = 0.0,
        skip: int = 0,
        times: int | None = None,
    ) -> None:
        """Make calls of `function` on `gpu` go wrong, starting now.

        Args:
            gpu: which GPU, or None for functions that name no GPU, such as starting the library.
            function: one function, or "*" for all that ask the GPU itself. Looking up its handle,
                or what the library remembers from its start, is not among them and has to be
                named.
            kind: "error" returns `code`; "hang" blocks until the fault is cleared; "delay" only
                takes `seconds`; "sentinel" succeeds with all bits set in every number.
            code: the code of an error, None for an unspecific one.
            seconds: how long the call takes, for every kind but "hang".
            skip: how many calls go well before the first that does not.
            times: how many calls go wrong, None for all of them.
        """
        fault = self._fault(gpu, function)
        fault.kind = 0
        fault.code = int(self._code_of_errors if code is None else code)
        fault.seconds, fault.skip = seconds, skip
        fault.left = _FOR_EVER if times is None else times
        # The kind is what makes the fault take effect, so it comes last.
        fault.kind = _FAULT_KINDS[kind]

    def lose(self, gpu: int) -> None:
        """Make every call on this GPU fail because it fell off the bus."""
        self.fault(gpu, ANY_FUNCTION, "error", code=self._code_when_lost)

    def clear_faults(self, gpu: int | None = None, function: str | None = None) -> None:
        """End the faults of one GPU (None: of the library itself), or of one function on it."""
        if function is not None:
            self._fault(gpu, function).kind = 0
            return
        for fault in self._faults(gpu):
            fault.kind = 0

    # Internals.

    def _gpu(self, gpu: int) -> Any:
        if not 0 <= gpu < len(self):
            raise IndexError(f"no simulated GPU {gpu}")
        return self._state.gpus[gpu]

    def _faults(self, gpu: int | None) -> Any:
        return self._state.header.faults[MAX_GPUS if gpu is None else gpu]

    def _fault(self, gpu: int | None, function: str) -> Fault:
        if gpu is not None:
            self._gpu(gpu)
        return self._faults(gpu)[self._functions[function]]

    def _set_flag(self, gpu: int, flag: int, on: bool) -> None:
        state = self._gpu(gpu)
        state.flags = (state.flags | flag) if on else (state.flags & ~flag)

    @contextmanager
    def _rewriting(self, gpu: int) -> Iterator[Any]:
        """Hold off the readers of this GPU and other writers, in this and other processes."""
        state = self._gpu(gpu)
        with self._lock:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            state.power.sequence += 1
            try:
                yield state
            finally:
                state.power.sequence += 1
                fcntl.flock(self._file, fcntl.LOCK_UN)
