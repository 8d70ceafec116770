"""The machine as a whole: its clock, GPUs, CPUs and system on a chip.

Discovered once per process and environment. A simulated node replaces the machine within a
``with`` block.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from zeus.clock import Clock, MonotonicClock
from zeus.device import _simulated as simulated
from zeus.device._base import Cpu, DeviceSet, Gpu, GpuDriver, Problem, Soc
from zeus.device._hold import knob_setter
from zeus.device._journal import recover
from zeus.device._records import recorded_gpus
from zeus.device._sensors import Sensors
from zeus.device._visible import Candidate, Visible, visible_amd, visible_nvidia
from zeus.errors import CapabilityError, KnobError, Reason
from zeus.state._files import STATE_VARIABLE

logger = logging.getLogger(__name__)

_VARIABLES = (
    simulated.SIMULATE_VARIABLE,
    simulated.SENSORS_VARIABLE,
    simulated.LOAD_VARIABLE,
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZEUS_STATE_DIR",
    "ZEUS_POWERCAP_ROOT",
)


class Node:
    """Devices and clock of a machine.

    Attributes:
        clock: Clock of all measurements on it.
        gpus: The GPUs a framework sees, in its order.
        cpus: CPU packages.
        soc: The system on a chip, if the machine is one.
        drivers: All GPUs of the machine, visible or not.
        simulated: Value of `ZEUS_SIMULATE`, or an empty string.
        problems: Devices and readings that were found but cannot be used.
    """

    def __init__(
        self,
        clock: Clock,
        drivers: Sequence[GpuDriver] = (),
        gpus: DeviceSet[Gpu] | None = None,
        cpus: DeviceSet[Cpu] | None = None,
        soc: Soc | None = None,
        *,
        simulated: str = "",
        problems: Sequence[Problem] = (),
    ) -> None:
        self.clock = clock
        self.drivers = tuple(drivers)
        self.gpus = gpus if gpus is not None else DeviceSet[Gpu]()
        self.cpus = cpus if cpus is not None else DeviceSet[Cpu]()
        self.soc = soc
        self.simulated = simulated
        self.problems = tuple(problems)

    def restore(self) -> tuple[int, list[Problem]]:
        """Restore the knobs that processes left changed when they ended.

        Returns:
            Number of holds that were ended, and the failures.
        """
        ended = 0
        problems: list[Problem] = []
        for driver in self.drivers:
            if not driver.shared:
                continue
            try:
                # Through a `Gpu`, whose guard keeps a hanging driver from hanging us.
                setter = knob_setter(driver, Gpu(0, driver))
                ended += recover(driver.identity.key, setter, private=driver.private)
            except (CapabilityError, KnobError, OSError) as error:
                problems.append(Problem(f"restoring {driver.identity.name}", _obstacle(error)))
        return ended, problems


def _obstacle(error: CapabilityError | KnobError | OSError) -> CapabilityError:
    if isinstance(error, CapabilityError):
        return error
    if isinstance(error, KnobError):
        return CapabilityError(Reason.UNSUPPORTED, str(error))
    cure = f"make the directory {STATE_VARIABLE} names (or its default) writable"
    return CapabilityError(Reason.NO_PERMISSION, f"the record of changed knobs: {error}", cure)


def current_node() -> Node:
    """Return the node of the innermost ``with`` block, else this machine (or its simulation)."""
    if _overrides:
        return _overrides[-1]
    key = (os.getpid(), *(os.environ.get(name) for name in _VARIABLES))
    with _lock:
        if key not in _discovered:
            _discovered.clear()  # the environment changed, or this is a forked child
            _discovered[key] = _discover()
        return _discovered[key]


@contextmanager
def override(node: Node) -> Iterator[Node]:
    """Replace this machine by a node, for all threads."""
    _overrides.append(node)
    try:
        yield node
    finally:
        # The last occurrence: the same node may be active twice, with another one in between.
        at = next(i for i in reversed(range(len(_overrides))) if _overrides[i] is node)
        del _overrides[at]


_lock = threading.RLock()
_discovered: dict[tuple[int | str | None, ...], Node] = {}
_overrides: list[Node] = []


def _reset_after_fork() -> None:
    # A thread that was discovering devices does not exist in the child.
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_reset_after_fork)


def _discover() -> Node:
    spec = os.environ.get(simulated.SIMULATE_VARIABLE, "").strip()
    node = simulated_node(spec) if spec else _real_node()
    if recorded_gpus():
        ended, problems = node.restore()
        if ended:
            logger.warning("restored GPU settings that %d ended process(es) had changed", ended)
        for problem in problems:
            logger.warning("%s; `zeus restore` tries again", problem)
    return node


def simulated_node(
    spec: str,
    clock: Clock | None = None,
    load: float | None = None,
    sensors: Sensors | str | None = None,
) -> Node:
    """Return a node with simulated GPUs; in real time if no clock is given.

    Raises:
        SimulationError: If the specification names an unknown GPU, or the sensors are unknown.
    """
    clock = clock or MonotonicClock()
    if load is None:
        load = simulated.parse_load(os.environ.get(simulated.LOAD_VARIABLE))
    drivers = simulated.build(spec, clock, load, sensors)
    # Numbered as written, unless CUDA's fastest-first order is requested explicitly.
    fastest_first = os.environ.get("CUDA_DEVICE_ORDER") == "FASTEST_FIRST"
    candidates = [
        Candidate(driver.identity.key, driver.model.speed if fastest_first else 0.0)
        for driver in drivers
    ]
    gpus = DeviceSet(_visible(drivers, candidates))
    if clock.virtual:
        return Node(clock, drivers, gpus, simulated=spec)
    cpus, soc, problems = _host()
    return Node(clock, drivers, gpus, cpus, soc, simulated=spec, problems=problems)


def _real_node() -> Node:
    drivers, candidates, problems = _real_gpus()
    gpus = DeviceSet(_visible(drivers, candidates), problems)
    cpus, soc, host_problems = _host()
    return Node(MonotonicClock(), drivers, gpus, cpus, soc, problems=[*problems, *host_problems])


def _real_gpus() -> tuple[list[GpuDriver], list[Candidate], list[Problem]]:
    from zeus.device import _amd as amd  # noqa: PLC0415  (not needed for a simulated node)
    from zeus.device import _nvml as nvml  # noqa: PLC0415

    drivers, candidates, problems = nvml.discover()
    amd_drivers, amd_problems = amd.discover()
    for driver in amd_drivers:
        candidates.append(Candidate(driver.visible_uuid or driver.identity.key))
    return [*drivers, *amd_drivers], candidates, [*problems, *amd_problems]


def find_drivers() -> dict[str, GpuDriver]:
    """Return all GPUs of the machine (or of its simulation) by key, for reading only."""
    spec = os.environ.get(simulated.SIMULATE_VARIABLE, "").strip()
    found = simulated.build(spec, MonotonicClock(), None) if spec else _real_gpus()[0]
    return {driver.identity.key: driver for driver in found}


def _host() -> tuple[DeviceSet[Cpu], Soc | None, list[Problem]]:
    from zeus.device import _apple as apple  # noqa: PLC0415
    from zeus.device import _jetson as jetson  # noqa: PLC0415
    from zeus.device import _rapl as rapl  # noqa: PLC0415

    root = os.environ.get("ZEUS_POWERCAP_ROOT")
    cpus, cpu_problems = rapl.discover(Path(root)) if root else rapl.discover()
    soc, soc_problems = apple.discover()
    if soc is None:
        soc, jetson_problems = jetson.discover()
        soc_problems = [*soc_problems, *jetson_problems]
    return DeviceSet(cpus, cpu_problems), soc, [*cpu_problems, *soc_problems]


def _visible(drivers: Sequence[GpuDriver], candidates: Sequence[Candidate]) -> list[Gpu]:
    """Return NVIDIA GPUs first, then AMD, each by the rules of its runtime."""
    found: list[GpuDriver] = []
    for vendor, rule in (("NVIDIA", visible_nvidia), ("AMD", visible_amd)):
        own = [i for i, driver in enumerate(drivers) if driver.identity.vendor == vendor]
        for visible in rule([candidates[i] for i in own], os.environ):
            found.append(_seen(drivers[own[visible.position]], visible))
    return [Gpu(index, driver) for index, driver in enumerate(found)]


def _seen(driver: GpuDriver, visible: Visible) -> GpuDriver:
    if visible.mig_uuid is None:
        return driver
    return driver.seen_as_slice(visible.mig_uuid)
