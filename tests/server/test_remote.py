"""Clients over HTTP: the same answers as in this process, and servers that are no good."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest
from tests.optimizer.batch_size.histories import spec
from tests.optimizer.batch_size.storage.test_service import FRONTIER, GPU
from tests.server.child import serving

from zeus.errors import (
    FrontierError,
    JobConflictError,
    JobLogError,
    JobSpecError,
    RequestError,
    ServerError,
    StorageError,
    UnknownJobError,
)
from zeus.optimizer.batch_size.api._api import JobsApi
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
from zeus.optimizer.batch_size.running._connect import open_jobs
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.store import Store


def life_of_a_job(jobs: JobsApi) -> list:
    """Everything that can be asked, and the answers without their instants."""
    said: list = []

    def note(answer: object) -> None:
        said.append(answer)

    def refuse(kind: type, ask) -> None:
        with pytest.raises(kind) as found:
            ask()
        said.append((type(found.value), str(found.value)))

    job = spec(
        "nightly bert é", policy="paper", learning_rate_rule="square_root", profile_key="search é"
    )
    name = job.name
    jobs.do(CreateJob(spec=job))
    jobs.do(CreateJob(spec=job))
    refuse(JobConflictError, lambda: jobs.do(CreateJob(spec=spec(name, seed=99))))
    refuse(JobSpecError, lambda: jobs.do(CreateJob(spec=spec("a/b"))))
    first = jobs.do(Decide(job=name, **GPU, request="one"))
    note(first)
    note(jobs.do(Decide(job=name, **GPU, request="one")))
    note(jobs.do(Decide(job=name, **GPU, gpus=2, request="two", lease=77.0)))
    report: dict[str, Any] = {"time": 9.0, "energy": 900.0, "metric": 0.2, "power_limit": 250.0}
    note(jobs.do(ReportEpoch(trial=first.trial, epoch=1, **report)))
    note(jobs.do(ReportEpoch(trial=first.trial, epoch=1, **report)))
    refuse(
        JobConflictError,
        lambda: jobs.do(ReportEpoch(trial=first.trial, epoch=1, **{**report, "time": 1})),
    )
    refuse(JobLogError, lambda: jobs.do(ReportEpoch(trial=first.trial, epoch=3, **report)))
    note(jobs.do(RenewTrial(trial=first.trial)))
    note(
        jobs.do(
            EndTrial(
                trial=first.trial, outcome="failed", time=1.0, energy=None, note="out\nof memory"
            )
        )
    )
    note(jobs.do(RenewTrial(trial=first.trial)))
    retry = jobs.do(Decide(job=name, **GPU, request="three", retry_of=first.trial))
    note(retry)
    note(jobs.do(ReportEpoch(trial=retry.trial, epoch=1, time=8.0, metric=0.93)))
    note(jobs.do(Decide(job=name, **GPU, request="four", default=True)))
    jobs.do(
        PutProfile(
            job=name,
            gpu="A40",
            batch_size=64,
            frontier=FRONTIER,
            epoch_cost=5.0,
            load=0.5,
            power_limit=99,
        )
    )
    refuse(
        FrontierError,
        lambda: jobs.do(PutProfile(job=name, gpu="A40", batch_size=64, frontier={"a": 1})),
    )
    (profile,) = jobs.do(ShowProfiles(job=name))
    note({**profile.to_dict(), "at": 0})
    assert jobs.do(ShowSharedProfiles(job=name)) == []
    jobs.do(CreateJob(spec=spec("trial", profile_key=job.profile_key)))
    assert jobs.do(ShowSharedProfiles(job="trial")) == [profile]
    jobs.do(DeleteJob(job="trial"))
    size = jobs.do(PutSize(job=name, gpu="A40", batch_size=128, epoch_cost=9.0, load=0.4))
    note(size)
    assert size.state == "measured"
    note(jobs.do(PutSize(job=name, gpu="A40", gpus=4, batch_size=128, memory=2**34, replicas=2)))
    refuse(JobLogError, lambda: jobs.do(PutSize(job=name, gpu="A40", batch_size=77)))
    for sizes in (ListSizes(job=name, gpu="A40"), ListSizes(job=name, gpu="A40", replicas=64)):
        for each in jobs.do(sizes):
            note(each)
    info = jobs.do(ShowJob(job=name))
    note({**info.to_dict(), "created": 0, "updated": 0})
    assert jobs.do(ListJobs()) == [info]
    assert jobs.do(ListJobs(after=name)) == []
    note([{**trial.to_dict(), "began": 0, "ended": 0} for trial in jobs.do(ListTrials(job=name))])
    note([trial.number for trial in jobs.do(ListTrials(job=name, before=3, most=1))])
    note([{**event, "at": 0} for event in jobs.do(ShowLog(job=name))])
    note([event["sequence"] for event in jobs.do(ShowLog(job=name, after=2, most=3))])
    refuse(UnknownJobError, lambda: jobs.do(ShowJob(job="nobody")))
    refuse(UnknownJobError, lambda: jobs.do(RenewTrial(trial="99-1")))
    jobs.do(DeleteJob(job=name))
    refuse(UnknownJobError, lambda: jobs.do(ShowLog(job=name)))
    jobs.close()
    return said


def test_a_server_answers_as_a_store_in_this_process(tmp_path):
    local = life_of_a_job(Jobs(Store(f"sqlite:///{tmp_path}/local.db")))
    with serving(f"sqlite:///{tmp_path}/remote.db") as server:
        assert life_of_a_job(server.jobs()) == local
        with pytest.raises(RequestError, match=r"body\.gpus: Input should be greater than"):
            server.jobs().do(Decide(job="nightly", gpu="A40", gpus=0, max_power=300.0))


def test_where_the_jobs_are_is_told_by_a_url(tmp_path):
    assert isinstance(open_jobs("http://127.0.0.1:1"), RemoteJobs)
    local = open_jobs(f"sqlite:///{tmp_path}/jobs.db")
    assert isinstance(local, Jobs)
    local.close()
    with pytest.raises(StorageError, match="storage must be"):
        open_jobs("somewhere")


def test_values_that_json_does_not_know_are_not_sent():
    with pytest.raises(ServerError, match="cannot be sent as JSON"):
        RemoteJobs("http://127.0.0.1:1").do(ReportEpoch(trial="1-1", epoch=1, time=float("nan")))


@pytest.mark.parametrize(
    "url", ["", "localhost:8420", "ftp://localhost", "http://", "http://[::1", "http://a?b=c"]
)
def test_what_is_no_server_is_refused(url):
    with pytest.raises(ServerError, match="must be given as http://HOST:PORT"):
        RemoteJobs(url)


def test_a_password_in_the_url_is_not_repeated():
    with pytest.raises(ServerError) as found:
        RemoteJobs("http://me:s3cret@127.0.0.1:1").do(ListJobs())
    assert "s3cret" not in str(found.value)


class BadServer:
    """Accepts connections and does as it likes with them, in a thread."""

    def __init__(self, answer) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._answer = answer
        self.done = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def _run(self) -> None:
        try:
            connection, _ = self._socket.accept()
            with connection:
                connection.recv(65536)
                self._answer(self, connection)
        except OSError:
            pass

    def close(self) -> None:
        self.done.set()
        self._socket.close()


@pytest.fixture
def bad_server():
    made = []

    def make(answer) -> str:
        made.append(BadServer(answer))
        return made[-1].url

    yield make
    for server in made:
        server.close()


def _silence(server, _connection):
    server.done.wait(60)


def _drip_head(server, connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while not server.done.wait(0.05):
        connection.sendall(b"x")


def _drip_body(server, connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not server.done.wait(0.05):
        connection.sendall(b"x")


@pytest.mark.parametrize("answer", [_silence, _drip_head, _drip_body])
def test_a_slow_server_costs_a_bounded_time(bad_server, answer):
    jobs = RemoteJobs(bad_server(answer), timeout=0.5)
    began = time.monotonic()
    with pytest.raises(ServerError, match=r"cannot be reached|nonsense"):
        jobs.do(ListJobs())
    assert time.monotonic() - began < 20  # and not for ever


def test_a_server_that_does_not_shake_hands_costs_a_bounded_time(bad_server):
    jobs = RemoteJobs(bad_server(_silence).replace("http:", "https:"), timeout=0.5)
    with pytest.raises(ServerError, match=r"no answer within 0.5 s"):
        jobs.do(ListJobs())


def test_a_name_that_is_never_found_costs_a_bounded_time_and_one_thread(monkeypatch):
    asked: list[str] = []
    begun, answered = threading.Event(), threading.Event()
    real = socket.getaddrinfo

    def resolver(host, *details, **options):
        if options.get("flags") == socket.AI_NUMERICHOST:
            return real(host, *details, **options)
        asked.append(host)
        begun.set()
        answered.wait(60)
        raise socket.gaierror(socket.EAI_NONAME, "nobody knows it")

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    jobs = RemoteJobs("http://zeus.invalid:1", timeout=0.2)
    for _ in range(2):
        with pytest.raises(ServerError, match=r"zeus.invalid:1 cannot be reached: no answer"):
            jobs.do(ListJobs())
    assert begun.wait(60)
    assert asked == ["zeus.invalid"]
    answered.set()
    with pytest.raises(ServerError, match="nobody knows it"):
        RemoteJobs("http://zeus.invalid:1", timeout=60.0).do(ListJobs())


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\x01\x02",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes",
        b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n[]",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops",
        b"HTTP/1.1 302 Found\r\nLocation: http://evil.example/\r\nContent-Length: 0\r\n\r\n",
        b'HTTP/1.1 404 No\r\nContent-Length: 27\r\n\r\n{"error": {"kind": "Other"}}',
        b'HTTP/1.1 404 No\r\nContent-Length: 14\r\n\r\n{"error": "x"}',
    ],
)
def test_nonsense_is_an_error_of_the_server(bad_server, answer):
    url = bad_server(lambda _server, connection: connection.sendall(answer))
    with pytest.raises(ServerError):
        RemoteJobs(url, timeout=5.0).do(ListJobs())
