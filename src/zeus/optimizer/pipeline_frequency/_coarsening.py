"""Plans for GPUs that take longer to change their clock than instructions last.

A clock that is requested before the previous request has come into force replaces it. So a clock
has to stay for as long as a change takes: neighboring operations that are shorter together share
the highest of their clocks, which makes no operation slower than planned.
"""

from __future__ import annotations

from collections.abc import Sequence

from zeus.optimizer.pipeline_frequency._pipeline import Pipeline
from zeus.optimizer.pipeline_frequency._plan import Plan
from zeus.optimizer.pipeline_frequency._profile import Option


def coarsened(plan: Plan, lag: float) -> Plan:
    """Return the plan with clocks that stay for `lag` seconds at least, on every device.

    Args:
        plan: A plan.
        lag: Seconds that a change of the clock takes.
    """
    pipeline = plan.pipeline
    menu = plan.menu.options
    shortest = min(
        (options[0].time for options in menu if options[0].frequency is not None), default=0.0
    )
    if lag <= shortest:
        return plan
    chosen = list(plan.options)
    for group in _groups(pipeline, chosen, lag):
        clocks = [clock for at in group if (clock := chosen[at].frequency) is not None]
        if not clocks or len(set(clocks)) == 1:
            continue
        highest = max(clocks)
        for at in group:
            if chosen[at].frequency is not None:
                chosen[at] = _at_least(menu[at], highest)
    execution = pipeline.execute(chosen)
    return plan.with_options(chosen, execution.time, execution.energy)


def _groups(pipeline: Pipeline, chosen: Sequence[Option], lag: float) -> list[list[int]]:
    """Return operations of each device, in groups of consecutive ones that last `lag` together."""
    found: list[list[int]] = []
    open_: dict[int, tuple[list[int], float]] = {}
    for at, operation in enumerate(pipeline.operations):
        if operation.device is None:
            continue
        group, length = open_.get(operation.device, ([], 0.0))
        group.append(at)
        length += chosen[at].time
        if length >= lag:
            found.append(group)
            group, length = [], 0.0
        open_[operation.device] = group, length
    return found + [group for group, _ in open_.values() if group]


def _at_least(options: Sequence[Option], clock: float) -> Option:
    """Return the option with the lowest clock that is not lower than the given one."""
    enough = [each for each in options if (each.frequency or 0.0) >= clock]
    return min(enough or options, key=lambda each: each.frequency or 0.0)
