"""The interface to recurring jobs, the same for a local store and a server."""

from __future__ import annotations

from typing import Protocol

from zeus.optimizer.batch_size.api._commands import JobCommand
from zeus.transport._command import Answer


class JobsApi(Protocol):
    """Executes commands on recurring jobs, in a local store or on a server."""

    def do(self, command: JobCommand[Answer]) -> Answer:
        """Execute a command and return its answer.

        Raises:
            StorageError: If the store cannot be used, or `ServerError` if the server cannot; it is
                then safe to repeat the command.
            ZeusError: As documented by the command.
        """

    def close(self) -> None:
        """Close connections."""
