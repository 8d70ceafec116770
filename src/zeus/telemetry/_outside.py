"""Sources of metrics that other distributions add, kept apart from ours.

Whatever such a source does costs its own metrics only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any

from zeus._extensions import METRIC_SOURCES, extensions
from zeus._rules import shown
from zeus.device import Node
from zeus.errors import ExtensionError
from zeus.telemetry._metrics import Family
from zeus.telemetry._readings import NodeReading

logger = logging.getLogger(__name__)


class OutsideSource:
    """A source of another distribution, behind our interface.

    Args:
        name: Its name as an extension.
        source: What its maker returned.
        taken: Names of metrics of others.
    """

    def __init__(self, name: str, source: Any, taken: Collection[str]) -> None:
        self.name = name
        self.problem = ""
        self._source = source
        self._taken = taken

    def families(self, reading: NodeReading) -> Iterable[Family]:
        """Return its metrics, without those whose names are taken."""
        found = list(self._source.families(reading))
        wrong = [each for each in found if not isinstance(each, Family)]
        if wrong:
            raise TypeError(f"families() must return Family objects, but got {wrong[0]!r}")
        clashing = sorted({each.metric.name for each in found if each.metric.name in self._taken})
        self.problem = str(getattr(self._source, "problem", ""))
        if clashing:
            self.problem = (
                f"its metrics must have names of their own, but got {', '.join(clashing)}"
            )
        return [each for each in found if each.metric.name not in clashing]

    def close(self) -> None:
        """End its background work."""
        try:
            self._source.close()
        except Exception as error:  # of code that is not ours
            logger.warning("collector %s: close() failed: %s", self.name, error)


def outside_sources(node: Node, names: Collection[str], metrics: Collection[str]) -> list[Any]:
    """Return the sources that other distributions add.

    Args:
        node: Given to their makers.
        names: Names of our collectors, which none of them may have.
        metrics: Names of our metrics.
    """
    taken = set(metrics)
    found = []
    for name, make in extensions(METRIC_SOURCES, names, _usable).items():
        try:
            found.append(OutsideSource(name, make(node), taken))
        except Exception as error:  # of code that is not ours
            logger.warning("collector %s: %s: %s", name, type(error).__name__, error)
    return found


def _usable(_: str, make: Any) -> Callable[[Node], Any]:
    if not callable(make):
        raise ExtensionError(f"it must be a function of a Node, but is {shown(make)}")
    made: Callable[[Node], Any] = make
    return made
