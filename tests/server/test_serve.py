"""`zeus serve` as a process: starting, stopping, crashing, and who may come in."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from tests.cli.support import one_error_line, zeus, zeus_here
from tests.optimizer.batch_size.clients import free_port
from tests.optimizer.batch_size.histories import spec
from tests.optimizer.pipeline_frequency.job.reports import registering, registration
from tests.present import present
from tests.server.child import Server, serving
from tests.server.storm import storm
from tests.server.wire import HttpClient

from zeus.errors import ServerError, StorageError, TokenError, UnknownJobError
from zeus.optimizer.batch_size.api._commands import (
    CreateJob,
    Decide,
    DeleteJob,
    EndTrial,
    ListJobs,
    ListSizes,
    ListTrials,
    PutProfile,
    PutSize,
    RenewTrial,
    ReportEpoch,
    ShowJob,
    ShowLog,
    ShowProfiles,
    ShowSharedProfiles,
)
from zeus.optimizer.batch_size.api._remote import RemoteJobs
from zeus.optimizer.batch_size.storage import reading_jobs, writing_jobs
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.optimizer.pipeline_frequency.api._commands import ListPipelines, ShowPlan
from zeus.optimizer.pipeline_frequency.api._remote import RemotePipelines
from zeus.optimizer.pipeline_frequency.job._messages import Directive
from zeus.store import Store, Tokens

GPU: dict[str, Any] = {"gpu": "NVIDIA A40", "max_power": 300.0}


@pytest.fixture
def file(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture(scope="module")
def open_server(tmp_path_factory):
    with serving(f"sqlite:///{tmp_path_factory.mktemp('open')}/jobs.db") as server:
        jobs = server.jobs()
        jobs.do(CreateJob(spec=spec()))
        yield server, jobs.do(Decide(job="nightly", **GPU)).trial


def raw(server: Server, request: bytes, *, shut: bool = True) -> bytes:
    """What comes back for these bytes."""
    with socket.create_connection((server.host, server.port), timeout=60) as connection:
        with contextlib.suppress(ConnectionError):  # it may hang up before it has heard all
            connection.sendall(request)
            if shut:
                connection.shutdown(socket.SHUT_WR)
        parts = []
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                parts.append(part)
        return b"".join(parts)


def ask(server: Server, method: str, path: str, body: object = None, **headers: str | bytes):
    """Status and body, with headers as given; by default from who has started the server."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    content = body if isinstance(body, bytes) or body is None else json.dumps(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    usual = {"Content-Type": "application/json", **server.bearer}
    connection.request(method, path, content, {**usual, **named})
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    return response.status, answer


# --- one command --------------------------------------------------------------------------------


def test_one_command_without_configuration_is_all_it_takes(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "zeus", "serve", "--listen", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "ZEUS_STATE_DIR": str(tmp_path / "state")},
    )
    greeting = present(process.stdout).readline()
    assert "serving on http://127.0.0.1:" in greeting
    assert "tokens required" in greeting
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert (tmp_path / "state" / "jobs.db").exists()


def test_a_job_over_http(storage):
    with serving(storage) as server:
        jobs = server.jobs()
        jobs.do(CreateJob(spec=spec()))
        decision = jobs.do(Decide(job="nightly", **GPU))
        verdict = jobs.do(
            ReportEpoch(trial=decision.trial, epoch=1, time=9.0, energy=800.0, metric=0.95)
        )
        assert verdict.outcome == "converged"
    # It was all on disk.
    stored = Jobs(Store(storage))
    assert stored.do(ListTrials(job="nightly"))[0].state == "converged"
    stored.close()


def test_health_and_metrics(open_server):
    server, _ = open_server
    assert ask(server, "GET", "/healthz") == (200, b"ok\n")
    status, text = ask(server, "GET", "/metrics")
    lines = text.decode().splitlines()
    assert status == 200
    assert "zeus_jobs 1.0" in lines
    assert "zeus_trials_running 1.0" in lines
    assert "zeus_commands_total 2.0" in lines
    assert "# HELP zeus_jobs Recurring jobs in the store." in lines
    route = 'method="POST",route="/api/jobs/{name}/trials",status="200"'
    assert f"zeus_http_requests_total{{{route}}} 1.0" in lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_when_told_and_finishes_what_it_has_begun(file, number):
    server = Server(file)
    server.jobs().do(CreateJob(spec=spec()))
    acknowledged: list[str] = []

    async def client(name: int) -> None:
        wire = HttpClient(server.host, server.port, server.token)
        for turn in range(1000):
            request = f"{name} {turn}"
            body = {**GPU, "request": request}
            try:
                status, _ = await wire.ask("POST", "/api/jobs/nightly/trials", body)
            except ConnectionError:
                return
            assert status == 200
            acknowledged.append(request)
            if len(acknowledged) == 100:
                server.process.send_signal(number)

    async def clients() -> None:
        await asyncio.gather(*map(client, range(16)))

    asyncio.run(clients())
    assert server.stop(number) == ""
    assert server.process.returncode == 0
    store = Store(file)
    with reading_jobs(store) as view:
        stored = {row["request"] for row in view.trials(present(view.job("nightly")).id)}
    store.close()
    assert len(acknowledged) >= 100
    assert stored == set(acknowledged)


