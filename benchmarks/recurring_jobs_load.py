"""Clients of a server of recurring jobs, many at once in one process, as cheap as they can be.

    python recurring_jobs_load.py ours|zeus PORT CLIENTS SECONDS

Every client has a job of its own and, again and again, asks for a decision and reports an epoch
that reaches the target. Prints one JSON object: round trips (a decision and a report), seconds,
and how many answers were not the expected ones.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

BATCH_SIZES = [16, 32, 64, 128, 256]
START = time.time_ns()  # requests of another process are other requests
GPU, MAX_POWER = "NVIDIA A40", 300.0


class Connection(asyncio.Protocol):
    """One connection with one request at a time."""

    def __init__(self) -> None:
        self._buffer = b""
        self._answer: asyncio.Future[tuple[int, Any]] | None = None

    def connection_made(self, transport: Any) -> None:
        """Remember where to write."""
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        """Tell who waits."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError())

    def ask(self, method: str, path: str, body: Any = None) -> asyncio.Future[tuple[int, Any]]:
        """Send a request; status and body of the answer."""
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        self._buffer = b""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(head.encode() + content)
        return self._answer

    def data_received(self, data: bytes) -> None:
        """Take in a part of the answer."""
        self._buffer += data
        head, found, content = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        at = head.lower().index(b"content-length:") + 15
        length = int(head[at:].split(b"\r\n", 1)[0])
        if len(content) >= length and self._answer is not None:
            self._answer.set_result((int(head[9:12]), json.loads(content)))


class Ours:
    """How to speak to our server."""

    def create(self, job: str) -> tuple[str, str, Any]:
        """Create a job."""
        body = {
            "name": job,
            "batch_sizes": BATCH_SIZES,
            "default_batch_size": 64,
            "target_metric": 0.9,
            "seed": 1,
        }
        return "POST", "/api/jobs", body

    def decide(self, job: str, number: int) -> tuple[str, str, Any]:
        """Ask for a trial."""
        body = {"gpu": GPU, "max_power": MAX_POWER, "request": f"{START} {number}"}
        return "POST", f"/api/jobs/{job}/trials", body

    def report(self, job: str, decision: Any, energy: float) -> tuple[str, str, Any]:  # noqa: ARG002
        """Report an epoch that reaches the target."""
        body = {"epoch": 1, "time": 10.0, "energy": energy, "metric": 0.95}
        return "POST", f"/api/trials/{decision['trial']}/epochs", body

    def converged(self, verdict: Any) -> bool:
        """Whether the answer says so."""
        return verdict["outcome"] == "converged"


class OursPaper(Ours):
    """The same with the policy that the peer has."""

    def create(self, job: str) -> tuple[str, str, Any]:
        """Create a job."""
        method, path, body = super().create(job)
        return method, path, {**body, "policy": "paper"}


class Zeus:
    """How to speak to the server of `zeus`."""

    def create(self, job: str) -> tuple[str, str, Any]:
        """Create a job."""
        body = {
            "job_id": job,
            "job_id_prefix": job,
            "batch_sizes": BATCH_SIZES,
            "default_batch_size": 64,
            "target_metric": 0.9,
            "max_power": MAX_POWER,
            "number_of_gpus": 1,
            "gpu_model": GPU,
            "mab_seed": 1,
        }
        return "POST", "/jobs", body

    def decide(self, job: str, number: int) -> tuple[str, str, Any]:  # noqa: ARG002
        """Ask for a trial."""
        return "GET", f"/jobs/batch_size?job_id={job}", None

    def report(self, job: str, decision: Any, energy: float) -> tuple[str, str, Any]:  # noqa: ARG002
        """Report an epoch that reaches the target."""
        body = {**decision, "time": 10.0, "energy": energy, "metric": 0.95, "current_epoch": 1}
        return "POST", "/report", body

    def converged(self, verdict: Any) -> bool:
        """Whether the answer says so."""
        return verdict["converged"] is True


SERVERS: dict[str, Callable[[], Any]] = {"ours": Ours, "ours-paper": OursPaper, "zeus": Zeus}


async def load(server: Any, port: int, clients: int, seconds: float) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    done, wrong, begun = 0, 0, 0.0
    ready = asyncio.Barrier(clients)

    async def client(number: int) -> None:
        nonlocal done, wrong, begun
        _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
        job = f"job-{number}"
        status, _ = await connection.ask(*server.create(job))
        wrong += status not in (200, 201)
        await ready.wait()
        begun = begun or time.monotonic()
        turn = 0
        while time.monotonic() - begun < seconds:
            turn += 1
            status, decision = await connection.ask(*server.decide(job, turn))
            if status != 200:
                wrong += 1
                continue
            # What a batch size costs differs a little from run to run.
            energy = 2000.0 + abs(decision["batch_size"] - 64) * 10 + (turn * 37 + number) % 100
            status, verdict = await connection.ask(*server.report(job, decision, energy))
            if status == 200 and server.converged(verdict):
                done += 1
            else:
                wrong += 1

    await asyncio.gather(*map(client, range(clients)))
    return {"round_trips": done, "seconds": time.monotonic() - begun, "wrong": wrong}


if __name__ == "__main__":
    kind, where, how_many, how_long = sys.argv[1:]
    found = asyncio.run(load(SERVERS[kind](), int(where), int(how_many), float(how_long)))
    print(json.dumps(found))
