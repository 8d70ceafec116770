"""Simulated GPUs for a pipeline of real processes, exact in virtual time.

Every rank has a simulated GPU with a virtual clock. A computation moves the clock of its rank by
what the work takes at the GPU's present clock, and draws power accordingly. What crosses ranks is
time: a rank that sends tells the receiver when, by its own clock, and the receiver cannot begin
before. So virtual time is that of the schedule's critical path, to the last digit, however the
machine happens to run the processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from zeus.testing import SimulatedNode, Workload

SECONDS_PER_LAYER = 0.05  # of a forward, at the highest clock; a backward takes twice as long


class SimulatedRank:
    """The GPU of this rank.

    Attributes:
        slowdown: How many times as long everything takes. As in a GPU that has become too hot, the
            clock is stopped for part of the time.
    """

    def __init__(self, node: SimulatedNode, gpu: int, ranks: list[int], owners: list[int]) -> None:
        """Take part in the simulation.

        Args:
            node: Of this process.
            gpu: Which one of it.
            ranks: Of the pipeline, in order.
            owners: Rank of each stage.
        """
        self.slowdown = 1.0
        self._node = node
        self._gpu = node.gpus[gpu]
        self._owners = owners
        self._group = dist.new_group(ranks, use_local_synchronization=True)
        self._sent: list[tuple[Any, torch.Tensor]] = []

    def compute(self, stage: Any, work: float) -> None:
        """Let the stage's computations take their time. To be called before Zeus is attached.

        Args:
            stage: Of this rank.
            work: Of a forward, in that of one layer.
        """
        # Where backwards are split, each part takes half. But nobody needs gradients of the input
        # of the first stage, and PyTorch leaves all of its backward to the second part.
        first_part, second_part = (0, 2) if stage.is_first else (1, 1)
        passes: dict[str, Callable[[bool], int]] = {
            "forward_one_chunk": lambda _: 1,
            "backward_one_chunk": lambda whole: 2 if whole else first_part,
            "backward_weight_one_chunk": lambda _: second_part,
        }
        for name, count in passes.items():
            setattr(stage, name, self._taking(getattr(stage, name), work, count))

    def connect(self, stage: Any) -> None:
        """Let them wait for their input. To be called after Zeus is attached."""
        index = stage.stage_index
        before, after = self._elsewhere(index, index - 1), self._elsewhere(index, index + 1)
        forward, backward = stage.forward_one_chunk, stage.backward_one_chunk
        stage.forward_one_chunk = self._between(forward, index, before, after)
        stage.backward_one_chunk = self._between(backward, index, after, before)

    def end_step(self) -> None:
        """All ranks of all pipelines end an iteration at the same time: with the slowest."""
        for sent, _ in self._sent:
            sent.wait()
        self._sent.clear()
        latest = torch.tensor([self._node.clock.now()], dtype=torch.float64)
        dist.all_reduce(latest, dist.ReduceOp.MAX)
        self._wait_until(latest.item())

    def _taking(
        self, function: Callable[..., Any], work: float, passes: Callable[[bool], int]
    ) -> Callable[..., Any]:
        def computed(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            seconds = SECONDS_PER_LAYER * work * passes(kwargs.get("full_backward", True))
            if seconds > 0:
                time = Workload("computation", seconds, compute_bound=0.8).run(self._gpu)
                self._node.sleep((self.slowdown - 1) * time)
            return result

        return computed

    def _between(
        self, function: Callable[..., Any], stage: int, source: int | None, target: int | None
    ) -> Callable[..., Any]:
        def connected(microbatch: int, *args: Any, **kwargs: Any) -> Any:
            if source is not None:
                time = torch.empty(1, dtype=torch.float64)
                dist.recv(time, self._owners[source], self._group, _tag(source, stage, microbatch))
                self._wait_until(time.item())
            result = function(microbatch, *args, **kwargs)
            if target is not None:
                time = torch.tensor([self._node.clock.now()], dtype=torch.float64)
                tag = _tag(stage, target, microbatch)
                owner = self._owners[target]
                self._sent.append((dist.isend(time, owner, self._group, tag), time))
            return result

        return connected

    def _elsewhere(self, stage: int, other: int) -> int | None:
        """The other stage, if there is one and another rank has it."""
        if not 0 <= other < len(self._owners) or self._owners[other] == self._owners[stage]:
            return None
        return other

    def _wait_until(self, time: float) -> None:
        self._node.sleep(max(0.0, time - self._node.clock.now()))


def _tag(source: int, target: int, microbatch: int) -> int:
    """One number for every message of an iteration."""
    return (microbatch * 100 + source) * 100 + target
