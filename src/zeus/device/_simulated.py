"""A simulated node: GPUs with realistic behavior, for machines that have none.

Power follows load, power limit and clocks; temperature follows power; energy counters and power
meters are refreshed as on the real part (`_sensors.py`). `ZEUS_SIMULATE=v100x4` gives every program
such a node in real time: its state is in a small file shared by all processes of the user, so that
a limit set in one is seen in another, as on hardware. In virtual time the state is local to the
process (`zeus.testing.SimulatedNode`).
"""

from __future__ import annotations

import os
import re
import uuid
import zlib
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from zeus.device._base import (
    Capability,
    ClockRange,
    CurrentClocks,
    GpuDriver,
    GpuIdentity,
    GpuProcess,
    MemoryUse,
    PowerLimits,
    ProcessUsage,
    SupportedClocks,
    limit_refused,
    unsupported,
)
from zeus.device._engine_time import EngineTime
from zeus.device._sensors import (
    AVERAGE,
    COUNTER,
    LIVE_POWER,
    PART_SENSORS,
    POWER,
    PRESETS,
    USAGE,
    Sensor,
    Sensors,
    scatter,
)
from zeus.device._simulated_history import Drawn
from zeus.device._simulated_models import MODELS, GpuModel, exponential
from zeus.device._simulated_processes import (
    Part,
    advance,
    mark,
    parts,
    process_of,
    sampled_usage,
)
from zeus.device._simulated_state import (
    AMBIENT,
    IDLE,
    GpuState,
    StateMemory,
    node_name,
    shared_memory,
)
from zeus.errors import SimulationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zeus.clock import Clock

SIMULATE_VARIABLE = "ZEUS_SIMULATE"
LOAD_VARIABLE = "ZEUS_SIMULATE_LOAD"
SENSORS_VARIABLE = "ZEUS_SIMULATE_SENSORS"
CLOCK_LAG_VARIABLE = "ZEUS_SIMULATE_CLOCK_LAG"

DEFAULT_SENSORS = PART_SENSORS

_THERMAL_TIME = 40.0  # seconds
_MIN_HISTORY = 1.5  # seconds
_MOST_LAG = 1.0  # seconds


