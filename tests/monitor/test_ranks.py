"""One process per GPU: a sum over ranks must count every joule once."""

from __future__ import annotations

import logging

import pytest

from zeus.monitor import ZeusMonitor
from zeus.monitor import _ranks as ranks
from zeus.testing import SimulatedNode


def as_rank(monkeypatch, rank, size, names=("LOCAL_RANK", "LOCAL_WORLD_SIZE")):
    monkeypatch.setenv(names[0], str(rank))
    monkeypatch.setenv(names[1], str(size))


def test_the_ranks_of_a_node_together_measure_it_once(monkeypatch):
    with SimulatedNode("v100x4", load=1.0) as node:
        monitors = []
        for rank in range(4):
            as_rank(monkeypatch, rank, 4)
            monitors.append(ZeusMonitor())
        assert [m.gpu_indices for m in monitors] == [[0], [1], [2], [3]]
        for monitor in monitors:
            monitor.begin_window("w")
        before = sum(node.exact_energy(i) for i in range(4))
        node.sleep(10)
        truth = sum(node.exact_energy(i) for i in range(4)) - before
        total = sum(monitor.end_window("w").total_energy for monitor in monitors)
    assert total == pytest.approx(truth, rel=0.005)


def test_only_the_first_rank_measures_what_is_shared(monkeypatch):
    as_rank(monkeypatch, 0, 2)
    assert ranks.owns_host()
    as_rank(monkeypatch, 1, 2)
    assert not ranks.owns_host()


@pytest.mark.parametrize(
    "names",
    [
        ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
        ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
        ("SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
    ],
)
def test_launchers(monkeypatch, names):
    as_rank(monkeypatch, 1, 2, names)
    assert ranks.local_rank() == (1, 2)
    assert ranks.own_gpus(2) == [1]
    assert ranks.own_gpus(8) is None  # the launcher shows each rank its own four


def test_the_launcher_of_deepspeed(monkeypatch):
    as_rank(monkeypatch, 1, 4, ("LOCAL_RANK", "LOCAL_SIZE"))
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert ranks.local_rank() == (1, 4)
    assert ranks.own_gpus(4) == [1]


def test_a_launcher_that_tells_only_the_size_of_the_whole_job(monkeypatch):
    """That of Lightning. Two nodes of four, a node of eight, and one that hides GPUs."""
    as_rank(monkeypatch, 2, 8, ("LOCAL_RANK", "WORLD_SIZE"))
    assert not ranks.owns_host()
    assert ranks.own_gpus(4) == [2]
    assert ranks.own_gpus(8) == [2]
    assert ranks.own_gpus(1) is None
    as_rank(monkeypatch, 0, 8, ("LOCAL_RANK", "WORLD_SIZE"))
    assert ranks.own_gpus(4) == [0]
    assert ranks.owns_host()


@pytest.mark.parametrize(("node", "tasks"), [(0, 4), (1, 4), (2, 3)])
def test_the_tasks_of_a_slurm_step_differ_from_node_to_node(monkeypatch, node, tasks):
    as_rank(monkeypatch, 1, "4(x2),3", ("SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"))
    monkeypatch.setenv("SLURM_NODEID", str(node))
    assert ranks.local_rank() == (1, tasks)


def test_the_batch_script_of_a_slurm_job_is_not_one_of_its_tasks(monkeypatch):
    """What it runs directly has the whole node, however many tasks were asked for."""
    as_rank(monkeypatch, 0, 4, ("SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"))
    assert ranks.own_gpus(4) is None


def test_fewer_visible_gpus_than_ranks_are_all_own(monkeypatch):
    as_rank(monkeypatch, 3, 4)
    assert ranks.own_gpus(1) is None


def test_nonsense_from_a_launcher_is_ignored(monkeypatch):
    as_rank(monkeypatch, 5, 4)
    assert ranks.local_rank() == (0, 1)
    monkeypatch.setenv("LOCAL_RANK", "first")
    assert ranks.local_rank() == (0, 1)


def test_an_explicit_choice_is_obeyed_with_a_warning(monkeypatch, caplog):
    as_rank(monkeypatch, 1, 4)
    with SimulatedNode("v100x4"), caplog.at_level(logging.WARNING):
        assert ZeusMonitor(gpu_indices=[0, 1, 2, 3]).gpu_indices == [0, 1, 2, 3]
        assert "do not add up over ranks" in caplog.text
        caplog.clear()
        ZeusMonitor(gpu_indices=[1])
        assert not caplog.text
