"""Reports of a controller to a server that is slow, down, forgetful or talks nonsense."""

from __future__ import annotations

import http.server
import json
import math
import threading

import pytest
from tests.optimizer.serving.storage.test_service import Clock
from tests.present import present

from zeus._latencies import Latencies
from zeus.clock import MonotonicClock, VirtualClock
from zeus.errors import JobConflictError, ServerError, ServiceError, TokenError
from zeus.frontier import LatencyBound
from zeus.optimizer.serving import Decision, ServingInterval, ServingSetting
from zeus.optimizer.serving._bounds import bounds_of
from zeus.optimizer.serving._report import Forecast, ServingReport
from zeus.optimizer.serving.api._commands import (
    DeleteService,
    EndService,
    ReportService,
    ShowService,
)
from zeus.optimizer.serving.api._messages import BoundRecord, ServiceStart
from zeus.optimizer.serving.api._remote import RemoteServices
from zeus.optimizer.serving.running._reporter import EVERY, ServiceReporter
from zeus.optimizer.serving.storage._service import Services
from zeus.store import Store

HIGH, LOW = ServingSetting(1500.0, 1500.0), ServingSetting(1000.0, 900.0)
START = ServiceStart(session="new", bounds=(BoundRecord("ttft", 99.0, 1.5),))


class Wire:
    """Between a reporter and a store; raises what a test wants in between.

    Attributes:
        before: Raised instead of the command.
        after: Raised once the command is done: its answer is lost.
    """

    def __init__(self, services: Services) -> None:
        self.services = services
        self.before: Exception | None = None
        self.after: Exception | None = None
        self.sent: list[object] = []

    def do(self, command):
        if self.before is not None:
            raise self.before
        self.sent.append(command)
        answer = self.services.do(command)
        if self.after is not None:
            raise self.after
        return answer


class Rig:
    """A service whose controller reports in virtual time."""

    def __init__(self, folder) -> None:
        self.wall = Clock()
        self.store = Store(f"sqlite:///{folder}/jobs.db")
        self.services = Services(self.store, self.wall)
        self.wire = Wire(self.services)
        self.clock = VirtualClock()
        self.report = ServingReport(bounds_of(LatencyBound("ttft p99", 1.5)))
        self.warnings: list[str] = []
        self.reporter = self.started()

    def started(self) -> ServiceReporter:
        return ServiceReporter(
            self.wire,
            "chat",
            START,
            self.report,
            self.clock,
            warn=self.warnings.append,
            wall=self.wall,
        )

    def pass_time(self, seconds: float, **changed) -> None:
        for _ in range(round(seconds)):
            begin = self.clock.now()
            self.clock.sleep(1.0)
            self.wall.now += 1.0
            about = {
                "energy": 200.0,
                "generated_tokens": 50,
                "finished": 2,
                "latencies": {"ttft": Latencies.of([0.5, 2.0])},
            }
            interval = ServingInterval(begin=begin, end=begin + 1, **{**about, **changed})
            self.report.add(interval)
            decision = Decision(LOW, "kept", threatened=False)
            self.report.held(begin + 1, decision)
            self.reporter.note(interval, LOW, decision, Forecast(300, 200, 200, 300), "")

    def found(self):
        return self.services.whole("chat")


@pytest.fixture
def rig(tmp_path):
    made = Rig(tmp_path)
    yield made
    made.store.close()


def energy(rig: Rig) -> float:
    return math.fsum(each.energy for each in rig.found().spans)


def test_intervals_become_spans_of_seconds_and_sums_of_the_run(rig):
    rig.pass_time(62)
    rig.reporter.close()
    found = rig.found()
    assert len(found.spans) == 13
    assert energy(rig) == pytest.approx(62 * 200.0)
    first = found.spans[0]
    assert (first.seconds, first.prefill, first.decode) == pytest.approx((5.0, 1000.0, 900.0))
    assert first.bounds[0].above == pytest.approx(5.0)
    assert first.end == pytest.approx(rig.wall.now - 57)
    run = present(found.runs).latest
    assert run.ended is not None
    assert (run.state.energy, run.state.seconds) == pytest.approx((62 * 200.0, 62.0))
    assert (run.state.bounds[0].minutes, run.state.bounds[0].minutes_kept) == (1, 0)
    info = rig.services.do(ShowService(service="chat"))
    assert info["bounds"][0]["now"]["above"] == pytest.approx(0.5)
    assert rig.warnings == []


def test_an_outage_costs_nothing_and_is_said_once(rig):
    rig.pass_time(20)
    rig.wire.before = ServerError("the server cannot be reached: Connection refused")
    rig.pass_time(300)
    assert energy(rig) <= 20 * 200.0
    rig.wire.before = None
    rig.pass_time(40)
    rig.reporter.close()
    assert energy(rig) == pytest.approx(360 * 200.0)
    assert len(rig.found().spans) == 72
    assert len(rig.warnings) == 1
    assert "cannot be reached" in rig.warnings[0]


