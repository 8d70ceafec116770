"""Runs under power limits are those of the recorded workload."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.replay.pipelines import made_up

from zeus.replay.pipelines import read_recording
from zeus.replay.pipelines._power_limits import read_power_limits

HEAD = "model_name,partition_method,dp,tp,pp,num_microbatches,"
HEAD += "power_limit_0,power_limit_1,power_limit_2,power_limit_3,time,energy\n"


@pytest.fixture
def recording(tmp_path):
    return read_recording(made_up.record(tmp_path, schedules=4))


def write(folder, kind, *rows):
    lines = [
        f'{model},"{layers}",1,1,4,16,300,300,300,300,{time},{energy}\n'
        for model, layers, time, energy in rows
    ]
    (folder / f"a40_power_limits_{kind}.csv").write_text(HEAD + "".join(lines))


def test_other_partitions_of_the_same_model_are_other_workloads(recording, tmp_path):
    run = recording.runs[0]
    own = ("made-up-large", "custom:0,8,14", 1.02 * run.time, run.energy)
    other = ("made-up-large", "uniform", 1.2 * run.time, 0.5 * run.energy)
    write(tmp_path, "global", own)
    write(tmp_path, "local", other, own)
    found = read_power_limits(tmp_path, recording)
    assert [len(runs) for runs in found.values()] == [1, 1]
    assert found["a power limit for each stage"][0].energy == pytest.approx(run.energy)


def test_a_recording_that_is_not_named_after_its_model(recording, tmp_path):
    run = recording.runs[0]
    recording = replace(recording, name="my-runs-a40")
    write(tmp_path, "global", ("large", "x", 1.01 * run.time, 0.99 * run.energy))
    assert len(read_power_limits(tmp_path, recording)["one power limit"]) == 1
    write(tmp_path, "global", ("large", "x", 1.01 * run.time, 1.1 * run.energy))
    assert read_power_limits(tmp_path, recording) == {}
