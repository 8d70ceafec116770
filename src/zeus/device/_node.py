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
from typing import TYPE_CHECKING

from zeus.clock import Clock, MonotonicClock
from zeus.device import _simulated as simulated
from zeus.device._agent_place import AGENT_VARIABLE, agent_expected
from zeus.device._base import Cpu, DeviceSet, GpuDriver, Problem, Soc
from zeus.device._gpu import Gpu
from zeus.device._hold import knob_setter
from zeus.device._journal import recover
from zeus.device._records import recorded_gpus
from zeus.device._sensors import Sensors
from zeus.device._vendors import (
    DRM_VARIABLE,
    discover_gpus,
    vendor_named,
    vendors,
    visibility_variables,
)
from zeus.device._visible import Candidate
from zeus.errors import CapabilityError, KnobError, Reason
from zeus.state._files import STATE_VARIABLE

if TYPE_CHECKING:
    from zeus.device._agent_gpu import NodeAgent

logger = logging.getLogger(__name__)

_POWERCAP_VARIABLE = "ZEUS_POWERCAP_ROOT"
_VARIABLES = (
    simulated.SIMULATE_VARIABLE,
    simulated.SENSORS_VARIABLE,
    simulated.LOAD_VARIABLE,
    simulated.CLOCK_LAG_VARIABLE,
    STATE_VARIABLE,
    _POWERCAP_VARIABLE,
    DRM_VARIABLE,
    AGENT_VARIABLE,
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
        agent: The node agent that sets the knobs, if there is one.
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
        agent: NodeAgent | None = None,
    ) -> None:
        self.clock = clock
        self.drivers = tuple(drivers)
        self.gpus = gpus if gpus is not None else DeviceSet[Gpu]()
        self.cpus = cpus if cpus is not None else DeviceSet[Cpu]()
        self.soc = soc
        self.simulated = simulated
        self.problems = tuple(problems)
        self.agent = agent

    def restore(self) -> tuple[int, list[Problem]]:
        """Restore the knobs that processes left changed when they ended.

        Returns:
            Number of holds that were ended, and the failures.
        """
        ended = 0
        problems: list[Problem] = []
        for driver in self.drivers:
            if not driver.shared or driver.holds is not None:
                continue
            try:
                # Through a `Gpu`, whose guard keeps a hanging driver from hanging us.
                setter = knob_setter(Gpu(0, driver))
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
    names = (*_VARIABLES, *visibility_variables())
    key = (os.getpid(), vendors(), *map(os.environ.get, names))
    with _lock:
        if key not in _discovered:
            _discovered.clear()  # the environment changed, or this is a forked child
            _discovered[key] = _discover()
        return _discovered[key]


def rediscovered_node() -> Node:
    """Discover this machine again, and return it; those who have the previous node keep it."""
    with _lock:
        _discovered.clear()
        return current_node()


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
_discovered: dict[tuple[object, ...], Node] = {}
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
    clock_lag: float | None = None,
) -> Node:
    """Return a node with simulated GPUs; in real time if no clock is given.

    Raises:
        SimulationError: If the specification names an unknown GPU, or the sensors are unknown.
    """
    clock = clock or MonotonicClock()
    if load is None:
        load = simulated.parse_load(os.environ.get(simulated.LOAD_VARIABLE))
    drivers: Sequence[GpuDriver] = simulated.build(spec, clock, load, sensors, clock_lag)
    if clock.virtual:
        return Node(clock, drivers, _gpus(drivers), simulated=spec)
    agent, problems = _agent()
    if agent is not None:
        drivers = agent.drivers(drivers, all_gpus=False)
    return _machine(clock, drivers, problems=problems, agent=agent, spec=spec)


