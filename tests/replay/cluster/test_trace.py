"""Reading the tables: in every published form, with everything that is left out accounted for."""

from __future__ import annotations

import gzip
import tarfile

import numpy as np
import pytest

from zeus.errors import TraceError
from zeus.replay.cluster import read_trace
from zeus.replay.cluster._files import JOB_COLUMNS, JOBS, TAG_COLUMNS, TAGS

JOB_LINES = [
    "j1,i1,u1,Terminated,100.0,160.0",
    "j2,i2,u1,Failed,110.0,170.0",
    "j3,i3,u1,Terminated,150.0,250.0",
    "j4,i4,u2,Terminated,90.0,91.0",
    "j5,i5,u2,Running,120.0,",
    "j6,i6,u2,Terminated,,500.0",
    "j7,i7,u3,Terminated,300.0,400.0",
    "j8,i8,u3,Terminated,260.0,290.0",
    "j9,i9,u1,Terminated,250.0,260.0",
    "j10,i10,u3,Terminated,200.0,210.0",
    "j11,i11,u3,Waiting,,",
    "j12,i12,u3,Terminated,270.0,270.0",
]
TAG_LINES = [
    "i1,u1,V100,g1,bert",
    "i2,u1,,g1,",
    "i3,u1,,g1,",
    "i4,u2,,g2,",
    "i6,u2,,g2,",
    "i7,u3,,g3,",
    "i8,u3,,g3,nmt",
    "i9,u1,,g1,",
    "i10,u3,,,",
    "i12,u3,,g3,",
]


def write(folder, jobs=JOB_LINES, tags=TAG_LINES):
    (folder / f"{JOBS}.csv").write_text("".join(f"{line}\n" for line in jobs))
    (folder / f"{TAGS}.csv").write_text("".join(f"{line}\n" for line in tags))
    return folder


def same(one, other):
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("names", "first", "start", "runtime")
    )


def test_successful_jobs_that_recur_by_group_in_the_order_of_their_start(tmp_path):
    trace = read_trace(write(tmp_path))
    assert (trace.groups, trace.jobs) == (2, 5)
    by_size = {int(size): number for number, size in enumerate(trace.sizes)}
    jobs = slice(*trace.first[by_size[3] : by_size[3] + 2])
    assert trace.start[jobs].tolist() == [100.0, 150.0, 250.0]
    assert trace.runtime[jobs].tolist() == [60.0, 100.0, 10.0]
    # The second overlaps the first; the third starts just when the second has ended.
    assert trace.overlapping()[jobs].tolist() == [False, True, False]
    assert trace.mean_runtime()[by_size[3]] == pytest.approx(170 / 3)
    counts = trace.counts
    assert (counts.rows, counts.unsuccessful, counts.untimed) == (12, 3, 2)
    assert (counts.ungrouped, counts.alone) == (1, 1)
    assert trace.jobs == 12 - 3 - 2 - 1 - 1


def test_every_form_is_the_same(tmp_path):
    plain = read_trace(write(tmp_path))
    named = tmp_path / "named"
    named.mkdir()
    # With names, columns may be in another order, and there may be more.
    jobs = [f"{line},x" for line in [",".join(JOB_COLUMNS), *JOB_LINES]]
    tags = [",".join(reversed(line.split(","))) for line in [",".join(TAG_COLUMNS), *TAG_LINES]]
    assert same(read_trace(write(named, jobs, tags)), plain)
    packed = tmp_path / "packed"
    packed.mkdir()
    with gzip.open(packed / f"{TAGS}.csv.gz", "wb") as file:
        file.write((tmp_path / f"{TAGS}.csv").read_bytes())
    with tarfile.open(packed / f"{JOBS}.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / f"{TAGS}.csv", f"data/{TAGS}.csv")
        archive.add(tmp_path / f"{JOBS}.csv", f"data/{JOBS}.csv")
    assert same(read_trace(packed), plain)


@pytest.mark.parametrize(
    ("jobs", "tags", "message"),
    [
        ([*JOB_LINES, "j,i,u,Terminated,1.0"], TAG_LINES, "_job_table.csv:13: a line must have 6"),
        ([*JOB_LINES, "j,i,u,Terminated,x,2.0"], TAG_LINES, "_job_table.csv:13: could not convert"),
        (JOB_LINES, [*TAG_LINES, "i,u,g"], "_tag_table.csv:11: a line must have 5 values"),
        (JOB_LINES, ["inst_id,user,workload"], "_tag_table.csv:1: there is no column group"),
        ([], TAG_LINES, "must have lines, but is empty"),
        (JOB_LINES[:2], TAG_LINES, "must have a group with two successful jobs, but has none"),
        (JOB_LINES, ["a,b,c,,e"], "must have a group with two successful jobs, but has none"),
        (['"j'], TAG_LINES, "_job_table.csv:1: a line must have 6 values, but this has 1"),
    ],
)
def test_what_makes_no_sense_is_named_with_its_line(tmp_path, jobs, tags, message):
    with pytest.raises(TraceError, match=message):
        read_trace(write(tmp_path, jobs, tags))


def test_files_that_are_missing_or_broken(tmp_path):
    with pytest.raises(TraceError, match=r"must hold one of pai_job_table\.csv"):
        read_trace(tmp_path)
    write(tmp_path)
    (tmp_path / f"{JOBS}.csv").unlink()
    archive = tmp_path / f"{JOBS}.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(tmp_path / f"{TAGS}.csv", f"{TAGS}.csv")
    with pytest.raises(TraceError, match=rf"must contain {JOBS}\.csv, but does not"):
        read_trace(tmp_path)
    archive.write_bytes(b"no archive")
    with pytest.raises(TraceError, match=r"tar\.gz cannot be read"):
        read_trace(tmp_path)
    archive.unlink()
    whole = gzip.compress("".join(f"{line}\n" for line in JOB_LINES).encode())
    (tmp_path / f"{JOBS}.csv.gz").write_bytes(whole[:-9])
    with pytest.raises(TraceError, match=r"csv\.gz cannot be read"):
        read_trace(tmp_path)
