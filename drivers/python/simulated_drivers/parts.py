"""The parts of the simulated node as GPUs of the simulated driver, under load.

Figures and physics are those of `zeus.device._simulated_models`, so this module needs Zeus itself
installed, unlike its neighbours.
"""

from __future__ import annotations

from typing import Any

from simulated_drivers._nvml import GpuSpec
from simulated_drivers._response import Load, Operation
from simulated_drivers._zeus import published
from zeus.device._simulated_models import MODELS, GpuModel


def load(
    model: GpuModel, *, activity: float = 0.9, compute_bound: float = 0.7, host_share: float = 0.0
) -> Load:
    """Steps of a training job on a GPU, as `zeus.testing.Workload` describes them.

    Args:
        model: the GPU.
        activity: power of the kernels as a share of the GPU's full dynamic power.
        compute_bound: share of the kernels' time that grows with 1 / clock.
        host_share: share of a step, at the highest clock, in which the GPU waits.

    Returns:
        Power over a whole step, and speed relative to that at the highest clock.
    """

    def settled(power_limit: float, highest_clock: float) -> Operation:
        clock = model.relative_clock(activity, power_limit, highest_clock)
        kernels = (1 - host_share) * (compute_bound / clock + 1 - compute_bound)
        step = host_share + kernels
        joules = host_share * model.static_power + kernels * model.busy_power(clock, activity)
        return Operation(joules / step, 1 / step)

    return settled


# Tools infer from it which power `nvmlDeviceGetPowerUsage` reports.
_COMPUTE_CAPABILITIES = {
    "p100": (6, 0),
    "v100": (7, 0),
    "rtx6000": (7, 5),
    "a40": (8, 6),
    "a100": (8, 0),
    "h100": (9, 0),
}


def spec(key: str, running: dict[str, float] | None = None, **changes: Any) -> GpuSpec:
    """A part by its short name, such as "a100", at its highest power limit.

    Args:
        key: as in `ZEUS_SIMULATE`; a part by NVIDIA.
        running: arguments for `load`; None leaves the GPU idle.
        changes: anything else of `GpuSpec`.

    Raises:
        ValueError: If the part is no NVIDIA GPU.
    """
    model = MODELS[key]
    if model.vendor != "NVIDIA":
        raise ValueError(f"the simulated driver is NVIDIA's, but {key} is {model.vendor}'s")
    sensors = published(changes.pop("sensors", "part"), model.name, key)
    given: dict[str, Any] = {
        "name": model.name,
        "watts": model.idle_power,
        "sensors": sensors,
        "compute_capability": _COMPUTE_CAPABILITIES[key],
        "power_usage_is": "average" if sensors.average else "instant",
        "min_power_limit": model.minimum_limit,
        "max_power_limit": model.maximum_limit,
        "default_power_limit": model.maximum_limit,
        "memory_clocks": (model.memory_clock,),
        "graphics_clocks": model.graphics_clocks(),
        "memory_total": model.memory_bytes,
    }
    if running is not None:
        given["load"] = load(model, **running)
    return GpuSpec(**(given | changes))
