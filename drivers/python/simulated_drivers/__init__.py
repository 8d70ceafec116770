"""Simulated driver libraries: NVML and AMD SMI in C, and what builds and controls them.

A process that finds such a library on LD_LIBRARY_PATH uses it through the vendor's own binding. The
simulated GPUs are in a file that a `SimulatedNvml` or `SimulatedAmdSmi` owns.
"""

from simulated_drivers._amdsmi import AmdGpuSpec, AmdSmiStatus, SimulatedAmdSmi, mi250x_board
from simulated_drivers._build import BuildError, build
from simulated_drivers._nvml import ClockSettings, GpuSpec, NvmlReturn, SimulatedNvml
from simulated_drivers._response import Load, Operation
from simulated_drivers._sensors import Sensor, Sensors

__all__ = [
    "AmdGpuSpec",
    "AmdSmiStatus",
    "BuildError",
    "ClockSettings",
    "GpuSpec",
    "Load",
    "NvmlReturn",
    "Operation",
    "Sensor",
    "Sensors",
    "SimulatedAmdSmi",
    "SimulatedNvml",
    "build",
    "mi250x_board",
]
