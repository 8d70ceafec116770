"""Pages of metrics in the text format of Prometheus, read tolerantly.

A line that is not understood is skipped, and so is a value that is not finite: pages come from
programs of all kinds and versions, and what is absent stays unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

#: Samples by name of the metric, each with its labels.
Samples = dict[str, list[tuple[Mapping[str, str], float]]]

_SAMPLE = re.compile(
    r"([A-Za-z_:][A-Za-z0-9_:]*)"
    r'(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*'
)
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


def read_samples(text: str, prefix: str = "") -> Samples:
    """Return the samples of a page.

    Args:
        text: The page.
        prefix: Beginning of the names that are wanted; all by default.
    """
    samples: Samples = {}
    for line in text.splitlines():
        found = _SAMPLE.fullmatch(line) if line.startswith(prefix) else None
        if found is None:
            continue
        name, labels, number = found.groups()
        try:
            value = float(number)
        except ValueError:
            continue
        if math.isfinite(value):
            pairs = _LABEL.findall(labels or "")
            read = {label: _ESCAPED.sub(_unescape, quoted) for label, quoted in pairs}
            samples.setdefault(name, []).append((read, value))
    return samples


def _unescape(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
