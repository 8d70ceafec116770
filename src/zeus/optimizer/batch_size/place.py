"""Where recurring jobs are kept: on a server, or in a store that this process opens itself."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from zeus.errors import RunError, ServerError, StorageError
from zeus.optimizer.batch_size.answers import JobsApi
from zeus.optimizer.batch_size.connect import open_jobs
from zeus.optimizer.batch_size.remote import RemoteJobs
from zeus.optimizer.bearer import TOKEN_VARIABLE, checked_token

SERVER_VARIABLE, STORAGE_VARIABLE = "ZEUS_SERVER", "ZEUS_STORAGE"

_FILE = "sqlite:///"
_SERVERS = ("http://", "https://")
_STORES = (_FILE, "postgresql://", "postgres://", "postgresql+psycopg://")


@dataclass(frozen=True)
class Place:
    """Where jobs are kept.

    Attributes:
        url: Of a server (http, https) or of a store (sqlite, postgresql).
        token: For a server that asks for one; `None` for what a client finds by itself.
        timeout: Seconds that one question to a server may take.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    timeout: float = 5.0

    @classmethod
    def of(
        cls,
        server_url: str | None = None,
        storage: str | None = None,
        *,
        token: str | None = None,
        timeout: float = 5.0,
    ) -> Place:
        """The place that is meant.

        Args:
            server_url: Of a server. Without it and without storage, `ZEUS_SERVER`.
            storage: Of a store. Without either, `ZEUS_STORAGE`, or a file where Zeus keeps its
                state.
            token: For a server; by default `ZEUS_TOKEN`.
            timeout: As in the attributes.

        Raises:
            RunError: If both are given, or the time is not above 0.
            ServerError: If that is no address of a server.
            TokenError: If the token cannot be one.
            StorageError: If that is no storage.
        """
        if server_url and storage:
            raise RunError(
                "a job is kept on a server or in a storage, but got both "
                f"(server_url={server_url!r}, storage={storage!r})"
            )
        if not timeout > 0:
            raise RunError(f"`timeout > 0` must hold, but got {timeout!r}")
        if not server_url and not storage:
            server_url = os.environ.get(SERVER_VARIABLE)
        if server_url:
            token = checked_token("token", token)
            RemoteJobs(server_url, token, timeout)  # raises if it cannot be one
            return cls(server_url, token, timeout)
        return cls(_absolute(storage or os.environ.get(STORAGE_VARIABLE) or _default()))

    @property
    def is_server(self) -> bool:
        """Whether it is a server."""
        return self.url.startswith(_SERVERS)

    def open(self) -> JobsApi:
        """Begin to talk.

        Raises:
            StorageError: If a store cannot be opened; a server's absence shows when it is asked.
            MissingExtraError: If the store needs what is not installed.
        """
        return open_jobs(self.url, token=self.token, timeout=self.timeout)

    def variables(self) -> dict[str, str]:
        """Variables by which a child process finds the same place."""
        variables = {SERVER_VARIABLE if self.is_server else STORAGE_VARIABLE: self.url}
        if self.token is not None:
            variables[TOKEN_VARIABLE] = self.token
        return variables


def _default() -> str:
    from zeus.optimizer.batch_size.store import default_storage  # noqa: PLC0415  (an extra)

    return default_storage()


def _absolute(storage: str) -> str:
    """The same storage for whoever works in another directory."""
    if storage.startswith(_SERVERS):
        raise ServerError(f"a server must be given as `server_url`, but got storage={storage!r}")
    if not storage.startswith(_STORES):
        scheme = storage.partition("://")[0]  # without a password
        raise StorageError(
            f"storage must be sqlite:///FILE or postgresql://USER@HOST/DATABASE, but got {scheme!r}"
        )
    if not storage.startswith(_FILE):
        return storage
    path, mark, options = storage.removeprefix(_FILE).partition("?")
    if not path or path == ":memory:":
        raise StorageError(f"storage must be a file that others can open, but got {storage!r}")
    return f"{_FILE}{Path(path).absolute()}{mark}{options}"
