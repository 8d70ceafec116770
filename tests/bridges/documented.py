"""The import lines of zeus 0.16's documentation, examples included, and what each leads to."""

from __future__ import annotations

SAME = (
    "from zeus.device import get_gpus, get_cpus, get_soc",
    "from zeus.monitor import Measurement, ZeusMonitor",
    "from zeus.monitor import PowerMonitor",
    "from zeus.monitor import TemperatureMonitor",
    "from zeus.monitor import ZeusMonitor",
    "from zeus.optimizer.batch_size import BatchSizeOptimizer, JobSpec",
    "from zeus.optimizer.pipeline_frequency import PipelineFrequencyOptimizer",
    "from zeus.optimizer.power_limit import Energy, Time, ZeusCost",
    "from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer",
    "from zeus.optimizer.power_limit import MaxSlowdownConstraint, GlobalPowerLimitOptimizer",
)
"""Names of today, which warn of nothing."""

NEEDS_TRANSFORMERS = "from zeus.optimizer.power_limit import HFGlobalPowerLimitOptimizer"
"""A bridge as well; importing it takes seconds (tests/integrations/test_transformers.py)."""

BRIDGED = (
    "from zeus.callback import Callback",
    "from zeus.callback import Callback, CallbackSet",
    "from zeus.device.cpu import get_current_cpu_index",
    "from zeus.exception import ZeusBaseError",
    "from zeus.monitor.energy import Measurement",
    "from zeus.monitor.energy import ZeusMonitor, Measurement",
    "from zeus.monitor.power import PowerMonitor",
    "from zeus.monitor.temperature import TemperatureMonitor",
    "from zeus.optimizer.batch_size.client import BatchSizeOptimizer",
    "from zeus.optimizer.batch_size.common import JobSpec",
    "from zeus.optimizer.pipeline_frequency.optimizer import PipelineFrequencyOptimizer",
    "from zeus.optimizer.power_limit import OptimumSelector, PowerLimitMeasurement",
    "from zeus.utils.env import get_env",
    "from zeus.utils.framework import sync_execution",
    "from zeus.utils.lr_scaler import LinearScaler, SquareRootScaler",
    "from zeus.utils.metric import zeus_cost",
    "from zeus.utils.testing import ReplayZeusMonitor",
)
"""Names that work, and warn."""

GONE = {
    "from zeus._legacy.simulate import Simulator": "`zeus replay`",
    "from zeus.device.exception import ZeusBaseGPUError": "CapabilityError",
    "from zeus.device.gpu import ZeusGPUNoPermissionError": "CapabilityError",
    "from zeus.metric import EnergyCumulativeCounter": "`zeus export`",
    "from zeus.metric import EnergyHistogram": "`zeus export`",
    "from zeus.metric import PowerGauge": "`zeus export`",
    "from zeus.monitor.carbon import CarbonEmissionMonitor, ElectrictyMapsClient": "intensity",
    "from zeus.monitor.power_streaming import PowerStreamingClient": "`zeus top --node URL`",
    "from zeus.monitor.price import EnergyCostMonitor, OpenEIClient": "price",
    "from zeus.optimizer.batch_size.exceptions import ZeusBSOTrainFailError": "`outcome`",
    "from zeus.optimizer.batch_size.server.router import app": "`zeus serve`",
    "from zeus.optimizer.pipeline_frequency.server.router import app": "`zeus serve`",
    "from zeus.optimizer.pipeline_frequency.frequency_controller import FrequencyController": (
        "gpu.hold"
    ),
    "from zeus.profile import measure": "uncertainty",
    "from zeus.utils.zeusd import ZeusdConfig": "`zeus agent`",
}
"""Names that fail, and words of what to use instead."""
