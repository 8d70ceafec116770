"""Profiles from other runs: reused without a second profiling, and only where they belong."""

from __future__ import annotations

import json
import logging

import pytest
from tests.optimizer.support import Loop, limits, monitor, truth, work
from tests.present import present

from zeus.frontier import Frontier, Point
from zeus.optimizer import GlobalPowerLimitOptimizer
from zeus.optimizer.power_limit import Energy, MaxSlowdownConstraint, Time, ZeusCost
from zeus.optimizer.training._profiles import Profile, ProfileFile, ProfileKey
from zeus.testing import SimulatedNode

JOB = work(0.1, activity=1.0, compute_bound=0.4)
SIMULATED_V100 = "Tesla V100-PCIE-32GB (simulated)"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "profiles.json"


def run(path, objective=None, *, spec="v100", workload=JOB, epochs=0, before=None, **options):
    """A run until the choice is made, or of so many epochs."""
    options = {"job": "resnet", "batch_size": 64, **options}
    node = SimulatedNode(spec)
    if before is not None:
        for gpu in node.gpus:
            gpu.driver.set_power_limit(before)
    optimizer = GlobalPowerLimitOptimizer(monitor(node), objective, profile_path=path, **options)
    loop = Loop(node, optimizer, workload)
    loop.epochs(epochs) if epochs else loop.until_decided()
    assert optimizer.trouble == ""
    return optimizer, node


def saved(path, *, gpu=SIMULATED_V100, gpus=1):
    profile = ProfileFile(path).find(ProfileKey(gpu, gpus, "power_limit", "resnet", 64))
    return present(profile).frontier


def knobs(optimizer):
    return [point.knob for point in optimizer.frontier]


# --- Reused ---------------------------------------------------------------------------------------


def test_the_next_run_does_not_profile_again(path, caplog):
    first, _ = run(path)
    text = path.read_text()
    with caplog.at_level(logging.INFO):
        second, node = run(path, epochs=5)
    assert second.profiling_steps == 0
    assert second.selection.point == first.selection.point
    assert second.frontier == first.frontier
    assert limits(node) == [first.selection.point.knob]
    assert path.read_text() == text
    assert [r.levelname for r in caplog.records if r.levelno > logging.INFO] == []
    assert f"the profile of resnet, batch size 64, on 1 x {SIMULATED_V100} in {path} is used" in (
        caplog.text
    )
    report = second.report()
    assert (report.profiling_steps, report.reference.knob) == (0, 250)


def test_the_choice_is_in_force_from_the_first_step(path):
    first, _ = run(path)
    node = SimulatedNode("v100")
    optimizer = GlobalPowerLimitOptimizer(
        monitor(node), profile_path=path, job="resnet", batch_size=64
    )
    optimizer.on_epoch_begin()
    optimizer.on_step_begin()
    assert limits(node) == [first.selection.point.knob]


def test_a_named_job_is_remembered_by_default_and_a_nameless_one_is_not():
    for job, remembered in ((None, False), ("resnet", True)):
        for expected in (False, remembered):
            optimizer, _ = run(None, job=job)
            assert (optimizer.profiling_steps == 0) == expected


def test_the_walk_is_continued_under_another_objective(path, caplog):
    first, _ = run(path, Time())
    assert knobs(first) == [250]
    second, _ = run(path, MaxSlowdownConstraint(1.1))
    assert knobs(second)[0] == 250
    assert second.frontier.at(250) == first.frontier.at(250), "not measured again"
    third, _ = run(path, Energy())
    assert set(knobs(second)) < set(knobs(third))
    assert third.selection.point.knob == Energy().select(truth("v100", JOB)).point.knob
    assert saved(path) == third.frontier
    with caplog.at_level(logging.INFO):
        fourth, _ = run(path, MaxSlowdownConstraint(1.1))
    assert fourth.profiling_steps == 0
    assert fourth.frontier == third.frontier


def test_a_finer_ladder_is_filled_in_and_a_coarser_one_is_not_missed(path):
    coarse, _ = run(path, Energy(), pl_step=50)
    assert knobs(coarse) == [250, 200, 150, 100]
    fine, _ = run(path, Energy(), pl_step=25)
    assert knobs(fine) == [250, 225, 200, 175, 150, 125, 100]
    assert fine.frontier.at(200) == coarse.frontier.at(200)
    for stride in (30, 50):
        again, _ = run(path, Energy(), pl_step=stride)
        assert again.profiling_steps == 0


