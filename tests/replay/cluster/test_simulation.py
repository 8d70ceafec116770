"""A whole cluster: which workload stands in for what, and that nobody notices who does the work."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from tests.replay.tables import VALLEY, table

from zeus.errors import MissingExtraError, TraceError, WorkerError
from zeus.replay.cluster import ClusterTrace, Counts, made_up_trace, simulate
from zeus.replay.cluster._assignment import assigned
from zeus.replay.cluster._engines import run_tasks
from zeus.replay.cluster._tasks import cut

SLOW = replace(table(VALLEY, default=256, sample_cost=0.5), workload="slow")
FAST = replace(table({16: [5, 7], 64: [4, 6], 256: [9]}, default=64), workload="fast")
TABLES = [SLOW, FAST]


def trace_of(runtimes):
    """Groups with these runtimes, one job an hour."""
    sizes = [len(each) for each in runtimes]
    return ClusterTrace(
        names=np.arange(1, len(sizes) + 1, dtype=np.uint64),
        first=np.concatenate(([0], np.cumsum(sizes))),
        start=np.concatenate([np.arange(1, size + 1) * 3600.0 for size in sizes]),
        runtime=np.concatenate([np.array(each, dtype=np.float64) for each in runtimes]),
        counts=Counts(sum(sizes), 0, 0, 0, 0),
    )


@pytest.fixture(scope="module")
def trace():
    return made_up_trace(12_000, seed=1)


def test_longer_groups_are_the_longer_workload_and_sizes_follow_the_runtime():
    trace = trace_of([[100, 300], [50, 150, 100], [9000, 11000]])
    found = assigned(trace, TABLES)
    assert found.table.tolist() == [1, 1, 0]
    # The short cluster's mean is that of its groups' means, 200 and 100.
    assert found.mean_runtime.tolist() == [10000, 150]
    assert found.weight.tolist() == pytest.approx([100 / 150, 2, 1 / 3, 1, 2 / 3, 0.9, 1.1])
    # A job that runs as the default does lasts as long as it did in the cluster.
    usual = SLOW.default_expectation()[1]
    assert found.stretch[-1] * usual == pytest.approx(11000)


def test_the_logarithm_spreads_groups_more_evenly():
    trace = trace_of([[1, 1], [10, 10], [100, 100], [1000, 1000], [10**4] * 2, [10**6] * 2])
    assert assigned(trace, TABLES).table.tolist() == [1, 1, 1, 1, 1, 0]
    assert assigned(trace, TABLES, "log").table.tolist() == [1, 1, 1, 0, 0, 0]
    with pytest.raises(TraceError, match="at least 2 different mean runtimes"):
        assigned(trace_of([[5, 5], [4, 6]]), TABLES)


def test_records_add_up(trace):
    result = simulate(trace, TABLES, ("default", "zeus"), workers=1, seed=2)
    assert [(r.policy, r.workload) for r in result.records] == [
        ("default", "fast"), ("default", "slow"), ("default", "all"),
        ("zeus", "fast"), ("zeus", "slow"), ("zeus", "all"),
    ]  # fmt: skip
    for fast, slow, both in (result.records[:3], result.records[3:]):
        assert fast.mean_runtime < slow.mean_runtime
        for name in ("groups", "jobs", "trials", "unreached", "overlapping_jobs"):
            assert getattr(both, name) == getattr(fast, name) + getattr(slow, name)
        assert both.energy == pytest.approx(fast.energy + slow.energy)
        assert both.cumulative_regret == pytest.approx(
            fast.cumulative_regret + slow.cumulative_regret
        )
        assert both.jobs == trace.jobs
    default, ours = result.records[2], result.records[5]
    assert default.energy_vs_default == pytest.approx(1.0, abs=0.05)
    assert ours.energy_vs_default is not None
    assert ours.energy_vs_default < 0.95
    # Under the default, jobs overlap as they did in the cluster, give or take a run's luck.
    assert default.overlapping_jobs == pytest.approx(trace.overlapping().sum(), rel=0.1)


def test_neither_workers_nor_other_groups_change_a_group(trace):
    alone = simulate(trace, TABLES, ("paper", "zeus"), workers=1)
    shares: list[float] = []
    shared = simulate(trace, TABLES, ("paper", "zeus"), workers=2, progress=shares.append)
    assert alone.records == shared.records
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    for policy, sums in alone.by_group.items():
        for field in fields(sums):
            ours, theirs = getattr(sums, field.name), shared.by_group[policy]
            assert np.array_equal(ours, getattr(theirs, field.name))
    other = simulate(trace, TABLES, ("zeus",), workers=1, seed=1)
    assert other.records[-1].energy != alone.records[-1].energy


def test_a_worker_that_dies_is_an_error_and_leaves_nobody_behind(trace):
    tasks = cut(trace, assigned(trace, TABLES), TABLES, ("zeus",), seed=0, options={})
    before = children()
    done = run_tasks(tasks * 4, "local", 2, None, lambda jobs: None)
    next(done)
    victim, *_ = children() - before
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(WorkerError, match=f"{victim} ended with exit code -9"):
        list(done)
    assert not children() - before


def test_a_worker_that_died_before_it_was_given_work_is_the_same_error(trace):
    task, *_ = cut(trace, assigned(trace, TABLES), TABLES, ("zeus",), seed=0, options={})
    before = children()
    # All tasks but the first two are given after the kill: a finished worker is found dead then.
    done = run_tasks([task] * 6, "local", 2, None, lambda jobs: None)
    next(done)
    for worker in children() - before:
        os.kill(worker, signal.SIGKILL)
        wait_until_dead(worker)
    with pytest.raises(WorkerError, match="ended with exit code -9") as found:
        next(done)
    # The error of the pipe would keep its buffer until garbage is collected.
    assert found.value.__context__ is None
    assert not children() - before


def wait_until_dead(process):
    while "State:\tZ" not in Path(f"/proc/{process}/status").read_text():
        time.sleep(0.001)


def test_engines_that_are_not_there(trace, monkeypatch):
    with pytest.raises(WorkerError, match="must be one of local, ray, but got 'dask'"):
        simulate(trace, TABLES, ("default",), engine="dask")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"zeus-energy\[ray\]"):
        simulate(trace, TABLES, ("default",), engine="ray")


def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123
        return set(map(int, file.read().split()))