def test_however_often_it_is_told_to_stop_it_ends_well(file):
    server = Server(file)
    # To its very end: also while the interpreter is being taken down.
    while server.process.poll() is None:
        for number in (signal.SIGTERM, signal.SIGINT):
            server.process.send_signal(number)
        time.sleep(0.001)
    assert (server.stop(), server.process.returncode) == ("", 0)


def test_under_nohup_it_outlives_its_terminal(file):
    serve = [sys.executable, "-m", "zeus", "serve"]
    with serving(file, command=["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *serve]) as server:
        server.process.send_signal(signal.SIGHUP)
        assert ask(server, "GET", "/healthz")[0] == 200


def test_an_address_that_is_taken_is_one_line(open_server, file, capfd):
    server, _ = open_server
    done = zeus_here(capfd, "serve", "--port", str(server.port), "--storage", file)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {server.port}: " in one_error_line(done)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (
            ["--port", "70000"],
            2,
            "must be a whole number of at least 0 and at most 65535, but got '70000'",
        ),
        (["--storage", "mysql://x"], 2, "storage must be sqlite:///FILE"),
        (["--host", "no such host"], 1, "cannot listen on no such host port 8420"),
        (["--storage", "sqlite:////nowhere/at/all.db"], 1, "No such file or directory"),
    ],
)
def test_mistakes_are_one_line(options, code, said, capfd):
    done = zeus_here(capfd, "serve", *options)
    assert done.returncode == code
    assert said in one_error_line(done)


def test_without_the_extra_the_line_that_mends_it_is_said(tmp_path):
    (tmp_path / "fastapi.py").write_text("raise ImportError")
    done = zeus("serve", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "pip install 'zeus-energy[server]'" in one_error_line(done)


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ("del impl.HttpToolsProtocol._start_asgi_task", "_start_asgi_task"),
        ("del impl.RequestResponseCycle", "uvicorn.protocols.http.httptools_impl"),
        (
            "flow.FlowControl = type('FlowControl', (), {})",
            "FlowControl.read_paused",
        ),
    ],
)
def test_a_uvicorn_that_is_built_otherwise_is_refused(tmp_path, change, missing):
    (tmp_path / "sitecustomize.py").write_text(
        "import uvicorn.protocols.http.flow_control as flow\n"
        "import uvicorn.protocols.http.httptools_impl as impl\n"
        f"{change}\n"
    )
    done = zeus("serve", "--port", "0", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    said = one_error_line(done)
    assert f"lacks what Zeus needs to limit connections (missing: {missing})" in said
    assert "pip install 'zeus-energy[server]'" in said


# --- crashes ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_kills_lose_nothing_that_was_acknowledged_and_count_nothing_twice(storage):
    toll = storm(storage, rounds=2, reports=100, seed=int(time.time()))
    assert toll.reports == 3 * 100
    assert toll.clean, toll


def test_a_client_that_is_killed_does_not_hold_up_its_job(file):
    program = """
import sys, time
from zeus.optimizer.batch_size.api._commands import Decide
from zeus.optimizer.batch_size.api._remote import RemoteJobs
jobs = RemoteJobs(sys.argv[1], timeout=60.0)
asked = time.monotonic()
decision = jobs.do(Decide(job="nightly", gpu="NVIDIA A40", max_power=300.0, lease=2.0))
print(decision.role, asked, flush=True)
time.sleep(600)
"""
    with serving(file) as server:
        jobs = server.jobs()
        jobs.do(CreateJob(spec=spec(policy="paper-repaired")))
        client = subprocess.Popen(
            [sys.executable, "-c", program, server.url], stdout=subprocess.PIPE, text=True
        )
        role, asked = present(client.stdout).readline().split()
        assert role == "explore"
        client.kill()
        client.communicate()
        # Its lease keeps others from exploring, if the host was not held up for as long as that.
        decision = jobs.do(Decide(job="nightly", **GPU))
        assert decision.role == "exploit" or time.monotonic() >= float(asked) + 2.0
        deadline = time.monotonic() + 120
        while decision.role != "explore":
            assert time.monotonic() < deadline
            time.sleep(0.1)
            decision = jobs.do(Decide(job="nightly", **GPU))
        assert decision.batch_size == 64
        assert jobs.do(ListTrials(job="nightly", before=2))[0].state == "expired"


def test_several_servers_share_one_postgresql(postgresql):
    where = postgresql.new_storage()
    with serving(where) as first, serving(where) as second:
        clients = [server.jobs() for server in (first, second)]
        for client in clients:
            client.do(CreateJob(spec=spec()))
        failed: list[Exception] = []

        def live(number: int) -> None:
            try:
                for turn in range(4):
                    request = f"{number} {turn}"
                    decisions = [
                        c.do(Decide(job="nightly", **GPU, request=request)) for c in clients
                    ]
                    assert decisions[0] == decisions[1]
                    for epoch in (1, 2):
                        client = clients[(number + epoch) % 2]
                        client.do(
                            ReportEpoch(
                                trial=decisions[0].trial,
                                epoch=epoch,
                                time=5.0,
                                energy=900.0,
                                metric=0.95 if epoch == 2 else 0.1,
                            )
                        )
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=live, args=[number]) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert clients[0].do(ShowJob(job="nightly")) == clients[1].do(ShowJob(job="nightly"))
        assert clients[0].do(ShowJob(job="nightly")).trials == 24
        log = clients[1].do(ShowLog(job="nightly"))
        assert [event["sequence"] for event in log] == list(range(1, len(log) + 1))


