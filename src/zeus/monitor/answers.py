"""Energies of windows on one GPU, by whichever estimator suits its power meter.

Where the meter is live, what happens between ticks of the counter is seen, and integrated
(`EnergyTrack`). Where it is refreshed only every so often, the model tells (`EnergyEstimator`). As
long as that is not known, long windows go by the counter and the model, which needs it least.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from zeus.monitor import estimator, track
from zeus.monitor.edges import WindowEdges
from zeus.monitor.estimator import EnergyEstimator
from zeus.monitor.looks import Energy, Look, Senses
from zeus.monitor.ticks import TickModel
from zeus.monitor.track import EnergyTrack

_LONG = 12  # ticks of the counter, from which the two ends of a window matter little


class Heads(NamedTuple):
    """What a window that began long ago keeps for either estimator."""

    track: track.Head | None
    estimator: estimator.Head | None


class EnergyAnswers:
    """Takes in samples of one GPU, answers energies. May be fed and asked from several threads.

    Args:
        edges: Of the windows of this process.
        max_power: Watts that the GPU draws at most.
        meter_period: Seconds between refreshes of the power meter, if the driver tells; 0 if it is
            live, which a simulated one may be.
    """

    def __init__(
        self, edges: WindowEdges, max_power: float, meter_period: float | None = None
    ) -> None:
        self._live = meter_period == 0
        self._track = EnergyTrack(meter_period)
        self._estimator = EnergyEstimator(edges, max_power)
        self.lock = threading.RLock()

    @property
    def senses(self) -> Senses:
        """What can be seen of the GPU."""
        return self._track.senses

    @senses.setter
    def senses(self, senses: Senses) -> None:
        self._track.senses = self._estimator.senses = senses

    @property
    def ticks(self) -> TickModel:
        """When the counter is refreshed."""
        return self._track.ticks

    @property
    def last_look(self) -> float:
        """When the last sample was taken."""
        return self._track.last_look

    def take(self, look: Look) -> None:
        """Take in a sample."""
        self._track.take(look)
        if not self._live:
            self._estimator.take(look)

    def forget(self, before: float) -> None:
        """Drop what was seen before an instant."""
        self._track.forget(before)
        self._estimator.forget(before)

    def lacks_tick(self, begin: float, end: float) -> bool:
        """Whether the tick after a window must be awaited to know it well."""
        if self._estimator.response.latched:
            return self._estimator.lacks_tick(begin, end)
        return self._track.lacks_tick(begin, end)

    def head(self, begin: float) -> Heads | None:
        """What a window must keep before its beginning is forgotten; `None` if unknown."""
        heads = Heads(self._track.head(begin), self._estimator.head(begin))
        return None if heads.track is None else heads

    def energy(self, begin: float, end: float, head: Heads | None = None) -> Energy:
        """Energy of a window; see `EnergyEstimator.energy`."""
        response = self._estimator.response
        long = head is not None or self._estimator.ticks_inside(begin, end) >= _LONG
        if response.latched or (long and not (self._live or response.live)):
            return self._estimator.energy(begin, end, head and head.estimator)
        return self._track.energy(begin, end, head and head.track)