def parse_spec(spec: str) -> list[GpuModel]:
    """Parse `ZEUS_SIMULATE`: "v100x4" or "a40x2,a100x8".

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
    """Parse `ZEUS_SIMULATE_LOAD`: "idle", or a share of full load."""
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


def parse_sensors(value: str | None) -> str | None:
    """Parse `ZEUS_SIMULATE_SENSORS`: the name of a preset, or of a rule for all parts."""
    if value is None or not value.strip():
        return None
    name, known = value.strip().lower(), (PART_SENSORS, LIVE_POWER, *PRESETS)
    if name not in known:
        raise SimulationError(
            f"{SENSORS_VARIABLE} must be one of {', '.join(known)}, but got {value!r}"
        )
    return name


def parse_clock_lag(value: str | None) -> float:
    """Parse `ZEUS_SIMULATE_CLOCK_LAG`: seconds from asking for a clock to having it; 0 if unset."""
    if value is None or not value.strip():
        return 0.0
    try:
        lag = float(value)
    except ValueError:
        lag = float("nan")
    if not 0 <= lag <= _MOST_LAG:
        raise SimulationError(
            f"{CLOCK_LAG_VARIABLE} must be seconds within 0 <= lag <= {_MOST_LAG:g}, "
            f"but got {value!r}"
        )
    return lag


def sensors_of(model: GpuModel, chosen: Sensors | str) -> Sensors:
    """Return the sensors of a GPU: those given, or by a name that `parse_sensors` returns."""
    if isinstance(chosen, Sensors):
        return chosen
    if chosen == PART_SENSORS:
        return model.sensors
    if chosen == LIVE_POWER:
        return model.sensors.with_live_power()
    return PRESETS[chosen]


class SimulatedGpuDriver(GpuDriver):
    """One simulated GPU."""

    may_hang = False

    def __init__(
        self,
        model: GpuModel,
        slot: int,
        memory: StateMemory,
        clock: Clock,
        *,
        node: str = "",
        activity: float = IDLE,
        sensors: Sensors | None = None,
        clock_lag: float = 0.0,
    ) -> None:
        """Attach to the state of one simulated GPU.

        Args:
            model: Model of the GPU.
            slot: Its index in the node.
            memory: State of the node.
            clock: Clock of the simulation.
            node: The node's name: slot 0 of one node is not slot 0 of another.
            activity: Initial load, if no other process simulates it yet.
            sensors: Its sensors; the same in all processes. By default as published for its part.
            clock_lag: Seconds from asking for a graphics clock to having it.
        """
        self.model = model
        self.shared = not clock.virtual
        self.private = True
        self.clock_lag = clock_lag
        self._slot = slot
        self._memory = memory
        self.clock = clock
        unique = uuid.uuid5(uuid.NAMESPACE_OID, f"zeus simulated {model.key} {slot} {node}")
        self.identity = GpuIdentity(
            key=f"GPU-{unique}",
            name=model.name,
            vendor=model.vendor,
            pci_address=f"0000:{0x10 + slot:02x}:00.0",
            whole_module=model.whole_module,
        )
        # Sensors of different GPUs are not in step on real nodes either.
        self._salt = unique.int
        self.sensors = (sensors or sensors_of(model, DEFAULT_SENSORS)).placed(self._salt)
        self._history_kept = max(_MIN_HISTORY, self.sensors.reach)
        self.counter_period = self.sensors.counter.period if self.sensors.counter else None
        # As on real GPUs, the driver does not report the period of a meter that is not live.
        self.meter_period = None if self.sensors.power.period else 0.0
        self._engine_time = EngineTime()
        if memory.read(slot) is None:
            with memory.exclusive():
                if memory.read(slot) is None:
                    memory.write(slot, self._fresh(activity))

    def _fresh(self, activity: float) -> GpuState:
        now = self.clock.now()
        state = GpuState(time=now, power_limit=self.model.maximum_limit, activity=activity)
        # The same power in the past, so that sensors show an initial load at once.
        kept = self._history_kept
        state.history.append(now - kept, -kept * self._power(state), kept)
        state.history.append(now, 0.0, kept)
        state.power_reading = self._refreshed(self.sensors.power, POWER, state, now)
        if self.sensors.average is not None:
            state.average_reading = self._refreshed(self.sensors.average, AVERAGE, state, now)
        state.temperature = AMBIENT + self.model.thermal_resistance * self.model.idle_power
        return state

    # --- current state ----------------------------------------------------------------------

    def _state(self) -> GpuState:
        state = self._memory.read(self._slot)
        assert state is not None
        # A clock that was asked for may have come into force since the last change.
        if state.time < state.clock_since <= self.clock.now():
            state = self._advanced(state, state.clock_since)
            state.history.append(state.time, state.energy, self._history_kept)
        return state

    def _activities(self, state: GpuState) -> list[float]:
        """Return the activities of the loads on the GPU."""
        loads = [state.activity, *(process.activity for process in state.processes)]
        return [activity for activity in loads if activity != IDLE]

    def _highest(self, state: GpuState) -> float:
        waiting = state.time < state.clock_since
        return (state.clock_before if waiting else state.graphics_high) or self.model.highest_clock

    def _parts(self, state: GpuState) -> tuple[list[Part], Part, float]:
        return parts(self.model, state, self.relative_clock)

    def _power(self, state: GpuState) -> float:
        if state.processes:
            processes, other, idle = self._parts(state)
            return sum(part.watts for part in processes) + other.watts + idle
        if state.activity == IDLE:
            return self.model.idle_power
        x = self.relative_clock(state.activity, state)
        busy = self.model.busy_power(x, state.activity)
        return state.share * busy + (1 - state.share) * self.model.static_power

    def relative_clock(self, activity: float, state: GpuState | None = None) -> float:
        """Return the share of the highest clock at which work of this activity would run now."""
        state = state or self._state()
        return self.model.relative_clock(activity, state.power_limit, self._highest(state))

    def next_clock(self, activity: float) -> tuple[float, float] | None:
        """Return when a clock that was asked for comes into force, and what it will be.

        That is the seconds until then, and the share of the highest clock at which work of this
        activity will run; `None` if there is no such clock.
        """
        state, now = self._state(), self.clock.now()
        if now >= state.clock_since:
            return None
        asked = state.graphics_high or self.model.highest_clock
        then = self.model.relative_clock(activity, state.power_limit, asked)
        return state.clock_since - now, then

    def exact_energy(self, instant: float | None = None) -> float:
        """Return the exact joules up to an instant: a counter without ticks.

        Args:
            instant: Now by default; at most some milliseconds ago, as the past is forgotten.
        """
        drawn = self._drawn(self._state())
        return drawn.joules_at(self.clock.now() if instant is None else instant)

    def _drawn(self, state: GpuState) -> Drawn:
        power = self._power(state)
        return Drawn(state.history, state.time, state.energy, power, self.model.idle_power)

    def _counter_at(self, state: GpuState, now: float) -> float:
        """Return the value of the energy counter, in joules, at an instant from `state.time` on."""
        sensor, salt = self.sensors.counter, self._salt + COUNTER
        if sensor is None:
            return 0.0
        joules_at = self._drawn(state).joules_at
        if sensor.period:
            counted = sensor.last_refresh(state.time, salt)
            last = sensor.last_refresh(now, salt)
            if counted == last:
                return state.counter
            if sensor.part_time:
                added = sensor.part_time_energy(joules_at, counted, last, state.time, salt)
                return state.counter + added
        return max(state.counter, sensor.energy(joules_at, now, salt))

    def _refreshed(self, sensor: Sensor, meter: int, state: GpuState, now: float) -> float:
        """Return the watts on a power meter whose last refresh was after `state.time`."""
        drawn = self._drawn(state)
        return sensor.power(drawn.joules_at, now, self._salt + meter, drawn.watts_at)

    def _meter_at(
        self, sensor: Sensor, meter: int, state: GpuState, now: float, reading: float
    ) -> float:
        """Return the watts on a power meter; its reading of `state.time` until it is refreshed."""
        salt, latest = self._salt + meter, sensor.last_refresh
        if sensor.period and latest(now, salt) == latest(state.time, salt):
            return reading
        return self._refreshed(sensor, meter, state, now)

    def _power_at(self, state: GpuState, now: float) -> float:
        return self._meter_at(self.sensors.power, POWER, state, now, state.power_reading)

    def _average_at(self, state: GpuState, now: float) -> float:
        if self.sensors.average is None:
            return 0.0
        return self._meter_at(self.sensors.average, AVERAGE, state, now, state.average_reading)

    def _advanced(self, state: GpuState, now: float) -> GpuState:
        elapsed = now - state.time
        power = self._power(state)
        target = AMBIENT + self.model.thermal_resistance * power
        # Readings are stored, not recomputed later: the history gets coarser with time.
        state.counter, state.power_reading, state.average_reading = (
            self._counter_at(state, now),
            self._power_at(state, now),
            self._average_at(state, now),
        )
        state.temperature = exponential(state.temperature, target, elapsed, _THERMAL_TIME)
        state.energy += power * elapsed
        processes, _, idle = self._parts(state)
        advance(state.processes, processes, elapsed)
        state.idle_energy += idle * elapsed
        state.time = now
        return state

    @contextmanager
    def _change(self) -> Iterator[GpuState]:
        with self._memory.exclusive():
            state = self._advanced(self._state(), self.clock.now())
            power = self._power(state)
            yield state
            if self._power(state) != power:
                state.history.append(state.time, state.energy, self._history_kept)
            mark(state)
            self._memory.write(self._slot, state)

    def load(self) -> tuple[float, float]:
        """Return the activity of the current kernels, and the share of time in which they run."""
        state = self._state()
        return state.activity, state.share

    def set_load(self, activity: float, share: float = 1.0) -> None:
        """Run kernels of this activity for this share of the time, from now on."""
        with self._change() as state:
            state.activity = activity
            state.share = share

    def set_process_load(self, pid: int, activity: float, share: float = 1.0) -> None:
        """Let a process run kernels of this activity for this share of the time, from now on.

        Processes that together want more than all of the time get less, in proportion.

        Args:
            pid: Number of the process; it need not exist.
            activity: 0 for a process that waits, 1 for full load, `IDLE` for one that has ended.
            share: Share of time, 0 to 1.
        """
        with self._change() as state:
            process = process_of(state, pid)
            process.activity, process.share = activity, share

    def process_energy(self, pid: int) -> float:
        """Return the exact joules due to a process, as `_simulated_processes` defines them."""
        state = self._advanced(self._state(), self.clock.now())
        return sum(process.joules for process in state.processes if process.pid == pid)

    def idle_energy(self) -> float:
        """Return the exact joules that are due to no process."""
        return self._advanced(self._state(), self.clock.now()).idle_energy

    # --- driver interface -------------------------------------------------------------------

    def energy(self) -> float:
        return self._counted()[0]

    def version(self) -> str:
        return f"simulated {self.sensors}"

    def timed_energy(self) -> tuple[float, float]:
        if not self.sensors.timestamps:
            raise unsupported("timestamps of the energy counter", f"{self.model.name} has none")
        joules, now = self._counted()
        sensor, salt = self.sensors.counter, self._salt + COUNTER
        if sensor is not None and sensor.period:
            return joules, sensor.refresh(sensor.last_refresh(now, salt), salt)
        return joules, now

    def _counted(self) -> tuple[float, float]:
        """Return the joules of the energy counter, and the instant at which it was read."""
        if self.sensors.counter is None:
            raise unsupported(Capability.ENERGY_COUNTER, f"{self.model.name} has none")
        state = self._state()
        now = self.clock.now()
        return round(self._counter_at(state, now), 3), now  # drivers count millijoules

    def instant_power(self) -> float:
        state = self._state()
        return round(self._power_at(state, self.clock.now()), 3)

    def average_power(self) -> float:
        if self.sensors.average is None:
            raise unsupported(Capability.AVERAGE_POWER, f"{self.model.name} reports no mean")
        state = self._state()
        return round(self._average_at(state, self.clock.now()), 3)

    def memory_power(self) -> float:
        if self.model.memory_power_share is None:
            raise unsupported(Capability.MEMORY_POWER)
        return round(self.instant_power() * self.model.memory_power_share, 3)

    def temperature(self) -> float:
        state = self._state()
        target = AMBIENT + self.model.thermal_resistance * self._power(state)
        elapsed = self.clock.now() - state.time
        return float(round(exponential(state.temperature, target, elapsed, _THERMAL_TIME)))

    def utilization(self) -> float:
        processes, other, _ = self._parts(self._state())
        return sum(part.share for part in processes) + other.share

    def memory(self) -> MemoryUse:
        share = 0.6 if self._activities(self._state()) else 0.01
        return MemoryUse(int(self.model.memory_bytes * share), self.model.memory_bytes)

    def processes(self) -> tuple[GpuProcess, ...]:
        state = self._state()
        pids = [int(process.pid) for process in state.processes if process.activity != IDLE]
        if state.activity != IDLE:
            pids.append(os.getpid())
        used = self.memory().used // max(1, len(pids))
        return tuple(GpuProcess(pid, used, "simulated load") for pid in pids)

    def process_usage(self, since: float) -> ProcessUsage:
        state, now = self._state(), self.clock.now()
        running, other, _ = self._parts(state)
        if self.model.vendor == "AMD":
            elapsed = now - state.time
            seconds = {
                int(process.pid): process.busy + part.share * elapsed
                for process, part in zip(state.processes, running, strict=True)
                if process.activity != IDLE
            }
            used = self._engine_time.usage(since, now, seconds)
        else:
            used = sampled_usage(state, running, since, now, scatter(0, self._salt + USAGE))
        if not other.share or used.end <= used.begin:
            return used
        return replace(used, shares={**used.shares, os.getpid(): round(other.share, 2)})

    def power_limit(self) -> float:
        return self._state().power_limit

    def power_limits(self) -> PowerLimits:
        model = self.model
        return PowerLimits(model.minimum_limit, model.maximum_limit, model.maximum_limit)

    def set_power_limit(self, watts: float) -> None:
        limits = self.power_limits()
        if not limits.minimum <= watts <= limits.maximum:
            raise limit_refused(self.model.name, limits, watts)
        with self._change() as state:
            state.power_limit = round(watts, 3)

    def current_clocks(self) -> CurrentClocks:
        state = self._state()
        model = self.model
        activities = self._activities(state)
        if activities:
            graphics = self.relative_clock(max(activities), state) * model.highest_clock
        else:
            graphics = state.graphics_low or model.lowest_clock
        return CurrentClocks(round(graphics), round(state.memory_high or model.memory_clock))

    def supported_clocks(self) -> SupportedClocks:
        return SupportedClocks(self.model.graphics_clocks(), (self.model.memory_clock,))

    def locked_graphics_clock(self) -> ClockRange | None:
        state = self._state()
        return _lock(state.graphics_low, state.graphics_high)

    def locked_memory_clock(self) -> ClockRange | None:
        state = self._state()
        return _lock(state.memory_low, state.memory_high)

    def lock_graphics_clock(self, clock: ClockRange | None) -> None:
        with self._change() as state:
            state.clock_before = self._highest(state)
            state.graphics_low, state.graphics_high = _bounds(clock)
            state.clock_since = state.time + self.clock_lag

    def lock_memory_clock(self, clock: ClockRange | None) -> None:
        with self._change() as state:
            state.memory_low, state.memory_high = _bounds(clock)

    def persistence(self) -> bool:
        return bool(self._state().persistence)

    def set_persistence(self, enabled: bool) -> None:
        with self._change() as state:
            state.persistence = float(enabled)


def _lock(low: float, high: float) -> ClockRange | None:
    return ClockRange(int(low), int(high)) if high else None


def _bounds(clock: ClockRange | None) -> tuple[int, int]:
    return (clock.minimum, clock.maximum) if clock else (0, 0)


def build(
    spec: str,
    clock: Clock,
    load: float | None,
    sensors: Sensors | str | None = None,
    clock_lag: float | None = None,
) -> list[SimulatedGpuDriver]:
    """Return the GPUs of a simulated node.

    Args:
        spec: Such as "v100x4".
        clock: A real clock shares the node between processes; a virtual one keeps it private.
        load: Activity of the GPUs; `None` leaves a shared node as it is, or at full load if new.
        sensors: Sensors of the GPUs, or a name as in `ZEUS_SIMULATE_SENSORS`, which is the
            default. A node with other sensors is another node.
        clock_lag: Seconds from asking for a graphics clock to having it; by default as in
            `ZEUS_SIMULATE_CLOCK_LAG`.
    """
    models = parse_spec(spec)
    if clock_lag is None:
        clock_lag = parse_clock_lag(os.environ.get(CLOCK_LAG_VARIABLE))
    if not isinstance(sensors, Sensors):
        sensors = parse_sensors(sensors or os.environ.get(SENSORS_VARIABLE)) or DEFAULT_SENSORS
    name = node_name(spec)
    if sensors != DEFAULT_SENSORS:
        tag = sensors if isinstance(sensors, str) else f"{zlib.crc32(repr(sensors).encode()):08x}"
        name = node_name(f"{spec},sensors{tag}")
    memory = StateMemory(len(models)) if clock.virtual else shared_memory(name, len(models))
    activity = load if load is not None else IDLE if clock.virtual else 1.0
    # Numbered as written, unless CUDA's fastest-first order is requested explicitly.
    fastest_first = os.environ.get("CUDA_DEVICE_ORDER") == "FASTEST_FIRST"
    drivers: list[SimulatedGpuDriver] = []
    for slot, model in enumerate(models):
        own = sensors_of(model, sensors)
        driver = SimulatedGpuDriver(
            model,
            slot,
            memory,
            clock,
            node=name,
            activity=activity,
            sensors=own,
            clock_lag=clock_lag,
        )
        if fastest_first:
            driver.speed = model.speed
        if load is not None:
            driver.set_load(load)
        drivers.append(driver)
    return drivers
