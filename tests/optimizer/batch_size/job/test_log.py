"""The rules of the order of events, and what follows from them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.optimizer.batch_size.histories import decided, spec

from zeus.errors import JobLogError
from zeus.optimizer.batch_size.job._events import (
    Decided,
    Ended,
    EpochReported,
    Profiled,
    Resumed,
)
from zeus.optimizer.batch_size.job._job_batch import Role
from zeus.optimizer.batch_size.job._log import JobLog, Trial
from zeus.optimizer.batch_size.policies._job_state import JobState


def begin(trial=1, **changes) -> Decided:
    values = {
        "request": f"r{trial}",
        "recurrence": trial,
        "gpu": "NVIDIA A40",
        "max_power": 300.0,
        "batch_size": 64,
        "role": Role.EXPLORE,
        **changes,
    }
    return Decided(trial=trial, at=1.0, **values)


def epoch(trial=1, number=1, **changes) -> EpochReported:
    values = {"time": 2.0, "energy": 400.0, "metric": 0.5, **changes}
    return EpochReported(trial=trial, at=2.0, epoch=number, **values)


def end(trial=1, outcome="failed", **changes) -> Ended:
    return Ended(trial=trial, at=3.0, outcome=outcome, **changes)


@pytest.mark.parametrize(
    ("before", "event", "rule"),
    [
        ([], epoch(), "there are 0 trials, but got trial=1"),
        ([], begin(2), "`trial == 1` must hold"),
        ([], begin(recurrence=2), "`recurrence == 1` must hold"),
        ([], begin(batch_size=65), "`batch_size` must be one of"),
        ([], begin(replicas=3), "must be a multiple of `replicas`"),
        ([], begin(power=0), "`power < 0` must hold"),
        ([begin()], begin(2, recurrence=1, attempt=1, retry_of=1), "still runs"),
        ([begin(), end()], begin(2, recurrence=1, attempt=2, retry_of=1), "`attempt == 1`"),
        ([begin(), end(outcome="converged")], begin(2, retry_of=1, attempt=1), "converged"),
        ([begin()], epoch(number=2), "epoch 1 of trial 1 comes next, but got epoch=2"),
        ([begin(), epoch()], epoch(), "epoch 2 of trial 1 comes next, but got epoch=1"),
        ([begin(), end()], epoch(), "trial 1 is over: it failed"),
        ([begin(), end(outcome="converged")], end(), "trial 1 is over"),
        ([begin(), end(outcome="stopped")], end(), "was stopped"),
        ([begin()], Resumed(trial=1, at=1.0), "cannot go on"),
        ([begin(), end()], Resumed(trial=1, at=1.0), "cannot go on"),
        ([], Profiled(trial=1, at=1.0, gpu="A", batch_size=16), "but got trial=1"),
        ([], Profiled(trial=0, at=1.0, gpu="A", batch_size=17), "`batch_size` must be one of"),
    ],
)
def test_events_out_of_order_are_refused_and_change_nothing(before, event, rule):
    log = JobLog(spec())
    log.extend(before)
    unchanged = repr(log)
    with pytest.raises(JobLogError, match=rule):
        log.append(event)
    assert repr(log) == unchanged


def test_epochs_are_bounded_by_the_job():
    log = JobLog(spec(max_epochs=1))
    log.extend([begin(), epoch()])
    with pytest.raises(JobLogError, match="`epoch <= 1` must hold"):
        log.append(epoch(number=2))


def test_a_trial_adds_up_what_it_cost():
    log = JobLog(spec(eta_knob=0.5))
    log.extend([begin(), epoch(energy=400.0), epoch(number=2, energy=300.0, power_limit=200.0)])
    trial = log.open[1]
    first, second = 0.5 * 400 + 0.5 * 300 * 2, 0.5 * 300 + 0.5 * 300 * 2
    assert (trial.epochs, trial.time, trial.energy) == (2, 4.0, 700.0)
    assert trial.cost == first + second
    assert (trial.first_cost, trial.settled_cost) == (first, second)
    assert trial.load == 300 / 2 / 200
    log.append(end(time=1.0, energy=100.0))
    assert trial.cost == first + second + 0.5 * 100 + 0.5 * 300
    assert not trial.unmeasured


def test_energy_that_was_not_measured_counts_as_the_most_it_can_be():
    log = JobLog(spec(eta_knob=1.0))
    log.extend([begin(), epoch(energy=None, time=2.0)])
    assert log.open[1].cost == 600.0
    assert log.open[1].energy == 0.0
    assert log.open[1].unmeasured


def test_a_trial_can_be_retried_once():
    log = JobLog(spec())
    log.extend([begin(), end(), begin(2, recurrence=1, attempt=1, retry_of=1)])
    assert log.recurrences == 1
    log.append(end(2))
    with pytest.raises(JobLogError, match="was retried"):
        log.append(begin(3, recurrence=1, attempt=1, retry_of=1))
    log.append(begin(3, recurrence=1, attempt=2, retry_of=2))
    log.append(begin(4, recurrence=2))
    assert log.recurrences == 2


def test_a_trial_goes_on_after_its_lease_had_expired_but_explores_no_more():
    log = JobLog(spec())
    log.extend([begin(), epoch(), end(outcome="expired"), Resumed(trial=1, at=4.0)])
    assert log.open[1].role == Role.EXPLOIT
    log.append(epoch(number=2))
    assert log.open[1].epochs == 2
    log.append(end(outcome="converged"))
    assert not log.over


def test_only_the_latest_trials_are_remembered():
    log = JobLog(spec())
    for number in range(1, 101):
        log.extend([begin(number), end(number)])
    assert list(log.over) == list(range(37, 101))
    with pytest.raises(JobLogError, match="ended long ago"):
        log.retried(1)


def test_trials_survive_json():
    brain = JobState(spec())
    brain.apply(decided(brain, 1.0))
    brain.apply(replace(epoch(), at=2.0))
    trial = brain.log.open[1]
    assert Trial.from_dict(json.loads(json.dumps(trial.to_dict()))) == trial
