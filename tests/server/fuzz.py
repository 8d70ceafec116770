"""Sends a server everything that its OpenAPI document allows, and much that it does not.

Cases are made by schemathesis. Most are sent to a job and a trial that exist, so that they get as
far as they can. Nothing may be answered with a server error, every answer must be as documented,
and a request that was refused, or only asked, must have changed nothing in the store.

    python -m tests.server.fuzz CASES SEED

Whatever goes wrong is kept with the request that can be sent again, and with what was answered.
"""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
import sys
import tempfile
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.optimizer.batch_size.histories import spec
from tests.optimizer.pipeline_frequency.job.reports import registering
from tests.server.child import Server

from zeus.errors import UnknownJobError
from zeus.optimizer.batch_size.api._commands import CreateJob, Decide
from zeus.optimizer.pipeline_frequency.api._commands import PutSequence, ShowPlan
from zeus.optimizer.pipeline_frequency.api._remote import RemotePipelines
from zeus.optimizer.pipeline_frequency.job._messages import Instruction, RankPlace, Registration
from zeus.optimizer.serving.api._commands import StartService
from zeus.optimizer.serving.api._messages import BoundRecord, ServiceStart
from zeus.optimizer.serving.api._remote import RemoteServices

_LEASE = 86400  # seconds, longer than all of it takes
_KEPT_FAILURES = 5  # of a route
_CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


@dataclass
class Findings:
    """What was found.

    Attributes:
        cases: How many were sent, by route.
        answers: How many of each route had which status.
        problems: Routes with what was wrong there; the first of each.
        failures: The requests that something was wrong with, as lines for a shell with what was
            answered and what was wrong; some of each route.
    """

    cases: Counter[str] = field(default_factory=Counter)
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    problems: dict[str, str] = field(default_factory=dict)
    failures: dict[str, list[str]] = field(default_factory=dict)


def fuzz(file: Path, cases: int, *, pipeline_cases: int | None = None, number: int = 0) -> Findings:
    """Send so many cases to each route of a server on a new store.

    Args:
        file: Of the store.
        cases: For each route.
        pipeline_cases: For each route of pipelines and services, which are many; by default as
            many.
        number: Seed.
    """
    server = Server(f"sqlite:///{file}")
    try:
        fewer = cases if pipeline_cases is None else pipeline_cases
        findings = _Fuzz(server, file, (cases, fewer), number).run()
    finally:
        said = server.stop()
    if server.process.returncode or said:
        findings.problems["the server"] = f"ends with {server.process.returncode}: {said[-2000:]}"
    return findings


def _told(error: BaseException) -> str:
    """What went wrong; for what went wrong only once, this is inside of what complains of that."""
    inside = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return "\n".join([f"{type(error).__name__}: {error}", *map(_told, inside)])


def _help(body: dict[str, Any], real: bool) -> None:
    """Let a body get further, and no lease end in between."""
    if "request" in body and "gpu" in body:  # otherwise it is ten minutes
        body.setdefault("lease", _LEASE)
    if type(body.get("lease")) in (float, int) and 1 <= body["lease"] < _LEASE:
        body["lease"] = _LEASE
    if real and isinstance(body.get("retry_of"), str):
        body["retry_of"] = None
    for name in ("gpu", "request"):
        if real and isinstance(body.get(name), str):  # most texts cannot be printed
            body[name] = ascii(body[name])[:100]
    if real and "dp_rank" in body:
        body.update(dp_rank=0, slowdown=1.5, iteration_time=None, healthy=False)
    if real and type(body.get("batch_size")) is int:
        body["batch_size"] = 64
        if body.get("frontier") == {}:
            body["frontier"] = None


def _help_rank(case: Any) -> None:
    """Let what is said of a rank be said by the one that there is, about what it does."""
    if isinstance(case.query, dict) and "session" in case.query:
        case.query = {**case.query, "session": "real", "wait": 0}
    body = case.body
    if not isinstance(body, dict) or "session" not in body:
        return
    body["session"] = "real"
    if "seat" in body:
        body.update(seat=vars(_RANK.seat), clocks=list(_RANK.clocks), gpu="A100", note="")
    if "instructions" in body:
        body["instructions"] = [["forward", 0, None]]
    if "options" in body:
        option = {"name": "forward", "chunk": 0, "clocks": [1410], "times": [1.5]}
        body["options"] = [{**option, "energies": [200.0]}]


def _help_service(case: Any) -> None:
    """Let what is said of a service be said by the process that controls it, in order."""
    body = case.body
    if isinstance(body, dict) and "session" in body:
        body["session"] = "real"
        for span in body.get("spans", ()):
            if isinstance(span, dict) and {"begin", "end"} <= set(span):
                span["end"] = span["begin"]


# One of two: as the other never comes, nothing is planned, which would change the store by itself.
_RANK = Registration("real", RankPlace(0, 0, 0, 0, 1, 2, 1, 2), "A100", (1410,))


