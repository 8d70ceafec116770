"""A run's share of the global batch: how many replicas there are, and what each trains on."""

from __future__ import annotations

import pytest
from tests.optimizer.batch_size.clients import job, opened, watch

from zeus.errors import RunError
from zeus.optimizer import BatchSizeOptimizer
from zeus.optimizer.batch_size.api._commands import ShowLog
from zeus.testing import SimulatedNode


@pytest.fixture
def storage(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def node():
    with SimulatedNode("v100x2") as simulated:
        yield simulated


def make(node, storage, spec=None, **options):
    return BatchSizeOptimizer(watch(node), job=spec or job(), storage=storage, **options)


def share(optimizer):
    return optimizer.local_batch_size, optimizer.accumulation_steps, optimizer.replicas


def test_one_process_trains_on_the_whole_batch(node, storage):
    with make(node, storage) as optimizer:
        assert optimizer.get_batch_size() == 32
        assert share(optimizer) == (32, 1, 1)


@pytest.mark.parametrize(
    ("variables", "replicas"),
    [
        ({"WORLD_SIZE": "4", "SLURM_STEP_NUM_TASKS": "2"}, 4),
        ({"OMPI_COMM_WORLD_SIZE": "8"}, 8),
        ({"SLURM_STEP_NUM_TASKS": "2"}, 2),
        ({"SLURM_NTASKS": "8"}, 1),  # of a batch script, which is one process
        ({"WORLD_SIZE": "many"}, 1),
    ],
)
def test_processes_of_a_launcher_share_the_batch(node, storage, monkeypatch, variables, replicas):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with make(node, storage) as optimizer:
        assert share(optimizer) == (32 // replicas, 1, replicas)
    with opened(storage) as jobs:
        decided = jobs.do(ShowLog(job="nightly"))[0]
    assert (decided["replicas"], decided["batch_size"]) == (replicas, 32)


def test_processes_that_share_a_replica_are_stated(node, storage, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    with make(node, storage, replicas=2, max_local_batch_size=10) as optimizer:
        assert share(optimizer) == (8, 2, 2)
    with opened(storage) as jobs:
        decided = jobs.do(ShowLog(job="nightly"))[0]
    assert (decided["replicas"], decided["max_local_batch_size"]) == (2, 10)
    with pytest.raises(RunError, match=r"but got \(processes=8, replicas=3\)"):
        make(node, storage, replicas=3).get_batch_size()


def test_a_batch_that_cannot_be_shared_is_never_decided(node, storage):
    spec = job(batch_sizes=(12, 20, 32), default_batch_size=12, learning_rate_rule="linear")
    with make(node, storage, spec, replicas=8) as optimizer:
        assert share(optimizer) == (4, 1, 8)
        # The learning rate follows the global batch.
        assert optimizer.learning_rate_scale == pytest.approx(32 / 12)
    with make(node, storage, spec, replicas=5) as optimizer:
        assert optimizer.get_batch_size() == 20
    with pytest.raises(RunError, match=r"batch_sizes=\(12, 20, 32\), replicas=7"):
        make(node, storage, spec, replicas=7).get_batch_size()


def test_without_a_store_there_is_a_stand_in_that_counts_later(node, tmp_path):
    spec = job(batch_sizes=(12, 20, 32), default_batch_size=12)
    away = f"sqlite:///{tmp_path}/away/jobs.db"
    with make(node, away, spec, replicas=8) as optimizer:
        assert optimizer.get_batch_size() == 32
        optimizer.on_train_begin()
        optimizer.on_evaluate(0.95)
    (tmp_path / "away").mkdir()
    with make(node, away, spec, replicas=8) as optimizer:
        optimizer.get_batch_size()
    with opened(away) as jobs:
        first, epoch, *_ = jobs.do(ShowLog(job="nightly"))
    assert (first["batch_size"], first["replicas"], first["role"]) == (32, 8, "default")
    assert epoch["metric"] == 0.95


def test_a_share_that_is_awkward_to_accumulate_is_warned_of(node, storage, caplog):
    spec = job(batch_sizes=(97,), default_batch_size=97)
    with make(node, storage, spec, max_local_batch_size=64) as optimizer:
        assert share(optimizer) == (1, 97, 1)
    assert "only in 97 local batches of 1, far below the maximum of 64" in caplog.text


@pytest.mark.parametrize("wrong", [{"replicas": 0}, {"max_local_batch_size": 1.5}])
def test_shares_that_make_no_sense(node, storage, wrong):
    (name,) = wrong
    with pytest.raises(RunError, match=f"`{name}"):
        make(node, storage, **wrong)
