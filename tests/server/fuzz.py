"""Sends a server everything that its OpenAPI document allows, and much that it does not.

Cases are made by schemathesis. Most are sent to a job and a trial that exist, so that they get as
far as they can. Nothing may be answered with a server error, every answer must be as documented,
and a request that was refused, or only asked, must have changed nothing in the store.
"""

from __future__ import annotations

import json
import sqlite3
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
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.optimizer.batch_size.histories import spec
from tests.server.child import Server

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
    """

    cases: Counter[str] = field(default_factory=Counter)
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    problems: dict[str, str] = field(default_factory=dict)


def fuzz(file: Path, cases: int, *, number: int = 0) -> Findings:
    """Send so many cases to each route of a server on a new store.

    Args:
        file: Of the store.
        cases: For each route that has something to vary.
        number: Seed.
    """
    server = Server(f"sqlite:///{file}")
    try:
        findings = _Fuzz(server, file, cases, number).run()
    finally:
        said = server.stop()
    if server.process.returncode or said:
        findings.problems["the server"] = f"ends with {server.process.returncode}: {said[-2000:]}"
    return findings


def _help(body: dict[str, Any], real: bool) -> None:
    """Let a body get further, and no lease end in between."""
    if isinstance(body.get("lease"), float | int):
        body["lease"] = max(body["lease"], 3600)
    if real and type(body.get("batch_size")) is int:
        body["batch_size"] = 64
        if body.get("frontier") == {}:
            body["frontier"] = None


class _Fuzz:
    def __init__(self, server: Server, file: Path, cases: int, number: int) -> None:
        self._cases, self._number = cases, number
        self._found = Findings()
        self._watch = sqlite3.connect(file)
        client = server.jobs()
        client.create(spec("real", max_epochs=1000, beta=None))
        trial = client.decide("real", gpu="A40", max_power=300.0, lease=86400.0).trial
        self._real = {"name": "real", "trial": trial}
        with urllib.request.urlopen(f"{server.url}/openapi.json") as answer:
            document = json.loads(answer.read())
        self._schema = schemathesis.openapi.from_dict(document)
        self._schema.config.update(base_url=server.url)
        self._session = requests.Session()

    def run(self) -> Findings:
        for result in self._schema.get_all_operations():
            operation = result.ok()
            for mode in GenerationMode:
                try:
                    self._send(operation, mode)
                except Unsatisfiable:
                    pass  # any text is a name: such a route cannot be asked wrongly
                except Exception as error:
                    self._found.problems[operation.label] = str(error)[:2000]
        self._session.close()
        self._watch.close()
        return self._found

    def _send(self, operation: Any, mode: GenerationMode) -> None:
        # What a route is asked wrongly is where most of what can go wrong is.
        share = self._cases // 2 + self._cases % 2

        @seed(self._number)
        @settings(
            max_examples=share,
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
            if isinstance(case.body, dict):
                _help(case.body, bool(real))
            self._check(operation, case)

        one()

    def _check(self, operation: Any, case: Any) -> None:
        before = self._version()
        response = case.call(session=self._session, timeout=30)
        self._found.cases[operation.label] += 1
        self._found.answers[operation.label, response.status_code] += 1
        case.validate_response(response, checks=list(_CHECKS))
        assert "Traceback" not in response.text
        if response.status_code >= 400 or operation.method == "get":
            assert self._version() == before, f"{response.status_code}, but the store has changed"

    def _version(self) -> int:
        """Changes whenever anybody else has written."""
        return self._watch.execute("PRAGMA data_version").fetchone()[0]
