"""Recurring jobs on a server: the HTTP client with the interface of `Jobs`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from zeus import errors
from zeus.optimizer.batch_size.api._api import Decision, JobInfo, ProfileInfo, TrialInfo, Verdict
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.job._values import DEFAULT_LEASE
from zeus.transport._http_client import HttpClient

_KINDS = (
    errors.DamagedJobError,
    errors.FrontierError,
    errors.JobConflictError,
    errors.JobLogError,
    errors.JobSpecError,
    errors.RequestError,
    errors.StorageError,
    errors.TokenError,
    errors.UnknownJobError,
)


class RemoteJobs:
    """Recurring jobs on a server; see `JobsApi` for the methods.

    Thread-safe: each call has its own connection.

    Args:
        url: URL of the server, for example "http://127.0.0.1:8420".
        token: Token, if the server requires one; by default `ZEUS_TOKEN`, or on this machine
            that of this user's own server.
        timeout: Seconds for one call, from the first byte to the last.

    Raises:
        ServerError: If the URL is not a server's.
        TokenError: If the token is malformed.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 5.0) -> None:
        self._ask = HttpClient(url, token, timeout, _KINDS).ask

    def create(self, spec: JobSpec) -> JobInfo:
        """Create a job unless it exists; see `JobsApi`."""
        return JobInfo.from_dict(self._ask("POST", "/api/jobs", spec.to_dict()))

    def decide(
        self,
        job: str,
        *,
        gpu: str,
        max_power: float,
        gpus: int = 1,
        request: str | None = None,
        retry_of: str | None = None,
        lease: float = DEFAULT_LEASE,
        default: bool = False,
    ) -> Decision:
        """Begin a trial; see `JobsApi`."""
        body = {
            "gpu": gpu,
            "max_power": max_power,
            "gpus": gpus,
            "request": uuid.uuid4().hex if request is None else request,
            "retry_of": retry_of,
            "lease": lease,
            "default": default,
        }
        return Decision.from_dict(self._ask("POST", _job(job, "trials"), body))

    def report_epoch(
        self,
        trial: str,
        *,
        epoch: int,
        time: float,
        energy: float | None = None,
        metric: float | None = None,
        power_limit: float | None = None,
    ) -> Verdict:
        """Report an epoch; see `JobsApi`."""
        body = {
            "epoch": epoch,
            "time": time,
            "energy": energy,
            "metric": metric,
            "power_limit": power_limit,
        }
        return Verdict.from_dict(self._ask("POST", _trial(trial, "epochs"), body))

    def end(
        self,
        trial: str,
        outcome: str,
        *,
        time: float = 0.0,
        energy: float | None = 0.0,
        note: str = "",
    ) -> Verdict:
        """End a trial; see `JobsApi`."""
        body = {"outcome": outcome, "time": time, "energy": energy, "note": note}
        return Verdict.from_dict(self._ask("POST", _trial(trial, "end"), body))

    def renew(self, trial: str) -> Verdict:
        """Renew the lease of a running trial; see `JobsApi`."""
        return Verdict.from_dict(self._ask("POST", _trial(trial, "renew"), {}))

    def put_profile(
        self,
        job: str,
        *,
        gpu: str,
        batch_size: int,
        gpus: int = 1,
        frontier: Mapping[str, Any] | None = None,
        epoch_cost: float | None = None,
        load: float | None = None,
        power_limit: float | None = None,
    ) -> ProfileInfo:
        """Store the profile of a batch size; see `JobsApi`."""
        body = {
            "gpu": gpu,
            "gpus": gpus,
            "batch_size": batch_size,
            "frontier": frontier,
            "epoch_cost": epoch_cost,
            "load": load,
            "power_limit": power_limit,
        }
        return ProfileInfo.from_dict(self._ask("PUT", _job(job, "profiles"), body))

    def profiles(self, job: str) -> list[ProfileInfo]:
        """Return all profiles of a job; see `JobsApi`."""
        return [ProfileInfo.from_dict(each) for each in self._ask("GET", _job(job, "profiles"))]

    def jobs(self, after: str = "", most: int = 100) -> list[JobInfo]:
        """Return jobs in the order of their names; see `JobsApi`."""
        query = urlencode({"after": after, "most": most})
        return [JobInfo.from_dict(each) for each in self._ask("GET", f"/api/jobs?{query}")]

    def job(self, name: str) -> JobInfo:
        """Return one job; see `JobsApi`."""
        return JobInfo.from_dict(self._ask("GET", _job(name)))

    def trials(self, job: str, before: int | None = None, most: int = 100) -> list[TrialInfo]:
        """Return trials of a job, the latest first; see `JobsApi`."""
        query = {"most": most} if before is None else {"most": most, "before": before}
        found = self._ask("GET", f"{_job(job, 'trials')}?{urlencode(query)}")
        return [TrialInfo.from_dict(each) for each in found]

    def log(self, job: str, after: int = 0, most: int = 1000) -> list[dict[str, Any]]:
        """Return events of a job; see `JobsApi`."""
        query = urlencode({"after": after, "most": most})
        return list(self._ask("GET", f"{_job(job, 'log')}?{query}"))

    def delete(self, job: str) -> None:
        """Delete a job; see `JobsApi`."""
        self._ask("DELETE", _job(job))

    def close(self) -> None:
        """Do nothing: no connection is kept open."""


def _job(name: str, part: str = "") -> str:
    whole = f"/api/jobs/{quote(name, safe='')}"
    return f"{whole}/{part}" if part else whole


def _trial(name: str, part: str) -> str:
    return f"/api/trials/{quote(str(name), safe='')}/{part}"
