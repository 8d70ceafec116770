"""The OpenAPI document of the arena is complete and true, whatever is sent."""

from __future__ import annotations

import contextlib
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.arena.processes import ArenaProcess, arena, fake_model

from zeus.cli import main
from zeus.store import Store, Tokens
from zeus.store._tokens import page_pass

ROUTES = {
    "/api/rounds": {"post"},
    "/api/rounds/{name}": {"get"},
    "/api/rounds/{name}/stream": {"get"},
    "/api/rounds/{name}/vote": {"post"},
    "/api/rounds/{name}/judgement": {"post"},
    "/api/board": {"get"},
    "/healthz": {"get"},
}
CASES = 25  # of each route


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[ArenaProcess]:
    storage = f"sqlite:///{tmp_path_factory.mktemp('arena')}/arena.db"
    with fake_model(words=2, joules=1.0) as one, fake_model(words=3, joules=2.0) as other:
        options = ["--max-running", "500", "--rounds-per-minute", "10000"]
        with arena(storage, {"one": one, "other": other}, *options) as process:
            yield process


def document(running: ArenaProcess) -> dict[str, Any]:
    return running.call("/openapi.json")[1]


def test_every_route_is_documented(running):
    found = document(running)
    assert {path: set(methods) for path, methods in found["paths"].items()} == ROUTES
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            assert operation["description"], (path, method)
            for status, answer in operation["responses"].items():
                if status >= "400":
                    assert list(answer["content"]) == ["application/json"], (path, status)


@pytest.mark.slow
def test_whatever_is_sent_is_answered_as_documented(running):
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, given, seed, settings
    from hypothesis import strategies as st
    from hypothesis.errors import Unsatisfiable
    from schemathesis import GenerationMode
    from tests.server.fuzz import _CHECKS

    schema = schemathesis.openapi.from_dict(document(running))
    schema.config.update(base_url=running.url)
    statuses: Counter[tuple[str, int]] = Counter()
    finished: list[str] = []
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in (GenerationMode.NEGATIVE, GenerationMode.POSITIVE):

            @seed(1)
            @settings(
                max_examples=CASES,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode), real=st.booleans())
            def one(case, real) -> None:
                if real and "name" in (case.path_parameters or {}):
                    case.path_parameters["name"] = finished[-1]
                response = case.call(timeout=60)
                case.validate_response(response, checks=list(_CHECKS))
                assert "Traceback" not in response.text
                statuses[case.operation.label, response.status_code] += 1

            finished.append(running.answered())
            with contextlib.suppress(Unsatisfiable):
                one()
    for route in ("POST /api/rounds", "POST /api/rounds/{name}/vote", "GET /api/rounds/{name}"):
        assert any(label == route and status < 300 for label, status in statuses), statuses
    assert not [each for each in statuses if each[1] >= 500]


def test_other_sites_cannot_reach_it_through_a_browser(running):
    for path in ("/api/board", "/arena"):
        assert running.call(path, Host="evil.example")[0] == 403
    name = running.answered()
    for path in (f"/arena/rounds/{name}/vote", f"/api/rounds/{name}/vote"):
        foreign = {"Origin": "http://evil.example", "Sec_Fetch_Site": "cross-site"}
        assert running.call(path, b"vote=left", **foreign)[0] == 403
    assert running.call(f"/api/rounds/{name}")[1]["state"] == "answered"
    for form in (b"", b"vote=up", b"vote=%ff", b"x" * 70_000):
        assert running.call(f"/arena/rounds/{name}/vote", form)[0] in (413, 422)


def test_on_a_network_clients_need_a_token(tmp_path, capsys):
    storage = f"sqlite:///{tmp_path}/a.db"
    models = {"a": "http://127.0.0.1:9", "b": "http://127.0.0.1:9"}
    words = [word for name, url in models.items() for word in ("--model", f"{name}={url}")]
    assert main(["arena", *words, "--listen", "0.0.0.0:0", "--storage", storage]) == 2
    assert "needs --open, or a token" in capsys.readouterr().err
    store = Store(storage)
    token, known = Tokens(store).create(None, now=0.0)
    scoped, _ = Tokens(store).create("a job", now=0.0)
    store.close()
    with arena(storage, models, "--listen", "0.0.0.0:0", complaints=True) as running:
        running.url = running.url.replace("0.0.0.0", "127.0.0.1")
        assert running.call("/api/board")[0] == 401
        bearer = {"Authorization": f"Bearer {token}"}
        assert running.call("/api/board", **bearer) == (200, {"rows": []})
        assert running.call("/api/board", Authorization=f"Bearer {scoped}")[0] == 403
        # Pages send to the form, and a browser that is signed in may vote.
        wanted = urllib.request.Request(f"{running.url}/arena", headers={"Accept": "text/html"})
        with urllib.request.urlopen(wanted, timeout=60) as page:
            assert page.url.endswith("/sign-in?next=%2Farena")
        cookie = f"zeus_pages={page_pass(known, token)}"
        kept = running.call("/arena/rounds/none/vote", b"vote=left", Cookie=cookie)
        assert kept[0] == 404
        assert running.call("/api/rounds/none/vote", b"vote=left", Cookie=cookie)[0] == 401
