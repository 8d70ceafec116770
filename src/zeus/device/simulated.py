"""A simulated node: GPUs that behave, for machines that have none.

Power follows load, power limit and clocks; energy counters tick as on the real part; temperature
follows power. `ZEUS_SIMULATE=v100x4` gives every program such a node in real time: its state lives
in a small file shared by all processes of the user, so that a limit set in one is seen in another,
as on hardware. In virtual time the node lives in the process (`zeus.testing.SimulatedNode`).
"""

from __future__ import annotations

import mmap
import os
import re
import uuid
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zeus.device.base import (
    Capability,
    ClockRange,
    CurrentClocks,
    GpuDriver,
    GpuIdentity,
    GpuProcess,
    MemoryUse,
    PowerLimits,
    SupportedClocks,
    unsupported,
)
from zeus.device.critical import critical_section
from zeus.device.locks import LockTimeoutError, locked
from zeus.device.simulated_models import MODELS, GpuModel, exponential
from zeus.device.state import boot_id, state_directory
from zeus.errors import CapabilityError, KnobError, Reason, SimulationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zeus.clock import Clock

SIMULATE_VARIABLE = "ZEUS_SIMULATE"
LOAD_VARIABLE = "ZEUS_SIMULATE_LOAD"

IDLE = -1.0
"""Activity of a GPU that nothing uses. Zero is a resident but waiting job, one is full load."""

_AMBIENT = 28.0  # degrees Celsius
_THERMAL_TIME = 40.0  # seconds
_AVERAGING_TIME = 0.5  # seconds; the driver's one-second mean, as a first-order lag


def parse_spec(spec: str) -> list[GpuModel]:
    """Read "v100x4" or "a40x2,a100x8".

    Raises:
        SimulationError: If a part is not a known model with an optional count.
    """
    models: list[GpuModel] = []
    for part in spec.lower().split(","):
        # Names that end in x may drop the second one: both mi300xx8 and mi300x8 are eight MI300X.
        pattern = "|".join(
            f"(?P<{key}>{key}{'x?' if key.endswith('x') else 'x'})" for key in MODELS
        )
        counted = re.fullmatch(rf"(?:{pattern})(?P<count>[0-9]{{1,4}})", part.strip())
        key = next(k for k in MODELS if counted[k]) if counted else part.strip()
        if key not in MODELS:
            raise SimulationError(
                f"{SIMULATE_VARIABLE} must be a list of <model>[x<count>] with models "
                f"{', '.join(MODELS)}, but got {part!r} in {spec!r}"
            )
        count = int(counted["count"]) if counted else 1
        if not 1 <= count <= 64:
            raise SimulationError(f"1 <= count <= 64 must hold, but got {part!r} in {spec!r}")
        models += [MODELS[key]] * count
    return models


def parse_load(value: str | None) -> float | None:
    """Read `ZEUS_SIMULATE_LOAD`: "idle", or a share of full load."""
    if value is None or not value.strip():
        return None
    if value.strip().lower() == "idle":
        return IDLE
    try:
        load = float(value)
    except ValueError:
        load = float("nan")
    if not 0 <= load <= 1:
        raise SimulationError(
            f"{LOAD_VARIABLE} must be `idle` or within 0 <= load <= 1, but got {value!r}"
        )
    return load


_FIELDS = (
    "time", "energy", "counter", "temperature", "average_power", "activity", "power_limit",
    "graphics_low", "graphics_high", "memory_low", "memory_high", "persistence", "share",
)  # fmt: skip
_SLOT = 1 + 2 * len(_FIELDS)  # the number of changes so far, and two copies of the state


@dataclass
class GpuState:
    """Everything that is true of one simulated GPU from `time` on, until something changes.

    `counter` is what the energy counter showed at its last tick before `time`. `share` is the part
    of time in which kernels run; the rest waits at static power.
    """

    time: float = 0.0
    energy: float = 0.0
    counter: float = 0.0
    temperature: float = _AMBIENT
    average_power: float = 0.0
    activity: float = IDLE
    power_limit: float = 0.0
    graphics_low: float = 0.0
    graphics_high: float = 0.0
    memory_low: float = 0.0
    memory_high: float = 0.0
    persistence: float = 1.0
    share: float = 1.0


