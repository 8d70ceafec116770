"""Train a small transformer with pipeline parallelism, in one process per stage and pipeline.

`python train.py --server http://127.0.0.1:8420` starts all its ranks by itself; they can also be
started by `torchrun --nproc-per-node 4 train.py ...`. Without `--server`, clocks are left alone.

What is real: the processes, the model and its learning, the schedule of
`torch.distributed.pipelining` and its messages. What is simulated: the GPUs (`simulation.py`).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import Any

import experiment
import torch
import torch.distributed as dist
from model import Stage, batches, loss
from simulation import SimulatedRank
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from zeus.integrations.pipelining import attach
from zeus.optimizer import PipelineFrequencyOptimizer
from zeus.testing import SimulatedNode

PLACES = 4  # of a pipeline
MICROBATCH = 2  # samples

# Layers of each stage. Eleven do not divide by four, and the last stage also has to predict.
SCHEDULES = {
    "1f1b": (Schedule1F1B, (3, 3, 2, 3)),
    "gpipe": (ScheduleGPipe, (3, 3, 2, 3)),
    "interleaved": (ScheduleInterleaved1F1B, (2, 2, 1, 1, 1, 1, 1, 2)),
    "zero-bubble": (ScheduleInterleavedZeroBubble, (3, 3, 2, 3)),
    "zbv": (ScheduleZBVZeroBubble, (2, 2, 1, 1, 1, 1, 1, 2)),
}


def place_of(stage: int, stages: int, schedule: str) -> int:
    """Stages are dealt out to places in turn, or in a V: down to the last place and up again."""
    return min(stage, stages - 1 - stage) if schedule == "zbv" else stage % PLACES


def arguments() -> argparse.Namespace:
    """From the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", help="of Zeus; without, clocks are left alone")
    parser.add_argument("--job", default="example", help="its name on the server")
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--pipelines", type=int, default=1, help="data-parallel ones")
    parser.add_argument("--clock-stride", type=int, default=30, help="MHz between measured clocks")
    parser.add_argument("--result", type=Path, help="JSON file for what came out")
    experiment.add_arguments(parser)
    return parser.parse_args()


class Rank:
    """One process: a place in one of the pipelines.

    Attributes:
        pipeline: Which of the pipelines.
        place: Which place in it.
        node: Its machine, simulated, of which it uses the GPU with the number of the rank.
        simulated: That GPU.
        optimizer: Of its clocks, if asked for.
        losses: Of every step, if the last stage is here.
    """

    def __init__(self, options: argparse.Namespace, node: SimulatedNode) -> None:
        self.rank = dist.get_rank()
        self.pipeline, self.place = divmod(self.rank, PLACES)
        self.node = node
        pipelines = [[p * PLACES + i for i in range(PLACES)] for p in range(options.pipelines)]
        group, _ = dist.new_subgroups_by_enumeration(pipelines)
        same_place = [list(ranks) for ranks in zip(*pipelines, strict=True)]
        self._replicas, _ = dist.new_subgroups_by_enumeration(same_place)
        self._pipelines = options.pipelines

        kind, layers = SCHEDULES[options.schedule]
        places = [place_of(stage, len(layers), options.schedule) for stage in range(len(layers))]
        ranks = pipelines[self.pipeline]
        self.simulated = SimulatedRank(node, self.rank, ranks, [ranks[place] for place in places])
        self._stages = []
        for index in [stage for stage, place in enumerate(places) if place == self.place]:
            torch.manual_seed(index)  # the same in all pipelines
            module = Stage(layers[index], index == 0, index == len(layers) - 1)
            stage = PipelineStage(module, index, len(layers), torch.device("cpu"), group=group)
            self.simulated.compute(stage, module.work())
            self._stages.append(stage)
        several = kind not in (Schedule1F1B, ScheduleGPipe)
        self._schedule = kind(
            self._stages if several else self._stages[0], options.microbatches, loss_fn=loss
        )

        self.optimizer = None
        if options.server:
            self.optimizer = PipelineFrequencyOptimizer(
                rank=self.rank,
                dp_rank=self.pipeline,
                pp_rank=self.place,
                tp_rank=0,
                device_id=self.rank,
                dp_degree=options.pipelines,
                pp_degree=PLACES,
                tp_degree=1,
                world_size=dist.get_world_size(),
                server_url=options.server,
                job_metadata=f"a small transformer, {options.schedule}",
                job=options.job,
                clock_stride=options.clock_stride,
            )
            hooks = attach(self._schedule, self.optimizer)
            # With all that belongs to an iteration, not the schedule alone.
            self.step = hooks.around_step(self.step)  # type: ignore[method-assign]

        for stage in self._stages:
            self.simulated.connect(stage)
        self._parameters = [p for stage in self._stages for p in stage.submod.parameters()]
        self._sgd = torch.optim.SGD(self._parameters, lr=0.1)
        self._batches = batches(MICROBATCH * options.microbatches, seed=self.pipeline)
        self.losses: list[float] = []

    def step(self) -> None:
        """One iteration."""
        x, y = next(self._batches)
        losses: list[torch.Tensor] = []
        given = (x,) if self._stages[0].is_first else ()
        wanted = {"target": y, "losses": losses} if self._stages[-1].is_last else {}
        self._schedule.step(*given, **wanted)
        if self._pipelines > 1:
            gradients = [each.grad for each in self._parameters if each.grad is not None]
            together = parameters_to_vector(gradients)
            dist.all_reduce(together, dist.ReduceOp.SUM, self._replicas)
            vector_to_parameters(together / self._pipelines, gradients)
        self._sgd.step()
        self._sgd.zero_grad()
        if losses:
            self.losses.append(torch.stack(losses).mean().item())
        self.simulated.end_step()

    def close(self) -> None:
        """Leave the clocks as they were."""
        if self.optimizer is not None:
            self.optimizer.close()


def run_rank(options: argparse.Namespace, **meeting: Any) -> None:
    """Train in this process."""
    torch.set_num_threads(1)  # the model is tiny, and there are many processes
    dist.init_process_group("gloo", **meeting)
    gpus = f"a100x{dist.get_world_size()}"
    # On real GPUs: nothing of this. Instructions are short, so the power meter is a live one here.
    with SimulatedNode(gpus, load=0.0, sensors="live-power") as node:
        rank = Rank(options, node)
        try:
            found = experiment.run(rank, options)
        finally:
            rank.close()
    everything: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everything, found)
    if rank.rank == 0:
        text = json.dumps(everything, indent=1)
        print(text) if options.result is None else options.result.write_text(text)
    dist.destroy_process_group()


def main() -> None:
    """Be a rank, or start them all."""
    options = arguments()
    if "RANK" in os.environ:  # started by torchrun
        run_rank(options)
        return
    fork = multiprocessing.get_context("fork")  # PyTorch is imported once for all
    world = options.pipelines * PLACES
    with tempfile.TemporaryDirectory() as folder:
        meeting = {"init_method": f"file://{folder}/meeting", "world_size": world}
        ranks = [
            fork.Process(target=run_rank, args=(options,), kwargs={**meeting, "rank": rank})
            for rank in range(world)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
    raise SystemExit(max(abs(rank.exitcode or 0) for rank in ranks))


if __name__ == "__main__":
    main()
