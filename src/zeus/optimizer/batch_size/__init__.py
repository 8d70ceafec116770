"""Recurring jobs: learns, run by run, which batch size reaches the target at the lowest cost.

A job is its specification (`JobSpec`) and the event log of its trials. A policy is a pure function
of the two; `JobState` folds the log into the policy's state.

- `job/`: a job, its events and their rules; pure.
- `policies/`: what decides; pure.
- `api/`: the interface, and the client of a server.
- `storage/`: what is kept, and the service on a store.
- `running/`: what runs in training scripts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeus._lazy import lazy_names

if TYPE_CHECKING:
    from zeus.optimizer.batch_size.api._commands import CreateJob, Decide, EndTrial, ReportEpoch
    from zeus.optimizer.batch_size.job._log import JobLog
    from zeus.optimizer.batch_size.job._spec import JobSpec
    from zeus.optimizer.batch_size.policies._job_state import JobState
    from zeus.optimizer.batch_size.running._client import BatchSizeOptimizer
    from zeus.optimizer.batch_size.running._connect import open_jobs

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "BatchSizeOptimizer": "zeus.optimizer.batch_size.running._client",
        "CreateJob": "zeus.optimizer.batch_size.api._commands",
        "Decide": "zeus.optimizer.batch_size.api._commands",
        "EndTrial": "zeus.optimizer.batch_size.api._commands",
        "JobLog": "zeus.optimizer.batch_size.job._log",
        "JobSpec": "zeus.optimizer.batch_size.job._spec",
        "JobState": "zeus.optimizer.batch_size.policies._job_state",
        "ReportEpoch": "zeus.optimizer.batch_size.api._commands",
        "open_jobs": "zeus.optimizer.batch_size.running._connect",
    },
)

__all__ = [
    "BatchSizeOptimizer",
    "CreateJob",
    "Decide",
    "EndTrial",
    "JobLog",
    "JobSpec",
    "JobState",
    "ReportEpoch",
    "open_jobs",
]