def test_a_store_that_fails_is_no_traceback_and_comes_back(file):
    with serving(file, complaints=True) as server:
        jobs = server.jobs()
        jobs.do(CreateJob(spec=spec()))
        store = Store(file)
        with writing_jobs(store) as transaction:
            transaction._connection.exec_driver_sql("ALTER TABLE zeus_trials RENAME TO gone")
        with pytest.raises(StorageError) as found:
            jobs.do(Decide(job="nightly", **GPU))
        status, answer = ask(server, "GET", "/api/jobs/nightly/trials")
        assert status == 503
        for said in (str(found.value), answer.decode()):
            assert "zeus_trials" not in said
            assert "jobs.db" not in said
        with writing_jobs(store) as transaction:
            transaction._connection.exec_driver_sql("ALTER TABLE gone RENAME TO zeus_trials")
        store.close()
        assert jobs.do(Decide(job="nightly", **GPU)).batch_size == 64


def test_a_damaged_job_is_no_traceback_for_others(file):
    with serving(file, complaints=True) as server:
        server.jobs().do(CreateJob(spec=spec()))
        store = Store(file)
        with writing_jobs(store) as transaction:
            transaction._connection.exec_driver_sql("UPDATE zeus_jobs SET spec = 'nonsense'")
        store.close()
        for method, path, body in (
            ("GET", "/api/jobs/nightly", None),
            ("POST", "/api/jobs/nightly/trials", {**GPU, "request": "r"}),
        ):
            status, answer = ask(server, method, path, body)
            assert status == 500
            assert json.loads(answer)["error"]["kind"] == "DamagedJobError"
            assert b"Traceback" not in answer
            assert b"nonsense" not in answer
        assert ask(server, "GET", "/healthz")[0] == 200


# --- who may come in ----------------------------------------------------------------------------


def test_a_server_that_others_can_reach_needs_a_token_to_start(file, capfd):
    done = zeus_here(capfd, "serve", "--host", "0.0.0.0", "--port", "0", "--storage", file)
    assert done.returncode == 1
    assert f"`zeus token create --all --storage {file}`" in one_error_line(done)


