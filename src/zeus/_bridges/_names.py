"""Modules and names of zeus 0.16: where each is now, or what to use instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Former(NamedTuple):
    """A name that still works.

    Attributes:
        home: What it stands for, as "module:name".
        use: What to write instead.
    """

    home: str
    use: str


def _moved(module: str, *names: str) -> dict[str, Former | str]:
    return {name: Former(f"{module}:{name}", f"{module}.{name}") for name in names}


def _bridged(module: str, **uses: str) -> dict[str, Former | str]:
    return {
        name: Former(f"zeus._bridges.{module}:{name}", instead) for name, instead in uses.items()
    }


_AGENT = "`zeus agent` sets knobs for users without root, and is found without configuration"
_BATCH_SIZE = "zeus.optimizer.batch_size"
_ERRORS = "catch zeus.device.CapabilityError, whose `reason` says what is missing, or KnobError"
_DEVICES = "zeus.device.get_gpus(), get_cpus() and get_soc() return the devices, in SI units"
_EXPORT = "`zeus export` publishes energy and power; TrainingTelemetry of zeus.telemetry, windows"
_INTENSITY = "multiply the energy of a window by the intensity or price that you know"
_NODES = "run `zeus export` on each node; `zeus top --node URL` shows them together"
_NONE_NEEDED = "not needed: no process of Zeus imports the main module again"
_OUTCOME = "nothing is raised when a run fails: see `outcome` of the BatchSizeOptimizer"
_SERVER = "`zeus serve` is the server, for recurring and for pipeline jobs"

Names = Mapping[str, Former | str]
"""Names of a module; a text stands for a name that is gone, and says what to use instead."""

MODULES: Mapping[str, Names | str] = {
    "zeus._legacy": "`zeus replay` runs policies on recorded jobs",
    "zeus.callback": _bridged(
        "_callbacks",
        Callback="zeus.optimizer.Callback",
        CallbackSet="a loop over callbacks; integrations take any number of them",
    ),
    "zeus.device.common": _DEVICES,
    "zeus.device.cpu": {
        **_bridged("_utils", get_current_cpu_index="os.sched_getcpu() and its package in /sys"),
        "get_cpus": "zeus.device.get_cpus",
        **dict.fromkeys(("CPUs", "RAPLCPUs", "ZeusCPUInitError", "rapl_is_available"), _DEVICES),
    },
    "zeus.device.cpu.common": _DEVICES,
    "zeus.device.cpu.rapl": _DEVICES,
    "zeus.device.exception": _ERRORS,
    "zeus.device.gpu": f"{_DEVICES}; {_ERRORS}",
    "zeus.device.soc": _DEVICES,
    "zeus.exception": {"ZeusBaseError": Former("zeus.errors:ZeusError", "zeus.ZeusError")},
    "zeus.metric": _EXPORT,
    "zeus.monitor.carbon": f"{_INTENSITY} (docs/from-codecarbon.md)",
    "zeus.monitor.energy": _moved("zeus.monitor", "Measurement", "ZeusMonitor"),
    "zeus.monitor.power": {
        **_moved("zeus.monitor", "PowerDomain", "PowerMonitor"),
        "infer_counter_update_period": "not needed: monitors learn the period of each sensor",
    },
    "zeus.monitor.power_streaming": _NODES,
    "zeus.monitor.price": f"{_INTENSITY} (docs/from-codecarbon.md)",
    "zeus.monitor.temperature": _moved("zeus.monitor", "TemperatureMonitor"),
    f"{_BATCH_SIZE}.client": _moved(_BATCH_SIZE, "BatchSizeOptimizer"),
    f"{_BATCH_SIZE}.common": _moved(_BATCH_SIZE, "JobSpec"),
    f"{_BATCH_SIZE}.exceptions": _OUTCOME,
    f"{_BATCH_SIZE}.server": _SERVER,
    "zeus.optimizer.pipeline_frequency.common": _SERVER,
    "zeus.optimizer.pipeline_frequency.frequency_controller": (
        "change clocks under `gpu.hold(graphics_clock=MHz)`, of a GPU of zeus.device.get_gpus()"
    ),
    "zeus.optimizer.pipeline_frequency.optimizer": _moved(
        "zeus.optimizer.pipeline_frequency", "PipelineFrequencyOptimizer"
    ),
    "zeus.optimizer.pipeline_frequency.server": _SERVER,
    "zeus.profile": "windows of any length state an uncertainty; `mean_energy(name)` repeats them",
    "zeus.utils": {},
    "zeus.utils.async_utils": "asyncio.TaskGroup",
    "zeus.utils.env": _bridged("_utils", get_env="os.environ"),
    "zeus.utils.framework": {
        **_bridged("_utils", sync_execution="ZeusMonitor(sync_execution_with=...)"),
        **dict.fromkeys(
            ("all_reduce", "get_rank", "get_world_size", "is_distributed"), "torch.distributed"
        ),
        **dict.fromkeys(
            ("cupy_is_available", "jax_is_available", "torch_is_available"), "importlib.util"
        ),
    },
    "zeus.utils.lat_lon": f"{_INTENSITY}; Zeus asks no service where this machine is",
    "zeus.utils.logging": "the standard module `logging`",
    "zeus.utils.lr_scaler": _bridged(
        "_utils",
        LinearScaler='JobSpec(learning_rate_rule="linear")',
        SquareRootScaler='JobSpec(learning_rate_rule="square_root")',
    ),
    "zeus.utils.metric": {
        **_bridged("_utils", zeus_cost="zeus.frontier.ZeusCost"),
        **dict.fromkeys(("avg_power", "energy"), "PowerMonitor.get_energy(start, end)"),
    },
    "zeus.utils.multiprocessing": _NONE_NEEDED,
    "zeus.utils.testing": _bridged(
        "_replay",
        ReplayZeusMonitor="zeus.testing.ReplayMonitor, or ProfileNode to drive an optimizer",
    ),
    "zeus.utils.zeusd": _AGENT,
}
"""Modules that are gone: their names, or one advice for all of them."""

PROGRAMS = {"zeus.monitor.__main__": "_monitor_program", "zeus.show_env": "_show_env"}
"""Modules that are run by `python -m`, and the files that do so."""

NAMES: Mapping[str, Names] = {
    "zeus.optimizer.power_limit": {
        **_bridged(
            "_transformers",
            HFGlobalPowerLimitOptimizer="zeus.integrations.transformers.ZeusCallback",
        ),
        **_bridged(
            "_selectors",
            OptimumSelector="zeus.frontier.Objective, whose `select` is given a Frontier",
            PowerLimitMeasurement="zeus.frontier.Point",
        ),
        **dict.fromkeys(
            ("Done", "Profiling", "Ready", "Warmup"),
            "`decided`, `frontier` and `report()` of the optimizer",
        ),
    },
}
"""Names that living modules had."""

_GPU = "zeus.device.get_gpus()[0]"

ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "DeviceSet": {
        "cpus": "list(zeus.device.get_cpus())",
        "get_average_memory_power_usage": f"{_GPU}.memory_power(), in watts",
        "get_average_power_usage": f"{_GPU}.average_power(), in watts",
        "get_gpu_temperature": f"{_GPU}.temperature(), in degrees Celsius",
        "get_instant_power_usage": f"{_GPU}.instant_power(), in watts",
        "get_name": f"{_GPU}.name",
        "get_power_management_limit": f"{_GPU}.power_limit(), in watts",
        "get_power_management_limit_constraints": f"{_GPU}.power_limits(), in watts",
        "get_supported_graphics_clocks": f"{_GPU}.supported_clocks(), in MHz",
        "get_supported_memory_clocks": f"{_GPU}.supported_clocks(), in MHz",
        "get_total_energy_consumption": f"{_GPU}.energy(), in joules",
        "gpus": "list(zeus.device.get_gpus())",
        **dict.fromkeys(
            ("set_gpu_locked_clocks", "reset_gpu_locked_clocks"),
            f"a block `with {_GPU}.hold(graphics_clock=MHZ):`",
        ),
        **dict.fromkeys(
            ("set_memory_locked_clocks", "reset_memory_locked_clocks"),
            f"a block `with {_GPU}.hold(memory_clock=MHZ):`",
        ),
        **dict.fromkeys(
            ("set_power_management_limit", "reset_power_management_limit"),
            f"a block `with {_GPU}.hold(power_limit=WATTS):`",
        ),
        "set_persistence_mode": "`nvidia-smi --persistence-mode=1` as root; Zeus does not set it",
        "supports_get_total_energy_consumption": f"{_GPU}.support(Capability.ENERGY_COUNTER)",
    },
}
"""Attributes of what `get_gpus()` and `get_cpus()` returned."""
