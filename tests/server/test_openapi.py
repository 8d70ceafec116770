"""The OpenAPI document is complete and true, whatever is sent."""

from __future__ import annotations

import os

import pytest

from zeus.server import create_app
from zeus.store import Store

ROUTES = {
    "/api/jobs": {"get", "post"},
    "/api/jobs/{name}": {"get", "delete"},
    "/api/jobs/{name}/trials": {"get", "post"},
    "/api/jobs/{name}/log": {"get"},
    "/api/jobs/{name}/profiles": {"get", "put"},
    "/api/jobs/{name}/profiles/shared": {"get"},
    "/api/jobs/{name}/sizes": {"get", "put"},
    "/api/jobs/{name}/tags": {"put"},
    "/api/totals": {"get"},
    "/api/trials/{trial}": {"get"},
    "/api/trials/{trial}/epochs": {"get", "post"},
    "/api/trials/{trial}/end": {"post"},
    "/api/trials/{trial}/renew": {"post"},
    "/api/pipelines": {"get"},
    "/api/pipelines/{name}": {"get", "delete"},
    "/api/pipelines/{name}/events": {"get"},
    "/api/pipelines/{name}/frontier": {"get"},
    "/api/pipelines/{name}/history": {"get"},
    "/api/pipelines/{name}/objective": {"put"},
    "/api/pipelines/{name}/plan": {"get"},
    "/api/pipelines/{name}/profile": {"get"},
    "/api/pipelines/{name}/stragglers": {"post"},
    "/api/pipelines/{name}/ranks/{rank}": {"put"},
    "/api/pipelines/{name}/ranks/{rank}/leave": {"post"},
    "/api/pipelines/{name}/ranks/{rank}/measurements": {"put"},
    "/api/pipelines/{name}/ranks/{rank}/plan": {"get"},
    "/api/pipelines/{name}/ranks/{rank}/progress": {"post"},
    "/api/pipelines/{name}/ranks/{rank}/sequence": {"put"},
    "/api/pipelines/{name}/ranks/{rank}/steps": {"post"},
    "/api/pipelines/{name}/ranks/{rank}/trouble": {"post"},
    "/api/services": {"get"},
    "/api/services/{name}": {"get", "put", "delete"},
    "/api/services/{name}/end": {"post"},
    "/api/services/{name}/history": {"get"},
    "/api/services/{name}/reports": {"post"},
    "/healthz": {"get"},
    "/metrics": {"get"},
}


def test_every_route_is_documented(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/jobs.db")
    document = create_app(store).openapi()
    store.close()
    assert {path: set(methods) for path, methods in document["paths"].items()} == ROUTES
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["description"], (path, method)
            for status, answer in operation["responses"].items():
                if status >= "400":
                    assert list(answer["content"]) == ["application/json"], (path, method)
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert document["security"] == [{"token": []}]
    assert document["paths"]["/healthz"]["get"]["security"] == []
    for name, body in document["components"]["schemas"].items():
        for field, shape in body["properties"].items():
            if name.endswith("Body") and shape.get("type") == "integer":
                assert "minimum" in shape, (name, field)


@pytest.mark.slow
def test_whatever_is_sent_is_answered_and_changes_only_what_it_may(tmp_path):
    pytest.importorskip("schemathesis")
    from tests.server.fuzz import fuzz

    # `make bench` sends hundreds to each, and `python -m tests.server.fuzz` as many as you like.
    number = 0 if os.environ.get("CI") else os.getpid()
    findings = fuzz(tmp_path / "jobs.db", 60, pipeline_cases=15, number=number)
    assert findings.problems == {}
    # It got everywhere: wherever something can be done, something was done.
    done = {route for route, status in findings.answers if status < 300}
    assert {route for route in findings.cases if "/api/jobs" in route} <= done
    assert {route for route in findings.cases if "/api/services" in route} <= done
    assert "POST /api/trials/{trial}/epochs" in done
