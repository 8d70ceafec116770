"""Loads the up-to-date brain of a stored job: from memory, its snapshot, or its whole log."""

from __future__ import annotations

from zeus.errors import JobLogError
from zeus.optimizer.batch_size.policies._job_state import JobState, fingerprint
from zeus.optimizer.batch_size.storage import JobRow, View
from zeus.optimizer.batch_size.storage._cache import CachedJob
from zeus.store._values import damaged


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
                known.brain.apply(event)
            except JobLogError as error:
                why = f"event {sequence} of its log cannot follow those before it: {error}"
                raise damaged(row.name, why) from error
            known.sequence = sequence
    return known


def _restored(view: View, row: JobRow) -> CachedJob:
    if row.sequence:
        found = view.snapshot(row.id, fingerprint())
        if found is not None and found[0] <= row.sequence:
            try:
                return CachedJob(JobState.restored(row.spec, found[1]), found[0])
            except JobLogError:
                pass  # a snapshot only saves time; the log has everything
    return CachedJob(JobState(row.spec), 0)
