"""Generates a synthetic cluster trace with the published statistics of Alibaba's.

From the trace's description and its analysis ("MLaaS in the Wild", NSDI '22): two months, about
1,300 users of whom one in twenty submits three quarters of the jobs, two thirds of the jobs in
groups of five or more, runtimes with a median of 23 minutes and a ninetieth percentile of four and
a half hours, submissions that follow the time of day, a tenth of the jobs with a known workload,
and jobs of a group that overlap. It is generated in blocks, so that tables can have any size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import Bools, Floats, Ints
from zeus.replay.cluster._files import JOBS, TAGS
from zeus.replay.cluster._trace import SUCCESSFUL, ClusterTrace, collected, hashed

_DAY = 86400.0
_LENGTH = 62 * _DAY
# The trace begins later than 0, because 0 stands for an unknown time.
_BEGIN = 5 * _DAY
_USERS = 1300
# Exponent of the skew between users: the first 5 % of them have 77 % of the groups.
_USER_EXPONENT = np.log(0.05) / np.log(0.77)
# Sizes of groups: P(at least s jobs) = s^-1.2, up to a hundredth of all jobs.
_SIZE_EXPONENT, _LARGEST_SHARE = 1.2, 0.01
# Runtimes: log-normal between groups and within a group.
_MEDIAN, _NINETIETH, _WITHIN = 23 * 60.0, 4.5 * 3600.0, 0.6
_BETWEEN = np.sqrt((np.log(_NINETIETH / _MEDIAN) / 1.2816) ** 2 - _WITHIN**2)
# Gaps between submissions of a group: log-normal, so that they come in bursts.
_BURSTS = 2.0
# How strongly submissions follow the time of day.
_DAYLIGHT = 0.5
_STATUS = ((SUCCESSFUL, 0.70), ("Failed", 0.27), ("Running", 0.02), ("Waiting", 0.01))
_TAGGED = 0.09
_WORKLOADS = ("bert", "ctr", "graphlearn", "inception", "nmt", "resnet", "rl", "vgg", "xlnet")
_GPUS, _GPU_SHARES = (
    ("", "T4", "P100", "V100", "V100M32", "MISC"),
    (0.7, 0.1, 0.08, 0.06, 0.03, 0.03),
)
# Jobs per block.
_BLOCK = 50_000


@dataclass
class _Block:
    """Jobs of several complete groups."""

    group: Ints
    names: list[str]
    user: Ints
    gpu: Ints
    workload: Ints
    start: Floats
    runtime: Floats
    status: Ints

    @property
    def successful(self) -> Bools:
        ended: Bools = self.status == 0
        return ended


def write_tables(
    folder: Path | str,
    jobs: int = 1_200_000,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> tuple[Path, Path]:
    """Write a job table and a group tag table, as they are published: CSV without column names.

    Args:
        folder: Output folder; created if missing.
        jobs: Rows of each table.
        seed: Seed; the same seed and number of jobs give the same tables.
        progress: Called from time to time with the fraction that is done.

    Returns:
        Paths of the two files, which appear when both are complete.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / f"{JOBS}.csv", folder / f"{TAGS}.csv"
    unfinished = [path.with_name(f".{path.name}.unfinished") for path in paths]
    try:
        _write(unfinished[0], unfinished[1], jobs, seed, progress)
        for ready, path in zip(unfinished, paths, strict=True):
            ready.replace(path)
    finally:
        for path in unfinished:
            path.unlink(missing_ok=True)
    return paths


def _write(
    job_table: Path,
    tag_table: Path,
    jobs: int,
    seed: int,
    progress: Callable[[float], None] | None,
) -> None:
    users = _hex(np.random.default_rng((seed, _USERS)), _USERS, 12)
    written = 0
    with (
        job_table.open("w", encoding="ascii") as table,
        tag_table.open("w", encoding="ascii") as tags,
    ):
        for block, generator in _blocks(jobs, seed):
            count = len(block.start)
            instances = _hex(generator, count, 60)
            table.writelines(_job_lines(block, users, _hex(generator, count, 24), instances))
            tags.writelines(_tag_lines(block, users, instances))
            written += count
            if progress is not None:
                progress(written / jobs)


def made_up_trace(jobs: int = 1_200_000, seed: int = 0) -> ClusterTrace:
    """Return the trace that `read_trace` would read from the tables of `write_tables`.

    Args:
        jobs: Rows of each table; about two thirds are successful and recur.
        seed: Seed, as for `write_tables`.
    """
    groups, starts, runtimes = [], [], []
    for block, _ in _blocks(jobs, seed):
        names = np.array([hashed(name) for name in block.names], dtype=np.uint64)
        ended = block.successful
        groups.append(names[block.group[ended]])
        starts.append(block.start[ended])
        runtimes.append(block.runtime[ended])
    successful = sum(map(len, starts))
    return collected(
        np.concatenate(groups),
        np.concatenate(starts),
        np.concatenate(runtimes),
        rows=jobs,
        unsuccessful=jobs - successful,
        untimed=0,
        ungrouped=0,
        where=f"a made-up cluster of {jobs} jobs",
    )


