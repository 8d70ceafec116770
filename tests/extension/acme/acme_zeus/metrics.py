"""Metrics of Acme's fans."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zeus.device import Node
from zeus.telemetry import Family, Metric

SPEED = Metric("acme_fan_speed_hertz", "Speed of a fan.", ("fan",))
TAKEN = Metric("zeus_exporter_info", "A name that Zeus has.", ("version",))


class Fans:
    """A source of metrics."""

    name = "acme"
    problem = ""

    def __init__(self, node: Node) -> None:
        self._count = len(node.gpus)

    def families(self, reading: Any) -> Iterable[Family]:
        return [
            Family(SPEED, [((str(number),), 30.0) for number in range(self._count)]),
            Family(TAKEN, [(("9",), 1.0)]),
        ]

    def close(self) -> None:
        pass
