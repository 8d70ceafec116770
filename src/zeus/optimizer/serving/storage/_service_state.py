"""What is known of a service, and whether it is still heard of."""

from __future__ import annotations

from dataclasses import dataclass

from zeus.optimizer.serving.api._spans import Span, merged
from zeus.optimizer.serving.storage._runs import Runs

PATIENCE = 45.0  # seconds without a report, after which a service counts as silent
_MISSED = 4.0  # or so many reports, if that is longer
_MINUTE = 60.0


@dataclass(frozen=True)
class Service:
    """What is known of a service.

    Attributes:
        name: Its name.
        heard: When it was last heard of, in seconds since 1970.
        runs: Its runs; `None` if what is stored of it is damaged.
        spans: What it did, in the order of time: all, or the latest.
    """

    name: str
    heard: float
    runs: Runs | None
    spans: tuple[Span, ...] = ()

    @property
    def minute(self) -> Span | None:
        """Its latest minute; `None` if it has done nothing yet."""
        if not self.spans:
            return None
        since = max(each.end for each in self.spans) - _MINUTE
        found = [each for each in self.spans if each.begin >= since - 1]
        return merged(found or self.spans[-1:])

    def state(self, now: float) -> str:
        """Return "controlled", "observed", "silent" or "ended"; see `ServiceSummary`."""
        if self.runs is None:
            return "damaged"
        run = self.runs.latest
        if run.ended is not None:
            return "ended"
        if now - self.heard > max(PATIENCE, _MISSED * run.start.every):
            return "silent"
        return "observed" if run.start.observe else "controlled"
