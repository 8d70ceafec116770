"""Python bindings of the compiled scheduler under a cap of power (`c/capped.c`)."""

from __future__ import annotations

import ctypes
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zeus.optimizer.pipeline_frequency import _native as native
from zeus.optimizer.pipeline_frequency._limit import Limit, SolvingCancelledError

_I32, _I64, _DOUBLE, _CHOICE = ctypes.c_int32, ctypes.c_int64, ctypes.c_double, ctypes.c_uint16
_CANCELLED = 3  # as in `c/pipeline.h`
_SHORTEST = 1e-3  # seconds: 0 would mean no limit


class _Problem(ctypes.Structure):
    _fields_ = (
        ("operations", _I32),
        ("devices", _I32),
        ("guides", _I32),
        ("evaluations", _I64),
        ("headroom", _DOUBLE),
        ("varied_headroom", _DOUBLE),
        ("swing", _DOUBLE),
        ("margin", _DOUBLE),
        ("horizon", _DOUBLE),
        ("seconds", _DOUBLE),
        ("cancel", ctypes.POINTER(_I32)),
        ("device", ctypes.POINTER(_I32)),
        ("curve", ctypes.POINTER(_I32)),
        ("before_start", ctypes.POINTER(_I32)),
        ("before", ctypes.POINTER(_I32)),
        ("option_start", ctypes.POINTER(_I32)),
        ("option_time", ctypes.POINTER(_DOUBLE)),
        ("option_power", ctypes.POINTER(_DOUBLE)),
        ("option_cost", ctypes.POINTER(_DOUBLE)),
        ("guide_choice", ctypes.POINTER(_CHOICE)),
        ("guide_end", ctypes.POINTER(_DOUBLE)),
    )


class _Result(ctypes.Structure):
    _fields_ = (
        ("time", ctypes.POINTER(_DOUBLE)),
        ("cost", ctypes.POINTER(_DOUBLE)),
        ("peak", ctypes.POINTER(_DOUBLE)),
        ("low", ctypes.POINTER(_DOUBLE)),
        ("choice", ctypes.POINTER(_CHOICE)),
        ("start", ctypes.POINTER(_DOUBLE)),
    )


@dataclass(frozen=True)
class Guide:
    """A plan to begin with: the option of each operation, and when each should end, if it says."""

    choices: Sequence[int]
    ends: Sequence[float] | None = None


@dataclass(frozen=True)
class Numbers:
    """The graph and its options; the fields are documented in `c/capped.h`."""

    devices: int
    device: Sequence[int]
    curve: Sequence[int]
    before: Sequence[Sequence[int]]
    option_time: Sequence[Sequence[float]]
    option_power: Sequence[Sequence[float]]
    option_cost: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Bounds:
    """The bounds to keep; the fields are documented in `c/capped.h`."""

    headroom: float
    varied_headroom: float
    swing: float
    margin: float
    horizon: float


@dataclass(frozen=True)
class Schedule:
    """A schedule that keeps the cap: options and starts by operation, excess powers in watts.

    The cost is the energy beyond that of waiting, in joules.
    """

    time: float
    cost: float
    peak: float
    low: float
    choices: bytes
    starts: Sequence[float]


def schedules(
    numbers: Numbers, bounds: Bounds, guides: Sequence[Guide], evaluations: int, limit: Limit
) -> list[Schedule]:
    """Return a schedule for each guide, and the best that was found; those that exist.

    Args:
        numbers: The graph and its options.
        bounds: The bounds; the cap is kept by all results, the swing only where it was possible.
        guides: Plans to begin with.
        evaluations: Number of schedules that the local search tries.
        limit: Limits of time.

    Raises:
        SolvingCancelledError: If the limit was cancelled.
        NativeCodeError: If the solver is missing and cannot be built.
        MemoryError: If the schedules do not fit into memory.
    """
    library = native.load()
    library.zeus_pipeline_capped.argtypes = [ctypes.POINTER(_Problem), ctypes.POINTER(_Result)]
    library.zeus_pipeline_capped.restype = ctypes.c_int
    count = len(numbers.curve)
    before, options = _Flat(_I32, numbers.before), _Flat(_DOUBLE, numbers.option_time)
    choices = array("H", [choice for guide in guides for choice in guide.choices])
    ends = array("d", [end for guide in guides for end in guide.ends or [-1.0] * count])
    problem = _Problem(
        operations=count,
        devices=numbers.devices,
        guides=len(guides),
        evaluations=evaluations,
        headroom=bounds.headroom,
        varied_headroom=bounds.varied_headroom,
        swing=bounds.swing,
        margin=bounds.margin,
        horizon=bounds.horizon,
        seconds=0.0 if math.isinf(limit.left) else max(limit.left, _SHORTEST),
        cancel=ctypes.pointer(limit.flag),
        device=_array(_I32, numbers.device),
        curve=_array(_I32, numbers.curve),
        before_start=before.starts,
        before=before.values,
        option_start=options.starts,
        option_time=options.values,
        option_power=_Flat(_DOUBLE, numbers.option_power).values,
        option_cost=_Flat(_DOUBLE, numbers.option_cost).values,
        guide_choice=_view(_CHOICE, choices),
        guide_end=_view(_DOUBLE, ends),
    )
    rows = len(guides) + 1
    times, costs, peaks, lows = ((_DOUBLE * rows)() for _ in range(4))
    chosen, starts = (_CHOICE * (rows * count))(), (_DOUBLE * (rows * count))()
    result = _Result(
        *(ctypes.cast(each, ctypes.POINTER(_DOUBLE)) for each in (times, costs, peaks, lows)),
        ctypes.cast(chosen, ctypes.POINTER(_CHOICE)),
        ctypes.cast(starts, ctypes.POINTER(_DOUBLE)),
    )
    failed = library.zeus_pipeline_capped(ctypes.byref(problem), ctypes.byref(result))
    if failed == _CANCELLED:
        raise SolvingCancelledError
    if failed:
        raise MemoryError(f"{rows} schedules of {count} operations do not fit into memory")
    return [
        Schedule(
            times[row],
            costs[row],
            peaks[row],
            lows[row],
            memoryview(chosen).cast("B")[2 * row * count : 2 * (row + 1) * count].tobytes(),
            memoryview(starts).cast("B").cast("d")[row * count : (row + 1) * count],
        )
        for row in range(rows)
        if math.isfinite(times[row])
    ]


def _array(kind: Any, values: Sequence[float]) -> Any:
    return ctypes.cast((kind * max(len(values), 1))(*values), ctypes.POINTER(kind))


def _view(kind: Any, values: array[Any]) -> Any:
    """Return a pointer to the values of an array, without a copy."""
    return ctypes.cast((kind * max(len(values), 1)).from_buffer(values), ctypes.POINTER(kind))


class _Flat:
    """Rows one after the other, and where each begins."""

    def __init__(self, kind: Any, rows: Sequence[Sequence[float]]) -> None:
        starts = [0]
        for row in rows:
            starts.append(starts[-1] + len(row))
        self.starts = _array(_I32, starts)
        self.values = _array(kind, [value for row in rows for value in row])