def test_tokens_open_their_own_job_and_no_other(file):
    store = Store(file)
    tokens = Tokens(store)
    now = time.time()
    everything, _ = tokens.create(None, now=now)
    nightly, known = tokens.create("nightly", now=now)
    expired, _ = tokens.create(None, now=now, expires=now - 1)
    with serving(file) as server:
        assert "tokens required" in server.greeting
        owner, mine = server.jobs(everything), server.jobs(nightly)
        owner.do(CreateJob(spec=spec("other")))
        theirs = owner.do(Decide(job="other", **GPU)).trial
        mine.do(CreateJob(spec=spec()))
        trial = mine.do(Decide(job="nightly", **GPU)).trial
        assert mine.do(RenewTrial(trial=trial)).go_on
        assert [info.name for info in mine.do(ListJobs())] == ["nightly"]
        assert [info.name for info in owner.do(ListJobs())] == ["nightly", "other"]
        for refused in (
            lambda: mine.do(CreateJob(spec=spec("third"))),
            lambda: mine.do(Decide(job="other", **GPU)),
            lambda: mine.do(ShowJob(job="other")),
            lambda: mine.do(ShowJob(job="unheard of")),
            lambda: mine.do(ShowLog(job="other")),
            lambda: mine.do(ListTrials(job="other")),
            lambda: mine.do(ShowProfiles(job="other")),
            lambda: mine.do(ShowSharedProfiles(job="other")),
            lambda: mine.do(PutProfile(job="other", gpu="A40", batch_size=64)),
            lambda: mine.do(PutSize(job="other", gpu="A40", batch_size=64)),
            lambda: mine.do(ListSizes(job="other", gpu="A40")),
            lambda: mine.do(RenewTrial(trial=theirs)),
            lambda: mine.do(EndTrial(trial=theirs, outcome="failed")),
            lambda: mine.do(ReportEpoch(trial=theirs, epoch=1, time=1.0)),
            lambda: mine.do(DeleteJob(job="other")),
            lambda: server.jobs(expired).do(ListJobs()),
            lambda: server.jobs("zeus_" + "x" * 43).do(ListJobs()),
            lambda: server.jobs(nightly[:-1]).do(ListJobs()),
        ):
            with pytest.raises(TokenError):
                refused()
        assert owner.do(ListTrials(job="other"))[0].state == "running"
        # Whether it lives may be asked by anybody.
        assert ask(server, "GET", "/healthz", Authorization="")[0] == 200
        assert ask(server, "GET", "/metrics", Authorization="")[0] == 401
        for header in ("", "Bearer", "Bearer ", f"Basic {nightly}", nightly, "Bearer ü"):
            status, _ = ask(server, "GET", "/api/jobs", Authorization=header.encode())
            assert status == 401
        tokens.revoke(known.id, now=time.time())
        deadline = time.monotonic() + 120
        while ask(server, "GET", "/api/jobs", Authorization=f"Bearer {nightly}")[0] == 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    store.close()


def test_a_token_for_reading_only_changes_nothing(file):
    store = Store(file)
    tokens = Tokens(store)
    everything, _ = tokens.create(None, now=time.time())
    looks, _ = tokens.create(None, now=time.time(), read_only=True)
    looks_at_one, _ = tokens.create("nightly", now=time.time(), read_only=True)
    with serving(file) as server:
        owner = server.jobs(everything)
        owner.do(CreateJob(spec=spec()))
        owner.do(CreateJob(spec=spec("other")))
        trial = owner.do(Decide(job="nightly", **GPU)).trial
        pipelines = RemotePipelines(server.url, everything, timeout=60.0)
        pipelines.do(registering("gpt3", registration(0)))

        def state():
            with reading_jobs(store) as view:
                rows = [present(view.job(name)) for name in ("nightly", "other")]
                return str([(row, view.trials(row.id), list(view.log(row.id))) for row in rows])

        before = state()
        for secret in (looks, looks_at_one):
            reader = server.jobs(secret)
            for refused in (
                lambda by: by.do(CreateJob(spec=spec("third"))),
                lambda by: by.do(CreateJob(spec=spec())),
                lambda by: by.do(Decide(job="nightly", **GPU)),
                lambda by: by.do(ReportEpoch(trial=trial, epoch=1, time=1.0)),
                lambda by: by.do(EndTrial(trial=trial, outcome="failed")),
                lambda by: by.do(RenewTrial(trial=trial)),
                lambda by: by.do(PutProfile(job="nightly", gpu="A40", batch_size=64)),
                lambda by: by.do(PutSize(job="nightly", gpu="A40", batch_size=64)),
                lambda by: by.do(DeleteJob(job="nightly")),
            ):
                with pytest.raises(TokenError, match="this token is read-only"):
                    refused(reader)
            bearer = {"Authorization": f"Bearer {secret}"}
            for path in ("/api/jobs/nightly/log", "/jobs", "/jobs/nightly", "/metrics"):
                assert ask(server, "GET", path, Accept="text/html", **bearer)[0] == 200, path
            status, answer = ask(server, "PATCH", "/api/jobs/nightly", **bearer)
            assert (status, b"PATCH is not allowed" in answer) == (403, True)
            assert len(reader.do(ListTrials(job="nightly"))) == 1
        assert state() == before
        assert [info.name for info in server.jobs(looks).do(ListJobs())] == ["nightly", "other"]
        with pytest.raises(TokenError, match="for job 'nightly' only"):
            server.jobs(looks_at_one).do(ShowJob(job="other"))
        # Whoever asks for a rank's plan is taken for the rank.
        watcher = RemotePipelines(server.url, looks, timeout=60.0)
        assert [job["name"] for job in watcher.do(ListPipelines())] == ["gpt3"]
        with pytest.raises(TokenError, match="only a rank may ask"):
            watcher.do(ShowPlan(job="gpt3", rank=0, session=registration(0).session))
        plan = pipelines.do(ShowPlan(job="gpt3", rank=0, session=registration(0).session))
        assert isinstance(plan, Directive)
    store.close()