class StateMemory:
    """Numbers of all GPUs of a node, in this process or shared through a file.

    Writers are serialised. They fill in the copy that is not in use and make it the one in use by
    storing one number, so a writer that dies half-way has changed nothing. Readers never wait: they
    take the copy in use, and take it again if it has gone out of use meanwhile.
    """

    def __init__(self, gpus: int, file: Path | None = None) -> None:
        self._file = file
        size = gpus * _SLOT * 8
        if file is None:
            self._bytes: bytearray | mmap.mmap = bytearray(size)
        else:
            self._bytes = self._map(file, size)
        self._numbers = memoryview(self._bytes).cast("d")

    @staticmethod
    def _map(file: Path, size: int) -> mmap.mmap:
        # The name carries boot and size: a file from another boot holds another clock's times.
        with file.open("a+b") as opened:
            if opened.tell() < size:
                opened.truncate(size)  # by several processes at once, too: to the same size
            return mmap.mmap(opened.fileno(), size)

    def read(self, gpu: int) -> GpuState | None:
        """The state of one GPU; `None` before the first write."""
        base = gpu * _SLOT
        while True:
            changes = self._numbers[base]
            first = _first_number(base, changes)
            values = self._numbers[first : first + len(_FIELDS)].tolist()
            if self._numbers[base] == changes:
                return GpuState(*values) if changes else None

    def write(self, gpu: int, state: GpuState) -> None:
        """Replace the state of one GPU; only inside `exclusive`."""
        base = gpu * _SLOT
        changes = self._numbers[base] + 1
        for at, field in enumerate(_FIELDS, _first_number(base, changes)):
            self._numbers[at] = getattr(state, field)
        self._numbers[base] = changes

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other writers out, in this process and others.

        Signal handlers that set knobs wait for the end, as they do for any change of a knob.
        """
        with critical_section, ExitStack() as alone:
            if self._file is not None:
                try:
                    alone.enter_context(locked(self._file.with_suffix(".lock")))
                except LockTimeoutError as error:
                    raise CapabilityError(Reason.BLOCKED, str(error)) from None
            yield


def _first_number(base: int, changes: float) -> int:
    return base + 1 + int(changes) % 2 * len(_FIELDS)


def node_name(spec: str) -> str:
    """One name for all ways to write a specification."""
    return re.sub(r"[^a-z0-9,]", "", spec.lower())


def shared_memory(spec: str, gpus: int) -> StateMemory:
    """The state shared by all processes of this user that simulate the same node."""
    directory = state_directory() / "simulated"
    directory.mkdir(parents=True, exist_ok=True)
    boot = boot_id()[:8] or "0"
    for old in directory.glob("*.state"):  # of another boot, whose GPUs are no more
        if f"-{boot}-" not in old.name:
            with suppress(OSError):
                old.unlink()
                old.with_suffix(".lock").unlink(missing_ok=True)
    return StateMemory(gpus, directory / f"{node_name(spec)}-{boot}-{_SLOT}.state")


class SimulatedGpuDriver(GpuDriver):
    """One simulated GPU."""

    may_hang = False
    meter_period = 0.0

    def __init__(
        self,
        model: GpuModel,
        slot: int,
        memory: StateMemory,
        clock: Clock,
        *,
        node: str = "",
        activity: float = IDLE,
    ) -> None:
        """Take part in simulating one GPU.

        Args:
            model: What it is.
            slot: Its place in the node.
            memory: Where its state lives.
            clock: Its time.
            node: The node's name: slot 0 of one node is not slot 0 of another.
            activity: The load it begins with, if this is the first to simulate it.
        """
        self.model = model
        self.shared = not clock.virtual
        self.private = True
        self._slot = slot
        self._memory = memory
        self.clock = clock
        unique = uuid.uuid5(uuid.NAMESPACE_OID, f"zeus simulated {model.key} {slot} {node}")
        self.identity = GpuIdentity(
            key=f"GPU-{unique}",
            name=model.name,
            vendor=model.vendor,
            pci_address=f"0000:{0x10 + slot:02x}:00.0",
            whole_module=model.key == "mi250x",
        )
        self.counter_period = model.counter_period
        # Ticks of different GPUs are not in step on real nodes either.
        self._phase = (model.counter_period or 0.0) * ((slot * 0.37 + 0.13) % 1.0)
        if memory.read(slot) is None:
            with memory.exclusive():
                if memory.read(slot) is None:
                    memory.write(slot, self._fresh(activity))

    def _fresh(self, activity: float) -> GpuState:
        now = self.clock.now()
        state = GpuState(time=now, power_limit=self.model.maximum_limit, activity=activity)
        state.average_power = self.model.idle_power
        state.temperature = _AMBIENT + self.model.thermal_resistance * self.model.idle_power
        return state

    # --- what is true now -------------------------------------------------------------------

    def _state(self) -> GpuState:
        state = self._memory.read(self._slot)
        assert state is not None
        return state

    def _highest(self, state: GpuState) -> float:
        return state.graphics_high or self.model.highest_clock

    def _power(self, state: GpuState) -> float:
        if state.activity == IDLE:
            return self.model.idle_power
        x = self.relative_clock(state.activity, state)
        busy = self.model.busy_power(x, state.activity)
        return state.share * busy + (1 - state.share) * self.model.static_power

    def relative_clock(self, activity: float, state: GpuState | None = None) -> float:
        """The share of the highest clock at which work of this activity would run now."""
        state = state or self._state()
        return self.model.relative_clock(activity, state.power_limit, self._highest(state))

    def exact_energy(self) -> float:
        """Joules up to this very instant: what the counter would show if it did not tick."""
        state = self._state()
        return state.energy + self._power(state) * (self.clock.now() - state.time)

    def _counter_at(self, state: GpuState, now: float) -> float:
        period = self.model.counter_period
        if period is None:
            return 0.0
        tick = self._phase + (now - self._phase) // period * period
        if tick < state.time:
            return state.counter
        return state.energy + self._power(state) * (tick - state.time)

    def _advanced(self, state: GpuState, now: float) -> GpuState:
        elapsed = now - state.time
        power = self._power(state)
        target = _AMBIENT + self.model.thermal_resistance * power
        state.counter = self._counter_at(state, now)
        state.temperature = exponential(state.temperature, target, elapsed, _THERMAL_TIME)
        state.average_power = exponential(state.average_power, power, elapsed, _AVERAGING_TIME)
        state.energy += power * elapsed
        state.time = now
        return state

    @contextmanager
    def _change(self) -> Iterator[GpuState]:
        with self._memory.exclusive():
            state = self._advanced(self._state(), self.clock.now())
            yield state
            self._memory.write(self._slot, state)

    def load(self) -> tuple[float, float]:
        """Activity of the kernels that run now, and the share of the time in which they do."""
        state = self._state()
        return state.activity, state.share

    def set_load(self, activity: float, share: float = 1.0) -> None:
        """From now on, run kernels of this activity for this share of the time."""
        with self._change() as state:
            state.activity = activity
            state.share = share

    # --- the driver's questions -------------------------------------------------------------

    def energy(self) -> float:
        if self.model.counter_period is None:
            raise unsupported(Capability.ENERGY_COUNTER, f"{self.model.name} has none")
        state = self._state()
        return round(self._counter_at(state, self.clock.now()), 3)  # drivers count millijoules

    def instant_power(self) -> float:
        return round(self._power(self._state()), 3)

    def average_power(self) -> float:
        if not self.model.separate_average:
            raise unsupported(Capability.AVERAGE_POWER, f"{self.model.name} reports power now")
        state = self._state()
        elapsed = self.clock.now() - state.time
        power = exponential(state.average_power, self._power(state), elapsed, _AVERAGING_TIME)
        return round(power, 3)

    def memory_power(self) -> float:
        if self.model.memory_power_share is None:
            raise unsupported(Capability.MEMORY_POWER)
        return round(self._power(self._state()) * self.model.memory_power_share, 3)

    def temperature(self) -> float:
        state = self._state()
        target = _AMBIENT + self.model.thermal_resistance * self._power(state)
        elapsed = self.clock.now() - state.time
        return float(round(exponential(state.temperature, target, elapsed, _THERMAL_TIME)))

    def utilization(self) -> float:
        state = self._state()
        return state.share if state.activity > 0 else 0.0

    def memory(self) -> MemoryUse:
        busy = self._state().activity != IDLE
        share = 0.6 if busy else 0.01
        return MemoryUse(int(self.model.memory_bytes * share), self.model.memory_bytes)

    def processes(self) -> tuple[GpuProcess, ...]:
        if self._state().activity == IDLE:
            return ()
        return (GpuProcess(os.getpid(), self.memory().used, "simulated load"),)

    def power_limit(self) -> float:
        return self._state().power_limit

    def power_limits(self) -> PowerLimits:
        model = self.model
        return PowerLimits(model.minimum_limit, model.maximum_limit, model.maximum_limit)

    def set_power_limit(self, watts: float) -> None:
        limits = self.power_limits()
        if not limits.minimum <= watts <= limits.maximum:
            raise KnobError(
                f"{limits.minimum:g} W <= power_limit <= {limits.maximum:g} W must hold, "
                f"but got {watts:g} W"
            )
        with self._change() as state:
            state.power_limit = round(watts, 3)

    def current_clocks(self) -> CurrentClocks:
        state = self._state()
        model = self.model
        if state.activity == IDLE:
            graphics = state.graphics_low or model.lowest_clock
        else:
            graphics = self.relative_clock(state.activity, state) * model.highest_clock
        return CurrentClocks(round(graphics), round(state.memory_high or model.memory_clock))

    def supported_clocks(self) -> SupportedClocks:
        return SupportedClocks(self.model.graphics_clocks(), (self.model.memory_clock,))

    def locked_graphics_clock(self) -> ClockRange | None:
        state = self._state()
        if not state.graphics_high:
            return None
        return ClockRange(int(state.graphics_low), int(state.graphics_high))

    def locked_memory_clock(self) -> ClockRange | None:
        state = self._state()
        if not state.memory_high:
            return None
        return ClockRange(int(state.memory_low), int(state.memory_high))

    def lock_graphics_clock(self, clock: ClockRange | None) -> None:
        with self._change() as state:
            state.graphics_low = clock.minimum if clock else 0
            state.graphics_high = clock.maximum if clock else 0

    def lock_memory_clock(self, clock: ClockRange | None) -> None:
        with self._change() as state:
            state.memory_low = clock.minimum if clock else 0
            state.memory_high = clock.maximum if clock else 0

    def persistence(self) -> bool:
        return bool(self._state().persistence)

    def set_persistence(self, enabled: bool) -> None:
        with self._change() as state:
            state.persistence = float(enabled)


def build(spec: str, clock: Clock, load: float | None) -> list[SimulatedGpuDriver]:
    """The GPUs of a simulated node.

    Args:
        spec: Such as "v100x4".
        clock: A real clock shares the node between processes; a virtual one keeps it private.
        load: Activity to put on the GPUs; `None` leaves a shared node as it is, or full if new.
    """
    models = parse_spec(spec)
    memory = StateMemory(len(models)) if clock.virtual else shared_memory(spec, len(models))
    activity = IDLE if clock.virtual else 1.0
    drivers: list[SimulatedGpuDriver] = []
    for slot, model in enumerate(models):
        driver = SimulatedGpuDriver(
            model, slot, memory, clock, node=node_name(spec), activity=activity
        )
        if load is not None:
            driver.set_load(load)
        drivers.append(driver)
    return drivers
