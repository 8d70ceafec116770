"""Events: their values keep the rules, and survive JSON."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.optimizer.batch_size.histories import random_history, spec

from zeus.errors import JobLogError
from zeus.optimizer.batch_size.job._events import (
    Decided,
    Ended,
    EpochReported,
    Profiled,
    event_from,
)
from zeus.optimizer.batch_size.job._job_batch import Role
from zeus.optimizer.batch_size.job._reasons import reason


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


@given(st.integers(0, 1000), st.sampled_from(["zeus", "paper", "grid", "default"]))
def test_events_survive_json(seed, policy):
    for event in random_history(spec(policy=policy), seed, 25):
        assert event_from(json.loads(json.dumps(event.to_dict()))) == event


def test_a_profile_with_its_frontier_survives_json():
    event = Profiled(trial=0, at=1.0, gpu="A", batch_size=16, frontier={"points": [1, 2]})
    assert event_from(json.loads(json.dumps(event.to_dict()))) == event


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: begin(trial=0), "1 <= trial"),
        (lambda: begin(gpu=""), "`gpu` must not be empty"),
        (lambda: begin(gpu="a\x00b"), "`gpu` must be printable"),
        (lambda: begin(gpu="\ud800"), "`gpu` must be printable"),
        (lambda: begin(gpu="x" * 201), "at most 200 characters, but got 201"),
        (lambda: begin(request=7), "`request` must be a text"),
        (lambda: begin(max_power=0), "0 < max_power"),
        (lambda: begin(max_power=True), "`max_power` must be a number"),
        (lambda: begin(max_power=10**400), "max_power <= 1e"),
        (lambda: begin(memory=0), "1 <= memory"),
        (lambda: begin(memory=1.5), "`memory` must be a whole number"),
        (lambda: begin(replicas=0), "1 <= replicas"),
        (lambda: begin(max_local_batch_size=0), "1 <= max_local_batch_size"),
        (lambda: begin(gpus=1.5), "`gpus` must be a whole number"),
        (lambda: begin(role="boss"), "`role` must be one of default, explore"),
        (lambda: begin(attempt=1), "`attempt > 0` and `retry_of`"),
        (lambda: begin(retry_of=1), "`attempt > 0` and `retry_of`"),
        (lambda: begin(threshold=math.inf), "threshold"),
        (lambda: epoch(number=0), "1 <= epoch"),
        (lambda: epoch(time=0), "0 < time"),
        (lambda: epoch(time=math.nan), "time"),
        (lambda: epoch(energy=-1), "0 <= energy"),
        (lambda: epoch(metric=math.inf), "metric"),
        (lambda: epoch(metric="good"), "`metric` must be a number"),
        (lambda: end(outcome="won"), "`outcome` must be one of converged"),
        (lambda: end(note=3), "`note` must be a text"),
        (
            lambda: Profiled(
                trial=0,
                at=1.0,
                gpu="A",
                batch_size=1,
                frontier=[],  # type: ignore[arg-type]
            ),
            "frontier",
        ),
        (lambda: event_from({"kind": "party", "trial": 1, "at": 1.0}), "`kind` must be one of"),
        (lambda: event_from({"kind": "ended"}), "an event needs trial, at"),
        (lambda: event_from({**end().to_dict(), "colour": "red"}), "is not made of"),
    ],
)
def test_values_break_a_rule_by_name(make, rule):
    with pytest.raises(JobLogError, match=rule.replace("(", r"\(")):
        make()


def test_an_event_without_memory_and_shares_is_read_as_unknown():
    old = begin().to_dict()
    for name in ("memory", "replicas", "max_local_batch_size"):
        del old[name]
    found = event_from(old)
    assert isinstance(found, Decided)
    assert (found.memory, found.replicas, found.max_local_batch_size) == (None, None, None)


@pytest.mark.parametrize(
    ("changes", "local"),
    [
        ({}, 64),
        ({"gpus": 4}, 16),  # one replica per GPU, unless stated
        ({"gpus": 4, "replicas": 2}, 32),
        ({"gpus": 4, "max_local_batch_size": 10}, 8),
        ({"gpus": 3}, 22),  # not equal: the largest share counts
    ],
)
def test_what_must_fit_in_the_memory_of_a_gpu(changes, local):
    assert begin(**changes).local_batch_size == local


def test_an_error_is_short_whatever_was_sent():
    with pytest.raises(JobLogError) as found:
        epoch(number=10**5000)
    assert len(str(found.value)) < 300
    with pytest.raises(JobLogError) as found:
        begin(gpu=["x" * 10_000])
    assert len(str(found.value)) < 300


def test_a_long_note_is_cut_and_made_printable():
    assert len(end(note="x" * 5000).note) == 2000
    assert end(note="a\x00b\nc").note == "a�b\nc"


def test_decisions_of_older_versions_say_nothing_of_their_worth():
    record = begin(saving=0.1, worth=2.0).to_dict()
    worth = ("against", "saving", "saving_low", "saving_high", "worth", "horizon", "risk")
    old = event_from({name: value for name, value in record.items() if name not in worth})
    assert isinstance(old, Decided)
    assert {getattr(old, name) for name in worth} == {None}
    assert reason(spec(), old) == "to learn what this batch size costs"
