"""Servers that are down, late, slow or out of their mind: training goes on, nothing is lost."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.optimizer.batch_size.clients import (
    EPOCHS,
    free_port,
    hangs,
    job,
    opened,
    says,
    strange_server,
    train,
    trials,
    watch,
)
from tests.present import present
from tests.server.child import Server, serving

from zeus.errors import TokenError
from zeus.optimizer import BatchSizeOptimizer
from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.api._commands import Decide, DeleteJob, ListTrials, ShowJob, ShowLog
from zeus.optimizer.batch_size.api._remote import RemoteJobs
from zeus.optimizer.batch_size.running import _reporter as reporter
from zeus.optimizer.batch_size.storage import reading_jobs
from zeus.store import Store, Tokens
from zeus.testing import SimulatedNode

FEW: dict[str, Any] = {"steps": 3}


@pytest.fixture
def storage(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def node():
    with SimulatedNode("v100") as simulated:
        yield simulated


@pytest.fixture
def at_once(monkeypatch):
    """Whoever was not there is asked again at once, however long it took to find that out.

    A busy host may take long for that, and these tests have few epochs.
    """
    monkeypatch.setattr(reporter, "_PATIENCE", 0.0)


def make(node, url, **options):
    options = {"timeout": 60.0, **options}
    return BatchSizeOptimizer(watch(node), url, options.pop("spec", None) or job(), **options)


def kept():
    """Files that wait to be delivered."""
    return sorted(Path(os.environ["ZEUS_STATE_DIR"]).glob("undelivered/*.json"))


def warnings(caplog):
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


# --- away for a while -----------------------------------------------------------------------------


def test_a_server_that_comes_late_gets_everything_once(node, storage, caplog):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with caplog.at_level(logging.INFO):
        done = train(node, make(node, url), **FEW)
    assert (done.get_batch_size(), done.outcome) == (32, Outcome.CONVERGED)
    assert done.decision.trial == ""
    assert "no decision is available" in done.decision.reason
    (said,) = warnings(caplog)
    assert "training goes on without it" in said
    assert "Connection refused" in said
    assert len(kept()) == 1
    server = Server(storage, port=port)
    try:
        # The next client delivers before it asks for itself.
        second = make(node, url)
        assert second.decision.recurrence == 2
        assert kept() == []
        # Somebody has the same notes and did not notice: nothing is counted twice.
        train(node, second, **FEW)
        third = make(node, url)
        assert third.decision.recurrence == 3
        third.close()
    finally:
        assert server.stop() == ""
    first, *_ = trials(storage)
    assert (first.state, first.batch_size, first.epochs) == ("converged", 32, EPOCHS[32])
    assert first.time == pytest.approx(sum(record.total.time for record in done.history))
    assert first.energy == pytest.approx(
        sum(present(record.total.energy) for record in done.history)
    )


@pytest.mark.usefixtures("at_once")
def test_a_server_that_is_killed_and_comes_back_misses_nothing(node, storage, caplog):
    server = Server(storage)

    def interfere(epoch):
        nonlocal server
        if epoch == 1:
            server.stop(signal.SIGKILL)
        if epoch == 3:
            assert len(kept()) == 1
            server = Server(storage, port=server.port)

    try:
        with caplog.at_level(logging.INFO):
            done = train(node, make(node, server.url), needed={32: 5}, after_epoch=interfere, **FEW)
        assert done.decision.trial
        assert done.outcome is Outcome.CONVERGED
    finally:
        assert server.stop() == ""
    assert kept() == []
    assert sum("goes on without it" in said for said in warnings(caplog)) == 1
    assert "is reached again" in caplog.text
    (trial,) = trials(storage)
    assert (trial.state, trial.epochs) == ("converged", 5)
    with opened(storage) as jobs:
        reported = [event for event in jobs.do(ShowLog(job="nightly")) if event["kind"] == "epoch"]
    assert [event["epoch"] for event in reported] == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("at_once")
def test_a_server_that_comes_amid_the_run_is_followed_from_then_on(node, storage):
    port = free_port()
    server: Server | None = None

    def come(epoch):
        nonlocal server
        if epoch == 2:
            assert len(kept()) == 1
            server = Server(storage, port=port)
        if epoch == 3:
            assert kept() == []
            assert [
                trial.epochs for trial in present(server).jobs().do(ListTrials(job="nightly"))
            ] == [3]

    url = f"http://127.0.0.1:{port}"
    done = train(node, make(node, url), needed={32: 5}, after_epoch=come, **FEW)
    assert present(server).stop() == ""
    assert done.outcome is Outcome.CONVERGED
    (trial,) = trials(storage)
    assert (trial.state, trial.epochs) == ("converged", 5)


def test_a_threshold_holds_while_nobody_can_be_asked(node, storage):
    server = Server(storage)
    spec = job(batch_sizes=(16, 32), beta=1.5)
    train(node, make(node, server.url, spec=spec), needed={32: 4}, **FEW)
    second = make(node, server.url, spec=spec)
    assert second.get_batch_size() == 16
    threshold = second.decision.threshold
    assert threshold is not None
    server.stop(signal.SIGKILL)
    train(node, second, needed={16: 99}, steps=6)
    assert second.outcome is Outcome.STOPPED
    assert sum(record.cost for record in second.history) <= threshold
    (path,) = kept()
    again = Server(storage, port=server.port)
    try:
        make(node, again.url, spec=spec).get_batch_size()
    finally:
        again.stop()
    assert not path.exists()
    assert trials(storage)[1].state in ("stopped", "cancelled")


@pytest.mark.parametrize("lost", [False, True], ids=["not asked", "answer lost"])
@pytest.mark.parametrize("policy", ["zeus", "paper"])
def test_a_run_that_could_not_ask_counts_as_what_it_was(node, tmp_path, caplog, policy, lost):
    there, away = tmp_path / "there", tmp_path / "away"
    there.mkdir()
    storage = f"sqlite:///{there}/jobs.db"
    spec = job(policy=policy)
    train(node, make(node, None, spec=spec, storage=storage), **FEW)
    there.rename(away)
    offline = train(node, make(node, None, spec=spec, storage=storage), **FEW)
    assert (offline.get_batch_size(), offline.decision.trial) == (32, "")
    away.rename(there)
    (path,) = kept()
    notes = json.loads(path.read_text())
    if lost:  # it was asked and decided, but nobody heard
        asked = {name: notes[name] for name in ("gpu", "gpus", "max_power", "request")}
        with opened(storage) as jobs:
            assert jobs.do(Decide(job="nightly", **asked)).batch_size == 16
    caplog.clear()
    assert make(node, None, spec=spec, storage=storage).get_batch_size() == 16
    assert kept() == []
    second = trials(storage)[1]
    if lost:
        assert any("counts for its profile only" in said for said in warnings(caplog))
        assert (second.state, second.epochs, second.cost) == ("cancelled", 0, 0.0)
        assert "ran with batch size 32" in second.note
    else:
        assert warnings(caplog) == []
        assert (second.state, second.batch_size, second.role) == ("converged", 32, "default")
        assert second.cost == pytest.approx(sum(present(record.cost) for record in offline.history))


def test_a_token_that_is_missing_stops_nobody(node, storage, tmp_path, monkeypatch, caplog):
    store = Store(storage)
    secret, _ = Tokens(store).create(job="nightly", now=time.time())
    store.close()
    with serving(storage) as server:
        # As in a container, which does not see the file of the server's user.
        monkeypatch.setenv("ZEUS_STATE_DIR", str(tmp_path / "elsewhere"))
        with caplog.at_level(logging.WARNING):
            done = train(node, make(node, server.url), **FEW)
        assert (done.outcome, done.decision.trial) == (Outcome.CONVERGED, "")
        assert "in a container, or as another user, set ZEUS_TOKEN" in caplog.text
        with pytest.raises(TokenError):
            RemoteJobs(server.url).do(ShowJob(job="nightly"))
        assert len(kept()) == 1
        monkeypatch.setenv("ZEUS_TOKEN", secret)
        assert make(node, server.url).decision.recurrence == 2
        assert kept() == []


# --- out of their mind ----------------------------------------------------------------------------


@pytest.mark.real_time
def test_a_server_that_hangs_costs_a_bounded_time(node, caplog):
    with strange_server(hangs) as server:
        done = train(node, make(node, server.url, timeout=0.2), **FEW)
        # Having waited once, the next question has to wait ten times as long.
        assert server.asked <= 3
    assert (done.get_batch_size(), done.outcome) == (32, Outcome.CONVERGED)
    assert "no answer within 0.2 s" in caplog.text
    assert len(kept()) == 1


def test_a_server_that_is_slow_costs_a_bounded_time(node, monkeypatch, caplog):
    monkeypatch.setattr(reporter, "_SLOW", 0.01)
    monkeypatch.setattr(reporter, "_PATIENCE", 1e6)
    asked = []
    verdict = {**DECISION, "go_on": True, "outcome": None}

    def slowly(connection):
        time.sleep(0.02)
        profiles = b"/profiles " in connection.recv(65536, socket.MSG_PEEK)
        says("[]" if profiles else json.dumps(verdict))(connection)

    with strange_server(slowly) as server:
        train(node, make(node, server.url), after_epoch=lambda _: asked.append(server.asked), **FEW)
        # Having told one epoch, it trains for much longer before it tells the next; but in the end
        # all is told.
        first, second, last = asked
        assert first == second < last == first + 2
    assert kept() == []
    assert warnings(caplog) == []


DECISION = {
    "trial": "1-1", "job": "nightly", "recurrence": 1, "attempt": 0, "batch_size": 32,
    "optimize_power": True, "power_limit": None, "learning_rate_scale": 1.0, "threshold": None,
    "expected_epochs": None, "role": "default", "reason": "", "lease": 600.0,
    "name": "nightly", "spec": {}, "created": 0.0, "updated": 0.0, "recurrences": 0, "trials": 0,
    "running": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "<html>It works!</html>",
        "[]",
        "null",
        '"yes"',
        "{}",
        json.dumps({**DECISION, "batch_size": 33}),
        json.dumps({**DECISION, "batch_size": 32.0}),
        json.dumps({**DECISION, "batch_size": [32]}),
        json.dumps({**DECISION, "trial": None}),
        json.dumps({**DECISION, "learning_rate_scale": float("nan")}),
        json.dumps({**DECISION, "threshold": -1}),
        json.dumps({**DECISION, "power_limit": "high"}),
        json.dumps({**DECISION, "lease": 0}),
        "[" * 100_000,
    ],
)
def test_nonsense_is_not_followed(node, answer, caplog):
    with strange_server(says(answer)) as server:
        optimizer = make(node, server.url)
        assert optimizer.get_batch_size() == 32
        assert optimizer.learning_rate_scale == 1.0
        assert optimizer.decision.trial == ""
        optimizer.close()
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize(
    "verdict",
    [
        {"go_on": True, "outcome": None, "reason": ""},
        {"go_on": "no", "outcome": None, "reason": ""},
        {"go_on": False, "outcome": "bored", "reason": ""},
    ],
    ids=["always", "type", "outcome"],
)
def test_nobody_keeps_a_run_from_ending(node, verdict):
    with strange_server(says(json.dumps({**DECISION, **verdict}))) as server:
        done = train(node, make(node, server.url), **FEW)
        assert done.outcome is Outcome.CONVERGED
        done = train(node, make(node, server.url), needed={32: 99}, **FEW)
        assert (done.outcome, len(done.history)) == (Outcome.EXHAUSTED, 8)


def test_a_connection_that_breaks_is_no_answer(node):
    with strange_server(lambda connection: connection.close()) as server:
        done = train(node, make(node, server.url), **FEW)
    assert done.outcome is Outcome.CONVERGED


def test_a_store_that_cannot_be_opened_stops_nobody(node, tmp_path, caplog):
    optimizer = make(node, None, storage=f"sqlite:///{tmp_path}/nowhere/jobs.db")
    done = train(node, optimizer, **FEW)
    assert done.outcome is Outcome.CONVERGED
    assert "No such file or directory" in caplog.text
    (tmp_path / "nowhere").mkdir()
    storage = f"sqlite:///{tmp_path}/nowhere/jobs.db"
    assert make(node, None, storage=storage).decision.recurrence == 2
    assert trials(storage)[0].state == "converged"


def test_a_job_that_is_deleted_meanwhile_trains_to_its_end(node, storage, caplog):
    def delete(epoch):
        if epoch == 1:
            with opened(storage) as jobs:
                jobs.do(DeleteJob(job="nightly"))

    done = train(node, make(node, None, storage=storage), after_epoch=delete, **FEW)
    assert done.outcome is Outcome.CONVERGED
    assert sum("not accepted any more" in said for said in warnings(caplog)) == 1
    assert kept() == []


def test_no_place_for_state_is_no_reason_to_stop(node, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ZEUS_STATE_DIR", str(tmp_path / "file" / "state"))
    optimizer = make(node, f"http://127.0.0.1:{free_port()}")
    done = train(node, optimizer, **FEW)
    assert done.outcome is Outcome.CONVERGED
    assert "cannot be kept for later" in caplog.text


# --- leases ---------------------------------------------------------------------------------------

ALIVE = """
import sys, time
from zeus.monitor import ZeusMonitor
from zeus.optimizer import BatchSizeOptimizer
from tests.optimizer.batch_size.clients import job
optimizer = BatchSizeOptimizer(ZeusMonitor([], []), job=job(), storage=sys.argv[1], lease=3.0)
optimizer.on_train_begin()
print("ready", flush=True)
time.sleep(600)
"""


def leased_until(storage):
    """When the lease of the first trial ends, unless it is renewed; looking changes nothing."""
    store = Store(storage)
    with reading_jobs(store) as view:
        trial = view.trial(present(view.job("nightly")).id, 1)
    store.close()
    return present(trial)["lease_until"]


@pytest.mark.real_time
def test_a_lease_is_renewed_while_the_process_lives_and_ends_with_it(node, storage):
    process = subprocess.Popen(
        [sys.executable, "-c", ALIVE, storage],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[4],
    )
    try:
        assert present(process.stdout).readline() == "ready\n"
        first, deadline = leased_until(storage), time.monotonic() + 120
        while leased_until(storage) == first:  # in an epoch that goes on
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with opened(storage) as jobs:
            assert [trial.state for trial in jobs.do(ListTrials(job="nightly"))] == ["running"]
    finally:
        process.kill()
        process.wait()
        present(process.stdout).close()
    deadline = time.monotonic() + 120
    with opened(storage) as jobs:
        while (
            jobs.do(ListTrials(job="nightly"))[0].state == "running" and time.monotonic() < deadline
        ):
            time.sleep(0.1)
            jobs.sweep()
    done = train(node, make(node, None, storage=storage), **FEW)
    assert done.get_batch_size() == 32  # the default is still to be explored
    assert [trial.state for trial in trials(storage)] == ["expired", "converged"]
