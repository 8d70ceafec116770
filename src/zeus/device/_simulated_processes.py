"""Several processes on one simulated GPU: their power, their energy and what drivers show of them.

Kernels of different processes take turns, as without MPS. If they want more than all of the time,
each gets less in proportion. While a kernel runs, all that the GPU draws is due to its process.
While none runs, the GPU draws its idle power for no process, and what it draws above it, as work is
resident, is due to the resident processes, in equal parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zeus.device._base import ProcessUsage
from zeus.device._simulated_history import Drawn
from zeus.device._simulated_state import IDLE, MAX_PROCESSES, GpuState, ProcessLoad
from zeus.errors import SimulationError

if TYPE_CHECKING:
    from zeus.device._simulated_models import GpuModel

HISTORY_KEPT = 15.0  # seconds; drivers keep samples for about as long
_SAMPLE_PERIOD = 1 / 6  # seconds, the shortest that NVIDIA documents


@dataclass(frozen=True)
class Part:
    """Part of one load in the power of a GPU.

    Attributes:
        share: Share of time in which its kernels run.
        watts: Power that is due to it.
    """

    share: float
    watts: float


def parts(
    model: GpuModel, state: GpuState, relative_clock: Callable[[float, GpuState], float]
) -> tuple[list[Part], Part, float]:
    """Divide the power of a GPU.

    Args:
        model: Its model.
        state: Its state.
        relative_clock: Returns the clock at which work of an activity runs.

    Returns:
        The parts of `state.processes`, the part of the load of the GPU itself, and the watts that
        are idle.
    """
    loads = [(load.activity, load.share) for load in state.processes]
    loads.append((state.activity, state.share))
    wanted = [share if activity > 0 else 0.0 for activity, share in loads]
    scale = 1 / max(1.0, sum(wanted))
    waiting = max(0.0, 1 - scale * sum(wanted))
    resident = sum(activity != IDLE for activity, _ in loads)
    for_residents = waiting * (model.static_power - model.idle_power)
    found: list[Part] = []
    for (activity, _), share in zip(loads, wanted, strict=True):
        watts = 0.0 if activity == IDLE else for_residents / resident
        if share:
            watts += scale * share * model.busy_power(relative_clock(activity, state), activity)
        found.append(Part(scale * share, watts))
    return found[:-1], found[-1], waiting * model.idle_power


def advance(processes: Sequence[ProcessLoad], now: Sequence[Part], elapsed: float) -> None:
    """Let time pass for processes, each with its part."""
    for process, part in zip(processes, now, strict=True):
        process.joules += part.watts * elapsed
        process.busy += part.share * elapsed


def mark(state: GpuState) -> None:
    """Note the time of all processes at a change of any load."""
    for process in state.processes:
        process.history.append(state.time, process.busy, HISTORY_KEPT)


def process_of(state: GpuState, pid: int) -> ProcessLoad:
    """Return the load of a process, which is created if there is none."""
    for process in state.processes:
        if process.pid == pid:
            return process
    if len(state.processes) == MAX_PROCESSES:
        ended = [process for process in state.processes if process.activity == IDLE]
        if not ended:
            raise SimulationError(
                f"at most {MAX_PROCESSES} processes may load a simulated GPU, "
                f"but got one more, {pid}"
            )
        state.processes.remove(ended[0])
    process = ProcessLoad(float(pid))
    state.processes.append(process)
    return process


def sampled_usage(
    state: GpuState, running: Sequence[Part], since: float, now: float, phase: float
) -> ProcessUsage:
    """Return usage as NVIDIA's driver shows it: sampled periodically, in whole percent.

    Args:
        state: State of the GPU, up to the last change.
        running: Parts of its processes since then.
        since: Instant after which samples are wanted.
        now: Current instant.
        phase: Phase of the samples on this GPU, 0 to 1.
    """
    end = (math.floor(now / _SAMPLE_PERIOD - phase) + phase) * _SAMPLE_PERIOD
    begin = max(since, now - HISTORY_KEPT)
    if end <= begin:
        return ProcessUsage(since, since)
    shares: dict[int, float] = {}
    for process, part in zip(state.processes, running, strict=True):
        busy = Drawn(process.history, state.time, process.busy, part.share, 0.0).joules_at
        percent = round(100 * (busy(end) - busy(begin)) / (end - begin))
        if percent:
            shares[int(process.pid)] = percent / 100
    return ProcessUsage(since, end, shares) if shares else ProcessUsage(since, since)
