"""Time and energy of the training itself, excluding work between epochs."""

from __future__ import annotations

from zeus.errors import WindowError
from zeus.monitor import ZeusMonitor
from zeus.monitor._measurement import GPU
from zeus.state._files import job_wide


class TrainingMeter:
    """Adds up the windows of training.

    Attributes:
        time: Seconds so far.
        energies: Joules so far of each of this process's GPUs, by its key in the job; `None` once
            a GPU could not be measured.
    """

    def __init__(self, monitor: ZeusMonitor) -> None:
        self._monitor = monitor
        self._window: object | None = None
        self.time = 0.0
        self.energies: dict[str, float] | None = {
            job_wide(gpu.key): 0.0 for gpu in monitor.gpus
        } or None

    @property
    def open(self) -> bool:
        """Whether training is in progress."""
        return self._window is not None

    @property
    def energy(self) -> float | None:
        """Joules of all of this process's GPUs so far; `None` if unknown."""
        return None if self.energies is None else sum(self.energies.values())

    def begin(self) -> None:
        """Begin or continue training."""
        if self._window is None:
            try:
                self._window = self._monitor.open_scope("training", True)
            except WindowError:  # the monitor is closed, which is no reason to stop training
                self.energies = None

    def balance(self) -> None:
        """Update `time` and `energies` to the present, also during training."""
        if self.open:
            self.end()
            self.begin()

    def end(self) -> None:
        """Pause training."""
        window, self._window = self._window, None
        if window is None:
            return
        measurement = self._monitor.close_scope(window, True, True)
        if measurement is None:  # the monitor's windows were reset
            self.energies = None
            return
        self.time += measurement.time
        for reading in measurement.readings:
            if reading.domain != GPU or self.energies is None:
                continue
            if reading.energy is None:
                self.energies = None
            else:
                self.energies[reading.key] += reading.energy
