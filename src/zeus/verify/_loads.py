"""Synthetic loads: something that a GPU runs or does not run, at instants that are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from zeus.device._simulated import SimulatedGpuDriver
from zeus.device._simulated_state import IDLE
from zeus.testing._workload import Workload
from zeus.verify._kernel_load import LoadError, start_kernels
from zeus.verify._load_pattern import Edge, Segment

if TYPE_CHECKING:
    from zeus.clock import Clock
    from zeus.device import Gpu

_ACTIVITY = 0.9
_STEP = Workload("verify", gpu_time=0.002, activity=_ACTIVITY, compute_bound=0.9)


class Load(Protocol):
    """A load of one GPU. Instants are those of the node's clock."""

    #: What it is, for the report.
    name: str
    #: Seconds by which its edges may be off.
    edge_uncertainty: float

    def start(self, segments: Sequence[Segment]) -> None:
        """Begin to switch it on and off; `advance` must be called at each `next_edge`."""

    def next_edge(self) -> float:
        """Return when `advance` must be called next; infinite if it need not be."""

    def advance(self) -> None:
        """Switch it, if that is due."""

    def finish(self) -> list[Edge]:
        """Return when it was switched, once all segments have passed; it does not run then."""

    def run(self, seconds: float) -> None:
        """Run it for this long, and return when it has ended."""

    def begin_steps(self, seconds: float) -> None:
        """Repeat one step for this long in the background, until `finish_steps`."""

    def pass_time(self, seconds: float) -> None:
        """Let time pass, in which the steps that were begun go on."""

    def finish_steps(self) -> list[tuple[float, float]]:
        """Return begin and duration of each step, once their time has passed."""

    def exact_energy(self, instant: float) -> float | None:
        """Return the true joules of the GPU up to an instant just past; a simulation knows."""

    def close(self) -> None:
        """End it."""


class SimulatedLoad:
    """The load of a simulated GPU; whatever ran on it before runs again afterwards."""

    name = "simulated kernels"
    edge_uncertainty = 0.0

    def __init__(self, gpu: Gpu, driver: SimulatedGpuDriver, clock: Clock) -> None:
        self._gpu = gpu
        self._driver = driver
        self._clock = clock
        self._before = driver.load()
        self._pending: list[Edge] = []
        self._edges: list[Edge] = []
        self._steps: list[tuple[float, float]] = []
        self._switch(on=False)

    def _switch(self, *, on: bool) -> None:
        self._driver.set_load(_ACTIVITY if on else IDLE)

    def start(self, segments: Sequence[Segment]) -> None:
        """See `Load`."""
        instant = self._clock.now()
        self._edges, self._pending = [], []
        for segment in segments:
            self._pending.append(Edge(instant, segment.on))
            instant += segment.seconds
        self._pending.append(Edge(instant, on=False))
        self.advance()

    def next_edge(self) -> float:
        """See `Load`."""
        return self._pending[0].instant if self._pending else math.inf

    def advance(self) -> None:
        """See `Load`."""
        due = None
        while self._pending and self._pending[0].instant <= self._clock.now():
            due = self._pending.pop(0)
        if due is not None:
            # When it was switched, not when it was to be.
            self._switch(on=due.on)
            self._edges.append(Edge(self._clock.now(), due.on))

    def finish(self) -> list[Edge]:
        """See `Load`."""
        if self._pending:
            self._pending = self._pending[-1:]
            self._clock.sleep(max(self.next_edge() - self._clock.now(), 0.0))
            self.advance()
        return self._edges

    def run(self, seconds: float) -> None:
        """See `Load`."""
        self._switch(on=True)
        self._clock.sleep(seconds)
        self._switch(on=False)

    def begin_steps(self, seconds: float) -> None:  # noqa: ARG002
        """See `Load`."""
        self._steps = []

    def pass_time(self, seconds: float) -> None:
        """See `Load`."""
        end = self._clock.now() + seconds
        while (begun := self._clock.now()) < end:
            _STEP.run(self._gpu)
            self._steps.append((begun, self._clock.now() - begun))

    def finish_steps(self) -> list[tuple[float, float]]:
        """See `Load`."""
        return self._steps

    def exact_energy(self, instant: float) -> float | None:
        """See `Load`."""
        return self._driver.exact_energy(instant)

    def close(self) -> None:
        """See `Load`."""
        self._driver.set_load(*self._before)


def find_load(gpu: Gpu, clock: Clock) -> tuple[Load | None, str]:
    """Return a load for a GPU; without one, why there is none."""
    if isinstance(gpu.driver, SimulatedGpuDriver):
        return SimulatedLoad(gpu, gpu.driver, clock), ""
    try:
        return start_kernels(gpu, clock), ""
    except LoadError as error:
        return None, str(error)
