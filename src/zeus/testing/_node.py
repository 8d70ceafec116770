"""A simulated node for tests: no hardware, no waiting, and the exact energy to compare with."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from zeus._rules import Number
from zeus.clock import VirtualClock
from zeus.device._node import Node, override, simulated_node
from zeus.device._simulated_state import IDLE
from zeus.errors import SimulationError
from zeus.testing._workload import HIGHEST_ACTIVITY, simulated_driver

if TYPE_CHECKING:
    from zeus.clock import Clock
    from zeus.device._sensors import Sensors
    from zeus.device._simulated import SimulatedGpuDriver


class SimulatedNode(Node):
    """A node whose GPUs are simulated, in virtual time.

    As a ``with`` block it replaces this machine, for all threads: `get_gpus()`, `ZeusMonitor()`
    and everything else use it. Without one, pass it as the argument `node`.

    Args:
        spec: GPUs, such as "v100", "v100x4" or "a40x2,a100x8".
        clock: Clock to use; a virtual clock of its own by default. With a real clock, the GPUs
            are those that every process of this user shares under the same `spec`.
        load: Initial activity of all GPUs: 0 for a resident but waiting job, 1 for full load. By
            default nothing runs on them.
        sensors: How the GPUs measure energy and power: a name as in `ZEUS_SIMULATE_SENSORS`,
            which is the default, or `zeus.device._sensors.Sensors`. Without either, each
            part's published behavior: readings are refreshed periodically, and lag. A node with
            other sensors is another node.
        clock_lag: Seconds from asking for a graphics clock to having it; until then work runs at
            the clock before. By default as in `ZEUS_SIMULATE_CLOCK_LAG`, or at once; real GPUs
            take 2 to 20 ms.

    Raises:
        ValueError: If the specification names an unknown GPU, the load or the lag is out of range,
            or the name of the sensors is unknown.
    """

    drivers: tuple[SimulatedGpuDriver, ...]

    def __init__(
        self,
        spec: str = "v100",
        *,
        clock: Clock | None = None,
        load: float | None = None,
        sensors: Sensors | str | None = None,
        clock_lag: float | None = None,
    ) -> None:
        if clock_lag is not None:
            Number(0, 1).check("clock_lag", clock_lag, SimulationError)
        if load is None:
            load = IDLE
        else:
            Number(0, HIGHEST_ACTIVITY).check("load", load, SimulationError)
        own = clock if clock is not None else VirtualClock()
        built = simulated_node(spec, own, load, sensors, clock_lag)
        super().__init__(
            built.clock,
            built.drivers,
            built.gpus,
            built.cpus,
            built.soc,
            simulated=spec,
            problems=built.problems,
        )
        self._overrides: list[ExitStack] = []

    def exact_energy(self, gpu_index: int = 0) -> float:
        """Exact joules of a GPU up to now: the ground truth for measurements.

        Args:
            gpu_index: Index of the GPU.

        Raises:
            ValueError: If no GPU has this index.
        """
        (gpu,) = self.gpus.select([gpu_index])
        return simulated_driver(gpu).exact_energy()

    def sleep(self, seconds: float) -> None:
        """Let time pass; returns at once if the clock is virtual.

        Args:
            seconds: Duration.
        """
        self.clock.sleep(seconds)

    def __enter__(self) -> Self:
        scope = ExitStack()
        scope.enter_context(override(self))
        self._overrides.append(scope)
        return self

    def __exit__(self, *_: object) -> None:
        self._overrides.pop().close()
