"""Pipeline jobs on a server: the HTTP client with the interface of `Pipelines`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from zeus import errors
from zeus.optimizer.pipeline_frequency.job._messages import (
    Directive,
    Instruction,
    Measured,
    Registration,
    Straggler,
)
from zeus.transport._http_client import HttpClient

_KINDS = (
    errors.JobConflictError,
    errors.PipelineError,
    errors.StorageError,
    errors.TokenError,
    errors.UnknownJobError,
)


class RemotePipelines:
    """Pipeline jobs on a server; see `PipelinesApi` for the interface.

    Safe to use from several threads.

    Args:
        url: URL of the server, for example "http://127.0.0.1:8420".
        token: Token, if the server requires one; by default `ZEUS_TOKEN`, or on this machine
            that of this user's own server.
        timeout: Seconds for one request.

    Raises:
        ServerError: If `url` is not a server URL.
        TokenError: If the token is malformed.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 5.0) -> None:
        self._wire = HttpClient(url, token, timeout, _KINDS)

    def register(self, job: str, registration: Registration) -> Directive:
        """Take a place in a job; see `PipelinesApi`."""
        rank = registration.seat.rank
        return self._standing("PUT", _rank(job, rank), registration.to_dict())

    def put_sequence(
        self, job: str, rank: int, session: str, sequence: Sequence[Instruction]
    ) -> Directive:
        """Report the instruction sequence of a rank; see `PipelinesApi`."""
        rows = [list(each if each.stage is not None else each[:3]) for each in sequence]
        body = {"session": session, "instructions": rows}
        return self._standing("PUT", _rank(job, rank, "sequence"), body)

    def put_measurements(self, job: str, rank: int, session: str, measured: Measured) -> Directive:
        """Report the measurements of a rank; see `PipelinesApi`."""
        body = {"session": session, **measured.to_dict()}
        return self._standing("PUT", _rank(job, rank, "measurements"), body)

    def report_trouble(self, job: str, rank: int, session: str, said: str) -> Directive:
        """Report that a rank cannot take part; see `PipelinesApi`."""
        body = {"session": session, "message": said}
        return self._standing("POST", _rank(job, rank, "trouble"), body)

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
        """Return what a rank should do; see `PipelinesApi`."""
        query: dict[str, Any] = {"session": session, "version": version, "wait": wait}
        if step_time is not None:
            query["step_time"] = step_time
        path = f"{_rank(job, rank, 'plan')}?{urlencode(query)}"
        return Directive.from_dict(self._wire.ask("GET", path, patience=wait))

    def leave(self, job: str, rank: int, session: str) -> None:
        """Report that a rank has ended; see `PipelinesApi`."""
        self._wire.ask("POST", _rank(job, rank, "leave"), {"session": session})

    def report_straggler(self, job: str, straggler: Straggler) -> dict[str, Any]:
        """Report a straggler; see `PipelinesApi`."""
        return dict(self._wire.ask("POST", _job(job, "stragglers"), vars(straggler)))

    def jobs(self) -> list[dict[str, Any]]:
        """List all jobs; see `PipelinesApi`."""
        return list(self._wire.ask("GET", "/api/pipelines"))

    def job(self, name: str) -> dict[str, Any]:
        """Return one job; see `PipelinesApi`."""
        return dict(self._wire.ask("GET", _job(name)))

    def frontier(self, name: str) -> dict[str, Any]:
        """Return the frontier of a job; see `PipelinesApi`."""
        return dict(self._wire.ask("GET", _job(name, "frontier")))

    def profile(self, name: str) -> list[dict[str, Any]]:
        """Return the measured profile; see `PipelinesApi`."""
        return list(self._wire.ask("GET", _job(name, "profile")))

    def plan(self, name: str, pipeline: int = 0) -> list[dict[str, Any]]:
        """Return the plan of a pipeline; see `PipelinesApi`."""
        return list(self._wire.ask("GET", f"{_job(name, 'plan')}?pipeline={pipeline}"))

    def delete(self, name: str) -> None:
        """Delete a job; see `PipelinesApi`."""
        self._wire.ask("DELETE", _job(name))

    def close(self) -> None:
        """Do nothing: no connection is kept open."""

    def _standing(self, method: str, path: str, body: dict[str, Any]) -> Directive:
        return Directive.from_dict(self._wire.ask(method, path, body))


def _job(name: str, part: str = "") -> str:
    whole = f"/api/pipelines/{quote(name, safe='')}"
    return f"{whole}/{part}" if part else whole


def _rank(name: str, rank: int, part: str = "") -> str:
    whole = _job(name, f"ranks/{rank}")
    return f"{whole}/{part}" if part else whole
