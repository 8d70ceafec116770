"""Notes of runs in files: whole, bounded, and nobody else's."""

from __future__ import annotations

import json
import logging
import os

import pytest
from tests.optimizer.batch_size.clients import job, opened, trials

from zeus.errors import ServerError, StorageError, TokenError
from zeus.optimizer.batch_size.api._commands import (
    CreateJob,
    Decide,
    ListJobs,
    ListTrials,
    ReportEpoch,
    ShowLog,
)
from zeus.optimizer.batch_size.api._remote import RemoteJobs
from zeus.optimizer.batch_size.running import _run_report as notes_module
from zeus.optimizer.batch_size.running import _spool as spool_module
from zeus.optimizer.batch_size.running._run_report import RunReport
from zeus.optimizer.batch_size.running._spool import Spool

PLACE = "http://127.0.0.1:8420"


@pytest.fixture
def storage(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


class Wall:
    """A clock on the wall, which tests set."""

    time = 1e9

    def __call__(self):
        return self.time


@pytest.fixture
def wall():
    return Wall()


@pytest.fixture
def spool(tmp_path, wall):
    return Spool(tmp_path / "undelivered", wall)


def written(at=1.0, epochs=2, metric=0.95, **changes):
    given = {
        "place": PLACE, "spec": job(), "gpu": "V100", "gpus": 1, "max_power": 250.0,
        "batch_size": 32, "at": at,
    }  # fmt: skip
    notes = RunReport(**{**given, **changes})
    for number in range(1, epochs + 1):
        notes.note_epoch(10.0, 1500.0, metric if number == epochs else 0.1)
    return notes


def files(spool):
    return sorted(spool.directory.glob("*.json"))


def test_notes_come_back_as_they_were(spool):
    notes = written(retry_of="1-2", lease=60.0)
    notes.end = {"outcome": "failed", "note": "é\n"}
    spool.save(notes)
    assert spool.find(notes.request) == notes
    assert spool.find("another") is None
    (path,) = files(spool)
    assert path.stat().st_mode & 0o077 == 0
    spool.remove(notes)
    spool.remove(notes)
    assert files(spool) == []


def test_what_is_delivered_twice_counts_once(spool, storage):
    notes = written()
    spool.save(notes)
    with opened(storage) as jobs:
        assert spool.deliver(jobs, PLACE, within=60) == 1
        assert files(spool) == []
        spool.save(notes)  # by somebody who did not notice
        assert spool.deliver(jobs, PLACE, within=60) == 1
    (trial,) = trials(storage)
    assert (trial.state, trial.epochs, trial.time, trial.energy) == ("converged", 2, 20.0, 3000.0)


class Breaks:
    """Jobs whose connection breaks after so many answers, each of which was carried out."""

    def __init__(self, jobs, after):
        self._jobs, self._left = jobs, after

    def do(self, command):
        answer = self._jobs.do(command)
        self._left -= 1
        if self._left < 0:
            raise StorageError("gone")
        return answer


@pytest.mark.parametrize("after", range(6))
def test_an_answer_that_gets_lost_changes_nothing(spool, storage, wall, after):
    notes = written(epochs=3)
    spool.save(notes)
    with opened(storage) as jobs:
        if after < 5:
            assert spool.deliver(Breaks(jobs, after), PLACE, within=60) == 0
            assert len(files(spool)) == 1
            wall.time += 61.0
        assert spool.deliver(jobs, PLACE, within=60) == 1
        log = jobs.do(ShowLog(job="nightly"))
    assert files(spool) == []
    assert [event["kind"] for event in log] == ["decided", "epoch", "epoch", "epoch", "ended"]


def test_runs_are_told_of_in_their_order_and_only_to_whom_it_concerns(spool, storage):
    for number in (3, 1, 2):
        spool.save(written(at=float(number), request=f"run {number}", epochs=1))
    spool.save(written(place="http://elsewhere:1"))
    mine = written(request="mine")
    spool.save(mine)
    with opened(storage) as jobs:
        assert spool.deliver(jobs, PLACE, but="mine", within=60) == 3
        log = [event for event in jobs.do(ShowLog(job="nightly")) if event["kind"] == "decided"]
    asked = [event["request"] for event in log]
    assert [text[:5] for text in asked] == ["run 1", "run 2", "run 3"]
    assert len(files(spool)) == 2


def test_a_run_that_had_more_to_say_meanwhile_keeps_its_file(spool, storage):
    notes = written(epochs=1, metric=0.2)
    spool.save(notes)

    class Meanwhile(Breaks):
        def do(self, command):
            if isinstance(command, ReportEpoch):
                notes.note_epoch(10.0, 1500.0, 0.95)
                spool.save(notes)
            return super().do(command)

    with opened(storage) as jobs:
        spool.deliver(Meanwhile(jobs, 99), PLACE, within=60)
        assert len(files(spool)) == 1
        spool.deliver(jobs, PLACE, within=60)
    assert files(spool) == []
    (trial,) = trials(storage)
    assert (trial.state, trial.epochs) == ("converged", 2)


def test_what_takes_too_long_is_told_bit_by_bit(spool, storage):
    spool.save(written(epochs=3))
    spool.save(written(at=2.0, request="second", epochs=1))
    with opened(storage) as jobs:
        for _ in range(2):
            assert spool.deliver(jobs, PLACE, within=0) == 0
            assert len(files(spool)) == 2
        assert spool.deliver(jobs, PLACE, within=60) == 2
        log = [
            event["epoch"] for event in jobs.do(ShowLog(job="nightly")) if event["kind"] == "epoch"
        ]
        assert [trial.batch_size for trial in jobs.do(ListTrials(job="nightly"))] == [32, 32]
    assert files(spool) == []
    assert log == [1, 2, 3, 1]


def test_there_is_a_bound(spool, monkeypatch, caplog):
    monkeypatch.setattr(spool_module, "MAX_FILES", 3)
    monkeypatch.setattr(notes_module, "MAX_EPOCHS", 5)
    for number in range(5):
        spool.save(written(request=str(number), epochs=9))
        for path in files(spool):  # file systems may not tell them apart otherwise
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 10))
    assert len(files(spool)) == 3
    assert [spool.find(str(n)) is None for n in range(5)] == [True, True, False, False, False]
    assert len(spool.find("4").epochs) == 5
    assert sum("was given up" in record.message for record in caplog.records) == 2


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"format": "other"}', '{"format": "zeus-undelivered", "version": 1}'],
)
def test_what_is_no_note_is_set_aside(spool, storage, text, caplog):
    spool.save(written())
    (path,) = files(spool)
    path.write_text(text)
    with opened(storage) as jobs, caplog.at_level(logging.WARNING):
        assert spool.deliver(jobs, PLACE, within=60) == 0
    assert files(spool) == []
    assert path.with_suffix(".unreadable").read_text() == text
    assert "cannot be read and is kept" in caplog.text


