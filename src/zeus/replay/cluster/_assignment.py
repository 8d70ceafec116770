"""Assigns a recorded workload to each group of jobs, and a scale factor to each job.

As in the Zeus paper (section 6.3): K-means on the mean runtime of each group, with as many clusters
as there are workloads, matched in the order of their mean runtime; the size of a job relative to
the workload is its runtime over the mean of its cluster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from zeus.errors import TraceError
from zeus.optimizer.batch_size.job._job_batch import Floats, Ints
from zeus.replay._table import JobTable
from zeus.replay.cluster._kmeans import kmeans
from zeus.replay.cluster._trace import ClusterTrace

Scale = Literal["linear", "log"]


@dataclass(frozen=True)
class Assignment:
    """Workloads assigned to groups, and scale factors of jobs.

    Attributes:
        table: Index of the table of each group.
        mean_runtime: Mean runtime in seconds of the cluster of groups that each table represents.
        weight: Size of each job, in recorded runs of the workload.
        stretch: Seconds in the cluster for each second of the recorded run, by job. A job with the
            expected duration of the default lasts as long as it did in the cluster, so that jobs
            overlap as they did there.
    """

    table: Ints
    mean_runtime: Floats
    weight: Floats
    stretch: Floats


def assigned(
    trace: ClusterTrace, tables: Sequence[JobTable], scale: Scale = "linear"
) -> Assignment:
    """Match groups with workloads.

    Args:
        trace: Trace of the cluster.
        tables: Tables of the workloads, on one GPU.
        scale: Input of K-means: "linear" runtimes, as in the paper; or their logarithms ("log"),
            which spreads groups more evenly over the workloads, because a few groups take very
            long.

    Raises:
        TraceError: If there are fewer different groups than workloads.
    """
    means = trace.mean_runtime()
    try:
        cluster = kmeans(means if scale == "linear" else np.log(means), len(tables))
    except ValueError:
        raise TraceError(
            f"the cluster must have groups of at least {len(tables)} different mean runtimes, one "
            f"for each workload, but has {len(np.unique(means))}"
        ) from None
    expected = np.array([usual_time(table) for table in tables])
    order = np.argsort(expected, kind="stable")  # from the shortest workload to the longest
    centre = np.bincount(cluster, means) / np.bincount(cluster)
    table = order[cluster]
    mean_runtime = np.empty(len(tables))
    mean_runtime[order] = centre
    sizes = trace.sizes
    return Assignment(
        table=table,
        mean_runtime=mean_runtime,
        weight=trace.runtime / np.repeat(centre[cluster], sizes),
        stretch=trace.runtime / np.repeat(expected[table], sizes),
    )


def usual_time(table: JobTable) -> float:
    """Return expected seconds of the default; of the optimum, if the default never converges."""
    time = table.default_expectation()[1]
    if math.isfinite(time):
        return time
    best = table.optimum
    return float(table.expected_epochs[best.arm] * table.time[best.arm, best.power])
