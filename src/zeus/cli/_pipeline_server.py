"""The server of pipeline jobs, as commands find it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from zeus.cli._terminal import clean
from zeus.errors import ServerError

if TYPE_CHECKING:
    from zeus.optimizer.pipeline_frequency.api._remote import RemotePipelines

DEFAULT_SERVER = "http://127.0.0.1:8420"
_TIMEOUT = 30.0  # seconds


def status(job: Mapping[str, Any]) -> str:
    """Return the status of a job, with how far it has come with measuring or planning."""
    progress = job.get("progress", "")  # absent in answers of an earlier version
    return clean(f"{job['status']}; {progress}" if progress else job["status"])


@contextmanager
def asking(server: str | None) -> Iterator[RemotePipelines]:
    """Yield the API of a server: the one named, that of `ZEUS_SERVER`, or one on this machine.

    Raises:
        ServerError: If it does not answer; the message says how to name another one.
    """
    from zeus.optimizer.pipeline_frequency.api._remote import RemotePipelines  # noqa: PLC0415

    named = server or os.environ.get("ZEUS_SERVER")
    try:
        yield RemotePipelines(named or DEFAULT_SERVER, timeout=_TIMEOUT)
    except ServerError as error:
        hint = "" if named else " (set another server with --server or ZEUS_SERVER)"
        raise ServerError(f"{error}{hint}") from None
