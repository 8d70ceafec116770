"""Python bindings of the compiled solver.

The solver is built with the package. If the package was built without a compiler, or for another
platform, the solver is compiled once, within a second, into the user's cache.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zeus.errors import NativeCodeError
from zeus.optimizer.pipeline_frequency import _build
from zeus.optimizer.pipeline_frequency._limit import Limit, SolvingCancelledError

CACHE_VARIABLE = "ZEUS_CACHE_DIR"

_I32, _I64, _DOUBLE = ctypes.c_int32, ctypes.c_int64, ctypes.c_double
_CHOICE = ctypes.c_uint16
MAX_OPTIONS = 1 << 16  # per operation
_CANCELLED = 3  # as in `c/pipeline.h`
_SHORTEST = 1e-3  # seconds: 0 would mean no limit


class _Problem(ctypes.Structure):
    _fields_ = (
        ("operations", _I32),
        ("curves", _I32),
        ("plans", _I32),
        ("rounds", _I32),
        ("blocking_slope", _I64),
        ("blocking_power", _DOUBLE),
        ("gpus", _DOUBLE),
        ("seconds", _DOUBLE),
        ("room", _I64),
        ("cancel", ctypes.POINTER(_I32)),
        ("progress", ctypes.POINTER(_I32)),
        ("curve", ctypes.POINTER(_I32)),
        ("before_start", ctypes.POINTER(_I32)),
        ("before", ctypes.POINTER(_I32)),
        ("option_start", ctypes.POINTER(_I32)),
        ("option_ticks", ctypes.POINTER(_I64)),
        ("option_cost", ctypes.POINTER(_I64)),
        ("option_time", ctypes.POINTER(_DOUBLE)),
        ("option_energy", ctypes.POINTER(_DOUBLE)),
        ("option_busy", ctypes.POINTER(_DOUBLE)),
        ("hull_start", ctypes.POINTER(_I32)),
        ("hull_ticks", ctypes.POINTER(_I64)),
        ("hull_slope", ctypes.POINTER(_I64)),
        ("corner_start", ctypes.POINTER(_I32)),
        ("corner_ticks", ctypes.POINTER(_I64)),
        ("corner_slope", ctypes.POINTER(_I64)),
        ("cost_unit", _DOUBLE),
        ("rank_before", ctypes.POINTER(_I32)),
        ("chains", _I32),
        ("chain_start", ctypes.POINTER(_I32)),
        ("chain_member", ctypes.POINTER(_I32)),
    )


class _Solution(ctypes.Structure):
    _fields_ = (
        ("breakpoints", _I64),
        ("breakpoint_ticks", ctypes.POINTER(_I64)),
        ("breakpoint_slope", ctypes.POINTER(_I64)),
        ("breakpoint_high", ctypes.POINTER(_I64)),
        ("breakpoint_low", ctypes.POINTER(ctypes.c_uint64)),
        ("lines", _I64),
        ("line_slope", ctypes.POINTER(_I64)),
        ("line_high", ctypes.POINTER(_I64)),
        ("line_low", ctypes.POINTER(ctypes.c_uint64)),
        ("plans", _I64),
        ("time", ctypes.POINTER(_DOUBLE)),
        ("energy", ctypes.POINTER(_DOUBLE)),
        ("choice", ctypes.POINTER(_CHOICE)),
        ("refined", _I32),
    )


@dataclass(frozen=True)
class Numbers:
    """The solver's input; the fields are documented in `c/pipeline.h`."""

    plans: int
    rounds: int
    blocking_slope: int
    blocking_power: float
    gpus: int
    curve: Sequence[int]
    before: Sequence[Sequence[int]]
    option_ticks: Sequence[Sequence[int]]
    option_cost: Sequence[Sequence[int]]
    option_time: Sequence[Sequence[float]]
    option_energy: Sequence[Sequence[float]]
    option_busy: Sequence[Sequence[float]]
    hull_ticks: Sequence[Sequence[int]]
    hull_slope: Sequence[Sequence[int]]
    corner_ticks: Sequence[Sequence[int]]
    corner_slope: Sequence[Sequence[int]]
    cost_unit: float
    rank_before: Sequence[int]
    chains: Sequence[Sequence[int]]


@dataclass(frozen=True)
class Found:
    """The solver's result; plans by rising time. `refined` unless it had to stop early."""

    breakpoint_ticks: list[int]
    breakpoint_slopes: list[int]
    breakpoint_duals: list[int]
    lines: list[tuple[int, int]]
    times: list[float]
    energies: list[float]
    choices: list[bytes]
    refined: bool


