"""Torchtitan's trainer: its ranks, its steps and its end. The schedule and stages are PyTorch's.

The trainer is a stand-in with what torchtitan 0.3's has; `make try-torchtitan` tries the real one.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.integrations.pipelining_rank import Recorder
from torch import distributed
from torch._C._distributed_c10d import HashStore
from torch.distributed import pipelining

from zeus.errors import FrameworkError, PipelineError
from zeus.integrations.torchtitan import attach_torchtitan, mesh_ranks
from zeus.optimizer.pipeline_frequency.job._messages import RankPlace

X = torch.ones(2, 2)


class Mesh:
    def __init__(self, rank):
        self.rank = rank

    def get_local_rank(self):
        return self.rank

    get_rank = get_local_rank


class Dims:
    """`ParallelDims` of one rank: the world is laid out as pp, batch, cp, tp."""

    def __init__(self, rank=0, *, pp=2, dp_replicate=1, dp_shard=1, cp=1, tp=1):
        self.pp, self.cp, self.tp = pp, cp, tp
        self.dp_replicate, self.dp_shard = dp_replicate, dp_shard
        extents = {"pp": pp, "batch": dp_replicate * dp_shard, "cp": cp, "tp": tp}
        self.world_mesh = Mesh(rank)
        self.world_size = 1
        self.meshes = {}
        for name, extent in reversed(extents.items()):
            rank, index = divmod(rank, extent)
            self.meshes[name] = Mesh(index) if extent > 1 else None
            self.world_size *= extent

    def get_optional_mesh(self, name):
        return self.meshes[name]


class Trainer:
    """Trains as `torchtitan.trainer.Trainer` does: each step runs the schedule, then optimizers."""

    def __init__(self, schedule, log, *, dims=None, accumulate=1):
        self.pp_schedule, self.log = schedule, log
        self.parallel_dims = dims or Dims()
        self.device = torch.device("cpu")
        self.gradient_accumulation_steps = accumulate

    def train_step(self, data):
        batches = [next(data) for _ in range(self.gradient_accumulation_steps)]
        for batch in batches:
            self.pp_schedule.step(batch, target=batch)
        self.log.append("optimizer")

    def validate(self):
        self.pp_schedule.eval(X, target=X)

    def close(self):
        self.log.append("trainer closed")


@pytest.fixture
def schedule():
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    stage = pipelining.PipelineStage(torch.nn.Linear(2, 2), 0, 1, torch.device("cpu"))
    yield pipelining.ScheduleGPipe(stage, n_microbatches=2, loss_fn=torch.nn.functional.mse_loss)
    distributed.destroy_process_group()


STEP = [[name, 0, number, name] for name in ("forward", "backward") for number in range(2)]


def test_an_iteration_is_a_step_of_the_trainer(schedule):
    recorder = Recorder()
    trainer = Trainer(schedule, recorder.story)
    attach_torchtitan(trainer, recorder)
    trainer.train_step(itertools.repeat(X))
    trainer.validate()
    assert recorder.story == ["step", *STEP, "optimizer", "end"]


def test_with_accumulation_each_run_of_the_schedule_is_an_iteration(schedule):
    recorder = Recorder()
    trainer = Trainer(schedule, recorder.story, accumulate=2)
    attach_torchtitan(trainer, recorder)
    trainer.train_step(itertools.repeat(X))
    assert recorder.story == ["step", *STEP, "end"] * 2 + ["optimizer"]


def test_the_end_of_training_closes_the_optimizer_and_leaves_no_trace(schedule):
    recorder = Recorder()
    trainer = Trainer(schedule, recorder.story)
    before = vars(trainer).keys(), vars(schedule).keys()
    attach_torchtitan(trainer, recorder)
    trainer.close()
    assert recorder.story == ["close", "trainer closed"]
    assert (vars(trainer).keys(), vars(schedule).keys()) == before
    trainer.train_step(itertools.repeat(X))
    assert recorder.story == ["close", "trainer closed", "optimizer"]


def test_data_that_ends_in_a_step_closes_the_optimizer(schedule):
    recorder = Recorder()
    trainer = Trainer(schedule, recorder.story)
    attach_torchtitan(trainer, recorder)
    with pytest.raises(StopIteration):
        trainer.train_step(iter([]))
    assert recorder.story == ["step", "close"]


@pytest.mark.parametrize(
    "extents",
    [
        {"pp": 2},
        {"pp": 4, "tp": 2},
        {"pp": 2, "dp_replicate": 2, "dp_shard": 3},
        {"pp": 2, "dp_shard": 2, "cp": 2, "tp": 3},
    ],
)
def test_ranks_of_the_mesh_are_places_in_pipelines(extents):
    world = Dims(**extents).world_size
    places = []
    for rank in range(world):
        trainer = Trainer(object(), [], dims=Dims(rank, **extents))
        trainer.device = torch.device("cuda", rank % 8)
        found: dict[str, Any] = {**mesh_ranks(trainer)}
        assert found.pop("device_id") == rank % 8
        place = RankPlace(**found)  # refuses what does not fit together
        assert (place.rank, place.world_size) == (rank, world)
        places.append((place.pp_rank, place.dp_rank, place.tp_rank))
    # The GPUs of a place are neighbors, then come other pipelines, then the next places.
    degrees = (place.pp_degree, place.dp_degree, place.tp_degree)
    assert places == list(itertools.product(*map(range, degrees)))
    assert place.tp_degree == extents.get("tp", 1) * extents.get("cp", 1)


def test_a_trainer_without_a_pipeline_is_refused():
    trainer = Trainer(object(), [], dims=Dims(pp=1))
    del trainer.pp_schedule
    for ask in (mesh_ranks, lambda trainer: attach_torchtitan(trainer, Recorder())):
        with pytest.raises(PipelineError, match=r"_parallel_degree > 1` must .* but got 1"):
            ask(trainer)


def test_another_torchtitan_is_named_with_what_it_lacks():
    with pytest.raises(FrameworkError, match=r"torchtitan of unknown version is not supported .*"
                                             "SimpleNamespace has no parallel_dims"):  # fmt: skip
        mesh_ranks(SimpleNamespace())
    trainer = Trainer(object(), [])
    del trainer.parallel_dims.dp_shard
    with pytest.raises(FrameworkError, match="Dims has no dp_shard"):
        mesh_ranks(trainer)
