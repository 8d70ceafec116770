"""Pipelines that train in virtual time: every stage on a simulated GPU, all clients for real."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from zeus.optimizer.pipeline_frequency import PipelineFrequencyOptimizer
from zeus.optimizer.pipeline_frequency._schedules import (
    Shape,
    Step,
    interleaved,
    one_forward_one_backward,
)
from zeus.testing import SimulatedNode, Workload
from zeus.testing._workload import simulated_driver

WAITING = 0.0


@dataclass
class Iteration:
    """What an iteration of all pipelines took, in truth."""

    time: float
    energy: float
    clocks: list[list[int]]


class Training:
    """Pipelines on one node; each iteration ends when all of them have.

    Args:
        loads: How much longer each stage takes than the shortest could.
        pipelines: Data-parallel pipelines.
        microbatches: Parts of the batch.
        gpu: Model.
        chunks: Stages per rank.
        tell_microbatch: Whether instructions are told with their microbatch.
        message: Seconds until another rank has a result: for all links, or for each link between
            neighboring stages.
    """

    def __init__(
        self,
        loads: Sequence[float],
        *,
        pipelines: int = 1,
        microbatches: int = 6,
        gpu: str = "a100",
        chunks: int = 1,
        schedule: Callable[[Shape], list[list[Step]]] | None = None,
        tell_microbatch: bool = False,
        message: float | Sequence[float] = 0.0,
    ) -> None:
        self.devices = len(loads) // chunks
        self.pipelines = pipelines
        # Instructions are short, and measured a few times at each clock: too little for sensors
        # that are refreshed every 100 ms.
        gpus = f"{gpu}x{self.devices * pipelines}"
        self.node = SimulatedNode(gpus, load=WAITING, sensors="live-power")
        self._loads = loads
        shape = Shape(self.devices, len(loads), microbatches)
        chosen = schedule or (interleaved if chunks > 1 else one_forward_one_backward)
        self.order = chosen(shape)
        self._stages = len(loads)
        self._tell_microbatch = tell_microbatch
        links = len(loads) - 1
        self.messages = [message] * links if isinstance(message, float) else list(message)
        self._rank_of = {
            step.stage: rank for rank, steps in enumerate(self.order) for step in steps
        }
        self.slow = [1.0] * pipelines
        self.optimizers: list[PipelineFrequencyOptimizer] = []

    def connect(self, api: Any, **options: Any) -> None:
        """Make the clients."""
        world = self.pipelines * self.devices
        for rank in range(world):
            dp_rank, pp_rank = divmod(rank, self.devices)
            self.optimizers.append(
                PipelineFrequencyOptimizer(
                    rank, dp_rank, pp_rank, 0, rank, self.pipelines, self.devices, 1, world,
                    "http://127.0.0.1:1", "a test", job="test", node=self.node, api=api,
                    sync_execution_with=None, **options,
                )
            )  # fmt: skip

    def workload(self, step: Step, pipeline: int) -> Workload:
        """What a step runs."""
        seconds = 0.10 if step.instruction == "forward" else 0.20
        seconds *= self._loads[step.stage] * self.slow[pipeline]
        return Workload(step.instruction, seconds, activity=0.9, compute_bound=0.8)

    def energy(self) -> float:
        """Joules of all GPUs so far, in truth."""
        return sum(self.node.exact_energy(gpu) for gpu in range(len(self.node.gpus)))

    def iterate(self, count: int = 1) -> list[Iteration]:
        """Train some iterations."""
        return [self._iterate() for _ in range(count)]

    def until(self, state: str, most: int = 400) -> int:
        """Train until all clients are in this state; how many iterations that took."""
        for count in range(most):
            if all(optimizer.state == state for optimizer in self.optimizers):
                return count
            self._iterate()
        states = [(optimizer.state, optimizer.trouble) for optimizer in self.optimizers]
        raise AssertionError(f"not {state} after {most} iterations: {states}")

    def close(self) -> None:
        for optimizer in self.optimizers:
            optimizer.close()

    def _iterate(self) -> Iteration:
        clock = self.node.clock
        began, energy = clock.now(), self.energy()
        for optimizer in self.optimizers:
            optimizer.on_step_begin()
        clocks = [self._locked(gpu) for gpu in range(len(self.node.gpus))]
        self._run(clocks)
        for optimizer in self.optimizers:
            optimizer.on_step_end()
        return Iteration(clock.now() - began, self.energy() - energy, clocks)

    def _locked(self, gpu: int) -> list[int]:
        lock = self.node.gpus[gpu].locked_graphics_clock()
        return [0 if lock is None else lock.maximum]

    def _run(self, clocks: list[list[int]]) -> None:
        """Run instructions when their rank is free and their inputs are there."""
        clock = self.node.clock
        place = {(p, d): 0 for p in range(self.pipelines) for d in range(self.devices)}
        done: dict[tuple[int, Step], float] = {}
        busy: set[tuple[int, int]] = set()
        ends: list[tuple[float, int, int]] = []

        def start_what_can() -> None:
            for (pipeline, device), at in place.items():
                if (pipeline, device) in busy or at == len(self.order[device]):
                    continue
                step = self.order[device][at]
                arrivals = [
                    done.get((pipeline, other), math.inf)
                    + self._message(step, other) * (self._rank_of[other.stage] != device)
                    for other in self._inputs(step)
                ]
                arrival = max(arrivals, default=0.0)
                if clock.now() < arrival < math.inf:
                    heapq.heappush(ends, (arrival, pipeline, -1))
                elif arrival < math.inf:
                    busy.add((pipeline, device))
                    end = clock.now() + self._begin(pipeline, device, step, clocks)
                    heapq.heappush(ends, (end, pipeline, device))

        start_what_can()
        while ends:
            end, pipeline, device = heapq.heappop(ends)
            clock.sleep(max(end - clock.now(), 0.0))
            if device < 0:
                start_what_can()  # a message has arrived
                continue
            step = self.order[device][place[pipeline, device]]
            simulated_driver(self._gpu(pipeline, device)).set_load(WAITING)
            if self.optimizers:
                self._optimizer(pipeline, device).on_instruction_end(step.instruction)
            done[pipeline, step] = clock.now()
            busy.discard((pipeline, device))
            place[pipeline, device] += 1
            start_what_can()
        left = [key for key, at in place.items() if at < len(self.order[key[1]])]
        assert left == [], "the schedule cannot be followed"

    def _begin(self, pipeline: int, device: int, step: Step, clocks: list[list[int]]) -> float:
        gpu = self._gpu(pipeline, device)
        if self.optimizers:
            self._optimizer(pipeline, device).on_instruction_begin(
                step.instruction,
                chunk=step.stage // self.devices,
                microbatch=step.microbatch if self._tell_microbatch else None,
            )
        clocks[gpu.index].append(self._locked(gpu.index)[0])
        work = self.workload(step, pipeline)
        seconds = work.kernel_time(gpu)
        simulated_driver(gpu).set_load(work.activity)
        return seconds

    def _inputs(self, step: Step) -> list[Step]:
        if step.instruction == "forward":
            return [step._replace(stage=step.stage - 1)] if step.stage else []
        if step.instruction == "backward" and step.stage < self._stages - 1:
            return [step._replace(stage=step.stage + 1)]
        return []

    def _message(self, step: Step, other: Step) -> float:
        return self.messages[min(step.stage, other.stage)]

    def _gpu(self, pipeline: int, device: int) -> Any:
        return self.node.gpus[pipeline * self.devices + device]

    def _optimizer(self, pipeline: int, device: int) -> PipelineFrequencyOptimizer:
        return self.optimizers[pipeline * self.devices + device]
