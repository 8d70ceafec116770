"""A job with real data drift: 38 slices of a stream, each trained at every batch size.

`record.py` records them, by real training; those in `traces/` are used by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from paper.product import (
    Floats,
    Job,
    JobTable,
    TraceError,
    Workload,
    job_table,
    load_traces,
    replay,
)

#: Number of latest observations that a policy uses, as in the paper (section 6.4).
WINDOW = 10
TRACES = Path(__file__).parent / "traces"
_JOB = Workload("digits", "Digits", "digits", "mlp", "sgd", 256, 0.83, "accuracy", 30)


@dataclass(frozen=True)
class Followed:
    """Choices of a policy on the slices and their outcomes, by job and slice.

    Attributes:
        batch_size: The batch size that reached the target.
        power_limit: Its power limit in watts.
        cost: Cost in joules, `energy` in joules and `time` in seconds, retries included.
        trials: Number of runs for the slice.
        reached: Whether the target was reached.
        regret: Cost beyond that of the slice's optimum, in units of the latter.
    """

    batch_size: Floats
    power_limit: Floats
    cost: Floats
    energy: Floats
    time: Floats
    trials: Floats
    reached: Floats
    regret: Floats


def recorded_slices(folder: Path = TRACES) -> list[JobTable]:
    """Return the table of each slice, in order.

    Args:
        folder: Folder of traces that `record.py` wrote.

    Raises:
        TraceError: If the folder has no such traces.
    """
    traces = load_traces(folder)
    keys = sorted(key for key in traces.training if key[0].startswith(f"{_JOB.dataset}-"))
    if not keys:
        raise TraceError(
            f"{traces.folder} must have slices named {_JOB.dataset}-00 and so on, but has none"
        )
    tables = []
    for gpu, power in traces.power.items():
        # All slices have the same number of images, so their epochs take the same time.
        shared = replace(traces, power={gpu: {key: power.get(_JOB.key, []) for key in keys}})
        tables += [
            job_table(shared, gpu, replace(_JOB, dataset=key[0], name=key[0])) for key in keys
        ]
    return tables


def follow(
    slices: Sequence[JobTable], policy: str, seeds: Sequence[int], window: int = WINDOW
) -> Followed:
    """Let a policy choose for each slice in turn.

    Args:
        slices: From `recorded_slices`.
        policy: Name of the policy.
        seeds: Seeds; each gives one job.
        window: Number of latest observations that the policy uses; 0 means all.
    """
    schedule = range(len(slices))
    jobs = [
        Job(slices[0].spec(policy, seed, window=window), slices, schedule, seed) for seed in seeds
    ]
    history = replay(jobs, history=True).history
    best = np.array([table.optimum.cost for table in slices])
    sizes, limits = np.array(slices[0].batch_sizes), np.array(slices[0].power_limits)
    return Followed(
        batch_size=sizes[history["arm"].astype(int)],
        power_limit=limits[history["power"].astype(int)],
        cost=history["cost"],
        energy=history["energy"],
        time=history["time"],
        trials=history["trials"],
        reached=history["reached"],
        regret=history["cost"] / best - 1,
    )