def test_a_long_outage_costs_detail_and_no_sum(rig, monkeypatch):
    monkeypatch.setattr("zeus.optimizer.serving.running._reporter._WAITING", 40)
    rig.wire.before = ServerError("down")
    rig.pass_time(1500)
    assert len(rig.reporter._waiting) < 60
    rig.wire.before = None
    rig.pass_time(20)
    rig.reporter.close()
    assert energy(rig) == pytest.approx(1520 * 200.0)
    assert len(rig.found().spans) < 70


def test_a_report_whose_answer_was_lost_counts_once(rig):
    rig.pass_time(20)
    rig.wire.after = ServerError("no answer within 5 s")
    rig.pass_time(60)
    rig.wire.after = None
    rig.pass_time(40)
    rig.reporter.close()
    assert energy(rig) == pytest.approx(120 * 200.0)
    numbers = [each.number for each in rig.wire.sent if isinstance(each, ReportService)]
    assert len(numbers) > len(set(numbers)) == max(numbers)


def test_a_service_that_is_deleted_begins_again(rig):
    rig.pass_time(20)
    rig.services.do(DeleteService(service="chat"))
    rig.pass_time(20)
    rig.reporter.close()
    run = present(rig.found().runs).latest
    assert run.state.energy == pytest.approx(40 * 200.0)  # sums are of the whole run
    assert energy(rig) == pytest.approx(20 * 200.0, abs=1001)
    assert rig.warnings == []


def test_another_process_under_the_same_name_ends_the_reports_only(rig):
    rig.pass_time(20)
    first = rig.reporter
    rig.reporter = rig.started()
    rig.pass_time(10)
    rig.reporter, other = first, rig.reporter
    rig.pass_time(30)
    assert "another process controls the service 'chat'" in first.refused
    assert len(rig.warnings) == 1
    first.close()
    other.close()
    assert present(rig.found().runs).latest.ended is not None


@pytest.mark.parametrize("error", [ServiceError("`seconds` must be"), JobConflictError("no")])
def test_a_server_that_refuses_is_not_asked_again(rig, error):
    rig.wire.before = error
    rig.pass_time(100)
    rig.reporter.close()
    assert rig.reporter.refused
    assert len(rig.warnings) == 1
    assert "control goes on without reports" in rig.warnings[0]


def test_a_token_may_come_later(rig):
    rig.wire.before = TokenError("a token is required")
    rig.pass_time(100)
    rig.wire.before = None
    rig.pass_time(40)
    rig.reporter.close()
    assert energy(rig) == pytest.approx(140 * 200.0)


def test_odd_intervals_are_left_out_and_said_once(rig):
    rig.pass_time(10)
    rig.pass_time(5, energy=math.inf)
    rig.pass_time(5)
    rig.reporter.close()
    assert energy(rig) == pytest.approx(15 * 200.0)
    assert len(rig.warnings) == 1


def test_trouble_is_said_until_the_next_interval(rig):
    rig.pass_time(10)
    rig.clock.sleep(EVERY)
    rig.reporter.trouble("the server cannot be read")
    info = rig.services.do(ShowService(service="chat"))
    assert info["trouble"] == "the server cannot be read"
    rig.pass_time(10)
    assert rig.services.do(ShowService(service="chat"))["trouble"] == ""


class DeafServer(http.server.ThreadingHTTPServer):
    """A server that takes everything and says nothing, or nonsense."""

    daemon_threads = True

    def __init__(self, mode: str) -> None:
        super().__init__(("127.0.0.1", 0), Deaf)
        self.mode = mode
        self.bodies: list[object] = []
        self.free = threading.Event()


class Deaf(http.server.BaseHTTPRequestHandler):
    server: DeafServer

    def _answer(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.bodies.append(json.loads(self.rfile.read(length)))
        if self.server.mode == "silent":
            self.server.free.wait(60)
            return
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nnonsense!")

    do_PUT = do_POST = _answer

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("mode", ["silent", "nonsense"])
def test_control_waits_for_no_server(mode):
    warnings: list[str] = []
    warned = threading.Event()

    def warn(message: str) -> None:
        warnings.append(message)
        warned.set()

    with DeafServer(mode) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        report = ServingReport(bounds_of(LatencyBound("ttft p99", 1.5)))
        api = RemoteServices(url, timeout=0.2 if mode == "silent" else 5.0)
        clock = MonotonicClock()
        reporter = ServiceReporter(api, "chat", START, report, clock, warn=warn)
        try:
            decision = Decision(HIGH)
            for number in range(2_000):  # while requests hang
                now = clock.now()
                interval = ServingInterval(begin=now + number, end=now + number + 1)
                reporter.note(interval, HIGH, decision, None, "")
            assert warned.wait(120)
            reporter.close()
            assert reporter.refused == ""
            assert len(warnings) == 1
            assert ("no answer within" if mode == "silent" else "nonsense") in warnings[0]
            assert server.bodies
        finally:
            server.free.set()
            server.shutdown()
            thread.join()


def test_the_end_is_reported_with_what_was_left(rig):
    rig.pass_time(3)
    rig.reporter.close()
    rig.reporter.close()
    assert energy(rig) == pytest.approx(600.0)
    assert sum(isinstance(each, EndService) for each in rig.wire.sent) == 1