def test_a_newer_version_is_left_for_whoever_knows_it(spool, storage):
    spool.save(written())
    (path,) = files(spool)
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "version": 2, "new": "thing"}))
    with opened(storage) as jobs:
        assert spool.deliver(jobs, PLACE, within=60) == 0
    assert path.exists()


def test_notes_that_are_not_ours_to_tell_hold_up_nobody(spool, storage):
    spool.save(written(at=1.0, spec=job("theirs")))
    spool.save(written(at=2.0))

    class Scoped(Breaks):
        def do(self, command):
            if isinstance(command, CreateJob) and command.spec.name != "nightly":
                raise TokenError("the token is for job 'nightly' only")
            return super().do(command)

    with opened(storage) as jobs:
        assert spool.deliver(Scoped(jobs, 99), PLACE, within=60) == 1
        assert [info.name for info in jobs.do(ListJobs())] == ["nightly"]
        assert len(files(spool)) == 1
        assert spool.deliver(jobs, PLACE, within=60) == 1
    assert [trial.state for trial in trials(storage, "theirs")] == ["converged"]


def test_what_is_refused_is_given_up(spool, storage, caplog):
    with opened(storage) as jobs:
        jobs.do(CreateJob(spec=job(beta=3.0)))
        spool.save(written())
        assert spool.deliver(jobs, PLACE, within=60) == 1
    assert files(spool) == []
    assert "beta is 3.0, not 2.0" in caplog.text


class Refuses(Breaks):
    """Jobs that cannot take the reports of some runs, by the model of their GPUs."""

    def do(self, command):
        if isinstance(command, Decide) and command.gpu == "cursed":
            raise ServerError("the server answers 500: the server has failed; its log says why")
        return super().do(command)


def test_a_run_that_cannot_be_told_of_holds_up_nobody_and_is_tried_ever_more_rarely(
    spool, storage, wall, caplog
):
    spool.save(written(at=1.0, gpu="cursed", request="first"))
    spool.save(written(at=2.0, request="second"))
    with opened(storage) as jobs:
        refuses = Refuses(jobs, 99)
        assert spool.deliver(refuses, PLACE, within=60) == 1
        assert "trial 'first' is not delivered, and is tried again in 60 s" in caplog.text
        pauses: list[float] = []
        tried = 1
        while len(pauses) < 14:
            began = wall.time
            while sum("is not delivered" in each for each in caplog.messages) == tried:
                wall.time += 30.0
                assert spool.deliver(refuses, PLACE, within=60) == 0
            tried += 1
            pauses.append(wall.time - began)
        assert pauses[:3] == [60.0, 120.0, 240.0]
        assert pauses[-2:] == [86_400.0, 86_400.0]
        wall.time -= 1e8  # whatever the clock does, it does not wait for years
        assert spool.deliver(jobs, PLACE, within=60) == 1
    assert files(spool) == []


def test_a_server_that_is_not_there_says_nothing_about_what_is_kept(spool, wall):
    for number in range(3):
        spool.save(written(at=float(number), request=str(number), place="http://127.0.0.1:9"))
    api = RemoteJobs("http://127.0.0.1:9", timeout=5.0)
    assert spool.deliver(api, "http://127.0.0.1:9", within=60) == 0
    assert [json.loads(path.read_text())["failures"] for path in files(spool)] == [0, 0, 0]
