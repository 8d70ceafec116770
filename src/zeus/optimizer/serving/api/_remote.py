"""Services on a server."""

from __future__ import annotations

from zeus import errors
from zeus.transport._command import Remote

_KINDS = (
    errors.JobConflictError,
    errors.RequestError,
    errors.ServiceError,
    errors.StorageError,
    errors.TokenError,
    errors.UnknownJobError,
)


class RemoteServices(Remote):
    """Services on a server; see `Remote` for the arguments."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 5.0) -> None:
        super().__init__(url, token, timeout, _KINDS)