class _Fuzz:
    def __init__(self, server: Server, file: Path, cases: tuple[int, int], number: int) -> None:
        self._cases, self._number = cases, number
        self._found = Findings()
        self._watch = sqlite3.connect(file)
        client = server.jobs()
        client.do(CreateJob(spec=spec("real", max_epochs=1000, beta=None)))
        trial = client.do(Decide(job="real", gpu="A40", max_power=300.0, lease=86400.0)).trial
        self._real = {"name": "real", "trial": trial, "rank": 0}
        self._pipelines = pipelines = RemotePipelines(server.url, server.token, timeout=20.0)
        for job in ("0", "real"):  # the first may be deleted
            pipelines.do(registering(job, _RANK))
        pipelines.do(
            PutSequence(job="real", rank=0, session="real", instructions=[Instruction("forward")])
        )
        services = RemoteServices(server.url, server.token, timeout=20.0)
        start = ServiceStart(session="real", bounds=(BoundRecord("ttft", 99.0, 1.5),))
        services.do(StartService(service="real", start=start))
        with urllib.request.urlopen(f"{server.url}/openapi.json") as answer:
            document = json.loads(answer.read())
        self._schema = schemathesis.openapi.from_dict(document)
        self._schema.config.update(base_url=server.url)
        self._session = requests.Session()
        self._session.headers.update(server.bearer)

    def run(self) -> Findings:
        for result in self._schema.get_all_operations():
            assert isinstance(result, Ok), result
            operation = result.ok()
            cases = self._cases[operation.path.startswith(("/api/pipelines", "/api/services"))]
            for mode, share in (
                (GenerationMode.NEGATIVE, cases // 2),
                (GenerationMode.POSITIVE, cases),
            ):
                try:
                    self._send(operation, mode, max(share - self._found.cases[operation.label], 1))
                except Unsatisfiable:
                    pass  # any text is a name: such a route cannot be asked wrongly
                except Exception as error:
                    self._found.problems[operation.label] = _told(error)[:2000]
            self._fill_up(operation, cases)
        self._session.close()
        self._watch.close()
        return self._found

    def _send(self, operation: Any, mode: GenerationMode, cases: int) -> None:
        @seed(self._number)
        @settings(
            max_examples=cases,
            deadline=None,
            database=None,
            derandomize=False,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode), real=st.integers(0, 3))
        def one(case: Any, real: int) -> None:
            if real and operation.method != "delete":
                for name in set(case.path_parameters or {}) & set(self._real):
                    case.path_parameters[name] = self._real[name]
                if real > 1 and "/ranks/" in operation.path:
                    _help_rank(case)
                if real > 1 and "/services/" in operation.path:
                    _help_service(case)
            if real == 3 and operation.label == "DELETE /api/pipelines/{name}":
                case.path_parameters["name"] = "0"
            if "/stragglers" in operation.path:
                self._keep_alive()
            if isinstance(case.body, dict):
                _help(case.body, bool(real))
            self._check(operation, case)

        one()

    def _fill_up(self, operation: Any, cases: int) -> None:
        """Ask routes that take nothing, and so have few cases, with what they do not take."""
        chance = random.Random(self._number)
        while self._found.cases[operation.label] < cases:
            if operation.label in self._found.problems:
                return
            junk = "".join(map(chr, chance.choices(range(0x3000), k=chance.randrange(1, 60))))
            try:
                self._check(operation, operation.Case(query={junk: junk}))
            except Exception as error:
                self._found.problems[operation.label] = _told(error)[:2000]

    def _keep_alive(self) -> None:
        """A report about a pipeline that is gone would be forgotten, which changes the store."""
        for job in ("0", "real"):
            with contextlib.suppress(UnknownJobError):
                self._pipelines.do(ShowPlan(job=job, rank=0, session="real"))

    def _check(self, operation: Any, case: Any) -> None:
        # In this order: what is noted in between is in both of them, or counts as noted later.
        noted, before = self._noted(), self._version()
        response = case.call(session=self._session, timeout=60)
        self._found.cases[operation.label] += 1
        self._found.answers[operation.label, response.status_code] += 1
        try:
            case.validate_response(response, checks=list(_CHECKS))
            assert "Traceback" not in response.text
            # Health is found out by writing; that this leaves nothing behind is tested elsewhere.
            asks = operation.method == "get" and operation.path != "/healthz"
            if response.status_code >= 400 or asks:
                changed = self._version() != before and self._noted() == noted
                assert not changed, f"{response.status_code}, but the store has changed"
        except BaseException as error:
            kept = self._found.failures.setdefault(operation.label, [])
            if len(kept) < _KEPT_FAILURES:
                answer = f"{response.status_code} {response.text[:1000]}"
                kept.append(f"{case.as_curl_command()}\n{answer}\n{_told(error)[:2000]}")
                # At once, as it may not come again, and this may be stopped before its end.
                sys.stderr.write(f"{operation.label}\n{kept[-1]}\n\n")
            raise

    def _version(self) -> int:
        """Changes whenever anybody else has written."""
        return self._watch.execute("PRAGMA data_version").fetchone()[0]

    def _noted(self) -> tuple[int, float | None]:
        """Changes whenever the server has noted something that nobody has asked for.

        Made-up ranks are lost after a minute, as nothing more is heard of them.
        """
        found = self._watch.execute(
            "SELECT count(*), max(at) FROM zeus_pipeline_events "
            "WHERE kind = 'lost' OR message LIKE '% is gone'"
        )
        count, latest = found.fetchone()
        return count, latest


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="zeus-fuzz-") as scratch:
        found = fuzz(Path(scratch) / "jobs.db", int(sys.argv[1]), number=int(sys.argv[2]))
    for route, cases in found.cases.items():
        answers = {status: n for (where, status), n in found.answers.items() if where == route}
        print(f"{route}: {cases} {answers}")
    for route, said in found.problems.items():
        print(f"\n{route}: {said}", *found.failures.get(route, ()), sep="\n\n")
    sys.exit(bool(found.problems))