@pytest.fixture(scope="module")
def server_for_all(tmp_path_factory):
    storage = f"sqlite:///{tmp_path_factory.mktemp('all')}/jobs.db"
    with serving(storage, "--no-token") as server:
        assert "no tokens" in server.greeting
        server.jobs().do(CreateJob(spec=spec()))
        yield server


def test_web_pages_cannot_reach_a_server_without_tokens(server_for_all):
    server = server_for_all
    for good in (f"127.0.0.1:{server.port}", "localhost", "LOCALHOST:1", "[::1]:80"):
        assert ask(server, "GET", "/api/jobs", Host=good)[0] == 200
    for evil in ("evil.example", f"evil.example:{server.port}", "127.0.0.1.evil.example", ""):
        status, answer = ask(server, "GET", "/api/jobs", Host=evil)
        assert status == 403, evil
        assert b"only requests to a loopback address" in answer
    # A page can send text without asking, but not JSON.
    body = json.dumps(spec("from a page").to_dict()).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        status, _ = ask(server, "POST", "/api/jobs", body, Content_Type=kind)
        assert status in (415, 422)
    assert [info.name for info in server.jobs().do(ListJobs())] == ["nightly"]


# --- too much, and nonsense ---------------------------------------------------------------------


def test_requests_have_a_size(open_server):
    server, _ = open_server
    status, _ = ask(server, "POST", "/api/jobs", b"x" * (1024 * 1024 + 1))
    assert status == 413
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    head = b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Authorization: {server.bearer['Authorization']}\r\n".encode()
    answer = raw(server, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 40 + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413")
    # A head that never ends is hung up on.
    endless = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 2_000_000
    assert not raw(server, endless, shut=False).startswith(b"HTTP/1.1 200")
    assert ask(server, "GET", "/healthz")[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"[" * 100_000,
        b'{"epoch": ' + b"9" * 10_000 + b', "time": 1}',
        b'{"epoch": 1, "time": NaN}',
        b'{"epoch": 1, "time": Infinity}',
        b'{"epoch": 1, "time": 1e999}',
        b'{"epoch": 1, "time": "1"}',
        b'{"epoch": true, "time": 1}',
        b'{"epoch": 1, "time": 1, "colour": "red"}',
        b'{"epoch": 1, "epoch": 0, "time": 1}',
        b'{"epoch": 1, "time": -0.0}',
        b"\xff\xfe{}",
        b'{"epoch": 1, "time": 1, "\\ud800": 1}',
    ],
    ids=lambda body: repr(body[:24]),
)
def test_nonsense_is_refused_and_changes_nothing(open_server, body):
    server, trial = open_server
    status, answer = ask(server, "POST", f"/api/trials/{trial}/epochs", body)
    assert 400 <= status < 500, answer
    assert set(json.loads(answer)["error"]) == {"kind", "message"}
    assert b"Traceback" not in answer
    assert server.jobs().do(ListTrials(job="nightly"))[0].epochs == 0


def test_names_that_no_store_can_hold_are_unknown(open_server):
    server, _ = open_server
    for name in ("%00", "%ED%A0%80", "%0A", "a%2Fb", "%F0%9F%92%A9" * 300, "..%2F..%2Fetc"):
        status, _ = ask(server, "GET", f"/api/jobs/{name}/log")
        assert status in (404, 422), name
        status, _ = ask(server, "DELETE", f"/api/jobs/{name}")
        assert status in (404, 422), name


def test_a_server_that_is_gone_is_an_error_in_words():
    jobs = RemoteJobs(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ServerError, match=r"the server http://127.0.0.1:\d+ cannot be reached"):
        jobs.do(ListJobs())


def test_deleting(open_server):
    server, _ = open_server
    jobs = server.jobs()
    jobs.do(CreateJob(spec=spec("short-lived")))
    jobs.do(DeleteJob(job="short-lived"))
    with pytest.raises(UnknownJobError, match="there is no job 'short-lived'"):
        jobs.do(DeleteJob(job="short-lived"))
