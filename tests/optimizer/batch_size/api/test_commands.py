"""The API of recurring jobs: every command has a place of its own, and names what it is about."""

from __future__ import annotations

from dataclasses import MISSING, fields
from inspect import getdoc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.optimizer.batch_size.histories import spec

from zeus.errors import JobSpecError, UnknownJobError
from zeus.optimizer.batch_size.api._commands import (
    COMMANDS,
    MAX_TRIALS,
    CreateJob,
    Decide,
    ReportEpoch,
    ShowJob,
    trial_key,
    trial_name,
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_describes_a_request(command):
    assert command.method in ("GET", "POST", "PUT", "DELETE")
    assert command.path.startswith("/api/")
    known = {field.name for field in fields(command)}
    assert set(command.in_path().values()) <= known
    assert str(getdoc(command)).partition("\n")[0].endswith(".")


def test_no_two_commands_have_one_place():
    places = [(command.method, command.path) for command in COMMANDS]
    assert len(set(places)) == len(COMMANDS)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.method == "GET"])
def test_what_is_read_has_defaults(command):
    for field in fields(command):
        if field.name not in command.in_path().values():
            assert field.default is not MISSING or field.default_factory is not MISSING, field.name


def test_every_request_of_a_client_has_a_key_of_its_own():
    first, second = (Decide(job="a", gpu="A40", max_power=300.0) for _ in range(2))
    assert first.request != second.request


def test_a_command_names_its_job_or_its_trial():
    assert ShowJob(job="nightly").job_name() == "nightly"
    assert ShowJob(job="nightly").trial_key() is None
    report = ReportEpoch(trial="7-3", epoch=1, time=1.0)
    assert report.trial_key() == (7, 3)
    assert report.job_name() is None
    assert CreateJob(spec=spec("nightly")).job_name() == "nightly"


@pytest.mark.parametrize("name", ["a/b", ".", ".."])
def test_a_job_needs_a_name_that_can_be_in_a_url(name):
    with pytest.raises(JobSpecError, match="must have no /"):
        CreateJob(spec=spec(name))


@given(st.integers(0, 2**63 - 1), st.integers(0, MAX_TRIALS - 1))
def test_names_of_trials_can_be_read_back(job, number):
    assert trial_key(trial_name(job, number)) == (job, number)


@pytest.mark.parametrize(
    "name",
    ["", "-", "7", "7-", "-3", "7-3-1", "7 -3", "+7-3", "07-3", "7-03", "٣-٣", "7-3\n", None, 73,
     f"{2**63}-1", f"1-{MAX_TRIALS}", "1" * 41, "9" * 5000 + "-1"],
)  # fmt: skip
def test_what_names_no_trial_is_unknown(name):
    with pytest.raises(UnknownJobError, match="there is no trial") as found:
        trial_key(name)
    assert len(str(found.value)) < 150
