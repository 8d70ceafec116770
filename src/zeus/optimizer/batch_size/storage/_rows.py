"""Converts between stored rows, events and the responses of `JobsApi`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from zeus.errors import DamagedJobError
from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.api._answers import Decision, JobInfo, ProfileInfo, TrialInfo
from zeus.optimizer.batch_size.api._commands import trial_name
from zeus.optimizer.batch_size.job._events import Decided, Ended
from zeus.optimizer.batch_size.job._job_batch import OPTIMIZED
from zeus.optimizer.batch_size.job._log import Trial
from zeus.optimizer.batch_size.job._reasons import PURPOSES, reason
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.policies._base import ArmStatus
from zeus.optimizer.batch_size.policies._job_state import Expected, JobState
from zeus.optimizer.batch_size.storage import JobRow, Row
from zeus.optimizer.batch_size.storage._account import account, columns
from zeus.optimizer.batch_size.storage._tally import Tally
from zeus.store._tables import accounts
from zeus.store._values import damaged, parsed

DAMAGED = "its record in the store is damaged and cannot be read"


def job_info(row: JobRow, about: Mapping[str, Any]) -> JobInfo:
    """Return the response for a job.

    Args:
        row: Its row.
        about: The rest, from `View.about`.

    Raises:
        DamagedJobError: If the row cannot be read.
    """
    return JobInfo(
        name=row.name,
        spec=row.spec.to_dict(),
        created=row.created,
        updated=row.updated,
        recurrences=row.recurrences,
        trials=row.trials,
        running=row.running,
        **about,
    )


def listed(row: JobRow, about: Mapping[str, Any]) -> JobInfo:
    """Return the entry for a job in a list, even if its record is damaged."""
    try:
        return job_info(row, about)
    except DamagedJobError as error:
        name = row.name if row.name.isprintable() else ascii(row.name)[1:-1]
        return JobInfo(name, {}, 0.0, 0.0, 0, 0, 0, damage=str(error), trouble=DAMAGED)


def trial_info(job: int, row: Row) -> TrialInfo:
    """Return the response for a trial."""
    # Trials that were stored before there were reasons have none.
    words = row["reason"] or PURPOSES.get(row["role"], "")
    return TrialInfo.from_dict({**row, "trial": trial_name(job, row["number"]), "reason": words})


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


def decision(
    row: JobRow, spec: JobSpec, decided: Decided, *, epochs: int = 0, resumed: bool = False
) -> Decision:
    """Return the response to a request for a trial.

    Args:
        row: The job as stored.
        spec: The job.
        decided: The event that began the trial.
        epochs: Number of epochs that were reported so far.
        resumed: Whether an earlier start of the same run began it.
    """
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
        reason=reason(spec, decided, decided.replicas or 1),
        lease=decided.lease,
        epochs=epochs,
        resumed=resumed,
    )


def how(ended: Ended) -> str:
    """Return in words how a trial ended."""
    return ended.outcome + (f" ({ended.note})" if ended.note else "")


def new_trial_row(
    job: int, spec: JobSpec, sequence: int, trial: Trial, now: float
) -> dict[str, Any]:
    """Return all columns of a trial that has just begun.

    Args:
        job: Number of its job.
        spec: The job.
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
        "reason": reason(spec, decided, decided.replicas or 1),
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
        "best": trial.best,
        "note": "" if ended is None else ended.note,
    }


def account_row(job: int, brain: JobState, tally: Tally) -> dict[str, Any]:
    """Return the row of `accounts` for a job.

    Args:
        job: Its number.
        brain: Its state, which says what the default is expected to cost.
        tally: Sums over its trials.
    """
    sums = tally.gpus.values()
    trials, missing = sum(each.trials for each in sums), sum(each.unmeasured for each in sums)
    missed = sum(each.trials - each.converged for each in sums)
    wasted = sum(each.wasted for each in sums)
    known = account(brain.spec, tally, lambda gpu: expected_default(brain.beliefs(gpu), brain.spec))
    return {
        "job": job,
        "sequence": tally.sequence,
        "tally": json.dumps(tally.to_dict(), separators=(",", ":")),
        "energy": sum(each.energy for each in sums) if trials > missing else None,
        "time": sum(each.time for each in sums) if trials else None,
        "cost": sum(each.cost for each in sums) if trials else None,
        "unmeasured": missing,
        "wasted": wasted if trials and (wasted or not (missed and missing)) else None,
        "trouble": brain.trouble,
        **dict(columns(known)),
    }


def damaged_account(job: int, sequence: int) -> dict[str, Any]:
    """Return the row of `accounts` for a job whose record cannot be read."""
    unknown = dict.fromkeys(c.name for c in accounts.c)
    known = {"basis": "", "comparison": DAMAGED, "trouble": DAMAGED, "unmeasured": 0}
    return {**unknown, **known, "job": job, "sequence": sequence, "tally": "{}"}


def expected_default(beliefs: Sequence[Expected], spec: JobSpec) -> float | None:
    """Return the cost in joules that a policy expects of the default batch size, if any.

    Args:
        beliefs: Its expectations, from `JobState.beliefs`.
        spec: The job.
    """
    for each in beliefs:
        if each.batch_size == spec.default_batch_size:
            believed = each.standing in (ArmStatus.EXPECTED, ArmStatus.PROVEN)
            return each.cost if believed else None
    return None
