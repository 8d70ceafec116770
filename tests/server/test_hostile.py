"""Requests made up to do harm, on both kinds of store: refused in words, and nothing changed."""

from __future__ import annotations

import copy
import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.optimizer.batch_size.histories import spec
from tests.optimizer.pipeline_frequency.job.reports import registering
from tests.server.child import Server, serving

from zeus.optimizer.batch_size.api._commands import CreateJob, Decide, ListTrials
from zeus.optimizer.pipeline_frequency.api._commands import PutSequence
from zeus.optimizer.pipeline_frequency.api._remote import RemotePipelines
from zeus.optimizer.pipeline_frequency.job._messages import Instruction, RankPlace, Registration
from zeus.optimizer.serving.api._commands import StartService
from zeus.optimizer.serving.api._messages import BoundRecord, ServiceStart
from zeus.optimizer.serving.api._remote import RemoteServices

# PostgreSQL holds no NUL, no encoding a half of a surrogate pair; the others upset terminals.
TEXTS = ("a\0b", "\ud800", "\x1b[31m", "x" * 100_001)
LITERALS = ("NaN", "-1e999", "9" * 400, "9" * 5000, "{}")
SEGMENTS = (
    "a%00b", "%ED%A0%80", "%0d%0aX-Evil:1", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..", "x" * 10_000,
    "9" * 5000, "1-" + "9" * 30, "%D9%A3-%D9%A3", "%3Cscript%3E",
)  # fmt: skip
TRIAL = "1-1"
SEAT = vars(RankPlace(1, 0, 1, 0, 1, 2, 1, 2))
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/api/jobs"): spec("other").to_dict(),
    ("POST", "/api/jobs/real/trials"): {"gpu": "A40", "max_power": 300.0, "request": "r"},
    ("POST", f"/api/trials/{TRIAL}/epochs"): {"epoch": 1, "time": 1.0, "metric": 0.5},
    ("POST", f"/api/trials/{TRIAL}/end"): {"outcome": "failed", "time": 1.0},
    ("PUT", "/api/jobs/real/profiles"): {"gpu": "A40", "batch_size": 64, "epoch_cost": 1.0},
    ("PUT", "/api/jobs/real/sizes"): {"gpu": "A40", "batch_size": 64, "epoch_cost": 1.0},
    ("PUT", "/api/pipelines/real/ranks/1"): {
        "session": "s",
        "seat": SEAT,
        "gpu": "A100",
        "clocks": [1410],
        "note": "n",
    },
    ("PUT", "/api/pipelines/real/ranks/0/sequence"): {
        "session": "real",
        "instructions": [["backward", 0, 0]],
    },
    ("PUT", "/api/pipelines/real/ranks/0/measurements"): {
        "session": "real",
        "options": [
            {"name": "forward", "chunk": 0, "clocks": [1410], "times": [1.5], "energies": [2.0]}
        ],
        "steps": 5,
    },
    ("POST", "/api/pipelines/real/ranks/0/leave"): {"session": "real"},
    ("POST", "/api/pipelines/real/stragglers"): {"dp_rank": 0, "slowdown": 1.5},
    ("PUT", "/api/services/real"): {
        "session": "real",
        "gpus": 2,
        "interval": 1.0,
        "bounds": [{"latency": "ttft", "percent": 99.0, "seconds": 1.5}],
    },
    ("POST", "/api/services/real/reports"): {
        "session": "real",
        "number": 1,
        "energy": 3.0,
        "spans": [
            {
                "begin": 1e9,
                "end": 1e9,
                "seconds": 5.0,
                "energy": 3.0,
                "latencies": [{"latency": "ttft", "bins": [1], "counts": [1.0]}],
                "bounds": [{"bound": "ttft", "requests": 1, "above": 0}],
            }
        ],
    },
    ("POST", "/api/services/real/end"): {"session": "real"},
}
PAGES = (
    "/{}", "/jobs/{}", "/jobs/{}/export.json", "/jobs?q={}", "/jobs?after={}", "/jobs?before={}",
    "/jobs/real?gpu={}", "/jobs/real?gpu={}x%20A40", "/jobs/real?before={}", "/pipelines/{}",
    "/pipelines/real?pipeline={}", "/pipelines/real?plan={}", "/assets/{}", "/sign-in?next={}",
    "/api/jobs?after={}", "/api/jobs/{}/log", "/api/jobs/real/trials?before={}",
    "/api/pipelines/{}/events", "/api/pipelines/real/plan?pipeline={}",
    "/api/pipelines/real/ranks/0/plan?session={}", "/metrics?{}", "/healthz?{}",
    "/services/{}", "/services/real?span={}", "/api/services/{}", "/api/services/{}/history",
)  # fmt: skip


