"""The interface to pipeline jobs, on a server or in a store of this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from zeus.optimizer.pipeline_frequency.job._messages import (
    Directive,
    Instruction,
    Measured,
    Registration,
    Straggler,
)


class PipelinesApi(Protocol):
    """Interface to pipeline jobs.

    Methods on a job raise `UnknownJobError` if no job has this name (or the rank is not
    registered), `JobConflictError` if another process has registered in place of the calling
    one, `PipelineError` if a value is invalid, and `ServerError` if the server does not answer.
    """

    def register(self, job: str, registration: Registration) -> Directive:
        """Register a rank in a job, which is created if it does not exist."""

    def put_sequence(
        self, job: str, rank: int, session: str, sequence: Sequence[Instruction]
    ) -> Directive:
        """Report the instructions of a rank's step, in order."""

    def put_measurements(self, job: str, rank: int, session: str, measured: Measured) -> Directive:
        """Report the measurements of a rank's instructions."""

    def report_trouble(self, job: str, rank: int, session: str, said: str) -> Directive:
        """Report that a rank cannot measure or set clocks; `said` is the reason."""

    def standing(
        self,
        job: str,
        rank: int,
        session: str,
        *,
        version: int = 0,
        wait: float = 0.0,
        step_time: float | None = None,
    ) -> Directive:
        """Return what a rank should do, as soon as its version is not `version` any more.

        Args:
            job: Name of the job.
            rank: The calling rank.
            session: The session it registered with.
            version: Version that the rank has.
            wait: Seconds to wait for another version, at most.
            step_time: Seconds that a step takes under the plan, if known.
        """

    def leave(self, job: str, rank: int, session: str) -> None:
        """Report that a rank has ended."""

    def report_straggler(self, job: str, straggler: Straggler) -> dict[str, Any]:
        """Report that a pipeline is slower than others, or is not any more; return the job."""

    def jobs(self) -> list[dict[str, Any]]:
        """List all jobs, ordered by name."""

    def job(self, name: str) -> dict[str, Any]:
        """Return one job with its ranks."""

    def frontier(self, name: str) -> dict[str, Any]:
        """Return the time-energy frontier, and the point that each pipeline follows."""

    def profile(self, name: str) -> list[dict[str, Any]]:
        """Return the measurements that plans are based on, as rows of a profile's CSV table."""

    def plan(self, name: str, pipeline: int = 0) -> list[dict[str, Any]]:
        """Return the plan of a pipeline, one entry per operation; empty if there is none."""

    def delete(self, name: str) -> None:
        """Delete a job."""

    def close(self) -> None:
        """Release resources."""
