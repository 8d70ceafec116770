"""Workloads for simulated GPUs: time and power of a step at the current knob settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zeus._rules import Number
from zeus.device import Gpu
from zeus.device._simulated import SimulatedGpuDriver
from zeus.errors import SimulationError
from zeus.testing._roofline import Roofline

if TYPE_CHECKING:
    from zeus.clock import Clock

HIGHEST_ACTIVITY = 1.6
"""Kernels that would draw 1.6 times the dynamic power at the limit if the clock could stay up."""

_WAITING = 0.0
_FEW_STEPS = 8  # up to here, steps are simulated one by one


@dataclass(frozen=True)
class Workload:
    """One step of a job, as a GPU sees it.

    A step runs kernels, then leaves the GPU waiting for the host. A lower clock slows down the
    compute-bound part of the kernels only, not memory and host; or the kernels follow a roofline,
    as phases of a language model's answer do.

    Attributes:
        name: Human-readable name.
        gpu_time: Seconds of kernels per step at the highest clock.
        host_time: Seconds per step in which the GPU waits, at static power.
        activity: Power of the kernels as a share of the GPU's full dynamic power, up to 1.6.
        compute_bound: Share of `gpu_time` that grows with 1 / clock, unless there is a roofline.
        roofline: How the kernels slow down at lower clocks.

    Raises:
        ValueError: If a value is out of range.
    """

    name: str
    gpu_time: float
    host_time: float = 0.0
    activity: float = 0.9
    compute_bound: float = 0.7
    roofline: Roofline | None = None

    def __post_init__(self) -> None:
        for field, high in (
            ("gpu_time", math.inf),
            ("host_time", math.inf),
            ("activity", HIGHEST_ACTIVITY),
            ("compute_bound", 1.0),
        ):
            Number(0, high).check(field, getattr(self, field), SimulationError)
        if self.gpu_time + self.host_time <= 0:
            raise SimulationError("a step must take some time, but gpu_time and host_time are 0")

    def scaled(self, factor: float, name: str | None = None) -> Workload:
        """Return the same work in steps `factor` times as long, such as one iteration of an epoch.

        Args:
            factor: Factor on the time per step, above 0.
            name: Name of the new workload; the same by default.

        Raises:
            ValueError: If the factor is not above 0.
        """
        return replace(
            self,
            name=self.name if name is None else name,
            gpu_time=self.gpu_time * factor,
            host_time=self.host_time * factor,
        )

    def kernel_time(self, gpu: Gpu) -> float:
        """Seconds of kernels per step at the GPU's current power limit and clock lock.

        A step that begins now: a clock that was asked for and is not there yet counts from when it
        comes into force.

        Args:
            gpu: GPU that runs the step.
        """
        driver = simulated_driver(gpu)
        now = self._kernels_at(driver.relative_clock(self.activity))
        coming = driver.next_clock(self.activity)
        if coming is None or coming[0] >= now:
            return now
        until, then = coming
        return until + (1 - until / now) * self._kernels_at(then)

    def _kernels_at(self, clock: float) -> float:
        if self.roofline is not None:
            return self.gpu_time * self.roofline.slowdown(clock)
        return self.gpu_time * (self.compute_bound / clock + 1 - self.compute_bound)

    def step_time(self, gpu: Gpu) -> float:
        """Seconds per step at the GPU's current power limit and clock lock.

        Args:
            gpu: GPU that runs the step.
        """
        return self.kernel_time(gpu) + self.host_time

    def average_power(self, gpu: Gpu) -> float:
        """Average watts of a step at the GPU's current power limit and clock lock.

        Args:
            gpu: GPU that runs the step.
        """
        driver = simulated_driver(gpu)
        busy = driver.model.busy_power(driver.relative_clock(self.activity), self.activity)
        busy_energy = self.kernel_time(gpu) * busy
        return (busy_energy + self.host_time * driver.model.static_power) / self.step_time(gpu)

    def run(self, gpus: Gpu | Iterable[Gpu], steps: int = 1) -> float:
        """Run steps, on several GPUs as one data-parallel job: the slowest sets the pace.

        Few steps are simulated one by one, kernels first and the host after; many as one uniform
        segment of the same time and energy, so that a virtual day costs a millisecond. Knobs are
        read when a step, or the segment, begins. Afterwards the GPUs' previous load is restored.

        Args:
            gpus: Simulated GPUs of one node.
            steps: Number of steps, at least 1.

        Returns:
            Seconds that elapsed, virtual or real as the node's clock is.

        Raises:
            ValueError: If a GPU is not simulated, or there is nothing to run or to run on.
        """
        gpus = (gpus,) if isinstance(gpus, Gpu) else tuple(gpus)
        if not steps >= 1:
            raise SimulationError(f"`steps >= 1` must hold, but got {steps}")
        clock = common_clock(gpus)
        begun = clock.now()
        with load_kept(gpus):
            while steps > 0 and (steps <= _FEW_STEPS or self._clocks_change(gpus)):
                self._run_step(gpus, clock)
                steps -= 1
            if steps:
                self._run_segment(gpus, steps, clock)
        return clock.now() - begun

    def _clocks_change(self, gpus: Sequence[Gpu]) -> bool:
        """Whether clocks that were asked for are not there yet."""
        return any(simulated_driver(gpu).next_clock(self.activity) for gpu in gpus)

    def _run_step(self, gpus: Sequence[Gpu], clock: Clock) -> None:
        for gpu in gpus:
            simulated_driver(gpu).set_load(self.activity)
        elapsed = 0.0
        for time, gpu in sorted(
            ((self.kernel_time(gpu), gpu) for gpu in gpus), key=lambda entry: entry[0]
        ):
            clock.sleep(time - elapsed)
            elapsed = time
            simulated_driver(gpu).set_load(_WAITING)
        clock.sleep(self.host_time)

    def _run_segment(self, gpus: Sequence[Gpu], steps: int, clock: Clock) -> None:
        times = [self.kernel_time(gpu) for gpu in gpus]
        step = max(times) + self.host_time
        for gpu, time in zip(gpus, times, strict=True):
            simulated_driver(gpu).set_load(self.activity, time / step)
        clock.sleep(steps * step)


def simulated_driver(gpu: Gpu) -> SimulatedGpuDriver:
    """The driver of a simulated GPU.

    Raises:
        ValueError: If the GPU is a real one.
    """
    if not isinstance(gpu.driver, SimulatedGpuDriver):
        raise SimulationError(f"{gpu!r} is not simulated: a workload runs on simulated GPUs only")
    return gpu.driver


def common_clock(gpus: Sequence[Gpu]) -> Clock:
    """Return the clock of the node that simulated GPUs belong to.

    Raises:
        ValueError: If there is none, or more than one.
    """
    clocks = {id(clock): clock for clock in (simulated_driver(gpu).clock for gpu in gpus)}
    if len(clocks) != 1:
        raise SimulationError(
            f"work must run on GPUs of one node, but got {len(gpus)} GPUs of {len(clocks)} nodes"
        )
    return clocks.popitem()[1]


@contextmanager
def load_kept(gpus: Sequence[Gpu]) -> Iterator[None]:
    """Restore the load of the GPUs at the end."""
    before = [(driver, driver.load()) for driver in map(simulated_driver, gpus)]
    try:
        yield
    finally:
        for driver, load in before:
            driver.set_load(*load)
