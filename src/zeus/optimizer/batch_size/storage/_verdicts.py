"""How trials go on, and how they end."""

from __future__ import annotations

from dataclasses import replace

from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.api._answers import Verdict
from zeus.optimizer.batch_size.api._commands import Decide
from zeus.optimizer.batch_size.job._alike import WARNING
from zeus.optimizer.batch_size.job._events import Ended, Resumed
from zeus.optimizer.batch_size.job._log import Trial
from zeus.optimizer.batch_size.storage._job_transaction import JobTransaction


def resumable(job: JobTransaction, command: Decide) -> Trial | None:
    """Return the latest trial of the same run that may go on, if any."""
    if command.run is None or not command.resume or command.retry_of is not None:
        return None
    log = job.brain.log
    expired = (
        trial
        for trial in log.over.values()
        if trial.ended is not None and trial.ended.outcome == Outcome.EXPIRED
    )
    found = [each for each in (*log.open.values(), *expired) if each.decided.run == command.run]
    return max(found, key=lambda trial: trial.decided.trial, default=None)


def end_trial(job: JobTransaction, event: Ended) -> Verdict:
    """End a trial, with advice whether to begin another one."""
    advice = job.brain.log.advice(event)
    if advice:
        event = replace(event, advice=advice)
    job.take(event)
    return verdict_of(event)


def verdict_of(event: Ended | Resumed | None) -> Verdict:
    """Return the verdict that follows from the last event of a trial."""
    # A trial whose lease has expired goes on as soon as it reports.
    if not isinstance(event, Ended) or event.outcome == Outcome.EXPIRED:
        return Verdict(True, None, "")
    warning = event.note.partition(WARNING)[2]
    if not event.advice:
        return Verdict(False, event.outcome, event.note, warning)
    why = f"no further attempt in this recurrence: {event.advice}"
    said = "; ".join(filter(None, (event.note, why)))
    return Verdict(False, event.outcome, said, warning, retry=False)
