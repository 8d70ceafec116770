"""By how long requests wait longer than they would at the highest setting.

A server that does the same work more slowly is late by the time that it has lost, since it was last
without waiting requests: what arrives, and how work is queued, does not matter. So as long as it is
never late by more than some seconds, no first token comes later than that, whatever the load.
"""

from __future__ import annotations

from zeus.optimizer.serving._interval import ServingInterval

_FORGET = 0.98  # of older requests per interval with a queue, for the mean of their work
_PRIOR = 2.0  # requests as which the work of prompts alone counts in that


class Delay:
    """Follows how late a server is."""

    def __init__(self) -> None:
        #: Seconds by which waiting requests are late.
        self.seconds = 0.0
        #: Likewise for those that got their first token in the last interval.
        self.served = 0.0
        #: Seconds in which what waits would be worked off at the highest setting.
        self.backlog = 0.0
        #: Seconds for which what waits would wait at the highest setting.
        self.ahead = 0.0
        self._waiting = 0
        self._work = self._left = 0.0

    def add(self, interval: ServingInterval, busy: float, lost: float, prompt: float) -> None:
        """Record an interval.

        Args:
            interval: The interval.
            busy: Seconds in which it worked.
            lost: How many of these its work would not have taken at the highest setting.
            prompt: Seconds that the prompt of a request takes at the highest setting.
        """
        if self._waiting and interval.waiting:
            left = max(0, interval.arrived + self._waiting - interval.waiting)
            self._work = _FORGET * self._work + busy - lost
            self._left = _FORGET * self._left + left
        self._waiting = interval.waiting
        each = (self._work + _PRIOR * prompt) / (self._left + _PRIOR)
        self.backlog = interval.waiting * each
        self.served = self.seconds + lost
        # At the highest setting the queue could be no shorter than empty.
        self.seconds = min(self.served, self.backlog)
        self.ahead = max(0.0, max(self.backlog, interval.oldest_wait or 0.0) - self.seconds)
