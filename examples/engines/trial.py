"""What all engines here have in common: a simulated GPU, an optimizer, how long to train, a report.

A script of an engine does::

    trial = Trial(stages)
    ...  # build the model, attach Zeus to the engine, and report to `trial.gpu`
    while trial.goes_on():
        trial.losses.append(...)  # train for a step
    trial.end()
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from virtual_time import SimulatedGpu

from zeus.optimizer import PipelineFrequencyOptimizer
from zeus.testing import SimulatedNode

MICROBATCHES = 8
STEPS_UNDER_PLAN = 5
PATIENCE = 200  # steps
CLOCK_STRIDE = 90  # MHz; a third of the clocks, so that it takes minutes on two cores
UNEVEN = 0.25  # by which the work of a stage exceeds that of the one before it


def arguments() -> argparse.Namespace:
    """From the command line, which `try_engine.py` writes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedule", required=True)
    parser.add_argument("--result", type=Path, required=True, help="JSON file for what came out")
    parser.add_argument("--server", help="of Zeus; without, clocks are left alone")
    parser.add_argument("--job", default="try", help="its name on the server")
    parser.add_argument("--steps", type=int, help="by default until some have followed a plan")
    return parser.parse_args()


def local_rank() -> int:
    """The number of this process on the machine, as torchrun gives it."""
    return int(os.environ["LOCAL_RANK"])


class Trial:
    """A training run of one rank.

    Attributes:
        gpu: Gets the reports of the engine; set by `begin`.
        losses: Of each step, on the rank that has them.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        torch.set_num_threads(1)  # models are tiny, and processors are shared
        self.losses: list[float] = []
        self._options = options
        self._done = self._under_plan = 0
        # Instructions are short, so the power meter is a live one here.
        world = int(os.environ["WORLD_SIZE"])
        self._node = SimulatedNode(f"a100x{world}", load=0.0, sensors="live-power")
        self._node.__enter__()
        self._optimizer: PipelineFrequencyOptimizer | None = None

    def begin(self, ranks: Mapping[str, Any], stages: int) -> SimulatedGpu:
        """Make the optimizer, where there is a server, and the GPU that reports to it.

        Args:
            ranks: What the engine says of this process: `PipelineFrequencyOptimizer` takes it.
            stages: Of the whole pipeline.
        """
        # All ranks are on CPUs, which have no numbers; the simulated GPUs have.
        own: dict[str, Any] = {**ranks, "device_id": local_rank()}
        if self._options.server:
            self._optimizer = PipelineFrequencyOptimizer(
                **own,
                server_url=self._options.server,
                job=self._options.job,
                clock_stride=CLOCK_STRIDE,
            )
        work = [1 + UNEVEN * stage / (stages - 1) for stage in range(stages)]
        self.gpu = SimulatedGpu(self._node, work, self._optimizer)
        return self.gpu

    def goes_on(self) -> bool:
        """Whether there is a further step: until some have followed a plan. All ranks agree."""
        self._done = len(self.gpu.steps)
        if self._options.steps is not None:
            return self._done < self._options.steps
        assert self._optimizer is not None, "without --server, --steps must be given"
        follow = self.gpu.all_ranks(self._optimizer.state == "following")
        self._under_plan = self._under_plan + 1 if follow else 0
        if self._done >= PATIENCE:
            raise SystemExit(
                f"rank {dist.get_rank()} has followed no plan in {self._done} steps: "
                f"{self._optimizer.trouble or self._optimizer.state}"
            )
        return self._under_plan < STEPS_UNDER_PLAN

    def end(self) -> None:
        """Write what all ranks have seen."""
        clocks = None if self._optimizer is None else self._optimizer.clocks
        own: dict[str, Any] = {
            "rank": dist.get_rank(),
            "losses": self.losses,
            "computations": self.gpu.seen,
            "clocks": clocks,
            "steps": self.gpu.steps,
            "steps until planned": self._done - self._under_plan,
        }
        self.gpu.close()
        everything = self.gpu.from_all_ranks(own)
        if dist.get_rank() == 0:
            self._options.result.write_text(json.dumps(everything), encoding="utf-8")
        self._node.__exit__()
