"""`zeus slo` that reports to `zeus serve`: both are processes of their own, killed and started."""

from __future__ import annotations

import math
import signal

import pytest
from tests.cli.busy_server import BusyServer, until
from tests.cli.support import LONG_ENOUGH, one_error_line, serving, start, zeus
from tests.server.child import Server
from tests.server.pages.asking import text_of

from zeus.device import get_gpus
from zeus.optimizer.serving.api._commands import ShowService
from zeus.optimizer.serving.api._remote import RemoteServices
from zeus.optimizer.serving.storage._service import Services
from zeus.optimizer.serving.storage._service_state import Service
from zeus.store import Store

SLO = ("slo", "--bound", "ttft:p99:1.5", "--interval", "0.05", "--quiet", "--name", "chat")


@pytest.fixture(autouse=True)
def simulated(monkeypatch, tmp_path):
    monkeypatch.setenv("ZEUS_SIMULATE", "v100x2")
    monkeypatch.setenv("ZEUS_STATE_DIR", str(tmp_path / "state"))


def stored(storage: str) -> Service:
    """What a store has, while nobody serves it."""
    store = Store(storage)
    found = Services(store).whole("chat")
    store.close()
    return found


def test_what_was_acknowledged_survives_kills_of_both(tmp_path):
    storage = f"sqlite:///{tmp_path}/jobs.db"
    server = Server(storage, "--no-token")

    def energy() -> float:
        return RemoteServices(server.url).do(ShowService(service="chat"))["energy"]

    with serving(BusyServer()) as url:
        first = start(*SLO, "--to", url, "--server", server.url)
        until(lambda: "chat" in text_of(server, "/services"))
        until(lambda: energy() > 0)
        shown = text_of(server, "/services/chat")
        assert "vLLM with m" in shown
        assert "2 × Tesla V100" in shown
        assert "ttft p99" in shown

        first.kill()
        first.communicate()
        before = energy()
        server.process.kill()
        server.process.communicate()
        spans = stored(storage).spans
        assert math.fsum(each.energy for each in spans) <= before * (1 + 1e-9)
        assert zeus("restore").returncode == 0

        # The other way round: a controller that is there first waits for a server that comes back.
        again = start(*SLO, "--to", url, "--server", server.url)
        until(lambda: get_gpus()[0].locked_graphics_clock() is not None)
        server = Server(storage, "--no-token", port=server.port)
        until(lambda: energy() > before)
        assert "not heard of since" in text_of(server, "/services/chat")  # of the run before
        again.send_signal(signal.SIGTERM)
        _, err = again.communicate(timeout=LONG_ENOUGH)
        assert (again.returncode, err) == (0, "")
        shown = text_of(server, "/services/chat")
        assert "This run ended" in shown
        assert server.stop() == ""
    found = stored(storage)
    assert found.runs is not None
    latest, killed = found.runs.latest, found.runs.past[0]
    assert killed.ended is None
    assert killed.state.energy == pytest.approx(before)
    assert latest.ended is not None
    assert found.spans[: len(spans)] == spans  # nothing that was acknowledged is lost
    reported = math.fsum(each.energy for each in found.spans[len(spans) :])
    assert reported == pytest.approx(latest.state.energy)  # and nothing counts twice


def test_a_url_that_is_none_of_a_server_is_refused():
    done = zeus(*SLO, "--to", "http://127.0.0.1:9", "--server", "gpu1:8420")
    assert "must be a URL such as http://localhost:8420" in one_error_line(done)


def test_a_server_that_is_not_there_costs_a_line(monkeypatch):
    monkeypatch.setenv("ZEUS_SERVER", "http://127.0.0.1:9")
    with serving(BusyServer()) as url:
        process = start(*SLO, "--to", url)
        until(lambda: get_gpus()[0].locked_graphics_clock() is not None)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONG_ENOUGH)
    assert (process.returncode, err) == (0, "")
    assert out.count("reports: the server http://127.0.0.1:9 cannot be reached") == 1
    assert "ttft p99 1.5 s: kept" in out
    assert get_gpus()[0].locked_graphics_clock() is None
