"""Plans as traces for https://ui.perfetto.dev and Chrome's tracing page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zeus.optimizer.pipeline_frequency._pipeline import Execution
from zeus.optimizer.pipeline_frequency._total_power import total_power

_MICROSECONDS = 1e6


def to_trace(executions: Mapping[str, Execution]) -> dict[str, Any]:
    """Return a trace in the Trace Event Format, to be written as JSON.

    Args:
        executions: Executions by display name. Each is a process of the trace, and its ranks are
            the threads; operations that run on no rank have threads after those.
    """
    events: list[dict[str, Any]] = []
    for number, (name, execution) in enumerate(executions.items(), 1):
        events += _events(number, name, execution)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _events(number: int, name: str, execution: Execution) -> Iterator[dict[str, Any]]:
    pipeline = execution.pipeline
    yield _named("process_name", number, 0, name)
    yield {"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}}
    threads: dict[int, int] = {}  # of operations that run on no rank, by stage
    for device in range(pipeline.devices):
        yield _named("thread_name", number, device, f"rank {device}")
    for operation, option, start in zip(
        pipeline.operations, execution.options, execution.starts, strict=True
    ):
        thread = operation.device
        if thread is None:
            key = -1 if operation.stage is None else operation.stage
            if key not in threads:
                threads[key] = pipeline.devices + len(threads)
                whose = "no rank" if key < 0 else f"no rank, from stage {key}"
                yield _named("thread_name", number, threads[key], whose)
            thread = threads[key]
        yield {
            "ph": "X",
            "name": str(operation),
            "cat": operation.instruction,
            "pid": number,
            "tid": thread,
            "ts": start * _MICROSECONDS,
            "dur": option.time * _MICROSECONDS,
            "args": {
                "stage": operation.stage,
                "microbatch": operation.microbatch,
                "frequency (MHz)": option.frequency,
                **({"label": option.label} if option.label else {}),
                "energy (J)": option.energy,
                "power (W)": option.power,
            },
        }
    for device in range(pipeline.devices):
        yield from _power(number, device, execution)
    power = total_power(execution)
    for time, watts in zip(power.times, (*power.watts, 0.0), strict=True):
        yield _counter(number, "power of all GPUs (W)", time, watts)


def _power(number: int, device: int, execution: Execution) -> Iterator[dict[str, Any]]:
    """Yield counter events with the power of one GPU of a rank, in watts."""
    waiting = execution.pipeline.blocking_power
    levels: list[tuple[float, float]] = []
    free = 0.0
    for operation, option, start in zip(
        execution.pipeline.operations, execution.options, execution.starts, strict=True
    ):
        if operation.device != device:
            continue
        if start > free:
            levels.append((free, waiting))
        levels.append((start, option.power))
        free = start + option.time
    levels += [(free, waiting), (execution.time, 0.0)]
    for time, watts in levels:
        yield _counter(number, f"power of rank {device} (W)", time, watts)


def _counter(process: int, name: str, time: float, watts: float) -> dict[str, Any]:
    return {
        "ph": "C",
        "name": name,
        "pid": process,
        "ts": time * _MICROSECONDS,
        "args": {"W": watts},
    }


def _named(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}
