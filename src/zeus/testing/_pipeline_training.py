"""Pipelines that train in virtual time: every stage on a simulated GPU, with real clients.

The world can be as harsh as real clusters are: sensors that are refreshed every 100 ms, clocks that
take time to change, microbatches that differ, slow links, and GPUs that become slower.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from zeus.clock import VirtualClock
from zeus.device._simulated import SimulatedGpuDriver
from zeus.optimizer.pipeline_frequency import PipelineFrequencyOptimizer, Shape, Step
from zeus.optimizer.pipeline_frequency._schedules import interleaved, one_forward_one_backward
from zeus.testing._node import SimulatedNode
from zeus.testing._workload import Workload, simulated_driver

_WAITING = 0.0
_DONE = 1e-9  # share of an instruction that is left at most when it has ended


@dataclass(frozen=True)
class TrainedIteration:
    """What an iteration of all pipelines took, in truth.

    Attributes:
        time: Seconds.
        energy: Joules of all GPUs.
        clocks: MHz of each GPU at the begin of the step, and at the begin of each instruction.
        powers: Watts of all GPUs together, in truth, from one change to the next: seconds that it
            lasts, and the power.
    """

    time: float
    energy: float
    clocks: list[list[int]]
    powers: list[tuple[float, float]] = field(default_factory=list)


@dataclass
class _Running:
    """An instruction that runs."""

    step: Step
    work: Workload
    left: float = 1.0  # share of the work


@dataclass
class PipelineTraining:
    """Data-parallel pipelines on one simulated node; each iteration ends when all of them have.

    Attributes:
        loads: How many times as long as `seconds` each stage takes.
        pipelines: Number of data-parallel pipelines.
        microbatches: Parts of the batch.
        gpu: Model of all GPUs.
        chunks: Stages per rank.
        schedule: The schedule; by default 1F1B, or interleaved 1F1B with several chunks.
        tell_microbatch: Whether instructions are reported with their microbatch.
        message: Seconds until another rank has a result: for all links, or for each link between
            neighboring stages.
        seconds: Of a forward and a backward at the highest clock.
        sensors: As for `SimulatedNode`.
        clock_lag: Seconds that a GPU takes to change its clock.
        variation: Relative standard deviation of the work of an instruction.
        shared: Whether all instructions of a microbatch vary alike, rather than each for itself.
        seed: Of the variation: trainings with the same one have the same work in each step.
        optimizers: Clients of all ranks, once connected.
    """

    loads: Sequence[float]
    pipelines: int = 1
    microbatches: int = 6
    gpu: str = "a100"
    chunks: int = 1
    schedule: Callable[[Shape], list[list[Step]]] | None = None
    tell_microbatch: bool = False
    message: float | Sequence[float] = 0.0
    seconds: tuple[float, float] = (0.1, 0.2)
    sensors: Any = "live-power"
    clock_lag: float = 0.0
    variation: float = 0.0
    shared: bool = False
    seed: int = 0
    optimizers: list[PipelineFrequencyOptimizer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.devices = len(self.loads) // self.chunks
        self.node = SimulatedNode(
            f"{self.gpu}x{self.devices * self.pipelines}",
            load=_WAITING,
            sensors=self.sensors,
            clock_lag=self.clock_lag,
        )
        shape = Shape(self.devices, len(self.loads), self.microbatches)
        default = interleaved if self.chunks > 1 else one_forward_one_backward
        self.order = (self.schedule or default)(shape)
        self.links = (
            [self.message] * (len(self.loads) - 1)
            if isinstance(self.message, float)
            else list(self.message)
        )
        self._rank_of = {
            step.stage: rank for rank, steps in enumerate(self.order) for step in steps
        }
        #: How many times as long each pipeline takes; may be changed between iterations.
        self.slow = [1.0] * self.pipelines
        #: The same by pipeline and rank.
        self.slow_rank: dict[tuple[int, int], float] = {}
        self._steps = 0

    def connect(self, api: Any, **options: Any) -> None:
        """Make the client of each rank.

        Args:
            api: Answers their requests.
            options: Further arguments of `PipelineFrequencyOptimizer`.
        """
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
        """Return what a step runs, before it varies.

        Args:
            step: The step.
            pipeline: Index of the pipeline.
        """
        seconds = self.seconds[0] if step.instruction == "forward" else self.seconds[1]
        seconds *= self.loads[step.stage] * self.slow[pipeline]
        seconds *= self.slow_rank.get((pipeline, self._rank_of[step.stage]), 1.0)
        return Workload(step.instruction, seconds, activity=0.9, compute_bound=0.8)

    def energy(self) -> float:
        """Return joules of all GPUs so far, in truth."""
        return sum(self.node.exact_energy(gpu) for gpu in range(len(self.node.gpus)))

    def iterate(self, count: int = 1) -> list[TrainedIteration]:
        """Train some iterations.

        Args:
            count: Number of iterations.
        """
        return [self._iterate() for _ in range(count)]

    def until(self, state: str, most: int = 400) -> int:
        """Train until all clients are in a state; return how many iterations that took.

        Args:
            state: A value of `PipelineFrequencyOptimizer.state`.
            most: Number of iterations after which it fails.

        Raises:
            AssertionError: If they are not in that state after so many iterations.
        """
        for count in range(most):
            if all(optimizer.state == state for optimizer in self.optimizers):
                return count
            self._iterate()
        states = [(optimizer.state, optimizer.trouble) for optimizer in self.optimizers]
        raise AssertionError(f"not {state} after {most} iterations: {states}")

    def close(self) -> None:
        """Close the clients."""
        for optimizer in self.optimizers:
            optimizer.close()

    # --- one iteration ----------------------------------------------------------------------------

    def _iterate(self) -> TrainedIteration:
        clock = self.node.clock
        self._steps += 1
        began, energy = clock.now(), self.energy()
        for optimizer in self.optimizers:
            optimizer.on_step_begin()
        clocks = [[self._locked(gpu)] for gpu in range(len(self.node.gpus))]
        self._powers: list[tuple[float, float]] = []
        self._run(clocks)
        for optimizer in self.optimizers:
            optimizer.on_step_end()
        return TrainedIteration(clock.now() - began, self.energy() - energy, clocks, self._powers)

    def _run(self, clocks: list[list[int]]) -> None:
        """Run instructions when their rank is free and their inputs are there."""
        clock = self.node.clock
        place = {(p, d): 0 for p in range(self.pipelines) for d in range(self.devices)}
        done: dict[tuple[int, Step], float] = {}
        running: dict[tuple[int, int], _Running] = {}
        arrivals: list[float] = []

        def start_what_can() -> None:
            for key, at in place.items():
                pipeline, device = key
                if key in running or at == len(self.order[device]):
                    continue
                step = self.order[device][at]
                arrival = max(
                    (
                        done.get((pipeline, other), math.inf)
                        + self._message(step, other) * (self._rank_of[other.stage] != device)
                        for other in self._inputs(step)
                    ),
                    default=0.0,
                )
                if clock.now() < arrival < math.inf:
                    heapq.heappush(arrivals, arrival)
                elif arrival < math.inf:
                    due = self._due(pipeline, device)
                    if due > clock.now():
                        heapq.heappush(arrivals, due)
                    else:
                        running[key] = self._begin(pipeline, device, step, clocks)

        start_what_can()
        while running or arrivals:
            while arrivals and arrivals[0] <= clock.now():
                heapq.heappop(arrivals)
            for key, step in self._advance(running, arrivals[0] if arrivals else math.inf):
                done[key[0], step] = clock.now()
                place[key] += 1
            start_what_can()
        left = [key for key, at in place.items() if at < len(self.order[key[1]])]
        assert left == [], "the schedule cannot be followed"

    def _advance(
        self, running: dict[tuple[int, int], _Running], until: float = math.inf
    ) -> list[tuple[tuple[int, int], Step]]:
        """Let time pass until something happens, at most until an instant; return what ended."""
        clock = self.node.clock
        assert isinstance(clock, VirtualClock)
        now = clock.now()
        # Until the first of these, nothing changes: not the clock of any GPU, either.
        events = [until]
        before = {key: self._duration(key, each) for key, each in running.items()}
        for key, each in running.items():
            events.append(now + max(each.left, 0.0) * before[key])
            coming = self._driver(*key).next_clock(each.work.activity)
            if coming is not None:
                events.append(now + coming[0])
        due = clock.next_due()
        if due is not None:
            events.append(due)
        first = min(events)
        if first == math.inf:
            return []
        energy = self.energy()
        clock.sleep(max(first - now, 0.0))
        passed = clock.now() - now
        if passed > 0:
            self._powers.append((passed, (self.energy() - energy) / passed))
        ended = []
        for key, each in list(running.items()):
            each.left -= passed / before[key]
            if each.left <= _DONE:
                del running[key]
                self._end(key, each.step)
                ended.append((key, each.step))
        return ended

    def _begin(self, pipeline: int, device: int, step: Step, clocks: list[list[int]]) -> _Running:
        gpu = pipeline * self.devices + device
        if self.optimizers:
            self.optimizers[gpu].on_instruction_begin(
                step.instruction,
                chunk=step.stage // self.devices,
                microbatch=step.microbatch if self.tell_microbatch else None,
            )
        clocks[gpu].append(self._locked(gpu))
        work = self.workload(step, pipeline).scaled(self._factor(step, pipeline))
        self._driver(pipeline, device).set_load(work.activity)
        return _Running(step, work)

    def _due(self, pipeline: int, device: int) -> float:
        """Return when the plan lets the next instruction of a rank begin."""
        if not self.optimizers:
            return 0.0
        return self.optimizers[pipeline * self.devices + device].due() or 0.0

    def _end(self, key: tuple[int, int], step: Step) -> None:
        self._driver(*key).set_load(_WAITING)
        if self.optimizers:
            self.optimizers[key[0] * self.devices + key[1]].on_instruction_end(step.instruction)

    def _factor(self, step: Step, pipeline: int) -> float:
        """Return how much more work than usual an instruction is."""
        if not self.variation:
            return 1.0
        one = (self.seed, self._steps, pipeline, step.microbatch)
        key = one if self.shared else (*one, step.stage, step.instruction)
        return max(1 + self.variation * random.Random(repr(key)).gauss(0, 1), 0.3)

    def _duration(self, key: tuple[int, int], running: _Running) -> float:
        """Return seconds of the whole instruction at the current clock."""
        work = running.work
        clock = self._driver(*key).relative_clock(work.activity)
        return work.gpu_time * (work.compute_bound / clock + 1 - work.compute_bound)

    def _driver(self, pipeline: int, device: int) -> SimulatedGpuDriver:
        return simulated_driver(self.node.gpus[pipeline * self.devices + device])

    def _locked(self, gpu: int) -> int:
        lock = self.node.gpus[gpu].locked_graphics_clock()
        return 0 if lock is None else lock.maximum

    def _inputs(self, step: Step) -> list[Step]:
        if step.instruction == "forward":
            return [step._replace(stage=step.stage - 1)] if step.stage else []
        if step.instruction == "backward" and step.stage < len(self.loads) - 1:
            return [step._replace(stage=step.stage + 1)]
        return []

    def _message(self, step: Step, other: Step) -> float:
        return self.links[min(step.stage, other.stage)]
