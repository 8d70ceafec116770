"""Where recurring jobs are kept: on a server, or in a store that this process opens itself."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from zeus.errors import RunError, ServerError, StorageUrlError
from zeus.optimizer.batch_size.api._api import JobsApi
from zeus.optimizer.batch_size.api._remote import RemoteJobs
from zeus.optimizer.batch_size.running._connect import open_jobs
from zeus.transport._bearer import TOKEN_VARIABLE, checked_token

SERVER_VARIABLE, STORAGE_VARIABLE = "ZEUS_SERVER", "ZEUS_STORAGE"

_FILE = "sqlite:///"
_SERVERS = ("http://", "https://")
_STORES = (_FILE, "postgresql://", "postgres://", "postgresql+psycopg://")


@dataclass(frozen=True)
class Location:
    """Location of jobs: a server or a store.

    Attributes:
        url: URL of a server (http, https) or of a store (sqlite, postgresql).
        token: Token for a server that requires one; `None` for the client's default.
        timeout: Seconds that one request to a server may take.
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
    ) -> Location:
        """Resolve the location from arguments and environment.

        Args:
            server_url: URL of a server. Without it and without storage, `ZEUS_SERVER`.
            storage: URL of a store. Without either, `ZEUS_STORAGE`, or a file in Zeus's state
                directory.
            token: Token for a server; by default `ZEUS_TOKEN`.
            timeout: Seconds that one request to a server may take.

        Raises:
            RunError: If both are given, or the timeout is not above 0.
            ServerError: If the URL is not a server's.
            TokenError: If the token is malformed.
            StorageUrlError: If the storage URL is invalid.
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
            RemoteJobs(server_url, token, timeout)  # raises if the URL is invalid
            return cls(server_url, token, timeout)
        return cls(_absolute(storage or os.environ.get(STORAGE_VARIABLE) or _default()))

    def __str__(self) -> str:
        return re.sub("(://[^@:/]*):.*@", r"\1:***@", self.url)  # without a password

    @property
    def is_server(self) -> bool:
        """Whether it is a server."""
        return self.url.startswith(_SERVERS)

    def open(self) -> JobsApi:
        """Open the server or store.

        Raises:
            StorageError: If a store cannot be opened; a missing server shows at the first request.
            MissingExtraError: If the store needs packages that are not installed.
        """
        return open_jobs(self.url, token=self.token, timeout=self.timeout)

    def variables(self) -> dict[str, str]:
        """Return environment variables that lead a child process to the same place."""
        variables = {SERVER_VARIABLE if self.is_server else STORAGE_VARIABLE: self.url}
        if self.token is not None:
            variables[TOKEN_VARIABLE] = self.token
        return variables


def _default() -> str:
    from zeus.store import default_storage  # noqa: PLC0415  (an extra)

    return default_storage()


def _absolute(storage: str) -> str:
    """Return the storage URL with an absolute path, valid in any working directory."""
    if storage.startswith(_SERVERS):
        raise ServerError(f"a server must be given as `server_url`, but got storage={storage!r}")
    if not storage.startswith(_STORES):
        scheme = storage.partition("://")[0]  # without a password
        raise StorageUrlError(
            f"storage must be sqlite:///FILE or postgresql://USER@HOST/DATABASE, but got {scheme!r}"
        )
    if not storage.startswith(_FILE):
        return storage
    path, mark, options = storage.removeprefix(_FILE).partition("?")
    if not path or path == ":memory:":
        raise StorageUrlError(
            f"storage must be a file that other processes can open, but got {storage!r}"
        )
    return f"{_FILE}{Path(path).absolute()}{mark}{options}"