def solve(numbers: Numbers, limit: Limit) -> Found:
    """Run the solver. The interpreter lock is released, so other threads can run.

    Raises:
        SolvingCancelledError: If the limit was cancelled.
        NativeCodeError: If the solver is missing and cannot be built.
        MemoryError: If the plans do not fit into memory.
    """
    library = load()
    problem = _Problem(
        operations=len(numbers.curve),
        curves=len(numbers.option_ticks),
        plans=numbers.plans,
        rounds=numbers.rounds,
        blocking_slope=numbers.blocking_slope,
        blocking_power=numbers.blocking_power,
        gpus=numbers.gpus,
        seconds=0.0 if math.isinf(limit.left) else max(limit.left, _SHORTEST),
        room=limit.room,
        cancel=ctypes.pointer(limit.flag),
        progress=ctypes.cast(limit.solving, ctypes.POINTER(_I32)),
        curve=_array(_I32, numbers.curve),
        before_start=_starts(numbers.before),
        before=_flat(_I32, numbers.before),
        option_start=_starts(numbers.option_ticks),
        option_ticks=_flat(_I64, numbers.option_ticks),
        option_cost=_flat(_I64, numbers.option_cost),
        option_time=_flat(_DOUBLE, numbers.option_time),
        option_energy=_flat(_DOUBLE, numbers.option_energy),
        option_busy=_flat(_DOUBLE, numbers.option_busy),
        hull_start=_starts(numbers.hull_ticks),
        hull_ticks=_flat(_I64, numbers.hull_ticks),
        hull_slope=_flat(_I64, numbers.hull_slope),
        corner_start=_starts(numbers.corner_ticks),
        corner_ticks=_flat(_I64, numbers.corner_ticks),
        corner_slope=_flat(_I64, numbers.corner_slope),
        cost_unit=numbers.cost_unit,
        rank_before=_array(_I32, numbers.rank_before),
        chains=len(numbers.chains),
        chain_start=_starts(numbers.chains, 4),
        chain_member=_flat(_I32, numbers.chains),
    )
    solution = _Solution()
    try:
        failed = library.zeus_pipeline_solve(ctypes.byref(problem), ctypes.byref(solution))
        if failed == _CANCELLED:
            raise SolvingCancelledError
        if failed:
            raise MemoryError(
                f"{numbers.plans} plans of {len(numbers.curve)} operations do not fit into memory"
            )
        size = len(numbers.curve) * ctypes.sizeof(_CHOICE)
        address = ctypes.cast(solution.choice, ctypes.c_void_p).value or 0
        return Found(
            solution.breakpoint_ticks[: solution.breakpoints],
            solution.breakpoint_slope[: solution.breakpoints],
            _wide(
                solution.breakpoint_high[: solution.breakpoints],
                solution.breakpoint_low[: solution.breakpoints],
            ),
            list(
                zip(
                    solution.line_slope[: solution.lines],
                    _wide(
                        solution.line_high[: solution.lines], solution.line_low[: solution.lines]
                    ),
                    strict=True,
                )
            ),
            solution.time[: solution.plans],
            solution.energy[: solution.plans],
            [ctypes.string_at(address + number * size, size) for number in range(solution.plans)],
            bool(solution.refined),
        )
    finally:
        library.zeus_pipeline_free(ctypes.byref(solution))


def _array(kind: Any, values: Sequence[float]) -> Any:
    return ctypes.cast((kind * max(len(values), 1))(*values), ctypes.POINTER(kind))


def _flat(kind: Any, rows: Sequence[Sequence[float]]) -> Any:
    return _array(kind, [value for row in rows for value in row])


def _wide(high: Sequence[int], low: Sequence[int]) -> list[int]:
    return [(upper << 64) + lower for upper, lower in zip(high, low, strict=True)]


def _starts(rows: Sequence[Sequence[float]], width: int = 1) -> Any:
    starts = [0]
    for row in rows:
        starts.append(starts[-1] + len(row) // width)
    return _array(_I32, starts)


# --- finding the library --------------------------------------------------------------------------


@functools.cache
def load() -> ctypes.CDLL:
    """Return the library, built first if necessary; raise `NativeCodeError` if it cannot be."""
    found = _found()
    library = _built() if found is None else ctypes.CDLL(str(found))
    library.zeus_pipeline_solve.argtypes = [ctypes.POINTER(_Problem), ctypes.POINTER(_Solution)]
    library.zeus_pipeline_solve.restype = ctypes.c_int
    library.zeus_pipeline_free.argtypes = [ctypes.POINTER(_Solution)]
    library.zeus_pipeline_free.restype = None
    return library


def cache() -> Path:
    """Return the folder for libraries compiled for this user."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "zeus-energy"


def _found() -> Path | None:
    name = _build.library_name()
    for folder in (Path(__file__).parent, cache()):
        library = folder / name
        # Load no library that another user could have written.
        if library.is_file() and library.stat().st_uid in (os.getuid(), 0):
            return library
    return None


def _built() -> ctypes.CDLL:
    try:
        try:
            return ctypes.CDLL(str(_build.build(cache())))
        except OSError:
            import tempfile  # noqa: PLC0415

            # The cache is not writable: compile again in each process.
            with tempfile.TemporaryDirectory(prefix="zeus-energy-") as scratch:
                return ctypes.CDLL(str(_build.build(Path(scratch))))
    except (_build.BuildError, OSError) as error:
        raise NativeCodeError(
            f"the pipeline solver was not built with this installation, and cannot be built now: "
            f"{error} (install a C compiler, such as `apt install gcc libc6-dev`, and try again, "
            f"or install a wheel that was built for this platform)"
        ) from error