def _blocks(jobs: int, seed: int) -> Iterator[tuple[_Block, np.random.Generator]]:
    """Yield blocks, each with its own generator for the remaining draws."""
    made = number = 0
    while made < jobs:
        generator = np.random.default_rng((seed, jobs, number))
        sizes = _sizes(generator, jobs, min(jobs - made, _BLOCK))
        block = _block(generator, sizes)
        yield block, np.random.default_rng((seed, jobs, number, 1))
        made += int(sizes.sum())
        number += 1


def _sizes(generator: np.random.Generator, jobs: int, wanted: int) -> Ints:
    """Draw group sizes that add up to `wanted` jobs."""
    largest = max(jobs * _LARGEST_SHARE, 10.0)
    share = generator.random(wanted) * (1 - largest**-_SIZE_EXPONENT)
    sizes = np.floor((1 - share) ** (-1 / _SIZE_EXPONENT)).astype(np.int64)
    ends = np.cumsum(sizes)
    count = int(np.searchsorted(ends, wanted)) + 1
    kept: Ints = sizes[:count]
    kept[-1] -= ends[count - 1] - wanted
    return kept


def _block(generator: np.random.Generator, sizes: Ints) -> _Block:
    groups, jobs = len(sizes), int(sizes.sum())
    group = np.repeat(np.arange(groups), sizes)
    typical = _MEDIAN * np.exp(_BETWEEN * generator.standard_normal(groups))
    runtime = typical[group] * np.exp(_WITHIN * generator.standard_normal(jobs))
    status = generator.choice(len(_STATUS), jobs, p=[share for _, share in _STATUS])
    # Most failed jobs fail early.
    runtime = np.where(status == 1, runtime * generator.random(jobs) ** 2, runtime)
    start = _starts(generator, sizes, group)
    user = np.minimum((generator.random(groups) ** _USER_EXPONENT * _USERS).astype(int), _USERS - 1)
    tagged = generator.random(groups) < _TAGGED
    workload = np.where(tagged, generator.integers(0, len(_WORKLOADS), groups), -1)
    gpu = generator.choice(len(_GPUS), groups, p=_GPU_SHARES)
    order = generator.permutation(jobs)
    group = group[order]
    return _Block(
        group=group,
        names=_hex(generator, groups, 32),
        user=user[group],
        gpu=gpu[group],
        workload=workload[group],
        start=start[order],
        runtime=np.clip(np.round(runtime[order]), 1.0, _LENGTH / 2),
        status=status[order],
    )


def _starts(generator: np.random.Generator, sizes: Ints, group: Ints) -> Floats:
    """Draw start times: a group is active for part of the two months, in bursts, mostly by day."""
    groups = len(sizes)
    # The more jobs a group has, the longer it is active.
    most = np.clip(sizes / 50.0, 0.05, 1.0)
    length = _LENGTH * most * generator.random(groups) ** 0.5
    begin = (_LENGTH - length) * generator.random(groups)
    gaps = np.exp(_BURSTS * generator.standard_normal(len(group)))
    passed = np.cumsum(gaps)
    ends = np.cumsum(sizes) - 1
    before = np.concatenate(([0.0], passed[ends[:-1]]))
    share = (passed - before[group]) / (passed[ends] - before)[group]
    time = begin[group] + length[group] * share
    phase = 2 * np.pi * time / _DAY
    shift = _DAYLIGHT * _DAY / (2 * np.pi) * np.sin(phase)
    starts: Floats = np.round(_BEGIN + time + shift)
    return starts


def _job_lines(
    block: _Block, users: list[str], names: list[str], instances: list[str]
) -> Iterator[str]:
    statuses = [name for name, _ in _STATUS]
    end = block.start + block.runtime
    for name, instance, user, status, start, ended in zip(
        names, instances, block.user.tolist(), block.status.tolist(), block.start.tolist(),
        end.tolist(), strict=True,
    ):  # fmt: skip
        # Waiting jobs have no start yet, running ones no end.
        begun, over = (
            ("" if status == 3 else f"{start:.1f}"),
            ("" if status > 1 else f"{ended:.1f}"),
        )
        yield f"{name},{instance},{users[user]},{statuses[status]},{begun},{over}\n"


def _tag_lines(block: _Block, users: list[str], instances: list[str]) -> Iterator[str]:
    workloads = [*_WORKLOADS, ""]  # -1 is none
    for instance, user, gpu, group, workload in zip(
        instances, block.user.tolist(), block.gpu.tolist(), block.group.tolist(),
        block.workload.tolist(), strict=True,
    ):  # fmt: skip
        yield f"{instance},{users[user]},{_GPUS[gpu]},{block.names[group]},{workloads[workload]}\n"


def _hex(generator: np.random.Generator, count: int, digits: int) -> list[str]:
    text = generator.bytes(count * digits // 2).hex()
    return [text[at : at + digits] for at in range(0, count * digits, digits)]
