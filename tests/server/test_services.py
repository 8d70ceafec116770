"""Services over a real server: who may report and see what, and what is refused."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

import pytest
from tests.optimizer.serving.test_optimizer import BOUNDS, serve
from tests.present import present
from tests.server.child import serving

from zeus.errors import JobConflictError, ServiceError, TokenError, UnknownJobError
from zeus.monitor import ZeusMonitor
from zeus.optimizer import ServingOptimizer
from zeus.optimizer.serving.api._commands import (
    DeleteService,
    EndService,
    ListServices,
    ReportService,
    ServiceCommand,
    ShowService,
    ShowServiceHistory,
    StartService,
)
from zeus.optimizer.serving.api._messages import BoundRecord, RunState, ServiceStart
from zeus.optimizer.serving.api._remote import RemoteServices
from zeus.optimizer.serving.api._spans import Span, SpanBound, SpanLatency
from zeus.store import Store, Tokens
from zeus.testing import SimulatedNode

START = ServiceStart(session="one", bounds=(BoundRecord("ttft", 99.0, 1.5),))


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('services')}/jobs.db"


@pytest.fixture(scope="module")
def started(storage):
    with serving(storage) as server:
        yield server


@pytest.fixture
def server(started):
    started.share_token()
    return started


@pytest.fixture
def api(server):
    return RemoteServices(server.url, timeout=60.0)


def report(name: str, number: int = 1, session: str = "one", **changed) -> ReportService:
    at = time.time()
    span = Span(
        begin=at - 5,
        end=at,
        seconds=5.0,
        energy=500.0,
        metered=5.0,
        metered_tokens=100.0,
        latencies=(SpanLatency("ttft", (-60, 5), (10.0, 2.0)),),
        bounds=(SpanBound("ttft p99 1.5 s", 12.0, 0.0),),
        **changed,
    )
    return ReportService(
        service=name,
        session=session,
        number=number,
        spans=[span.to_dict()],
        state=RunState(energy=500.0 * number, metered_tokens=100.0 * number, decode=1100.0),
    )


def test_it_reports_and_asks_over_http(api):
    name = "chat@gpu1:8000 ü?#%"
    api.do(StartService(service=name, start=START))
    for number in (1, 2, 2):
        api.do(report(name, number))
    found = api.do(ShowService(service=name))
    assert (found["name"], found["state"], found["energy"]) == (name, "controlled", 1000.0)
    assert found["now"]["joules_per_token"] == 5.0
    assert found["bounds"][0]["now"]["kept"] is True
    assert len(api.do(ShowServiceHistory(service=name))) == 2
    assert name in [each["name"] for each in api.do(ListServices())]
    api.do(EndService(service=name, session="one"))
    assert api.do(ShowService(service=name))["state"] == "ended"
    api.do(DeleteService(service=name))
    with pytest.raises(UnknownJobError, match="there is no service"):
        api.do(ShowService(service=name))


def test_a_program_reports_under_the_name_of_its_service(server, api, tmp_path):
    with (
        SimulatedNode("a100x2") as node,
        ServingOptimizer(
            ZeusMonitor(), BOUNDS, service="org/llama", directory=tmp_path, server_url=server.url
        ) as optimizer,
    ):
        serve(optimizer, node, 40)
        report = optimizer.report
    found = api.do(ShowService(service="llama"))
    assert (found["state"], found["gpus"], found["model"]) == ("ended", 2, "org/llama")
    assert found["energy"] == pytest.approx(present(report.energy))
    assert found["runs"][0]["requests"] == report.finished
    assert found["setting"]["decode"] < 1410


def test_a_token_for_one_service_is_for_no_other(server, storage):
    store = Store(storage)
    tokens = Tokens(store)
    mine, _ = tokens.create("mine", now=time.time())
    reader, _ = tokens.create(None, now=time.time(), read_only=True)
    store.close()
    owner = RemoteServices(server.url, mine)
    owner.do(StartService(service="mine", start=START))
    owner.do(report("mine"))
    RemoteServices(server.url).do(StartService(service="theirs", start=START))
    assert [each["name"] for each in owner.do(ListServices())] == ["mine"]
    commands: tuple[ServiceCommand[Any], ...] = (
        StartService(service="theirs", start=START),
        report("theirs"),
        EndService(service="theirs", session="one"),
        ShowService(service="theirs"),
        ShowServiceHistory(service="theirs"),
        DeleteService(service="theirs"),
    )
    for command in commands:
        with pytest.raises(TokenError, match="for job 'mine' only"):
            owner.do(command)
    looks = RemoteServices(server.url, reader)
    assert looks.do(ShowService(service="theirs"))["state"] == "controlled"
    with pytest.raises(TokenError, match="read-only"):
        looks.do(report("theirs"))
    with pytest.raises(TokenError, match="a token is required"):
        RemoteServices(server.url, "wrong").do(ListServices())


def test_a_second_process_takes_over(api):
    api.do(StartService(service="taken", start=START))
    api.do(StartService(service="taken", start=ServiceStart(session="two", bounds=START.bounds)))
    with pytest.raises(JobConflictError, match="another process controls the service 'taken'"):
        api.do(report("taken"))


@pytest.mark.parametrize(
    ("path", "changed", "message"),
    [
        ("a%2Fb", {}, "Not Found"),
        ("..%2e", {}, ""),
        ("odd", {"bounds": []}, "at least 1 item"),
        ("odd", {"bounds": [{"latency": "ttfb", "percent": 99, "seconds": 1}]}, "'ttft', 'tpot'"),
        ("odd", {"bounds": [{"latency": "ttft", "percent": 100, "seconds": 1}]}, "percent"),
        ("odd", {"interval": 0}, "greater than 0"),
        ("odd", {"color": "blue"}, "color"),
        ("odd", {"session": ""}, "session"),
    ],
)
def test_what_breaks_a_rule_is_refused_with_it(server, path, changed, message):
    body = {**START.to_dict(), "bounds": [vars(each) for each in START.bounds], **changed}
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    headers = {**server.bearer, "Content-Type": "application/json"}
    connection.request("PUT", f"/api/services/{path}", json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status in (404, 405, 422) or path == "..%2e", text
    assert message in text


def test_a_large_report_is_taken(api):
    """As many spans as may be in one, each with as many bins as there may be."""
    api.do(StartService(service="large", start=START))
    bins = tuple(range(-300, 300))
    latencies = tuple(
        SpanLatency(name, bins, (1234.5678,) * 600) for name in ("ttft", "tpot", "itl", "e2e")
    )
    span = Span(begin=1e9, end=1e9 + 5, seconds=5.0, latencies=latencies, reason="x" * 200)
    spans = [span.to_dict()] * 16
    api.do(ReportService(service="large", session="one", number=1, spans=spans, state=RunState()))
    with pytest.raises(ServiceError):
        api.do(StartService(service="x" * 201, start=START))
