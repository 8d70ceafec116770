"""A job in a transaction, with the changes to be written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from zeus.optimizer.batch_size.job._events import Decided, Ended, Event
from zeus.optimizer.batch_size.job._log import Trial
from zeus.optimizer.batch_size.policies._fingerprint import fingerprint
from zeus.optimizer.batch_size.policies._job_state import JobState
from zeus.optimizer.batch_size.storage import Changes, JobRow
from zeus.optimizer.batch_size.storage._cache import CachedJob
from zeus.optimizer.batch_size.storage._rows import account_row, new_trial_row, trial_columns


@dataclass
class JobTransaction:
    """A locked job and its changes in this transaction.

    Attributes:
        row: The job as stored.
        known: The job in memory.
        news: New events.
        touched: Trials that changed, or whose lease starts over, by number.
        began: Sequence numbers of the events that began trials, by trial.
        profiles: New rows of profiles, by GPU model, number of GPUs and batch size.
        requests: Numbers of the trials of new requests, by request.
        counted: Whether the account changed.
    """

    row: JobRow
    known: CachedJob
    news: list[Event] = field(default_factory=list)
    touched: dict[int, Trial] = field(default_factory=dict)
    began: dict[int, int] = field(default_factory=dict)
    profiles: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)
    counted: bool = False

    @property
    def brain(self) -> JobState:
        """Brain of the job, with its log and the new events absorbed."""
        return self.known.brain

    @property
    def sequence(self) -> int:
        """Number of the last event."""
        return self.row.sequence + len(self.news)

    def take(self, event: Event) -> Trial | None:
        """Apply an event and keep it to be written."""
        trial = self.brain.apply(event)
        self.news.append(event)
        if isinstance(event, Decided):
            self.began[event.trial] = self.sequence
            self.requests[event.request] = event.trial
        if trial is not None:
            self.touched[event.trial] = trial
        self.counted |= self.known.tally.apply(self.brain.spec, event, trial)
        # A recurrence that goes on is not lost yet.
        self.counted |= isinstance(event, Decided) and self.brain.log.recent.recurrences > 0
        self.known.tally.sequence = self.sequence
        return trial

    def remembered(self) -> CachedJob:
        """Return the job for the cache, after the changes were written."""
        self.known.sequence = self.sequence
        return self.known

    def collect(self, changes: Changes, now: float) -> None:
        """Add the changes of this job to `changes`."""
        job, log = self.row.id, self.brain.log
        numbered = enumerate(self.news, self.row.sequence + 1)
        changes.events += [(job, sequence, event) for sequence, event in numbered]
        changes.profiles += self.profiles.values()
        for number, trial in self.touched.items():
            if number in self.began:
                began = self.began[number]
                row = new_trial_row(job, self.brain.spec, began, trial, now)
                changes.new_trials.append(row)
            else:
                columns = trial_columns(trial, now)
                changes.trials.append({"job": job, "number": number, **columns})
        if self.counted:
            changes.accounts.append(account_row(job, self.brain, self.known.tally))
        if not self.news:
            return
        changes.jobs.append(
            {
                "id": job,
                "updated": now,
                "sequence": self.sequence,
                "trials": log.trials,
                "recurrences": log.recurrences,
                "running": len(log.open),
            }
        )
        # Only the end of a trial is expensive to fold; later events are folded again quickly.
        code = fingerprint(self.brain.spec.policy)
        if code is not None and any(isinstance(event, Ended) for event in self.news):
            changes.snapshots.append(
                {
                    "job": job,
                    "sequence": self.sequence,
                    "fingerprint": code,
                    "state": self.brain.snapshot(),
                }
            )
