"""Trace of a cluster: groups of recurring jobs, with the start and the runtime of each job.

The tables of Alibaba's GPU cluster are read in one pass each. Names become 64-bit hashes, so that
a million jobs take a few dozen megabytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from zeus.errors import TraceError
from zeus.optimizer.batch_size.job._job_batch import Bools, Floats, Ints
from zeus.replay.cluster._files import JOB_COLUMNS, JOBS, TAG_COLUMNS, TAGS, find_table, read_table

Names = NDArray[np.uint64]

SUCCESSFUL = "Terminated"
# Maximum number of group names whose hash is cached.
_REMEMBERED = 100_000


@dataclass(frozen=True)
class Counts:
    """Numbers of jobs in the tables, and of those that were left out.

    Attributes:
        rows: Jobs in the job table.
        unsuccessful: Jobs that did not end successfully.
        untimed: Successful jobs without a start, an end, or a runtime above zero.
        ungrouped: Jobs of the rest that have no group.
        alone: Jobs of the rest whose group has no other job: they do not recur.
    """

    rows: int
    unsuccessful: int
    untimed: int
    ungrouped: int
    alone: int


@dataclass(frozen=True)
class ClusterTrace:
    """Groups of recurring jobs. Within a group, jobs are in the order of their start.

    Attributes:
        names: Hash of the name of each group.
        first: Index of the first job of each group, then the number of all jobs.
        start: Submission time of each job, in seconds.
        runtime: Runtime of each job, in seconds.
        counts: Numbers of jobs that were left out.
    """

    names: Names
    first: Ints
    start: Floats
    runtime: Floats
    counts: Counts

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.names)

    @property
    def jobs(self) -> int:
        """Number of jobs in all groups."""
        return len(self.start)

    @property
    def sizes(self) -> Ints:
        """Number of jobs of each group."""
        sizes: Ints = np.diff(self.first)
        return sizes

    def mean_runtime(self) -> Floats:
        """Return the mean runtime of each group's jobs, in seconds."""
        means: Floats = np.add.reduceat(self.runtime, self.first[:-1]) / self.sizes
        return means

    def overlapping(self) -> Bools:
        """Return whether each job was submitted while another one of its group was running."""
        # The latest end so far within each group; groups are shifted apart in time.
        least = self.start.min()
        span = (self.start + self.runtime).max() - least + 1.0
        apart = np.repeat(np.arange(self.groups) * span, self.sizes)
        start = self.start - least
        latest = np.maximum.accumulate(start + self.runtime + apart)
        overlaps = np.zeros(self.jobs, dtype=np.bool_)
        overlaps[1:] = start[1:] + apart[1:] < latest[:-1]
        return overlaps


def hashed(name: str) -> int:
    """Return a 64-bit hash; a collision among a million names has odds of 1 to 10^7."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def read_trace(folder: Path | str) -> ClusterTrace:
    """Read the tables of a folder.

    Args:
        folder: Folder with `pai_job_table` and `pai_group_tag_table` as `.csv`, `.csv.gz` or
            `.tar.gz`.

    Raises:
        TraceError: If a table is missing, a line is invalid, or no job recurs.
    """
    folder = Path(folder)
    jobs, tags = find_table(folder, JOBS), find_table(folder, TAGS)
    instances, groups = _read_tags(tags)
    ours, start, end, rows, untimed = _read_jobs(jobs)
    order = np.argsort(instances, kind="stable")
    instances, groups = instances[order], groups[order]
    # Searching in ascending order is ten times as fast: successive keys are close in memory.
    ascending = np.argsort(ours)
    place = np.empty(len(ours), dtype=np.int64)
    place[ascending] = np.searchsorted(instances, ours[ascending])
    place = np.minimum(place, max(len(instances) - 1, 0))
    known = instances[place] == ours if len(instances) else np.zeros(len(ours), dtype=np.bool_)
    return collected(
        groups[place[known]],
        start[known],
        (end - start)[known],
        rows=rows,
        unsuccessful=rows - len(ours) - untimed,
        untimed=untimed,
        ungrouped=int((~known).sum()),
        where=str(folder),
    )


def collected(
    groups: Names,
    start: Floats,
    runtime: Floats,
    *,
    rows: int,
    unsuccessful: int,
    untimed: int,
    ungrouped: int,
    where: str,
) -> ClusterTrace:
    """Sort jobs by group and start, and keep those that recur.

    Args:
        groups: Hash of the group of each job.
        start: Submission time of each job, in seconds.
        runtime: Runtime of each job, in seconds.
        rows: For `Counts`.
        unsuccessful: For `Counts`.
        untimed: For `Counts`.
        ungrouped: For `Counts`.
        where: Name of the source, for the message if no job recurs.
    """
    names, number, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    recurs = sizes > 1
    if not recurs.any():
        raise TraceError(f"{where} must have a group with two successful jobs, but has none")
    kept = recurs[number]
    order = np.flatnonzero(kept)
    order = order[np.lexsort((start[order], number[order]))]
    return ClusterTrace(
        names=names[recurs],
        first=np.concatenate(([0], np.cumsum(sizes[recurs]))),
        start=start[order],
        runtime=runtime[order],
        counts=Counts(rows, unsuccessful, untimed, ungrouped, int((~kept).sum())),
    )


class _Known(dict[str, int]):
    """Cache of hashes, since many names are repeated."""

    def __missing__(self, name: str) -> int:
        if len(self) >= _REMEMBERED:
            self.clear()
        self[name] = value = hashed(name) if name else 0
        return value


def _read_tags(path: Path) -> tuple[Ints, Names]:
    """Return the instances that have a group, and the hash of its name."""
    # Hashes of instances never leave this process, so the built-in `hash` is enough.
    instances, groups = array("q"), array("Q")
    known = _Known()
    for _, (instance, group) in read_table(path, TAG_COLUMNS, ("inst_id", "group")):
        instances.extend(map(hash, instance))
        groups.extend(map(known.__getitem__, group))
    names = np.array(groups, dtype=np.uint64)
    named = names != 0
    return np.array(instances, dtype=np.int64)[named], names[named]


def _read_jobs(path: Path) -> tuple[Ints, Floats, Floats, int, int]:
    """Return instance, start and end of successful jobs, and the counts of rows and untimed."""
    instances, starts, ends = array("q"), array("d"), array("d")
    rows = 0
    wanted = ("inst_id", "status", "start_time", "end_time")
    for line, (instance, status, begun, ended) in read_table(path, JOB_COLUMNS, wanted):
        rows += len(status)
        succeeded = [each == SUCCESSFUL for each in status]
        instances.extend(map(hash, compress(instance, succeeded)))
        starts.extend(_times(path, line, begun, succeeded))
        ends.extend(_times(path, line, ended, succeeded))
    start, end = np.array(starts), np.array(ends)
    # The published tables mark an unknown time by 0 or an empty field.
    timed = (start > 0) & (start < end) & (end < np.inf)
    found = np.array(instances, dtype=np.int64)[timed]
    return found, start[timed], end[timed], rows, int((~timed).sum())


def _times(path: Path, line: int, texts: Sequence[str], wanted: list[bool]) -> list[float]:
    """Parse the wanted times of a chunk that begins at `line`, in seconds; 0 if one is empty."""
    try:
        return list(map(float, compress(texts, wanted)))
    except ValueError:
        pass  # parsed one by one below
    times = []
    for at in compress(range(len(texts)), wanted):
        try:
            times.append(float(texts[at] or 0))
        except ValueError as error:
            raise TraceError(f"{path}:{line + at}: {error}") from None
    return times
