"""Web pages of other sites: what they have a browser send changes nothing."""

from __future__ import annotations

import http.client
import http.server
import json
import socket
import threading
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.optimizer.batch_size.histories import spec
from tests.present import present
from tests.server.child import serving

from zeus.optimizer.batch_size.api._commands import CreateJob, Decide
from zeus.optimizer.batch_size.storage import reading_jobs
from zeus.store import Store

GPU: dict[str, Any] = {"gpu": "NVIDIA A40", "max_power": 300.0}


class Target:
    """A server that asks for no token, with a trial that runs."""

    def __init__(self, server, storage: str) -> None:
        self.server, self.storage = server, storage
        self.host = f"{server.host}:{server.port}"
        self.jobs = server.jobs()
        self.jobs.do(CreateJob(spec=spec()))
        self.trial = self.jobs.do(Decide(job="nightly", **GPU)).trial

    def state(self):
        """Everything that a request could change."""
        store = Store(self.storage)
        with reading_jobs(store) as view:
            job = present(view.job("nightly"))
            found = job, view.trials(job.id), list(view.log(job.id))
        store.close()
        return str(found)

    def ask(self, method: str, path: str, body: object = None, **headers: str):
        connection = http.client.HTTPConnection(self.server.host, self.server.port, timeout=60)
        content = None if body is None else json.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, content, {"Content-Type": "application/json", **named})
        response = connection.getresponse()
        answer = response.read().decode()
        connection.close()
        return response.status, answer


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    storage = f"sqlite:///{tmp_path_factory.mktemp('target')}/jobs.db"
    # The parser itself complains of two lengths.
    with serving(storage, "--no-token", complaints=True) as server:
        yield Target(server, storage)


FOREIGN = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://localhost:{port}"},  # the same machine, but another origin than the Host
    {"Origin": "http://127.0.0.1"},
    {"Origin": "http://127.0.0.1:{port}.evil.example"},
    {"Origin": "chrome-extension://{host}"},
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site"},  # another port of this host
    {"Sec_Fetch_Site": "cross-site", "Origin": "http://{host}"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_changes_that_another_site_asks_for_are_refused(target, headers):
    told = {
        name: value.format(host=target.host, port=target.server.port)
        for name, value in headers.items()
    }
    before = target.state()
    trial = f"/api/trials/{target.trial}"
    for method, path, body in (
        ("POST", f"{trial}/renew", None),
        ("POST", f"{trial}/epochs", {"epoch": 1, "time": 1.0}),
        ("POST", f"{trial}/end", {"outcome": "failed"}),
        ("POST", "/api/jobs/nightly/trials", {**GPU, "request": "theirs"}),
        ("PUT", "/api/jobs/nightly/profiles", {"gpu": "A40", "batch_size": 64}),
        ("DELETE", "/api/jobs/nightly", None),
        ("PATCH", "/api/jobs/nightly", None),
        ("POST", "/sign-out", None),
    ):
        status, answer = target.ask(method, path, body, **told)
        assert status == 403, (method, path, answer)
        assert "from a page of another site" in answer
    assert target.state() == before
    assert target.ask("GET", "/api/jobs", **told)[0] == 200  # who only asks is not refused


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://{host}", "Sec_Fetch_Site": "same-origin"},
        {"Origin": "https://{host}", "Sec_Fetch_Site": "same-origin"},  # a proxy that speaks TLS
        {"Origin": "https://localhost", "Host": "localhost"},
        {"Origin": "https://localhost", "Host": "localhost:443"},
        {"Origin": "http://[::1]:80", "Host": "[::1]"},
        {"Sec_Fetch_Site": "none"},
    ],
    ids=str,
)
def test_programs_and_pages_of_this_server_may_change(target, headers):
    told = {name: value.format(host=target.host) for name, value in headers.items()}
    status, answer = target.ask("POST", f"/api/trials/{target.trial}/renew", **told)
    assert status == 200, answer


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Host", ("localhost", "evil.example")),
        ("Authorization", ("Bearer one", "Bearer two")),
        ("Content-Length", ("0", "0")),
    ],
)
def test_a_header_that_counts_is_there_once(target, name, values):
    lines = [f"{name}: {value}" for value in values]
    if name != "Host":
        lines.append("Host: localhost")
    head = "\r\n".join(["POST /api/jobs HTTP/1.1", *lines, "Connection: close", "", ""])
    with socket.create_connection((target.server.host, target.server.port), 60) as connection:
        connection.sendall(head.encode())
        assert connection.makefile("rb").readline().split()[1] == b"400"


def test_a_page_of_another_origin_cannot_renew_a_lease(target, browser):
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>Cats</title>")

        def log_message(self, *_arguments: object) -> None:
            pass

    evil = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=evil.serve_forever, daemon=True).start()
    before = target.state()
    renew = f"{target.server.url}/api/trials/{target.trial}/renew"
    try:
        # Of another site, and of the same site by another port.
        for host in ("localhost", "127.0.0.1"):
            context = browser.new_context()
            page = context.new_page()
            page.goto(f"http://{host}:{evil.server_port}/")
            with page.expect_response(renew) as answered:
                page.evaluate("url => fetch(url, {method: 'POST', mode: 'no-cors'})", renew)
            assert answered.value.status == 403
            context.close()
    finally:
        evil.shutdown()
        evil.server_close()
    assert target.state() == before


def test_our_own_pages_may(target, browser):
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{target.server.url}/jobs")
    path = f"/api/trials/{target.trial}/renew"
    assert page.evaluate("path => fetch(path, {method: 'POST'}).then(a => a.status)", path) == 200
    context.close()


def test_signing_in_is_for_our_own_form(tmp_path):
    from zeus.store import Tokens

    storage = f"sqlite:///{tmp_path}/jobs.db"
    store = Store(storage)
    secret, _ = Tokens(store).create(None, now=0.0)
    store.close()
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    with serving(storage) as server:
        for origin, expected in ((server.url, 303), ("http://evil.example", 403)):
            connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
            body = urlencode({"token": secret})
            connection.request("POST", "/sign-in", body, {**form, "Origin": origin})
            assert connection.getresponse().status == expected
            connection.close()
