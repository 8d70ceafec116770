"""Looking at a GPU's counter and power, at the right moments.

Looks are dense while a window is young, because its end may be near, and become rarer as it ages:
what a look can miss is then small against what the window holds. Where the tick of the counter is
not known well yet, a look is placed right where it is expected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from zeus.errors import CapabilityError, Reason
from zeus.monitor.answers import EnergyAnswers
from zeus.monitor.looks import Look, Senses
from zeus.monitor.track import EnergyTrack

if TYPE_CHECKING:
    from zeus.clock import Clock
    from zeus.device.base import GpuDriver

_LOOKS_PER_TICK = 8
_FASTEST = 0.005  # seconds between looks; sensors are not quicker
_FASTEST_WHEN_YOUNG = 0.01
_FRESH = 0.005  # seconds; a window this young has hardly begun
_SLOWEST = 0.1
_GUESSED_TICK = 0.1
_SHARP = 5e-4  # seconds; a tick known this well needs no looks of its own,
_SHARP_SHARE = 1e-3  # nor does one known to this share of the youngest window's age
_RETRY = 1.0  # seconds between looks at a device that is lost
_AGE_SHARE = 0.02  # of the youngest window's age may pass between looks


class Watcher:
    """Looks at one GPU and feeds its track. A channel of the sampler."""

    def __init__(
        self,
        driver: GpuDriver,
        track: EnergyTrack | EnergyAnswers,
        clock: Clock,
        tell: Callable[[Look | None, Senses], None] | None = None,
    ) -> None:
        """Watch a GPU.

        Args:
            driver: The GPU.
            track: What to feed.
            clock: Time.
            tell: Also told every look and what can be seen.
        """
        self._driver = driver
        self._track = track
        self._clock = clock
        self._tell = tell
        self.due = math.inf
        #: Seconds between looks at present.
        self.pause = 0.0
        self.thrift = 1.0
        #: When the youngest window began.
        self.youngest = clock.now()

    @property
    def trouble(self) -> CapabilityError | None:
        """What keeps this GPU from being seen at all."""
        return self._track.senses.trouble

    @trouble.setter
    def trouble(self, error: CapabilityError | None) -> None:
        self._track.senses = self._track.senses._replace(trouble=error)

    def look(self) -> None:
        """Read counter and power once, and decide when to look next."""
        now = self._clock.now
        senses = self._track.senses
        begun = now()
        try:
            joules = self._read_counter() if senses.counter else None
            between = now()
            watts = self._read_power() if senses.power else None
        except CapabilityError as error:
            self.trouble = error
            self.due = now() + _RETRY
            if self._tell is not None:
                self._tell(None, self._track.senses)
            return
        ended = now()
        if senses.trouble is not None:
            self.trouble = None
        look = Look(begun, between, ended, joules, watts)
        self._track.take(look)
        if self._tell is not None:
            self._tell(look, self._track.senses)
        self.due = self._next(ended)

    def hurry(self, due: float) -> None:
        """A window has begun: look at this instant already."""
        self.youngest = due
        if self.trouble is None:
            self.due = min(self.due, due)

    def forget(self, before: float) -> None:
        """Drop what was seen before an instant."""
        self._track.forget(before)

    def _read_counter(self) -> float | None:
        try:
            return self._driver.energy()
        except CapabilityError as error:
            if error.reason is Reason.IMPLAUSIBLE:
                return None  # one bad answer; the next may be good
            if error.reason in (Reason.LOST, Reason.HANGS):
                raise
            self._track.senses = self._track.senses._replace(
                counter=False,
                counter_note=f"no energy counter ({error.reason})",
            )
            return None

    def _read_power(self) -> float | None:
        senses = self._track.senses
        try:
            if senses.averaged:
                return self._driver.average_power()
            return self._driver.instant_power()
        except CapabilityError as error:
            if error.reason is Reason.IMPLAUSIBLE:
                return None
            if error.reason in (Reason.LOST, Reason.HANGS):
                raise
            if not senses.averaged and not senses.counter:
                # A mean over a second is better than nothing at all.
                self._track.senses = senses._replace(averaged=True)
                return self._read_power()
            if not senses.counter:
                raise
            self._track.senses = senses._replace(power=False)
            return None

    def _next(self, now: float) -> float:
        ticks = self._track.ticks
        period = ticks.period or self._driver.counter_period or _GUESSED_TICK
        age = now - self.youngest
        pause = max(period / _LOOKS_PER_TICK, _FASTEST, age * _AGE_SHARE) * self.thrift
        # However thrifty: more than one look must fall into a window that ends soon, and the first
        # may have come before the load set in.
        when_young = _FASTEST_WHEN_YOUNG * (1.0 if age < _FRESH else min(self.thrift, 2.5))
        self.pause = pause = min(pause, max(when_young, age / 3), _SLOWEST)
        upcoming = ticks.next_after(now)
        if upcoming is not None:
            low, high = upcoming
            middle = (low + high) / 2
            sharp_enough = max(_SHARP, age * _SHARP_SHARE) * self.thrift
            # A look right at the expected tick tells in which half of its bracket it falls.
            if high - low > sharp_enough and now + 0.3 * pause < middle < now + 1.3 * pause:
                return middle
        return now + pause
