"""Converts between stored rows, events and the responses of `JobsApi`."""

from __future__ import annotations

from typing import Any

from zeus.errors import DamagedJobError
from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.api._answers import Decision, JobInfo, ProfileInfo, Verdict
from zeus.optimizer.batch_size.api._commands import trial_name
from zeus.optimizer.batch_size.job._events import Decided, Ended, Resumed
from zeus.optimizer.batch_size.job._job_batch import OPTIMIZED, Role
from zeus.optimizer.batch_size.job._log import Trial
from zeus.optimizer.batch_size.job._share import can_share
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.storage import JobRow, Row
from zeus.store._values import damaged, parsed

#: Purpose of trials in words.
REASONS = {
    Role.DEFAULT: "the default batch size",
    Role.EXPLORE: "to learn what this batch size costs",
    Role.EXPLOIT: "the best batch size so far",
    Role.SAMPLE: "chosen by Thompson sampling",
    Role.RETRY: "a retry, after a trial that did not reach the target",
}


def job_info(row: JobRow) -> JobInfo:
    """Return the response for a job."""
    return JobInfo(
        name=row.name,
        spec=row.spec.to_dict(),
        created=row.created,
        updated=row.updated,
        recurrences=row.recurrences,
        trials=row.trials,
        running=row.running,
    )


def listed(row: JobRow) -> JobInfo:
    """Return the entry for a job in a list, even if its record is damaged."""
    try:
        return job_info(row)
    except DamagedJobError as error:
        name = row.name if row.name.isprintable() else ascii(row.name)[1:-1]
        return JobInfo(name, {}, 0.0, 0.0, 0, 0, 0, damage=str(error))


def profile_info(job: str, row: Row) -> ProfileInfo:
    """Return the response for a profile of a job.

    Raises:
        DamagedJobError: If it cannot be read.
    """
    kept = row["frontier"]
    try:
        frontier = None if kept is None else parsed(kept)
    except (ValueError, RecursionError) as error:
        raise damaged(job, f"one of its profiles is invalid: {error}") from error
    return ProfileInfo.from_dict({**row, "frontier": frontier})


def decision(row: JobRow, spec: JobSpec, decided: Decided) -> Decision:
    """Return the response to a request for a trial."""
    return Decision(
        trial=trial_name(row.id, decided.trial),
        job=row.name,
        recurrence=decided.recurrence,
        attempt=decided.attempt,
        batch_size=decided.batch_size,
        optimize_power=decided.power == OPTIMIZED,
        power_limit=spec.power_limits[decided.power] if decided.power >= 0 else None,
        learning_rate_scale=spec.learning_rate_scale(decided.batch_size),
        threshold=decided.threshold,
        expected_epochs=decided.expected_epochs,
        role=decided.role.name.lower(),
        reason=_reason(spec, decided),
        lease=decided.lease,
    )


def _reason(spec: JobSpec, decided: Decided) -> str:
    if decided.role == Role.DEFAULT and decided.batch_size != spec.default_batch_size:
        replicas = decided.replicas or 1
        if not can_share(spec.default_batch_size, replicas):
            return f"in place of the default, which {replicas} replicas cannot share equally"
        return "in place of the default, which did not reach the target"
    return REASONS[decided.role]


def verdict(event: Ended | Resumed | None) -> Verdict:
    """Return the verdict that follows from the last event of a trial."""
    # A trial whose lease has expired goes on as soon as it reports.
    if not isinstance(event, Ended) or event.outcome == Outcome.EXPIRED:
        return Verdict(True, None, "")
    return Verdict(False, event.outcome, event.note)


def how(ended: Ended) -> str:
    """Return in words how a trial ended."""
    return ended.outcome + (f" ({ended.note})" if ended.note else "")


def new_trial_row(job: int, sequence: int, trial: Trial, now: float) -> dict[str, Any]:
    """Return all columns of a trial that has just begun.

    Args:
        job: Number of its job.
        sequence: Sequence number of the event that began it.
        trial: Its current state.
        now: Start of its lease, in seconds since 1970.
    """
    decided = trial.decided
    return {
        "job": job,
        "number": decided.trial,
        "request": decided.request,
        "sequence": sequence,
        "lease": decided.lease,
        "recurrence": decided.recurrence,
        "attempt": decided.attempt,
        "gpu": decided.gpu,
        "gpus": decided.gpus,
        "max_power": decided.max_power,
        "batch_size": decided.batch_size,
        "role": decided.role.name.lower(),
        "threshold": decided.threshold,
        "began": decided.at,
        **trial_columns(trial, now),
    }


def lease_until(trial: Trial, now: float) -> float | None:
    """Return the end of a trial's lease that starts over at `now`; `None` if the trial is over."""
    return now + trial.decided.lease if trial.ended is None else None


def trial_columns(trial: Trial, now: float) -> dict[str, Any]:
    """Return the columns of a trial that change while it runs; its lease starts over at `now`."""
    ended = trial.ended
    return {
        "state": Outcome.RUNNING.value if ended is None else ended.outcome,
        "lease_until": lease_until(trial, now),
        "ended": None if ended is None else ended.at,
        "epochs": trial.epochs,
        "time": trial.time,
        "energy": None if trial.unmeasured else trial.energy,
        "cost": trial.cost,
        "metric": trial.metric,
        "note": "" if ended is None else ended.note,
    }
