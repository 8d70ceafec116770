"""Which rows of the board are shown, and in which order: read from the query of a URL."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from zeus.arena._rows import SOURCES, BoardRow, Estimate

Value = float | str | tuple[int, float] | None

KEYS: Mapping[str, Callable[[BoardRow], Value]] = {
    "model": lambda row: row.model.lower(),
    "source": lambda row: (SOURCES.index(row.source), _of(row.energy_per_token) or math.inf),
    "response": lambda row: _of(row.energy_per_response),
    "token": lambda row: _of(row.energy_per_token),
    "ttft": lambda row: row.ttft,
    "tpot": lambda row: row.tpot,
    "e2e": lambda row: row.e2e,
    "throughput": lambda row: row.throughput,
    "win": lambda row: None if row.win_rate is None else row.win_rate.value,
    "informed": lambda row: None if row.informed_win_rate is None else row.informed_win_rate.value,
    "worth": lambda row: row.worth_it_share,
    "responses": lambda row: row.responses,
}
"""Values that rows are sorted by, by the name of their column in URLs."""
DESCENDING = frozenset({"win", "informed", "worth", "throughput", "responses"})
"""Columns whose highest values come first."""
_DEFAULT = "source"  # own rounds first


def _of(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.value


@dataclass(frozen=True)
class Selection:
    """A choice of rows.

    Attributes:
        text: Part of the model's name.
        source: Only rows of this source; empty for all.
        gpu: Only rows of this GPU; empty for all.
        task: Only rows of this task; empty for all.
        sort: Column that they are sorted by.
        reverse: Whether the order is reversed.
        page: Number of the page, from 0.
    """

    text: str = ""
    source: str = ""
    gpu: str = ""
    task: str = ""
    sort: str = _DEFAULT
    reverse: bool = False
    page: int = 0

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Selection:
        """Read the query of a URL; anything unknown counts as absent."""
        sort, source, page = query.get("sort", ""), query.get("source", ""), query.get("page", "")
        return cls(
            query.get("text", "")[:100],
            source if source in SOURCES else "",
            query.get("gpu", "")[:300],
            query.get("task", "")[:300],
            sort if sort in KEYS else _DEFAULT,
            query.get("reverse") == "1",
            int(page) if page.isascii() and page.isdigit() and len(page) < 6 else 0,
        )

    def url(self, path: str = "/board", **changes: object) -> str:
        """Return the URL of this selection with changes."""
        other = replace(self, **changes)  # type: ignore[arg-type]
        query = {
            "text": other.text,
            "source": other.source,
            "gpu": other.gpu,
            "task": other.task,
            "sort": other.sort if other.sort != _DEFAULT else "",
            "reverse": "1" if other.reverse else "",
            "page": str(other.page) if other.page else "",
        }
        text = urlencode({name: value for name, value in query.items() if value})
        return f"{path}?{text}" if text else path

    def apply(self, rows: Sequence[BoardRow]) -> list[BoardRow]:
        """Return the chosen rows in order; those without a value come last."""
        chosen = [
            row
            for row in rows
            if self.text.lower() in row.model.lower()
            and self.source in ("", row.source)
            and self.gpu in ("", row.gpu)
            and self.task in ("", row.task)
        ]
        key = KEYS[self.sort]
        known = [row for row in chosen if key(row) is not None]
        descending = (self.sort in DESCENDING) != self.reverse
        known.sort(key=lambda row: key(row) or 0, reverse=descending)
        return [*known, *(row for row in chosen if key(row) is None)]
