"""Recurring jobs on a server: asks over HTTP what `Jobs` answers in this process.

Only the standard library is used, because this runs inside training scripts. Every call has a
deadline for the whole of it, so that a server that is slow, silent or gone costs a bounded time.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time as clock
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from zeus import errors
from zeus.errors import ServerError, ZeusError
from zeus.optimizer.batch_size.answers import Decision, JobInfo, ProfileInfo, TrialInfo, Verdict
from zeus.optimizer.batch_size.spec import JobSpec
from zeus.optimizer.batch_size.values import DEFAULT_LEASE

_MOST_ANSWER = 64 * 1024 * 1024  # bytes
# What a server may answer with, by name; anything else is a `ServerError`.
_KINDS: dict[str, type[ZeusError]] = {
    kind.__name__: kind
    for kind in (
        errors.FrontierError,
        errors.JobConflictError,
        errors.JobLogError,
        errors.JobSpecError,
        errors.StorageError,
        errors.TokenError,
        errors.UnknownJobError,
    )
}


class RemoteJobs:
    """Recurring jobs on a server; see `JobsApi` for what can be asked.

    Safe to use from several threads: each call has a connection of its own.

    Args:
        url: Of the server, for example "http://127.0.0.1:8420".
        token: If the server asks for one.
        timeout: Seconds for one call, from the first byte to the last.

    Raises:
        ServerError: If the URL is not one of a server.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 5.0) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if host is None or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
            raise ServerError(f"a server must be given as http://HOST:PORT, but got {url!r}")
        self._secure, self._host, self._port = parts.scheme == "https", host, port
        self._path = parts.path.rstrip("/")
        self._shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{self._path}"
        self._timeout = timeout
        self._headers = {"Accept": "application/json", "Connection": "close"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def create(self, spec: JobSpec) -> JobInfo:
        """Make sure that a job exists; see `JobsApi`."""
        return JobInfo.from_dict(self._ask("POST", "/api/jobs", spec.to_dict()))

    def decide(
        self,
        job: str,
        *,
        gpu: str,
        max_power: float,
        gpus: int = 1,
        request: str | None = None,
        retry_of: str | None = None,
        lease: float = DEFAULT_LEASE,
    ) -> Decision:
        """Begin a trial; see `JobsApi`."""
        body = {
            "gpu": gpu,
            "max_power": max_power,
            "gpus": gpus,
            "request": uuid.uuid4().hex if request is None else request,
            "retry_of": retry_of,
            "lease": lease,
        }
        return Decision.from_dict(self._ask("POST", _job(job, "trials"), body))

    def report_epoch(
        self,
        trial: str,
        *,
        epoch: int,
        time: float,
        energy: float | None = None,
        metric: float | None = None,
        power_limit: float | None = None,
    ) -> Verdict:
        """Report an epoch; see `JobsApi`."""
        body = {
            "epoch": epoch,
            "time": time,
            "energy": energy,
            "metric": metric,
            "power_limit": power_limit,
        }
        return Verdict.from_dict(self._ask("POST", _trial(trial, "epochs"), body))

    def end(
        self,
        trial: str,
        outcome: str,
        *,
        time: float = 0.0,
        energy: float | None = 0.0,
        note: str = "",
    ) -> Verdict:
        """End a trial that did not end by itself; see `JobsApi`."""
        body = {"outcome": outcome, "time": time, "energy": energy, "note": note}
        return Verdict.from_dict(self._ask("POST", _trial(trial, "end"), body))

    def renew(self, trial: str) -> Verdict:
        """Say that a trial still runs; see `JobsApi`."""
        return Verdict.from_dict(self._ask("POST", _trial(trial, "renew"), {}))

    def put_profile(
        self,
        job: str,
        *,
        gpu: str,
        batch_size: int,
        gpus: int = 1,
        frontier: Mapping[str, Any] | None = None,
        epoch_cost: float | None = None,
        load: float | None = None,
        power_limit: float | None = None,
    ) -> ProfileInfo:
        """Keep what was measured at a batch size; see `JobsApi`."""
        body = {
            "gpu": gpu,
            "gpus": gpus,
            "batch_size": batch_size,
            "frontier": frontier,
            "epoch_cost": epoch_cost,
            "load": load,
            "power_limit": power_limit,
        }
        return ProfileInfo.from_dict(self._ask("PUT", _job(job, "profiles"), body))

    def profiles(self, job: str) -> list[ProfileInfo]:
        """All profiles of a job; see `JobsApi`."""
        return [ProfileInfo.from_dict(each) for each in self._ask("GET", _job(job, "profiles"))]

    def jobs(self, after: str = "", most: int = 100) -> list[JobInfo]:
        """Jobs in the order of their names; see `JobsApi`."""
        query = urlencode({"after": after, "most": most})
        return [JobInfo.from_dict(each) for each in self._ask("GET", f"/api/jobs?{query}")]

    def job(self, name: str) -> JobInfo:
        """One job; see `JobsApi`."""
        return JobInfo.from_dict(self._ask("GET", _job(name)))

    def trials(self, job: str, before: int | None = None, most: int = 100) -> list[TrialInfo]:
        """Trials of a job, the latest first; see `JobsApi`."""
        query = {"most": most} if before is None else {"most": most, "before": before}
        found = self._ask("GET", f"{_job(job, 'trials')}?{urlencode(query)}")
        return [TrialInfo.from_dict(each) for each in found]

    def log(self, job: str, after: int = 0, most: int = 1000) -> list[dict[str, Any]]:
        """Events of a job; see `JobsApi`."""
        query = urlencode({"after": after, "most": most})
        return list(self._ask("GET", f"{_job(job, 'log')}?{query}"))

    def delete(self, job: str) -> None:
        """Forget a job; see `JobsApi`."""
        self._ask("DELETE", _job(job))

    def close(self) -> None:
        """Nothing is kept open."""

    # --- over the wire --------------------------------------------------------------------------

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        try:
            content = None if body is None else json.dumps(body, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise ServerError(f"cannot be sent as JSON: {error}") from error
        try:
            status, answer = self._exchange(method, path, content)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            said = str(error) or type(error).__name__
            raise ServerError(f"the server {self._shown} cannot be reached: {said}") from error
        if status == 204:
            return None
        try:
            record = json.loads(answer)
        except ValueError:
            record = None
        if status == 200 and record is not None:
            return record
        raise self._error(status, record)

    def _exchange(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        began = clock.monotonic()
        connect = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = connect(self._host, self._port, timeout=self._timeout)
        headers = dict(self._headers)
        if content is not None:
            headers["Content-Type"] = "application/json"
        connection.connect()
        # A timeout of the socket is for one read; a server could send a byte now and then for ever.
        left = max(began + self._timeout - clock.monotonic(), 0.0)
        guard = threading.Timer(left, _hang_up, [connection.sock])
        guard.daemon = True
        guard.start()
        try:
            connection.request(method, self._path + path, content, headers)
            response = connection.getresponse()
            answer = response.read(_MOST_ANSWER + 1)
            if len(answer) > _MOST_ANSWER:
                raise http.client.HTTPException("the answer is too long")
            if response.length:
                raise http.client.HTTPException("the answer is cut off")
            return response.status, answer
        except (OSError, http.client.HTTPException):
            if clock.monotonic() - began >= self._timeout:
                raise TimeoutError(f"no answer within {self._timeout:g} s") from None
            raise
        finally:
            guard.cancel()
            connection.close()

    def _error(self, status: int, record: Any) -> ZeusError:
        fault = record.get("error") if isinstance(record, dict) else None
        kind, said = ("", "") if not isinstance(fault, dict) else _told(fault)
        if kind in _KINDS:
            return _KINDS[kind](said)
        return ServerError(f"the server {self._shown} answers {status}: {said or 'nonsense'}")


def _hang_up(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _told(fault: Mapping[str, Any]) -> tuple[str, str]:
    return str(fault.get("kind", "")), str(fault.get("message", ""))


def _job(name: str, part: str = "") -> str:
    whole = f"/api/jobs/{quote(name, safe='')}"
    return f"{whole}/{part}" if part else whole


def _trial(name: str, part: str) -> str:
    return f"/api/trials/{quote(str(name), safe='')}/{part}"
