"""What a cluster did: groups of recurring jobs, with the start and the runtime of each job.

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
from zeus.optimizer.batch_size.lanes import Bools, Floats, Ints
from zeus.replay.cluster.files import JOB_COLUMNS, JOBS, TAG_COLUMNS, TAGS, find_table, read_table

Names = NDArray[np.uint64]

SUCCESSFUL = "Terminated"
# Names of groups whose hash is kept at hand.
_REMEMBERED = 100_000


@dataclass(frozen=True)
class Counts:
    """What was found in the tables, and what was left out.

    Attributes:
        rows: Jobs in the job table.
        unsuccessful: Those that did not end successfully.
        untimed: Successful ones without a start, an end, or a runtime above zero.
        ungrouped: Those of the rest that have no group.
        alone: Those of the rest whose group has no other job: they do not recur.
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
        first: Number of the first job of each group, and at the end the number of all jobs.
        start: Seconds; when each job was submitted.
        runtime: Seconds that each job took.
        counts: What was left out.
    """

    names: Names
    first: Ints
    start: Floats
    runtime: Floats
    counts: Counts

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return len(self.names)

    @property
    def jobs(self) -> int:
        """How many jobs they have."""
        return len(self.start)

    @property
    def sizes(self) -> Ints:
        """Jobs of each group."""
        sizes: Ints = np.diff(self.first)
        return sizes

    def mean_runtime(self) -> Floats:
        """Seconds that the jobs of each group take on average."""
        means: Floats = np.add.reduceat(self.runtime, self.first[:-1]) / self.sizes
        return means

    def overlapping(self) -> Bools:
        """Whether each job was submitted while another one of its group was running."""
        # The latest end so far, within each group: groups are moved apart on the axis of time.
        least = self.start.min()
        span = (self.start + self.runtime).max() - least + 1.0
        apart = np.repeat(np.arange(self.groups) * span, self.sizes)
        start = self.start - least
        latest = np.maximum.accumulate(start + self.runtime + apart)
        overlaps = np.zeros(self.jobs, dtype=np.bool_)
        overlaps[1:] = start[1:] + apart[1:] < latest[:-1]
        return overlaps


def hashed(name: str) -> int:
    """64 bits that stand for a name; among a million the odds that two agree are 1 to 10^7."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def read_trace(folder: Path | str) -> ClusterTrace:
    """Read the tables of a folder.

    Args:
        folder: With `pai_job_table` and `pai_group_tag_table` as `.csv`, `.csv.gz` or `.tar.gz`.

    Raises:
        TraceError: If a table is missing, a line makes no sense, or no job recurs.
    """
    folder = Path(folder)
    jobs, tags = find_table(folder, JOBS), find_table(folder, TAGS)
    instances, groups = _read_tags(tags)
    ours, start, end, rows, untimed = _read_jobs(jobs)
    order = np.argsort(instances, kind="stable")
    instances, groups = instances[order], groups[order]
    # In ascending order, neighbours are looked up among neighbours: ten times as fast.
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
    """Put jobs in order, and keep those that recur.

    Args:
        groups: Hash of the group of each job.
        start: Seconds.
        runtime: Seconds.
        rows: As in `Counts`, like the next three.
        unsuccessful: See there.
        untimed: See there.
        ungrouped: See there.
        where: For the message if no job recurs.
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
    """Hashes of names, of which many come again and again."""

    def __missing__(self, name: str) -> int:
        if len(self) >= _REMEMBERED:
            self.clear()
        self[name] = value = hashed(name) if name else 0
        return value


def _read_tags(path: Path) -> tuple[Ints, Names]:
    """Instances that have a group, and its name."""
    # Instances are only looked up in this process, so that the interpreter's own hash will do.
    instances, groups = array("q"), array("Q")
    known = _Known()
    for _, (instance, group) in read_table(path, TAG_COLUMNS, ("inst_id", "group")):
        instances.extend(map(hash, instance))
        groups.extend(map(known.__getitem__, group))
    names = np.array(groups, dtype=np.uint64)
    named = names != 0
    return np.array(instances, dtype=np.int64)[named], names[named]


def _read_jobs(path: Path) -> tuple[Ints, Floats, Floats, int, int]:
    """Successful jobs: their instance, start and end; how many rows; how many have no time."""
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
    # The published tables mark a time that is not known by 0 or by nothing.
    timed = (start > 0) & (start < end) & (end < np.inf)
    found = np.array(instances, dtype=np.int64)[timed]
    return found, start[timed], end[timed], rows, int((~timed).sum())


def _times(path: Path, line: int, texts: Sequence[str], wanted: list[bool]) -> list[float]:
    """Seconds in some of these lines, of which the first has this number; 0 if there are none."""
    try:
        return list(map(float, compress(texts, wanted)))
    except ValueError:
        pass  # now each by itself
    times = []
    for at in compress(range(len(texts)), wanted):
        try:
            times.append(float(texts[at] or 0))
        except ValueError as error:
            raise TraceError(f"{path}:{line + at}: {error}") from None
    return times
