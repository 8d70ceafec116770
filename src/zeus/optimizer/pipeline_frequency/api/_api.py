"""The interface to pipeline jobs, the same for a local store and a server."""

from __future__ import annotations

from typing import Protocol

from zeus.optimizer.pipeline_frequency.api._commands import PipelineCommand
from zeus.transport._command import Answer


class PipelinesApi(Protocol):
    """Executes commands on pipeline jobs, in a local store or on a server."""

    def do(self, command: PipelineCommand[Answer]) -> Answer:
        """Execute a command and return its answer.

        Raises:
            ServerError: If the server does not answer.
            ZeusError: As documented by the commands.
        """

    def close(self) -> None:
        """Release resources."""
