"""Where recurring jobs are: on a server, or in a store of this machine."""

from __future__ import annotations

from zeus.optimizer.batch_size.answers import JobsApi


def open_jobs(where: str, *, token: str | None = None, timeout: float = 5.0) -> JobsApi:
    """The jobs that are kept there; `close` them in the end.

    Args:
        where: URL of a server (`http://HOST:PORT`), or of a store (`sqlite:///FILE` or
            `postgresql://USER@HOST/DATABASE`), which is created if it is not there.
        token: For a server that asks for one; by default `ZEUS_TOKEN`, or on this machine
            that of this user's own server.
        timeout: Seconds for one question to a server.

    Raises:
        ServerError: If the URL of a server is not one; it is not asked anything yet.
        TokenError: If the token cannot be one.
        StorageError: If a store cannot be opened.
        MissingExtraError: If a store needs packages that are not installed.
    """
    if where.startswith(("http://", "https://")):
        from zeus.optimizer.batch_size.remote import RemoteJobs  # noqa: PLC0415

        return RemoteJobs(where, token, timeout)
    # Only who keeps jobs here needs a database.
    from zeus.optimizer.batch_size.store import Store  # noqa: PLC0415, I001
    from zeus.optimizer.batch_size.service import Jobs  # noqa: PLC0415

    return Jobs(Store(where))
