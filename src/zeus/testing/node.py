"""A simulated node for tests: no hardware, no waiting, and the true energy to compare with."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from zeus.clock import VirtualClock
from zeus.device.node import Node, override, simulated_node
from zeus.device.simulated import IDLE
from zeus.errors import SimulationError
from zeus.testing.workload import HIGHEST_ACTIVITY, simulated_driver

if TYPE_CHECKING:
    from zeus.clock import Clock
    from zeus.device.sensors import Sensors


class SimulatedNode(Node):
    """A node whose GPUs are simulated, in virtual time.

    As a ``with`` block it stands in for this machine, for all threads: `get_gpus()`,
    `ZeusMonitor()` and everything else see it. Without, it can be handed to whatever takes a
    `node`.

    Args:
        spec: GPUs, such as "v100", "v100x4" or "a40x2,a100x8".
        clock: Time to go by; a virtual clock of its own by default. With a real clock, the GPUs
            are those that every process of this user shares under the same `spec`.
        load: Activity of all GPUs from the beginning: 0 for work that waits, 1 for full load.
            By default nothing runs on them.
        sensors: How the GPUs measure energy and power: a name as in `ZEUS_SIMULATE_SENSORS`,
            which is the default, or `zeus.device.sensors.Sensors`. Without either, as is
            published of each part: readings are refreshed every so often, and late. A node with
            other sensors is another node.

    Raises:
        ValueError: If the specification names no known GPU, the load is out of range, or the
            sensors have no known name.
    """

    def __init__(
        self,
        spec: str = "v100",
        *,
        clock: Clock | None = None,
        load: float | None = None,
        sensors: Sensors | str | None = None,
    ) -> None:
        if load is None:
            load = IDLE
        elif not 0 <= load <= HIGHEST_ACTIVITY:
            raise SimulationError(f"`0 <= load <= {HIGHEST_ACTIVITY}` must hold, but got {load}")
        built = simulated_node(spec, clock if clock is not None else VirtualClock(), load, sensors)
        super().__init__(
            built.clock,
            built.drivers,
            built.gpus,
            built.cpus,
            built.soc,
            simulated=spec,
            problems=built.problems,
        )
        self._standing_in: list[ExitStack] = []

    def exact_energy(self, gpu_index: int = 0) -> float:
        """Joules of a GPU up to this very instant: the truth that a measurement must come near.

        Raises:
            ValueError: If the index names no GPU.
        """
        (gpu,) = self.gpus.select([gpu_index])
        return simulated_driver(gpu).exact_energy()

    def sleep(self, seconds: float) -> None:
        """Let time pass; at once, if the clock is virtual."""
        self.clock.sleep(seconds)

    def __enter__(self) -> Self:
        scope = ExitStack()
        scope.enter_context(override(self))
        self._standing_in.append(scope)
        return self

    def __exit__(self, *_: object) -> None:
        self._standing_in.pop().close()
