"""Which operations of an iteration have no slack, and how often clocks change in it."""

from __future__ import annotations

from zeus.optimizer.pipeline_frequency._pipeline import Execution

_NONE = 1e-6  # of the time of the iteration: less slack than that is rounding


def critical_operations(execution: Execution) -> frozenset[int]:
    """Return the numbers of operations without slack: if one takes longer, so does the iteration.

    Args:
        execution: The iteration. What it lasts beyond its last operation is not slack.
    """
    operations = execution.pipeline.operations
    ends = [
        start + option.time
        for start, option in zip(execution.starts, execution.options, strict=True)
    ]
    last = max(ends, default=0.0)
    latest = [last] * len(operations)
    for number in reversed(range(len(operations))):
        begins = latest[number] - execution.options[number].time
        for other in operations[number].after:
            latest[other] = min(latest[other], begins)
    return frozenset(
        number
        for number, (end, late) in enumerate(zip(ends, latest, strict=True))
        if late - end <= _NONE * last
    )


def clock_changes(execution: Execution) -> tuple[int, ...]:
    """Return for each device how often its clock changes in an iteration among equal ones."""
    clocks: list[list[float]] = [[] for _ in range(execution.pipeline.devices)]
    for operation, option in zip(execution.pipeline.operations, execution.options, strict=True):
        if operation.device is not None and option.frequency is not None:
            clocks[operation.device].append(option.frequency)
    # Each with the one before it; the first one with the last one of the previous iteration.
    return tuple(
        sum(clock != before for clock, before in zip(own, own[-1:] + own[:-1], strict=True))
        for own in clocks
    )
