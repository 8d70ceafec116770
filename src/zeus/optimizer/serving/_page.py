"""The metrics that a server publishes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from zeus.transport._metrics_text import read_samples


@dataclass(frozen=True)
class Histogram:
    """A cumulative histogram.

    Attributes:
        counts: How many values are at most each upper bound, in the order of the bounds.
        sum: The sum of all values; `None` if it is not published.
    """

    counts: Mapping[float, float]
    sum: float | None = None


class Page:
    """The samples of a page, by name.

    Args:
        text: The page.
    """

    def __init__(self, text: str) -> None:
        self._samples = read_samples(text)

    def __contains__(self, name: str) -> bool:
        return name in self._samples

    def names(self) -> Iterable[str]:
        """Return the names of all samples."""
        return self._samples.keys()

    def values(self, label: str) -> set[str]:
        """Return the values of a label."""
        samples = (sample for found in self._samples.values() for sample in found)
        return {labels[label] for labels, _ in samples if label in labels}

    def total(self, names: Iterable[str], own: Mapping[str, str]) -> float | None:
        """Return the sum over all labels of the first metric that there is.

        Args:
            names: Names, in the order of preference.
            own: Labels that a sample must have.
        """
        for name in names:
            if name in self._samples:
                return math.fsum(
                    value for labels, value in self._samples[name] if _has(labels, own)
                )
        return None

    def number(self, names: Iterable[str], own: Mapping[str, str]) -> int:
        """Return the number of samples of the first metric that there is, one of each label."""
        found = next((self._samples[name] for name in names if name in self._samples), [])
        return sum(_has(labels, own) for labels, _ in found)

    def histogram(self, names: Iterable[str], own: Mapping[str, str]) -> Histogram | None:
        """Return the first histogram that there is."""
        for name in names:
            if f"{name}_bucket" in self._samples:
                counts: dict[float, float] = {}
                for labels, value in self._samples[f"{name}_bucket"]:
                    if "le" in labels and _has(labels, own):
                        try:
                            bound = float(labels["le"])
                        except ValueError:
                            continue
                        if not math.isnan(bound):
                            counts[bound] = counts.get(bound, 0.0) + value
                return Histogram(dict(sorted(counts.items())), self.total([f"{name}_sum"], own))
        return None


def _has(labels: Mapping[str, str], own: Mapping[str, str]) -> bool:
    return all(labels.get(label) == value for label, value in own.items())
