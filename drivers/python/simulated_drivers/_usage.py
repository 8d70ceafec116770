"""For how long processes use a simulated GPU: mirrors `struct uses` in common/layout.h."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

MAX_USES = 8
MAX_USE_SEGMENTS = 64


class _Segment(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in ("start", "busy", "share")]


class _Use(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint64),
        ("segment_count", ctypes.c_uint64),
        ("segments", _Segment * MAX_USE_SEGMENTS),
    ]


class Uses(ctypes.Structure):
    """Processes of one GPU whose use is known."""

    _fields_ = [("count", ctypes.c_uint64), ("of", _Use * MAX_USES)]


def change(uses: Any, shares: Mapping[int, float], now: float) -> None:
    """Let kernels of processes run for these shares of the time; others stop."""
    known = {use.pid: use for use in uses.of[: uses.count]}
    for pid in shares:
        if pid in known:
            continue
        if uses.count == MAX_USES:
            raise ValueError(f"at most {MAX_USES} processes with a use")
        known[pid] = uses.of[uses.count]
        known[pid].pid, known[pid].segment_count = pid, 0
        uses.count += 1
    for pid, use in known.items():
        _append(use, now, busy(use, now), shares.get(pid, 0.0))


def _append(use: Any, start: float, busy: float, share: float) -> None:
    if use.segment_count == MAX_USE_SEGMENTS:
        half = MAX_USE_SEGMENTS // 2
        kept = [(one.start, one.busy, one.share) for one in use.segments[half:]]
        for position, one in enumerate(kept):
            use.segments[position] = _Segment(*one)
        use.segment_count = half
    use.segments[use.segment_count] = _Segment(start, busy, share)
    use.segment_count += 1


def busy(use: Any, instant: float) -> float:
    """Seconds for which kernels of a process have run by an instant."""
    for segment in reversed(use.segments[: use.segment_count]):
        if segment.start <= instant:
            return float(segment.busy + segment.share * (instant - segment.start))
    return 0.0
