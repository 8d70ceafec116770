"""How many trials a recurrence may take.

A trial that misses the target is retried with another batch size, until each had its turn. After
some recurrences in a row in which nothing reached the target, that is likely to be out of reach,
and the number of trials is halved with each further one, down to a single trial. As soon as one
reaches the target, all are allowed again.
"""

from __future__ import annotations

from zeus.optimizer.batch_size.job._spec import JobSpec

_LEAST = 3
# Recurrences in a row without success before the number of trials is halved. If only every other
# run reaches the target, all of 2 x 3 trials miss it by chance in 1 of 64 cases.
PATIENT_NIGHTS = 2


def usual_attempts(spec: JobSpec) -> int:
    """Return the maximum number of trials of a recurrence, as long as the target is reached."""
    sizes = len(spec.batch_sizes)
    # A retry with the same batch size would miss the target again.
    return 1 if sizes == 1 else max(sizes, _LEAST)


def may_retry(spec: JobSpec, attempt: int, missed: int) -> bool:
    """Return whether a recurrence may take another trial, as far as its target is concerned.

    Args:
        spec: The job.
        attempt: Attempt of its latest trial, from 0.
        missed: Number of recurrences in a row before this one in which nothing reached the target.
    """
    halvings = missed - PATIENT_NIGHTS + 1
    return halvings <= 0 or attempt + 1 < usual_attempts(spec) >> min(halvings, 60)
