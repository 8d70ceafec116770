"""A simulated training job in virtual time, and the truth about it to compare a choice with."""

from __future__ import annotations

from collections.abc import Iterable

from zeus.device import Gpu
from zeus.frontier import Frontier, Objective, Point
from zeus.monitor import ZeusMonitor
from zeus.optimizer.callback import Callback
from zeus.optimizer.training._knobs import ClockKnob, Knob, PowerLimitKnob
from zeus.testing import SimulatedNode, Workload

STEPS_AT_MOST = 60_000


def work(
    step_time: float = 0.05,
    *,
    activity: float = 1.1,
    compute_bound: float = 0.8,
    host_share: float = 0.0,
) -> Workload:
    """A job whose step takes this long at the highest clock."""
    return Workload(
        "work", step_time * (1 - host_share), step_time * host_share, activity, compute_bound
    )


def truth(spec: str, workload: Workload, knob: Knob | None = None) -> Frontier:
    """What a step really takes at every setting, on all GPUs of a node of one model."""
    knob = knob or PowerLimitKnob(25)
    node = SimulatedNode(spec)
    points = []
    for setting in knob.ladder(node.gpus[0]):
        holds = [knob.hold(gpu, setting) for gpu in node.gpus]
        for hold in holds:
            hold.acquire()
        time = max(workload.step_time(gpu) for gpu in node.gpus)
        energy = sum(workload.average_power(gpu) for gpu in node.gpus) * time
        points.append(Point(setting, time, energy))
        for hold in holds:
            hold.release()
    maximum = sum(gpu.power_limits().maximum for gpu in node.gpus)
    return Frontier(points, max_power=maximum)


def clocks() -> ClockKnob:
    """The other knob, as the optimizer goes down it by default."""
    return ClockKnob(75)


def monitor(node: SimulatedNode, gpu_indices: list[int] | None = None) -> ZeusMonitor:
    """Measures GPUs of the node, and nothing else."""
    return ZeusMonitor(gpu_indices, [], node=node)


class Loop:
    """A training loop on all GPUs of a node.

    Attributes:
        steps: Made so far.
    """

    def __init__(
        self,
        node: SimulatedNode,
        callback: Callback,
        workload: Workload,
        *,
        epoch: int = 100,
        between: float = 0.0,
        gpus: Iterable[Gpu] | None = None,
    ) -> None:
        """A loop.

        Args:
            node: Where it runs.
            callback: Is told.
            workload: Of a step.
            epoch: Steps of an epoch.
            between: Seconds of full load between epochs, which are not training.
            gpus: Of the node, that take part; by default all.
        """
        self.node = node
        self.callback = callback
        self.workload = workload
        self.epoch_steps = epoch
        self.between = between
        self.gpus = tuple(node.gpus if gpus is None else gpus)
        self.steps = 0

    def step(self) -> None:
        self.callback.on_step_begin()
        self.workload.run(self.gpus)
        self.callback.on_step_end()
        self.steps += 1

    def epoch(self) -> None:
        self.callback.on_epoch_begin()
        for _ in range(self.epoch_steps):
            self.step()
        self.callback.on_epoch_end()
        if self.between:
            Workload("evaluation", self.between, 0.0, 1.0, 0.5).run(self.gpus)

    def epochs(self, number: int) -> Loop:
        for _ in range(number):
            self.epoch()
        return self

    def until_decided(self) -> Loop:
        """Train until the optimizer has chosen, or gives up, at the end of an epoch."""
        while not (self.callback.decided or self.callback.trouble):  # type: ignore[attr-defined]
            assert self.steps < STEPS_AT_MOST, "profiling does not come to an end"
            self.epoch()
        return self


def limits(node: SimulatedNode) -> list[float]:
    """Power limits in force, by GPU."""
    return [gpu.power_limit() for gpu in node.gpus]


def excess(objective: Objective, chosen: object, true: Frontier) -> float:
    """By which share the true cost of a choice is above that of the true optimum."""
    best = objective.select(true)
    assert best.cost is not None
    at_choice = objective.select(true.with_points([true.at(chosen)]))
    assert at_choice.cost is not None
    return at_choice.cost / best.cost - 1
