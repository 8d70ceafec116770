"""Recurring jobs on a server."""

from __future__ import annotations

from zeus import errors
from zeus.transport._command import Remote

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


class RemoteJobs(Remote):
    """Recurring jobs on a server, as `JobsApi`; see `Remote` for the arguments."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 5.0) -> None:
        super().__init__(url, token, timeout, _KINDS)
