"""Simulated GPUs under any pipeline engine, in virtual time.

`SimulatedGpu` stands between the hooks of an engine and the optimizer: it gets every report first.
A computation moves the virtual clock of its rank by what the work takes at the GPU's present clock.
When it has ended, the rank sends its virtual time to the rank that needs the result, and that rank
waits until then before its own computation begins. The engine has already delivered the real
message by that time, so no rank waits for one that waits for it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
import torch.distributed as dist

from zeus.integrations.pipeline_engine import PipelineCallback
from zeus.testing import SimulatedNode, Workload

FORWARD_SECONDS = 0.05  # of a stage's forward at the highest clock, times its work
PASSES = {"forward": 1, "backward": 2}


class SimulatedGpu:
    """The GPU of this rank, and what its engine reports.

    Attributes:
        seen: Computations of the last step: name, stage and microbatch.
        steps: Virtual seconds and exact joules of each step.
    """

    def __init__(
        self, node: SimulatedNode, work: list[float], optimizer: PipelineCallback | None
    ) -> None:
        """Take part in the simulation.

        Args:
            node: Of this process, with a GPU for each rank.
            work: Of each stage, in order; stages are dealt out to ranks in turn.
            optimizer: Gets the reports; without, clocks are left alone.
        """
        self.seen: list[tuple[str, int, int]] = []
        self.steps: list[tuple[float, float]] = []
        self._node = node
        self._work = work
        self._optimizer = optimizer
        self._rank, self._ranks = dist.get_rank(), dist.get_world_size()
        self._group = dist.new_group(backend="gloo")
        self._sent: list[tuple[Any, torch.Tensor]] = []
        self._numbers: Counter[tuple[str, int]] = Counter()
        self._open = ("", 0, 0)
        self._begun = 0.0, 0.0

    def on_step_begin(self) -> None:
        """All ranks begin together."""
        self.seen, self._numbers = [], Counter()
        self._begun = self._node.clock.now(), self._node.exact_energy(self._rank)
        if self._optimizer is not None:
            self._optimizer.on_step_begin()

    def on_instruction_begin(
        self,
        name: str,
        *,
        chunk: int = 0,
        microbatch: int | None = None,
        stage: int | None = None,
    ) -> None:
        """Wait for the input, in virtual time, then begin."""
        where = chunk * self._ranks + self._rank if stage is None else stage
        # Engines that do not say which microbatch it is compute them in order.
        number = self._numbers[name, where] if microbatch is None else microbatch
        self._numbers[name, where] += 1
        self._open = name, where, number
        self.seen.append(self._open)
        source = where - 1 if name == "forward" else where + 1
        if 0 <= source < len(self._work):
            time = torch.empty(1, dtype=torch.float64)
            dist.recv(time, source % self._ranks, self._group, self._tag(name, where, number))
            self._wait_until(time.item())
        if self._optimizer is not None:
            self._optimizer.on_instruction_begin(
                name, chunk=chunk, microbatch=microbatch, stage=stage
            )

    def on_instruction_end(self, name: str) -> None:
        """Let the computation take its time, end, and pass the time on."""
        _, where, number = self._open
        seconds = FORWARD_SECONDS * self._work[where] * PASSES[name]
        gpu = self._node.gpus[self._rank]
        Workload("computation", seconds, compute_bound=0.8).run(gpu)
        if self._optimizer is not None:
            self._optimizer.on_instruction_end(name)
        target = where + 1 if name == "forward" else where - 1
        if 0 <= target < len(self._work):
            time = torch.tensor([self._node.clock.now()], dtype=torch.float64)
            tag = self._tag(name, target, number)
            self._sent.append((dist.isend(time, target % self._ranks, self._group, tag), time))

    def on_step_end(self) -> None:
        """Wait for the slowest rank, as a norm of all gradients makes them do."""
        for sent, _ in self._sent:
            sent.wait()
        self._sent.clear()
        latest = torch.tensor([self._node.clock.now()], dtype=torch.float64)
        dist.all_reduce(latest, dist.ReduceOp.MAX, self._group)
        self._wait_until(latest.item())
        if self._optimizer is not None:
            self._optimizer.on_step_end()
        time, energy = self._begun
        self.steps.append(
            (self._node.clock.now() - time, self._node.exact_energy(self._rank) - energy)
        )

    def close(self) -> None:
        """Restore clocks."""
        if self._optimizer is not None:
            self._optimizer.close()

    def all_ranks(self, holds: bool) -> bool:
        """Whether something holds on every rank. All of them have to ask."""
        least = torch.tensor([int(holds)])
        dist.all_reduce(least, dist.ReduceOp.MIN, self._group)
        return bool(least.item())

    def from_all_ranks(self, own: Any) -> list[Any]:
        """What every rank has. All of them have to ask."""
        everything: list[Any] = [None] * self._ranks
        dist.all_gather_object(everything, own, self._group)
        return everything

    def _tag(self, name: str, target: int, microbatch: int) -> int:
        """One number for every message of an iteration."""
        return (microbatch * 100 + target) * 2 + (name == "backward")

    def _wait_until(self, time: float) -> None:
        self._node.sleep(max(0.0, time - self._node.clock.now()))