def test_limits_that_were_jumped_over_stay_so(path):
    light = work(0.05, activity=0.45)
    first, _ = run(path, Energy(), workload=light)
    assert knobs(first)[:2] == [250, 150]
    second, _ = run(path, Energy(), workload=light)
    assert second.profiling_steps == 0


def test_the_limit_before_is_in_the_profile_as_well(path):
    for spent in (True, False):
        optimizer, _ = run(path, Time(), before=187.5, raise_limit=True)
        assert bool(optimizer.profiling_steps) == spent
        assert knobs(optimizer) == [250, 187.5]
        assert optimizer.report().reference.knob == 187.5


def test_saved_limits_above_the_one_that_was_found_are_not_used(path):
    run(path, Energy())
    optimizer, _ = run(path, Time(), before=200)
    assert max(knobs(optimizer)) == 200


# --- Only where it belongs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        {"spec": "a40"},
        {"spec": "v100x2"},
        {"spec": "v100,a40"},
        {"job": "bert"},
        {"job": None},
        {"batch_size": 128},
        {"batch_size": None},
    ],
    ids=str,
)
def test_never_for_another(path, other):
    run(path, Time())
    optimizer, _ = run(path, Time(), **other)
    assert optimizer.profiling_steps > 0
    assert len(ProfileFile(path).read()) == 2


def test_mixed_nodes_are_told_apart_by_how_many_of_each_there_are(path):
    run(path, Time(), spec="v100x2,a40")
    optimizer, _ = run(path, Time(), spec="v100,a40x2")
    assert optimizer.profiling_steps > 0
    again, _ = run(path, Time(), spec="v100,a40x2")
    assert again.profiling_steps == 0


def test_a_real_gpus_profile_is_not_for_a_simulated_one(path):
    key = ProfileKey("Tesla V100-PCIE-32GB", 1, "power_limit", "resnet", 64)
    ProfileFile(path).keep(Profile(key, Frontier([Point(250, 0.05, 5.0)])))
    optimizer, _ = run(path, Time())
    assert optimizer.profiling_steps > 0


# --- Not any more ---------------------------------------------------------------------------------


@pytest.mark.parametrize("slower", [1.25, 0.8])
def test_a_job_that_has_become_another_is_profiled_again(path, slower, caplog):
    run(path)
    now = work(0.1 * slower, activity=1.0, compute_bound=0.4)
    with caplog.at_level(logging.WARNING):
        optimizer, _ = run(path, workload=now, epochs=8)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("profiling again: a step takes ")
    assert optimizer.profiling_steps > 0
    assert optimizer.frontier.fastest.time == pytest.approx(
        truth("v100", now).fastest.time, rel=0.01
    )
    assert saved(path) == optimizer.frontier
    again, _ = run(path, workload=now)
    assert again.profiling_steps == 0


def test_a_job_that_draws_more_power_is_profiled_again(path, caplog):
    light = work(0.05, activity=0.3, compute_bound=0.0)
    run(path, workload=light)
    heavier = work(0.05, activity=0.5, compute_bound=0.0)
    with caplog.at_level(logging.WARNING):
        optimizer, _ = run(path, workload=heavier, epochs=8)
    assert " J where its profile says " in caplog.text
    assert optimizer.profiling_steps > 0


def test_a_profile_of_another_pace_is_not_continued(path, caplog):
    # Three percent slower is no drift, but old points and new ones could not be compared.
    run(path, Time())
    now = work(0.103, activity=1.0, compute_bound=0.4)
    with caplog.at_level(logging.WARNING):
        optimizer, _ = run(path, Energy(), workload=now)
    assert "the saved profile is not continued: a step takes" in caplog.text
    true = truth("v100", now)
    for point in optimizer.frontier:
        assert point.time == pytest.approx(true.at(point.knob).time, rel=0.002)


