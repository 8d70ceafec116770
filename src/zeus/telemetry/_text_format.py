"""The text format of Prometheus (version 0.0.4), for many scrapes of the same series.

`prometheus-client` writes it too, but escapes and sorts all labels again for every scrape, which
takes longer than reading the devices. Here the text of each series is made once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from zeus.telemetry._metrics import Family, Labels, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MAX_SERIES = 20_000  # remembered at once; processes come and go


class TextFormat:
    """Writes metrics as text."""

    def __init__(self) -> None:
        self._heads: dict[Metric, str] = {}
        self._series: dict[tuple[Metric, Labels], str] = {}

    def text(self, families: Iterable[Family]) -> str:
        """Return the page of all metrics."""
        if len(self._series) > _MAX_SERIES:
            self._series.clear()
        lines: list[str] = []
        for family in families:
            metric = family.metric
            head = self._heads.get(metric)
            lines.append(head if head is not None else self._head(metric))
            for labels, value in family.samples:
                series = self._series.get((metric, labels))
                if series is None:
                    series = self._series[metric, labels] = _series(metric, labels)
                lines.append(f"{series}{_number(value)}\n")
        return "".join(lines)

    def _head(self, metric: Metric) -> str:
        text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
        head = f"# HELP {metric.name} {text}\n# TYPE {metric.name} {metric.kind}\n"
        self._heads[metric] = head
        return head


def _series(metric: Metric, labels: Labels) -> str:
    if not labels:
        return f"{metric.name} "
    pairs = zip(metric.labels, labels, strict=True)
    text = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    return f"{metric.name}{{{text}}} "


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
