"""Services in a store: over SQLite and PostgreSQL, several servers, and what cannot be read."""

from __future__ import annotations

import math
import threading
from itertools import pairwise

import pytest
from sqlalchemy import text

from zeus.errors import DamagedJobError, JobConflictError, ServiceError, TokenError, UnknownJobError
from zeus.optimizer.serving.api._commands import (
    DeleteService,
    EndService,
    ListServices,
    ReportService,
    ShowService,
    ShowServiceHistory,
    StartService,
)
from zeus.optimizer.serving.api._messages import BoundKept, BoundRecord, RunState, ServiceStart
from zeus.optimizer.serving.api._spans import Span, SpanBound
from zeus.optimizer.serving.storage._records import MAX_SPANS
from zeus.optimizer.serving.storage._service import Services
from zeus.store import Store

TTFT = BoundRecord("ttft", 99.0, 1.5)


class Clock:
    def __init__(self) -> None:
        self.now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(storage):
    opened = Store(storage)
    yield opened
    opened.close()


@pytest.fixture
def services(store, clock):
    return Services(store, clock)


def begin(services: Services, name: str = "chat", session: str = "one", **changed) -> None:
    start = ServiceStart(session=session, bounds=(TTFT,), model="m", highest=1530.0, **changed)
    services.do(StartService(service=name, start=start))


def span(at: float, **changed) -> Span:
    about = {"energy": 500.0, "metered": 5.0, "metered_tokens": 100.0, "generated_tokens": 100.0}
    return Span(
        begin=at - 5,
        end=at,
        seconds=5.0,
        decode=1100.0,
        prefill=1100.0,
        bounds=(SpanBound("ttft p99 1.5 s", 20.0, 1.0),),
        **{**about, **changed},
    )


