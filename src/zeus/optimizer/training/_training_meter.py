"""Time and energy of training in one process, added up from windows."""

from __future__ import annotations

from zeus.errors import WindowError
from zeus.monitor import Measurement, Method, ZeusMonitor
from zeus.monitor._measurement import GPU, Reading
from zeus.monitor._sums import joined
from zeus.state._files import job_wide

_MAX_PIECES = 10  # more windows are added up, whether or not their energies are final


class TrainingMeter:
    """Adds up windows, which exclude the work between them.

    No error here stops the training: if a window is lost, the energy is unknown from then on.

    Args:
        monitor: Measures the windows.
        name: Their name.
        logged: Whether the monitor logs them.

    Attributes:
        lost: Why a window could not be measured; empty if all were.
    """

    def __init__(
        self, monitor: ZeusMonitor, name: str = "training", *, logged: bool = False
    ) -> None:
        self.lost = ""
        self._monitor = monitor
        self._name = name
        self._logged = logged
        self._window: object | None = None
        self._pieces: list[Measurement] = []
        self._nothing = Measurement.of(
            0.0,
            [
                Reading(GPU, gpu.index, gpu.name, 0.0, Method.COUNTER, key=job_wide(gpu.key))
                for gpu in monitor.gpus
            ],
        )

    @property
    def open(self) -> bool:
        """Whether a window is open."""
        return self._window is not None

    def begin(self) -> None:
        """Open a window, unless one is open."""
        if self._window is None:
            try:
                self._window = self._monitor.open_scope(self._name, True)
            except WindowError as error:  # the monitor is closed
                self.lost = str(error)

    def end(self) -> None:
        """Close the window, if one is open."""
        window, self._window = self._window, None
        if window is None:
            return
        piece = self._monitor.close_scope(window, True, not self._logged)
        if piece is None:
            self._lose()
            return
        crowded = len(self._pieces) >= _MAX_PIECES
        if self._pieces and (crowded or all(each.settled for each in self._pieces)):
            self._pieces = [joined(self._pieces)]
        self._pieces.append(piece)

    def restart(self) -> None:
        """Close an open window and begin the next, so that `total` is up to date."""
        if self.open:
            self.end()
            self.begin()

    def discard(self) -> None:
        """Close an open window without measuring it."""
        window, self._window = self._window, None
        if window is not None:
            self._monitor.close_scope(window, False, True)

    def peek(self) -> Measurement | None:
        """Return the measurement of the open window so far; `None` if there is none."""
        if self._window is None:
            return None
        so_far = self._monitor.peek_scope(self._window, True)
        if so_far is None:
            self._lose()
        return so_far

    def total(self, so_far: Measurement | None = None) -> Measurement:
        """Return the sum of all closed windows, and of the open one as returned by `peek`."""
        if so_far is None and self._pieces:
            # From here on the same energies, final or not: a later sum must not be less.
            self._pieces = [joined(self._pieces)]
        pieces = [self._nothing, *self._pieces]
        if so_far is not None:
            pieces.append(so_far)
        if self.lost:
            unknown = Reading(GPU, "lost", "", None, Method.UNAVAILABLE, note=self.lost)
            pieces.append(Measurement.of(0.0, [unknown]))
        return joined(pieces)

    def take(self) -> Measurement | None:
        """Return the sum and begin another one; `None` if no window was measured."""
        total = self.total() if self._pieces else None
        self._pieces, self.lost = [], ""
        return total

    def _lose(self) -> None:
        self.lost = "the monitor's windows were reset"
