"""Time and energy of the training itself, without what happens between epochs."""

from __future__ import annotations

from zeus.monitor import ZeusMonitor
from zeus.monitor.measurement import GPU


class Ledger:
    """Adds up the windows in which training went on.

    Attributes:
        time: Seconds so far.
        energy: Joules of this process's GPUs so far; `None` once one could not be measured.
    """

    def __init__(self, monitor: ZeusMonitor) -> None:
        self._monitor = monitor
        self._window: object | None = None
        self.time = 0.0
        self.energy: float | None = 0.0

    @property
    def open(self) -> bool:
        """Whether training goes on."""
        return self._window is not None

    def begin(self) -> None:
        """Training begins, or goes on."""
        if self._window is None:
            self._window = self._monitor.open_scope("training", True)

    def end(self) -> None:
        """Training pauses."""
        window, self._window = self._window, None
        if window is None:
            return
        measurement = self._monitor.close_scope(window, True, True)
        if measurement is None:
            return
        self.time += measurement.time
        energies = [r.energy for r in measurement.readings if r.domain == GPU]
        known = [joules for joules in energies if joules is not None]
        if self.energy is None or not known or len(known) < len(energies):
            self.energy = None
        else:
            self.energy += sum(known)