def report(services: Services, clock: Clock, number: int, *spans: Span, **changed) -> None:
    clock.now += 5
    state = RunState(
        **{
            "energy": 500.0 * number,
            "decode": 1100.0,
            "prefill": 1100.0,
            "bounds": (BoundKept(1.2, 20.0 * number, 0.005, number // 12, number // 12),),
            **changed.pop("state", {}),
        }
    )
    asked = {"service": "chat", "session": "one", **changed}
    found = [each.to_dict() for each in spans or [span(clock.now)]]
    services.do(ReportService(number=number, spans=found, state=state, **asked))


def show(services: Services, name: str = "chat"):
    return services.do(ShowService(service=name))


def test_what_is_reported_is_shown(services, clock):
    begin(services)
    first = show(services)
    assert (first["state"], first["now"], first["setting"]) == ("controlled", None, None)
    for number in range(1, 15):
        report(services, clock, number)
    found = show(services)
    assert found["setting"] == {"prefill": 1100.0, "decode": 1100.0}
    assert found["now"]["joules_per_token"] == 5.0
    assert found["now"]["power"] == 100.0
    assert found["energy"] == 7000.0
    (bound,) = found["bounds"]
    assert bound["now"]["requests"] == pytest.approx(240)  # of twelve reports, the latest minute
    assert bound["now"]["kept"] is False  # 1 of 20 took longer, and 1 % may
    assert (bound["run"]["kept"], bound["minutes_kept"]) == (True, 1)
    history = services.do(ShowServiceHistory(service="chat"))
    assert [each["end"] for each in history] == [1_790_000_000.0 + 5 * n for n in range(1, 15)]
    assert [each["name"] for each in services.do(ListServices())] == ["chat"]


def test_a_report_that_is_sent_again_counts_once(services, clock):
    begin(services)
    report(services, clock, 1)
    report(services, clock, 2)
    report(services, clock, 2)
    begin(services)  # and so does the begin
    assert len(services.do(ShowServiceHistory(service="chat"))) == 2
    assert len(show(services)["runs"]) == 1
    report(services, clock, 3)
    assert len(services.do(ShowServiceHistory(service="chat"))) == 3


def test_one_that_is_killed_is_silent_and_one_that_ends_says_so(services, clock):
    begin(services)
    report(services, clock, 1)
    heard = clock.now
    clock.now += 40
    assert show(services)["state"] == "controlled"
    clock.now += 10
    found = show(services)
    assert (found["state"], found["heard"]) == ("silent", heard)
    report(services, clock, 2)  # it was only cut off
    assert show(services)["state"] == "controlled"
    services.do(EndService(service="chat", session="one"))
    clock.now += 1e6
    found = show(services)
    assert (found["state"], found["runs"][0]["ended"]) == ("ended", clock.now - 1e6)


def test_one_that_reports_seldom_is_not_silent_at_once(services, clock):
    begin(services, every=60.0)
    clock.now += 200
    assert show(services)["state"] == "controlled"


def test_another_process_takes_its_place_and_nothing_is_lost(services, clock):
    begin(services, observe=True)
    report(services, clock, 1)
    killed = clock.now
    clock.now += 3600
    begin(services, session="two")
    with pytest.raises(JobConflictError, match="another process controls the service 'chat'"):
        report(services, clock, 2)
    with pytest.raises(JobConflictError):
        services.do(EndService(service="chat", session="one"))
    report(services, clock, 1, session="two", state={"energy": 50.0})
    found = show(services)
    assert found["state"] == "controlled"
    assert [run["heard"] for run in found["runs"]] == [clock.now, killed]
    assert [run["ended"] for run in found["runs"]] == [None, None]
    assert found["energy"] == 550.0
    assert len(services.do(ShowServiceHistory(service="chat"))) == 2


def test_history_is_bounded_and_loses_no_sum(services, clock, store):
    begin(services)
    sent = 0
    for number in range(1, 75):
        found = []
        for _ in range(16):
            clock.now += 5
            found.append(span(clock.now))
        sent += len(found)
        report(services, clock, number, *found)
    spans = services.whole("chat").spans
    assert sent > MAX_SPANS > len(spans) > 100
    assert math.fsum(each.energy for each in spans) == pytest.approx(500.0 * sent)
    assert sum(each.bounds[0].requests for each in spans) == pytest.approx(20 * sent)
    assert spans[-1].seconds == 5.0
    assert spans[0].seconds > 10.0
    assert all(a.end <= b.begin + 6 for a, b in pairwise(spans))
    with store.engine.connect() as connection:
        rows = connection.execute(text("SELECT count(*) FROM zeus_service_spans")).scalar()
    assert rows == len(spans)


def test_it_is_deleted_and_begins_again(services, clock):
    begin(services)
    report(services, clock, 1)
    services.do(DeleteService(service="chat"))
    for command in (ShowService(service="chat"), DeleteService(service="chat")):
        with pytest.raises(UnknownJobError, match="there is no service 'chat'"):
            services.do(command)
    with pytest.raises(UnknownJobError):
        report(services, clock, 2)
    begin(services)
    report(services, clock, 7)
    assert len(services.do(ShowServiceHistory(service="chat"))) == 1


def test_names_and_scopes(services):
    for name in ("a/b", "..", "", "x" * 201, "a\nb"):
        with pytest.raises(ServiceError, match="service"):
            begin(services, name)
    begin(services, "mine")
    begin(services, "theirs")
    assert [each["name"] for each in services.do(ListServices(scope="mine"))] == ["mine"]
    assert services.do(ListServices(scope="nobody's")) == []
    with pytest.raises(TokenError, match="for job 'mine' only"):
        services.do(ShowService(service="theirs", scope="mine"))
    with pytest.raises(UnknownJobError):
        services.do(ShowService(service="\ud800"))


def test_two_servers_share_a_store(services, clock, storage):
    other_store = Store(storage)
    other = Services(other_store, clock)
    begin(services)
    report(services, clock, 1)
    report(other, clock, 2)
    report(services, clock, 2)  # the answer of the other was lost
    report(services, clock, 3)
    assert show(other)["energy"] == 1500.0
    assert len(other.do(ShowServiceHistory(service="chat"))) == 3
    other_store.close()


def test_threads_report_at_once(services, clock):
    failures: list[Exception] = []

    def run(number: int) -> None:
        try:
            begin(services, f"s{number % 3}", session=f"t{number}")
            begin(services, f"own {number}", session=f"t{number}")
            for each in range(1, 6):
                spans = [span(clock.now).to_dict()]
                services.do(
                    ReportService(
                        service=f"own {number}",
                        session=f"t{number}",
                        number=each,
                        spans=spans,
                        state=RunState(),
                    )
                )
        except Exception as error:
            failures.append(error)

    for name in ("s0", "s1", "s2"):  # two that create the same one is an error that is tried again
        begin(services, name)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(services.do(ListServices())) == 9
    for number in range(6):
        assert len(services.do(ShowServiceHistory(service=f"own {number}"))) == 5


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE zeus_services SET record = '[1,' WHERE name = 'chat'",
        "UPDATE zeus_services SET past = '{}' WHERE name = 'chat'",
        "UPDATE zeus_service_spans SET record = '{\"begin\": 3}'",
    ],
)
def test_a_damaged_record_costs_itself_only(services, clock, store, damage):
    begin(services)
    report(services, clock, 1)
    begin(services, "other")
    with store.engine.begin() as connection:
        connection.execute(text(damage.replace(":", "\\:")))
    damaged, other = services.do(ListServices())
    assert (damaged["name"], damaged["state"]) == ("chat", "damaged")
    assert "damaged and cannot be read" in damaged["trouble"]
    assert other["state"] == "controlled"
    with pytest.raises(DamagedJobError, match="'chat'"):
        show(services)
