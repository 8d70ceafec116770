"""What can be asked about pipeline jobs, whoever answers: a server, or a store of this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from zeus.optimizer.pipeline_frequency.running.messages import (
    Instruction,
    Measured,
    Registration,
    Standing,
    Straggler,
)


class PipelinesApi(Protocol):
    """Pipeline jobs.

    Everything about a job raises `UnknownJobError` if there is none of this name (or the rank is
    not registered), `JobConflictError` if another process has registered in the place of the
    asking one, `PipelineError` if a value breaks a rule, and `ServerError` if nobody answers.
    """

    def register(self, job: str, registration: Registration) -> Standing:
        """Take a place in a job, which is created if it is not there."""

    def put_sequence(
        self, job: str, rank: int, session: str, sequence: Sequence[Instruction]
    ) -> Standing:
        """Tell what a rank does in every step, in order."""

    def put_measurements(self, job: str, rank: int, session: str, measured: Measured) -> Standing:
        """Tell what a rank has measured of its instructions."""

    def report_trouble(self, job: str, rank: int, session: str, said: str) -> Standing:
        """Tell that a rank cannot measure or set clocks."""

    def standing(
        self,
        job: str,
        rank: int,
        session: str,
        *,
        version: int = 0,
        wait: float = 0.0,
        step_time: float | None = None,
    ) -> Standing:
        """What a rank is to do; answered when it is not that of `version` any more.

        Args:
            job: Name.
            rank: Who asks.
            session: The same.
            version: What it knows.
            wait: Seconds to wait for something else, at most.
            step_time: Seconds that a step takes by the plan, if known.
        """

    def leave(self, job: str, rank: int, session: str) -> None:
        """Tell that a rank has ended."""

    def report_straggler(self, job: str, straggler: Straggler) -> dict[str, Any]:
        """Tell that a pipeline is slower than the others, or is not any more; the job."""

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, by name."""

    def job(self, name: str) -> dict[str, Any]:
        """One job with its ranks."""

    def frontier(self, name: str) -> dict[str, Any]:
        """What there is to choose from, and what each pipeline follows."""

    def profile(self, name: str) -> list[dict[str, Any]]:
        """What was measured, as the plan counts it; the columns of a profile's CSV table."""

    def plan(self, name: str, pipeline: int = 0) -> list[dict[str, Any]]:
        """What a pipeline follows, operation by operation; nothing if there is no plan."""

    def delete(self, name: str) -> None:
        """Forget a job."""

    def close(self) -> None:
        """End asking."""