def test_a_run_that_drifts_for_ever_is_not_profiled_for_ever(path, caplog):
    node = SimulatedNode("v100")
    optimizer = GlobalPowerLimitOptimizer(
        monitor(node), Time(), profile_path=path, job="resnet", batch_size=64
    )
    loop = Loop(node, optimizer, JOB, epoch=120)
    with caplog.at_level(logging.WARNING):
        for epoch in range(10):
            loop.workload = work(0.1 * 1.3**epoch)
            loop.epoch()
    said = [r.getMessage() for r in caplog.records if "profiling again" in r.getMessage()]
    assert len(said) == 3
    assert optimizer.decided
    optimizer.close()
    assert limits(node) == [250]


def test_a_job_of_one_endless_epoch_is_looked_at_every_hour(caplog):
    node = SimulatedNode("v100")
    with GlobalPowerLimitOptimizer(monitor(node), Time()) as optimizer:
        loop = Loop(node, optimizer, work(60.0), epoch=100)  # 60 of them, or fewer, are an hour
        with caplog.at_level(logging.WARNING):
            loop.epoch()
            assert caplog.records == [], "it is as it was"
            spent, before = optimizer.profiling_steps, present(optimizer.expected_step).time
            loop.workload = work(90.0)
            for _ in range(100):  # without an end of the epoch
                loop.step()
        (said,) = [record.getMessage() for record in caplog.records]
        assert said.startswith("profiling again: a step takes ")
        assert optimizer.profiling_steps > spent
        assert present(optimizer.expected_step).time == pytest.approx(1.5 * before, rel=0.01)


def test_one_slow_stretch_is_no_drift(path, caplog):
    node = SimulatedNode("v100")
    optimizer = GlobalPowerLimitOptimizer(monitor(node), Time())
    loop = Loop(node, optimizer, JOB, epoch=200)
    loop.until_decided()
    spent = optimizer.profiling_steps
    with caplog.at_level(logging.WARNING):
        for epoch in range(6):
            optimizer.on_epoch_begin()
            for step in range(200):
                loop.step()
                if epoch % 2 and step == 10:
                    node.sleep(3.0)  # a checkpoint, which nobody has told of
            optimizer.on_epoch_end()
    assert caplog.records == []
    assert optimizer.profiling_steps == spent


# --- Files that are not ours ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("learning_rate: 0.1\n", False),
        ('{"format": "zeus-profiles", "version": 2, "profiles": []}', False),
        ('{"format": "zeus-profiles", "version": 1, "profiles": [', True),
        ("", True),
    ],
)
def test_a_strange_file_costs_a_profiling_but_not_the_run(path, text, kept, caplog):
    path.write_text(text)
    with caplog.at_level(logging.WARNING):
        optimizer, _ = run(path, Time())
    assert optimizer.decided
    if kept:
        assert saved(path) == optimizer.frontier
    else:
        assert path.read_text() == text
        assert "the profile could not be kept" in caplog.text
    if text:
        assert f"no saved profile is used: {path}" in caplog.text


def test_a_profile_with_settings_that_the_gpu_does_not_accept_is_not_used(path, caplog):
    run(path, Time())
    content = json.loads(path.read_text())
    content["profiles"][0]["frontier"]["points"][0]["knob"] = 400
    path.write_text(json.dumps(content))
    with caplog.at_level(logging.WARNING):
        optimizer, _ = run(path, Time())
    assert "has the setting 400, which the GPUs do not accept" in caplog.text
    assert optimizer.profiling_steps > 0


def test_points_in_any_order_and_twice_are_put_in_order(path):
    first, _ = run(path, Energy())
    content = json.loads(path.read_text())
    points = content["profiles"][0]["frontier"]["points"]
    content["profiles"][0]["frontier"]["points"] = [*reversed(points), points[0]]
    path.write_text(json.dumps(content))
    second, _ = run(path, Energy())
    assert second.profiling_steps == 0
    assert knobs(second) == knobs(first)
    assert second.selection.point.knob == first.selection.point.knob


def test_a_place_that_cannot_be_written_costs_only_the_profile(tmp_path, caplog):
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        optimizer, node = run(tmp_path / "file" / "profiles.json", ZeusCost(0.5))
    assert "the profile could not be kept" in caplog.text
    assert limits(node) == [optimizer.selection.point.knob]