def _real_node() -> Node:
    drivers, gpu_problems = discover_gpus()
    agent, problems = _agent()
    if agent is not None:
        drivers = agent.drivers(drivers, all_gpus=True)
    spec = agent.simulated if agent is not None else ""
    return _machine(
        MonotonicClock(),
        drivers,
        gpu_problems=gpu_problems,
        problems=problems,
        agent=agent,
        spec=spec,
    )


def _machine(
    clock: Clock,
    drivers: Sequence[GpuDriver],
    *,
    gpu_problems: Sequence[Problem] = (),
    problems: Sequence[Problem],
    agent: NodeAgent | None,
    spec: str,
) -> Node:
    cpus, soc, host_problems = _host()
    if agent is not None and agent.cpus and not cpus:
        host_problems = [each for each in host_problems if each not in cpus.problems]
        cpus = DeviceSet(agent.cpus)
    return Node(
        clock,
        drivers,
        _gpus(drivers, gpu_problems),
        cpus,
        soc,
        simulated=spec,
        problems=[*gpu_problems, *problems, *host_problems],
        agent=agent,
    )


def _agent() -> tuple[NodeAgent | None, list[Problem]]:
    if not agent_expected():
        return None, []
    from zeus.device._agent_gpu import find_agent  # noqa: PLC0415  (most machines have none)

    return find_agent()


def find_drivers() -> dict[str, GpuDriver]:
    """Return all GPUs of the machine (or of its simulation) by key, for reading only."""
    spec = os.environ.get(simulated.SIMULATE_VARIABLE, "").strip()
    found: Sequence[GpuDriver]
    if spec:
        found = simulated.build(spec, MonotonicClock(), None)
    else:
        found = discover_gpus()[0]
        agent, _ = _agent()
        if agent is not None:
            found = agent.drivers(found, all_gpus=True)
    return {driver.identity.key: driver for driver in found}


def _host() -> tuple[DeviceSet[Cpu], Soc | None, list[Problem]]:
    from zeus.device import _apple as apple  # noqa: PLC0415
    from zeus.device import _jetson as jetson  # noqa: PLC0415
    from zeus.device import _rapl as rapl  # noqa: PLC0415

    root = os.environ.get(_POWERCAP_VARIABLE)
    cpus, cpu_problems = rapl.discover(Path(root)) if root else rapl.discover()
    soc, soc_problems = apple.discover()
    if soc is None:
        soc, jetson_problems = jetson.discover()
        soc_problems = [*soc_problems, *jetson_problems]
    return DeviceSet(cpus, cpu_problems), soc, [*cpu_problems, *soc_problems]


def _gpus(drivers: Sequence[GpuDriver], problems: Sequence[Problem] = ()) -> DeviceSet[Gpu]:
    visible = _visible(drivers)
    less = len(drivers) - len(visible)
    given = [f"{name}={os.environ[name]}" for name in visibility_variables() if name in os.environ]
    hidden = f"{' '.join(given)} hides {less} of {len(drivers)} GPUs" if given and less > 0 else ""
    return DeviceSet(visible, problems, hidden)


def _visible(drivers: Sequence[GpuDriver]) -> list[Gpu]:
    """Return the visible GPUs, vendor by vendor, each by the rules of its runtime."""
    own: dict[str, list[GpuDriver]] = {vendor.name: [] for vendor in vendors()}
    for driver in drivers:
        own.setdefault(driver.identity.vendor, []).append(driver)
    gpus: list[Gpu] = []
    for name, candidates in own.items():
        rule = vendor_named(name).seen
        found = rule([_candidate(driver) for driver in candidates], os.environ)
        for ordinal, visible in enumerate(found):
            driver = candidates[visible.position]
            if visible.mig_uuid is not None:
                driver = driver.seen_as_slice(visible.mig_uuid)
            gpus.append(Gpu(len(gpus), driver, ordinal))
    return gpus


def _candidate(driver: GpuDriver) -> Candidate:
    uuid = driver.visible_uuid or driver.identity.key
    return Candidate(uuid, driver.speed, driver.slice_uuids)
