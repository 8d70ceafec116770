"""Temperature of GPUs over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zeus.monitor._sensors import Samples, SensorMonitor

if TYPE_CHECKING:
    from zeus.device._node import Node

_TEMPERATURE = "temperature"
_PERIOD = 1.0  # seconds; GPUs report whole degrees and take tens of seconds to warm up


class TemperatureMonitor(SensorMonitor):
    """Records the temperature of GPUs over time.

    Args:
        gpu_indices: GPUs to monitor, numbered as frameworks do. By default all that are visible; in
            a process started by a launcher with one rank per GPU, this rank's GPU.
        update_period: Seconds between samples; 1 s by default.
        max_samples_per_gpu: Samples to keep per GPU, 100 000 by default. Beyond that older samples
            grow coarser.
        node: Monitor this node, for instance a simulated one, instead of this machine.

    Raises:
        ValueError: If an index names no device, or a bound is too small.
    """

    def __init__(
        self,
        gpu_indices: Sequence[int] | None = None,
        update_period: float | None = None,
        max_samples_per_gpu: int | None = None,
        *,
        node: Node | None = None,
    ) -> None:
        super().__init__(gpu_indices, update_period, max_samples_per_gpu, node)
        for gpu in self.gpus:
            pace = self._pace(_PERIOD)
            self._add_gpu_sensor(_TEMPERATURE, gpu, lambda gpu: gpu.temperature(), pace)
        self._start()

    def get_temperature(self, time: float | None = None) -> dict[int, float] | None:
        """Return the degrees Celsius of each GPU, at an instant or in the latest sample.

        Between samples temperature is interpolated linearly; before the first and after the last it
        is held.

        Args:
            time: Instant, of `time.monotonic()` or `time.time()`; `None` for the latest sample.

        Returns:
            Degrees by GPU index. A GPU whose temperature is unknown is absent; `None` if all are.
        """
        return self._values(self._of(_TEMPERATURE), time)

    def get_temperature_timeline(
        self,
        gpu_index: int | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
    ) -> dict[int, Samples]:
        """Return the samples.

        Args:
            gpu_index: Only this GPU.
            start_time: From this instant on, of `time.monotonic()` or `time.time()`.
            end_time: Up to this instant.

        Returns:
            Instants (monotonic seconds) and degrees Celsius by GPU index. A GPU without a
            thermometer is absent; see `unavailable`.

        Raises:
            ValueError: If the end is before the start or the GPU is not monitored.
        """
        return self._timelines(_TEMPERATURE, gpu_index, self.gpu_indices, start_time, end_time)

    def get_all_temperature_timelines(
        self, start_time: float | None = None, end_time: float | None = None
    ) -> dict[int, Samples]:
        """Return the samples of all GPUs; see `get_temperature_timeline`.

        Args:
            start_time: As in `get_temperature_timeline`.
            end_time: As in `get_temperature_timeline`.
        """
        return self.get_temperature_timeline(None, start_time, end_time)
