"""The OpenAPI document is complete and true, whatever is sent."""

from __future__ import annotations

import json
import os

import pytest
from tests.server.child import serving
from tests.server.fuzz import fuzz

ROUTES = {
    "/api/jobs": {"get", "post"},
    "/api/jobs/{name}": {"get", "delete"},
    "/api/jobs/{name}/trials": {"get", "post"},
    "/api/jobs/{name}/log": {"get"},
    "/api/jobs/{name}/profiles": {"get", "put"},
    "/api/trials/{trial}/epochs": {"post"},
    "/api/trials/{trial}/end": {"post"},
    "/api/trials/{trial}/renew": {"post"},
    "/healthz": {"get"},
    "/metrics": {"get"},
}


def test_every_route_is_documented(tmp_path):
    from urllib.request import urlopen

    with (
        serving(f"sqlite:///{tmp_path}/jobs.db") as server,
        urlopen(f"{server.url}/openapi.json") as answer,
    ):
        document = json.loads(answer.read())
    assert {path: set(methods) for path, methods in document["paths"].items()} == ROUTES
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["description"], (path, method)
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


@pytest.mark.slow
def test_whatever_is_sent_is_answered_and_changes_only_what_it_may(tmp_path):
    findings = fuzz(tmp_path / "jobs.db", 200, number=0 if os.environ.get("CI") else os.getpid())
    assert findings.problems == {}
    # It got everywhere: wherever something can be done, something was done.
    done = {route for route, status in findings.answers if status < 300}
    assert {route for route in findings.cases if "/trials/" not in route} <= done
    assert "POST /api/trials/{trial}/epochs" in done
