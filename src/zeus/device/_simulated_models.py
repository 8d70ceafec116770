"""The GPU models of the simulated node, and the physics they share.

Dynamic power is proportional to activity x clock x voltage², with a voltage that is flat up to a
knee and rises linearly from there to the highest clock. That shape is fitted to recorded power
sweeps (`benchmarks/fit_simulated.py`).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from zeus.device._sensors import PRESETS, Sensors


@dataclass(frozen=True, kw_only=True)
class GpuModel:
    """Parameters of one product.

    Attributes:
        key: Short name used in `ZEUS_SIMULATE`.
        name: Product name as the driver reports it.
        vendor: As in `GpuIdentity`.
        whole_module: As there: whether it is one die of a board that is metered as a whole.
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
    whole_module: bool = False
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
    memory_power_share: float | None = None
    thermal_resistance: float
    speed: float

    @property
    def sensors(self) -> Sensors:
        """Its sensors of energy and power."""
        return PRESETS[self.key]

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

# Units are above. Where the figures are from:
# - name, limits, clocks, memory: the part itself.
# - static power, floor voltage, knee: fitted for V100 and A40 to recorded power sweeps of the Zeus
#   paper; the other parts follow the most similar one.
# - speed: published peak TFLOP/s (FP32; TF32 from the A100 on; FP16 of one die for the MI250X).
# - idle power, share of memory, thermal resistance: assumed, and plausible for such boards.
MODELS: dict[str, GpuModel] = {
    model.key: model
    for model in (
        GpuModel(
            key="p100", name="Tesla P100-PCIE-16GB", vendor="NVIDIA",
            minimum_limit=125, maximum_limit=250,
            idle_power=25, static_power=33, floor_voltage=0.827, knee=0.76,
            lowest_clock=544, highest_clock=1328, clock_step=12, memory_clock=715,
            memory_bytes=16 * _GIB, thermal_resistance=0.16, speed=9.3,
        ),
        GpuModel(
            key="v100", name="Tesla V100-PCIE-32GB", vendor="NVIDIA",
            minimum_limit=100, maximum_limit=250,
            idle_power=25, static_power=34.44, floor_voltage=0.827, knee=0.7596,
            lowest_clock=135, highest_clock=1380, clock_step=7.5, memory_clock=877,
            memory_bytes=32 * _GIB, thermal_resistance=0.16, speed=14.0,
        ),
        GpuModel(
            key="rtx6000", name="Quadro RTX 6000", vendor="NVIDIA",
            minimum_limit=100, maximum_limit=260,
            idle_power=22, static_power=55, floor_voltage=0.835, knee=0.71,
            lowest_clock=300, highest_clock=2100, clock_step=15, memory_clock=7001,
            memory_bytes=24 * _GIB, thermal_resistance=0.17, speed=16.3,
        ),
        GpuModel(
            key="a40", name="NVIDIA A40", vendor="NVIDIA",
            minimum_limit=100, maximum_limit=300,
            idle_power=30, static_power=87.13, floor_voltage=0.8437, knee=0.6671,
            lowest_clock=210, highest_clock=1740, clock_step=15, memory_clock=7251,
            memory_bytes=48 * _GIB, thermal_resistance=0.15, speed=37.4,
        ),
        GpuModel(
            key="a100", name="NVIDIA A100-SXM4-80GB", vendor="NVIDIA",
            minimum_limit=100, maximum_limit=400,
            idle_power=55, static_power=83, floor_voltage=0.835, knee=0.71,
            lowest_clock=210, highest_clock=1410, clock_step=15, memory_clock=1593,
            memory_bytes=80 * _GIB, thermal_resistance=0.1, speed=156.0,
        ),
        GpuModel(
            key="h100", name="NVIDIA H100 80GB HBM3", vendor="NVIDIA",
            minimum_limit=200, maximum_limit=700,
            idle_power=70, static_power=115, floor_voltage=0.83, knee=0.68,
            lowest_clock=345, highest_clock=1980, clock_step=15, memory_clock=2619,
            memory_bytes=80 * _GIB, memory_power_share=0.12, thermal_resistance=0.06, speed=495.0,
        ),
        GpuModel(
            key="mi250x", name="AMD Instinct MI250X", vendor="AMD", whole_module=True,
            minimum_limit=100, maximum_limit=560,
            idle_power=85, static_power=110, floor_voltage=0.83, knee=0.7,
            lowest_clock=500, highest_clock=1700, clock_step=25, memory_clock=1600,
            memory_bytes=128 * _GIB, thermal_resistance=0.07, speed=191.0,
        ),
        GpuModel(
            key="mi300x", name="AMD Instinct MI300X", vendor="AMD",
            minimum_limit=150, maximum_limit=750,
            idle_power=130, static_power=160, floor_voltage=0.83, knee=0.68,
            lowest_clock=500, highest_clock=2100, clock_step=25, memory_clock=1300,
            memory_bytes=192 * _GIB, thermal_resistance=0.055, speed=653.0,
        ),
    )
}  # fmt: skip
