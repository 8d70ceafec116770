"""Connects to recurring jobs on a server, or in a store of this machine."""

from __future__ import annotations

from zeus.optimizer.batch_size.api._api import JobsApi


def open_jobs(where: str, *, token: str | None = None, timeout: float = 5.0) -> JobsApi:
    """Open the jobs at a URL; the caller must `close` them.

    Args:
        where: URL of a server (`http://HOST:PORT`), or of a store (`sqlite:///FILE` or
            `postgresql://USER@HOST/DATABASE`), which is created if missing.
        token: Token for a server that requires one; by default `ZEUS_TOKEN`, or on this machine
            that of this user's own server.
        timeout: Seconds for one request to a server.

    Raises:
        ServerError: If the URL of a server is invalid; no request is sent yet.
        TokenError: If the token is malformed.
        StorageError: If a store cannot be opened.
        MissingExtraError: If a store needs packages that are not installed.
    """
    if where.startswith(("http://", "https://")):
        from zeus.optimizer.batch_size.api._remote import RemoteJobs  # noqa: PLC0415

        return RemoteJobs(where, token, timeout)
    # Only a local store needs the database packages.
    from zeus.store import Store  # noqa: PLC0415, I001
    from zeus.optimizer.batch_size.storage._service import Jobs  # noqa: PLC0415

    return Jobs(Store(where))
