"""`ZeusDataLoader` as a trial of a recurring job: batch size and threshold are the job's."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.optimizer.batch_size.clients import job, opened, step, trials
from tests.present import present

pytest.importorskip("torch")

import torch
from torch.utils.data import IterableDataset, TensorDataset

from zeus import ZeusDataLoader
from zeus.errors import JobConflictError, RunError
from zeus.monitor import ZeusMonitor
from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.api._commands import ShowLog
from zeus.optimizer.batch_size.running._launch_context import VARIABLE, Answer, LaunchContext
from zeus.optimizer.batch_size.running._location import Location
from zeus.optimizer.batch_size.running._reporter import Reporter
from zeus.optimizer.batch_size.running._run_report import RunReport
from zeus.testing import SimulatedNode

NEEDED = {16: 4, 32: 3, 64: 99}


@pytest.fixture
def node():
    with SimulatedNode("v100") as simulated:
        yield simulated


@pytest.fixture
def storage(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


def data(samples=640):
    return TensorDataset(torch.arange(samples, dtype=torch.float32))


def train(node, loader):
    """Listing 1 on simulated work."""
    for epoch in loader.epochs():
        for (batch,) in loader:
            step(len(batch)).run(node.gpus)
        loader.report_metric(0.95 if epoch + 1 >= NEEDED[loader.batch_size] else 0.1)
    return loader


def test_a_recurring_job_decides_and_learns(node, storage):
    loaders = [
        train(node, ZeusDataLoader(data(), job=job(), storage=storage, shuffle=True))
        for _ in range(3)
    ]
    assert loaders[0].batch_size == 32
    assert len(loaders[0]) == 20
    assert {loader.batch_size for loader in loaders[1:]} == {16, 64}
    by_size = {loader.batch_size: loader for loader in loaders}
    assert by_size[32].outcome is by_size[16].outcome is Outcome.CONVERGED
    assert by_size[64].outcome is Outcome.STOPPED  # before it costs too much
    kept = {trial.batch_size: trial for trial in trials(storage)}
    assert {size: trial.state for size, trial in kept.items()} == {
        16: "converged", 32: "converged", 64: "stopped",
    }  # fmt: skip
    for size, loader in by_size.items():
        assert kept[size].epochs == len(loader.history)
        assert kept[size].cost == pytest.approx(loader.cost)
        assert kept[size].cost <= (kept[size].threshold or 1e9)
    assert [gpu.power_limit() for gpu in node.gpus] == [250]


def test_the_power_limit_is_profiled_once_for_each_batch_size(node, storage):
    spec = job(batch_sizes=(32,))
    first = train(node, ZeusDataLoader(data(1600), job=spec, storage=storage))
    assert first.power_limit.profiling_steps > 0
    again = train(node, ZeusDataLoader(data(1600), job=spec, storage=storage))
    assert again.power_limit.profiling_steps == 0
    assert again.power_limit.selection.point.knob == first.power_limit.selection.point.knob < 250


def test_a_share_that_is_too_large_takes_several_batches_for_a_step(node, storage):
    loader = ZeusDataLoader(data(648), 32, job=job(), storage=storage, max_local_batch_size=12)
    assert (loader.batch_size, loader.accumulation_steps) == (8, 4)
    assert loader.global_batch_size == 32
    for _ in loader.epochs():
        sizes = [len(batch) for (batch,) in loader]
        loader.report_metric(0.95)
    assert sizes == [8] * 81
    assert loader.history[0].steps == 21  # the last one is a single batch
    with pytest.raises(RunError, match=r"batch size 32 \(here 8\), but got 16"):
        ZeusDataLoader(
            data(), 16, job=job("other"), storage=storage, replicas=2, max_local_batch_size=8
        )


def test_one_process_of_several_replicas_loads_its_share(node, storage):
    loader = ZeusDataLoader(data(), job=job(), storage=storage, replicas=4)
    assert (loader.batch_size, loader.global_batch_size) == (8, 32)
    with pytest.raises(RunError, match="only a recurring job shares a batch"):
        ZeusDataLoader(data(), 32, 8, replicas=2)


def test_batch_sizes_are_measured_with_batches_as_they_are_loaded(node, storage):
    sizes: list[int] = []

    def throw_away(batch):
        sizes.append(len(batch[0]))
        if len(batch[0]) > 32:
            raise MemoryError
        step(len(batch[0])).run(node.gpus)

    def made(**options):
        options = {"job": job(), "storage": storage, "shuffle": True, **options}
        return ZeusDataLoader(data(650), measure=throw_away, **options)

    first = train(node, made())
    # From the default on, whole batches only, until one does not fit.
    assert [size for size, _ in itertools.groupby(sizes)] == [32, 16, 64]
    assert sizes.count(64) == 1
    with opened(storage) as jobs:
        found = [event for event in jobs.do(ShowLog(job="nightly")) if event["kind"] == "measured"]
    assert [(event["batch_size"], event["epoch_cost"] is None) for event in found] == [
        (32, False), (16, False), (64, True),
    ]  # fmt: skip
    # Nothing but steps is in an epoch here: it costs what they cost, at a lower power limit.
    cost = present(first.history[-1].cost)
    assert 0.9 * found[0]["epoch_cost"] < cost < 1.02 * found[0]["epoch_cost"]
    sizes.clear()
    train(node, made())
    assert not sizes
    # A process that loads a part of the data knows how many do: it is one of four.
    made(job=job("parts"), replicas=4, sampler=range(160), shuffle=None)
    with opened(storage) as jobs:
        (whole, *_) = jobs.do(ShowLog(job="parts"))
    assert (whole["batch_size"], set(sizes)) == (32, {8, 4, 16})
    time = 160 / 8 * (0.2 + 0.02 * 8)
    assert 0.5 * 250 * time < whole["epoch_cost"] < 250 * time


def test_only_data_of_known_length_of_a_recurring_job_can_be_measured(node, storage):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(10))

    with pytest.raises(RunError, match="must have a length, but got Stream without one"):
        ZeusDataLoader(Stream(), job=job(), storage=storage, measure=print)
    with pytest.raises(RunError, match="only a recurring job has batch sizes to measure"):
        ZeusDataLoader(data(), 32, 8, measure=print)


def test_what_is_given_twice_must_agree(node, storage):
    spec = job(learning_rate_rule="linear")
    loader = ZeusDataLoader(data(), 32, 8, 0.9, job=spec, storage=storage)
    assert loader.learning_rate_scale == 1.0
    for wrong, said in (
        ({"batch_size": 64}, "must be trained with batch size 32, but got 64"),
        ({"patience": 2}, "has patience=1, but got patience=2"),
        ({"max_epochs": 9}, "has max_epochs=8, but got max_epochs=9"),
        ({"target_metric": 0.8}, "has target_metric=0.9, but got target_metric=0.8"),
        ({"cost_threshold": 5.0}, "decides this itself, but got cost_threshold=5.0"),
        ({"observe": True}, "decides this itself, but got observe=True"),
        ({"batch_sampler": [[0]]}, "decides this itself, but got batch_sampler"),
    ):
        with pytest.raises(RunError, match=said):
            ZeusDataLoader(data(), job=job(), storage=storage.replace("jobs", said[:5]), **wrong)
    with pytest.raises(RunError, match="only a recurring job has a server or a store"):
        ZeusDataLoader(data(), 32, 8, job="nightly", storage=storage)
    with pytest.raises(JobConflictError, match=r"beta is 2\.0, not 4\.0"):
        ZeusDataLoader(data(), job=replace(spec, beta=4.0), storage=storage)


def test_a_loop_that_is_left_teaches_nothing(node, storage):
    for _epoch in ZeusDataLoader(data(), job=job(), storage=storage).epochs():
        break
    loader = ZeusDataLoader(data(), job=job(), storage=storage)
    del loader  # and one that was never begun
    assert [trial.state for trial in trials(storage)] == ["cancelled", "cancelled"]


# --- started by `zeus run` ------------------------------------------------------------------------


@pytest.fixture
def handover(node, storage, tmp_path, monkeypatch):
    """What `zeus run` leaves in the environment."""
    place = Location.of(None, storage)
    gpu = "Tesla V100-PCIE-32GB (simulated)"
    notes = RunReport(storage, job(), gpu, 1, 250.0, batch_size=32, at=time.time())
    reporter = Reporter(place, notes)
    told = LaunchContext(notes, reporter.decision, tmp_path / "answer.json")
    for name, value in told.variables(place).items():
        monkeypatch.setenv(name, value)
    yield told
    reporter.close()


def test_listing_one_is_the_trial_that_it_was_started_for(node, storage, handover):
    loader = train(node, ZeusDataLoader(data(), 32, 8, 0.9))
    assert loader.reached_target
    (trial,) = trials(storage)
    assert (trial.trial, trial.state) == (handover.decision.trial, "converged")
    answer = present(Answer.read(handover.answer))
    assert (answer.outcome, answer.epochs, answer.trial) == ("converged", 3, trial.trial)
    assert answer.cost == pytest.approx(trial.cost)
    # A second training in the same program is another matter.
    train(node, ZeusDataLoader(data(), 32, 8, 0.9))
    assert len(trials(storage)) == 1


def test_another_batch_size_than_the_decided_one_is_a_mistake(node, handover):
    with pytest.raises(RunError, match="must be trained with batch size 32, but got 64"):
        ZeusDataLoader(data(), 64, 8, 0.9)


def test_loaders_of_other_data_and_jobs_have_no_part_in_it(node, storage, handover):
    assert ZeusDataLoader(data(), 64).batch_size == 64
    assert ZeusDataLoader(data(), 64, 2, job="another").power_limit is not None
    train(node, ZeusDataLoader(data(), job=job("another"), storage=storage))
    assert Answer.read(handover.answer) is None
    assert [trial.state for trial in trials(storage)] == ["running"]
    assert [trial.state for trial in trials(storage, "another")] == ["converged"]


def test_variables_that_make_no_sense_are_told(node, monkeypatch):
    for text in ("{", "[]", json.dumps({"notes": {}})):
        monkeypatch.setenv(VARIABLE, text)
        with pytest.raises(RunError, match=f"{VARIABLE} must be as `zeus run` has set it"):
            ZeusDataLoader(data(), 32, 8, 0.9, monitor=ZeusMonitor([], []))


def test_the_name_of_a_job_still_means_profiles_only(node, tmp_path):
    loader = ZeusDataLoader(data(3200), 32, 2, job="nightly", profile_path=tmp_path / "p.json")
    train(node, loader)
    assert Path(tmp_path / "p.json").exists()
    assert not list(tmp_path.glob("*.db"))
