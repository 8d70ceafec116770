"""Replay of a whole cluster: every recurring job of Alibaba's GPU trace, with each policy.

    from zeus.replay.cluster import made_up_trace, read_trace, simulate

    trace = read_trace("pai")             # a folder with Alibaba's tables
    trace = made_up_trace(100_000)        # or one with the same statistics, without any file
    tables = [job_table(traces, "v100", workload) for workload in WORKLOADS]
    result = simulate(trace, tables, ("default", "grid", "paper", "zeus"), seed=0, beta=2.0)
    for record in result.records:         # one for each policy and workload, and one for "all"
        print(record.policy, record.workload, record.energy_vs_default, record.time_vs_default)

Groups of recurring jobs are matched with the workloads by their mean runtime (`_assignment.py`),
replayed event by event (`_groups.py`), and all cores share the work (`_engines.py`). The numbers do
not depend on the engine or on how many workers it has.
"""

from __future__ import annotations

from zeus.replay.cluster._generator import made_up_trace, write_tables
from zeus.replay.cluster._simulation import (
    ALL_WORKLOADS,
    POLICIES,
    ClusterRecord,
    ClusterResult,
    simulate,
)
from zeus.replay.cluster._trace import ClusterTrace, Counts, read_trace

__all__ = [
    "ALL_WORKLOADS",
    "POLICIES",
    "ClusterRecord",
    "ClusterResult",
    "ClusterTrace",
    "Counts",
    "made_up_trace",
    "read_trace",
    "simulate",
    "write_tables",
]
