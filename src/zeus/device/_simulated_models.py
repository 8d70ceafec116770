"""The GPU models of the simulated node, and the physics they share.

Names, limits and clocks are those of the real parts. The shape of power over clock is fitted to
recorded power sweeps for V100 and A40 (`benchmarks/fit_simulated.py`); the other parts use the
shape of the most similar one. Dynamic power is proportional to activity x clock x voltage²,
with a voltage that is flat up to a knee and rises linearly from there to the highest clock.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from zeus.device._sensors import PRESETS, Sensors


@dataclass(frozen=True)
class GpuModel:
    """Parameters of one product.

    Attributes:
        key: Short name used in `ZEUS_SIMULATE`.
        name: Product name as the driver reports it.
        vendor: "NVIDIA" or "AMD".
        minimum_limit: Lowest power limit, W.
        maximum_limit: Highest and default power limit, W.
        idle_power: W with nothing running.
        static_power: W while work is resident but no kernel runs.
        floor_voltage: Voltage below the knee, relative to the highest.
        knee: Relative clock at which voltage begins to rise.
        lowest_clock: MHz.
        highest_clock: MHz.
        clock_step: MHz between supported clocks.
        memory_clock: MHz.
        memory_bytes: Device memory.
        memory_power_share: Share of power drawn by memory, if the part reports it.
        thermal_resistance: K/W to the surroundings.
        speed: Relative throughput, to order devices as CUDA does.
    """

    key: str
    name: str
    vendor: str
    minimum_limit: float
    maximum_limit: float
    idle_power: float
    static_power: float
    floor_voltage: float
    knee: float
    lowest_clock: int
    highest_clock: int
    clock_step: float
    memory_clock: int
    memory_bytes: int
    memory_power_share: float | None
    thermal_resistance: float
    speed: float

    @property
    def sensors(self) -> Sensors:
        """Its sensors of energy and power."""
        return PRESETS[self.key]

    @property
    def counter_period(self) -> float | None:
        """Seconds between ticks of the energy counter; `None` if there is none."""
        return self.sensors.counter.period if self.sensors.counter else None

    @property
    def separate_average(self) -> bool:
        """Whether instantaneous and average power are two fields."""
        return self.sensors.average is not None

    def graphics_clocks(self) -> tuple[int, ...]:
        """Clocks that can be locked, highest first, in MHz."""
        count = int((self.highest_clock - self.lowest_clock) / self.clock_step) + 1
        return tuple(int(self.highest_clock - i * self.clock_step) for i in range(count))

    def relative_power(self, x: float) -> float:
        """Dynamic power at relative clock `x`, as a share of that at the highest clock."""
        rise = max(0.0, (x - self.knee) / (1 - self.knee))
        return x * (self.floor_voltage + (1 - self.floor_voltage) * rise) ** 2

    def busy_power(self, x: float, activity: float) -> float:
        """Watts while kernels run at relative clock `x`."""
        return self.static_power + activity * (
            self.maximum_limit - self.static_power
        ) * self.relative_power(x)

    def relative_clock(self, activity: float, power_limit: float, highest_clock: float) -> float:
        """Return the relative clock the GPU settles at: the highest that limit and lock allow."""
        return _settled_clock(self, activity, power_limit, highest_clock)


# Computed on every reading of a GPU, mostly for the same load.
@functools.lru_cache(maxsize=4096)
def _settled_clock(
    model: GpuModel, activity: float, power_limit: float, highest_clock: float
) -> float:
    lowest = model.lowest_clock / model.highest_clock
    high = max(lowest, min(1.0, highest_clock / model.highest_clock))
    if model.busy_power(high, activity) <= power_limit:
        return high
    if model.busy_power(lowest, activity) >= power_limit:
        return lowest  # the limit cannot be met: the clock has a minimum
    low = lowest
    while high - low > 1e-9:
        middle = (low + high) / 2
        if model.busy_power(middle, activity) <= power_limit:
            low = middle
        else:
            high = middle
    return low


def exponential(start: float, end: float, elapsed: float, time_constant: float) -> float:
    """First-order approach from `start` to `end`."""
    return end + (start - end) * math.exp(-elapsed / time_constant)


_GIB = 2**30

MODELS: dict[str, GpuModel] = {
    model.key: model
    for model in (
        GpuModel("p100", "Tesla P100-PCIE-16GB", "NVIDIA", 125, 250, 25, 33, 0.827, 0.76, 544, 1328,
                 12, 715, 16 * _GIB, None, 0.16, 9.3),
        GpuModel("v100", "Tesla V100-PCIE-32GB", "NVIDIA", 100, 250, 25, 34.44, 0.827, 0.7596, 135,
                 1380, 7.5, 877, 32 * _GIB, None, 0.16, 14.0),
        GpuModel("rtx6000", "Quadro RTX 6000", "NVIDIA", 100, 260, 22, 55, 0.835, 0.71, 300, 2100,
                 15, 7001, 24 * _GIB, None, 0.17, 16.3),
        GpuModel("a40", "NVIDIA A40", "NVIDIA", 100, 300, 30, 87.13, 0.8437, 0.6671, 210, 1740, 15,
                 7251, 48 * _GIB, None, 0.15, 37.4),
        GpuModel("a100", "NVIDIA A100-SXM4-80GB", "NVIDIA", 100, 400, 55, 83, 0.835, 0.71, 210,
                 1410, 15, 1593, 80 * _GIB, None, 0.1, 156.0),
        GpuModel("h100", "NVIDIA H100 80GB HBM3", "NVIDIA", 200, 700, 70, 115, 0.83, 0.68, 345,
                 1980, 15, 2619, 80 * _GIB, 0.12, 0.06, 495.0),
        GpuModel("mi250x", "AMD Instinct MI250X", "AMD", 100, 560, 85, 110, 0.83, 0.7, 500, 1700,
                 25, 1600, 128 * _GIB, None, 0.07, 191.0),
        GpuModel("mi300x", "AMD Instinct MI300X", "AMD", 150, 750, 130, 160, 0.83, 0.68, 500, 2100,
                 25, 1300, 192 * _GIB, None, 0.055, 653.0),
    )
}  # fmt: skip
