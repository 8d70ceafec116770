"""A cluster of our own making: the published statistics, the same for the same seed."""

from __future__ import annotations

import csv
from collections import Counter

import numpy as np
import pytest

from zeus.replay.cluster import made_up_trace, read_trace, write_tables

JOBS = 60_000


@pytest.fixture(scope="module")
def trace():
    return made_up_trace(JOBS, seed=3)


def test_tables_and_trace_agree(tmp_path):
    told: list = []
    jobs, tags = write_tables(tmp_path / "new", 60_000, seed=4, progress=told.append)
    read, made = read_trace(tmp_path / "new"), made_up_trace(60_000, seed=4)
    for name in ("names", "first", "start", "runtime"):
        assert np.array_equal(getattr(read, name), getattr(made, name)), name
    assert read.counts == made.counts
    assert told[-1] == 1.0
    with jobs.open(newline="") as file:
        rows = list(csv.reader(file))
    assert len(rows) == 60_000
    assert len({row[1] for row in rows}) == 60_000
    assert {len(row) for row in rows} == {6}
    with tags.open(newline="") as file:
        known = list(csv.reader(file))
    assert {row[0] for row in known} == {row[1] for row in rows}
    # As published: about one job in eleven has a known workload; few users submit most jobs.
    assert sum(bool(row[4]) for row in known) / len(known) == pytest.approx(0.09, abs=0.05)
    users = Counter(row[2] for row in rows).most_common()
    assert sum(count for _, count in users[:65]) / len(rows) == pytest.approx(0.77, abs=0.12)
    status = Counter(row[3] for row in rows)
    assert set(status) == {"Terminated", "Failed", "Running", "Waiting"}
    # What has not started has no start, what has not ended no end.
    assert all((row[4] == "") == (row[3] == "Waiting") for row in rows)
    assert all((row[5] == "") == (row[3] in ("Running", "Waiting")) for row in rows)


def test_tables_that_are_not_complete_are_not_left_behind(tmp_path):
    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_tables(tmp_path, 100, progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_the_published_statistics(trace):
    assert np.median(trace.runtime) == pytest.approx(23 * 60, rel=0.25)
    assert np.percentile(trace.runtime, 90) == pytest.approx(4.5 * 3600, rel=0.3)
    # Two months.
    assert 55 < (trace.start.max() - trace.start.min()) / 86400 <= 62.2
    # Two thirds of all jobs are in groups of five or more; groups have very different sizes.
    in_large = trace.sizes[trace.sizes >= 5].sum() / (trace.jobs + trace.counts.alone)
    assert in_large == pytest.approx(0.65, abs=0.08)
    assert trace.sizes.max() > 100 * np.median(trace.sizes)
    # Jobs of a group overlap.
    assert 0.1 < trace.overlapping().mean() < 0.6
    # More by day than by night.
    hours = np.bincount((trace.start % 86400 // 3600).astype(int), minlength=24)
    assert hours.max() > 1.5 * hours.min()


def test_seeds_differ(trace):
    again, other = made_up_trace(JOBS, seed=3), made_up_trace(JOBS, seed=5)
    assert np.array_equal(trace.names, again.names)
    assert not set(trace.names.tolist()) & set(other.names.tolist())