class Client:
    """Asks anything, over one connection as long as the server keeps it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._connection = http.client.HTTPConnection(server.host, server.port, timeout=60)

    def ask(self, method: str, path: str, content: bytes | None = None) -> tuple[int, bytes, Any]:
        """Status, body and headers."""
        kinds = {
            "Content-Type": "application/json",
            "Accept": "text/html",
            **self.server.bearer,
        }
        try:
            self._connection.request(method, path, content, kinds)
            answer = self._connection.getresponse()
        except ConnectionError:  # it was idle for long on a busy host, and hung up on
            self._connection.close()
            self._connection.request(method, path, content, kinds)
            answer = self._connection.getresponse()
        return answer.status, answer.read(), answer.headers

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def state(self) -> list[Any]:
        """Everything that is stored, but for what changes as time passes: who is still alive."""
        job, names = (self.ask("GET", p)[1] for p in ("/jobs/real/export.json", "/api/jobs"))
        pipelines = json.loads(self.ask("GET", "/api/pipelines")[1])
        pipeline = json.loads(self.ask("GET", "/api/pipelines/real")[1])
        ranks = [{**rank, "state": ""} for rank in pipeline["ranks"]]
        kept = {key: pipeline[key] for key in ("name", "note", "status", "version", "stragglers")}
        services = json.loads(self.ask("GET", "/api/services")[1])
        service = {**json.loads(self.ask("GET", "/api/services/real")[1]), "state": ""}
        history = self.ask("GET", "/api/services/real/history")[1]
        found = [each["name"] for each in pipelines], kept, ranks
        return [job, names, *found, [each["name"] for each in services], service, history]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def client(request, tmp_path_factory) -> Iterator[Client]:
    if request.param == "sqlite":
        storage = f"sqlite:///{tmp_path_factory.mktemp('hostile')}/jobs.db"
    else:
        storage = request.getfixturevalue("postgresql").new_storage()
    with serving(storage, complaints=True) as server:
        jobs = server.jobs()
        jobs.do(CreateJob(spec=spec("real", max_epochs=1000)))
        assert jobs.do(Decide(job="real", gpu="A40", max_power=300.0, lease=86400.0)).trial == TRIAL
        pipelines = RemotePipelines(server.url, server.token, timeout=60.0)
        pipelines.do(
            registering(
                "real", Registration("real", RankPlace(0, 0, 0, 0, 1, 2, 1, 2), "A", (1410,))
            )
        )
        pipelines.do(
            PutSequence(job="real", rank=0, session="real", instructions=[Instruction("forward")])
        )
        start = ServiceStart(session="real", bounds=(BoundRecord("ttft", 99.0, 1.5),))
        services = RemoteServices(server.url, server.token, timeout=60.0)
        services.do(StartService(service="real", start=start))
        client = Client(server)
        yield client
        client.close()


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Where in a body there are plain values."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in inside:
        if isinstance(each, dict | list):
            yield from places(each, (*path, key))
        else:
            yield (*path, key)


def at(body: dict[str, Any], path: tuple) -> Any:
    for key in path:
        body = body[key]
    return body


def spoiled(body: dict[str, Any], path: tuple, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(body)
    at(changed, path[:-1])[path[-1]] = value
    return changed


def bad_bodies(body: dict[str, Any]) -> Iterator[bytes]:
    whole = json.dumps(body).encode()
    yield from (b"", whole[:-2], whole + b"}", whole * 2, b"\xff" + whole, b"[" * 100_000)
    yield whole[:-1] + b', "\\ud800": 1}'
    yield whole[:-1] + b', "x": ' + b'{"x":' * 50_000 + b"1" + b"}" * 50_001
    for path in places(body):
        marked = json.dumps(spoiled(body, path, "@@@@"))
        yield from (marked.replace('"@@@@"', literal).encode() for literal in LITERALS)
        if isinstance(at(body, path), str):
            yield from (json.dumps(spoiled(body, path, text)).encode() for text in TEXTS)


@pytest.mark.parametrize(("method", "path"), BODIES, ids=lambda part: part)
def test_bodies(client, method, path):
    before = client.state()
    for content in bad_bodies(BODIES[method, path]):
        status, answer, _ = client.ask(method, path, content)
        assert 400 <= status < 500, (content[:300], answer)
        assert set(json.loads(answer)["error"]) == {"kind", "message"}
    assert client.state() == before


def test_addresses(client):
    before = client.state()
    for page in PAGES:
        for segment in SEGMENTS:
            status, answer, headers = client.ask("GET", page.format(segment))
            assert status < 500, (page, segment, answer[:300])
            assert b"root:" not in answer
            assert b"<script>" not in answer or headers["content-type"] == "application/json"
            assert "x-evil" not in headers
    deleted = [("DELETE", f"/api/{each}/real") for each in ("jobs", "pipelines", "services")]
    for method, path in (*BODIES, *deleted):
        if not any(name in path for name in ("/real", TRIAL)):
            continue
        content = None if method == "DELETE" else json.dumps(BODIES[method, path]).encode()
        for segment in SEGMENTS:
            creates = "/ranks/1" in path or (method, path) == ("PUT", "/api/services/real")
            if creates and segment not in ("a%00b", "..", "x" * 10_000):
                continue  # a rank may register under any name that can be printed
            elsewhere = path.replace("/real", f"/{segment}").replace(TRIAL, segment)
            status, answer, _ = client.ask(method, elsewhere, content)
            assert status in (404, 422), (method, elsewhere, answer)
    assert client.state() == before


def test_other_methods_are_told_which_there_are(client):
    before = client.state()
    allowed = {
        "/api/jobs": "GET, POST",
        "/api/jobs/real": "DELETE, GET",
        "/api/jobs/real/trials": "GET, POST",
        "/api/pipelines/real": "DELETE, GET",
        "/api/services/real": "DELETE, GET, PUT",
        "/metrics": "GET",
        "/jobs/real": "GET, HEAD",
        "/sign-in": "GET, HEAD, POST",
    }
    for path, methods in allowed.items():
        for method in ("PATCH", "OPTIONS", "TRACE", "PROPFIND"):
            status, _, headers = client.ask(method, path)
            assert (status, headers["allow"]) == (405, methods), (method, path)
    assert client.state() == before


def test_whole_numbers_may_have_a_point_as_json_has_it(client):
    body = {"gpu": "A40", "max_power": 300, "gpus": 2.0, "request": "with a point"}
    status, answer, _ = client.ask("POST", "/api/jobs/real/trials", json.dumps(body).encode())
    assert status == 200, answer
    assert client.server.jobs().do(ListTrials(job="real"))[0].gpus == 2
