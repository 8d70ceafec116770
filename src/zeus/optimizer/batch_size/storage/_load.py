"""Loads the up-to-date brain of a stored job: from memory, its snapshot, or its whole log."""

from __future__ import annotations

import contextlib

from zeus.errors import JobLogError
from zeus.optimizer.batch_size.job._events import GpuModel
from zeus.optimizer.batch_size.policies._fingerprint import fingerprint
from zeus.optimizer.batch_size.policies._job_state import JobState
from zeus.optimizer.batch_size.storage import JobRow, View
from zeus.optimizer.batch_size.storage._cache import CachedJob
from zeus.optimizer.batch_size.storage._rows import profile_info
from zeus.optimizer.batch_size.storage._tally import Tally
from zeus.store._values import damaged, parsed


def recalled(view: View, row: JobRow, known: CachedJob | None = None) -> CachedJob:
    """Return a job with a brain that has absorbed its whole log.

    Args:
        view: Transaction to read from.
        row: The job.
        known: The cached job, if any; it is brought up to date.

    Raises:
        DamagedJobError: If its record cannot be read.
    """
    if known is None or known.sequence > row.sequence:
        known = _restored(view, row)
    if known.sequence < row.sequence:
        for sequence, event in view.log(row.id, known.sequence):
            try:
                trial = known.brain.apply(event)
            except JobLogError as error:
                why = f"event {sequence} of its log cannot follow those before it: {error}"
                raise damaged(row.name, why) from error
            known.sequence = sequence
            if sequence > known.tally.sequence:
                known.tally.apply(known.brain.spec, event, trial)
                known.tally.sequence = sequence
    return known


def _restored(view: View, row: JobRow) -> CachedJob:
    code = fingerprint(row.spec.policy)
    if row.sequence and code is not None:
        found = view.snapshot(row.id, code)
        if found is not None and found[0] <= row.sequence:
            try:
                brain = JobState.restored(row.spec, found[1])
                return CachedJob(brain, found[0], _tally(view, row, found[0]))
            except JobLogError:
                pass  # a snapshot only saves time; the log has everything
    return CachedJob(JobState(row.spec), 0, _tally(view, row, 0))


def _tally(view: View, row: JobRow, least: int) -> Tally:
    """Return the stored tally, if it has at least the first `least` events in it; else count."""
    stored = view.account(row.id)
    if stored is not None and stored[1] is not None and least <= stored[0] <= row.sequence:
        with contextlib.suppress(ValueError):
            return Tally.from_dict(parsed(stored[1]), stored[0])
    totals = view.totals(row.id)
    last: dict[GpuModel, int] = {}
    for total in totals:
        gpu = GpuModel(total.gpu, total.gpus)
        last[gpu] = max(last.get(gpu, 0), total.latest)
    power = {gpu: view.max_power(row.id, number) for gpu, number in last.items()}
    profiles = [profile_info(row.name, each) for each in view.profiles(row.id)]
    return Tally.recounted(
        row.spec,
        totals,
        profiles=profiles,
        max_power=power,
        sequence=row.sequence,
    )
