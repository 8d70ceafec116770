"""Rows of the board: a model with its energy, latency and votes, whichever source they come from.

Values that are unknown are absent, never 0. Everything is in SI units.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from zeus.arena._bradley_terry import WinRate
from zeus.errors import ArenaError

ROUNDS, BENCH, IMPORT = "rounds", "bench", "import"
SOURCES = (ROUNDS, BENCH, IMPORT)
"""Own rounds of the arena, load tests by `zeus bench-serving`, and imported files."""

_MAX_TEXT = 300  # characters of a name


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval.

    Attributes:
        value: The value.
        low: Lower end; `None` if no interval is known.
        high: Upper end, likewise.
    """

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class BoardRow:
    """A row of the board.

    Attributes:
        model: Name of the model.
        source: One of `SOURCES`.
        gpu: GPUs that it ran on; empty if unknown.
        task: Kind of prompts; empty if unknown.
        setting: Batch size, load and the like, in words.
        responses: Number of responses that the values are of; `None` if unknown.
        energy_per_response: Joules.
        energy_per_token: Joules per generated token.
        ttft: Median seconds to the first token.
        tpot: Seconds per generated token after the first, median or mean of the source.
        e2e: Median seconds of a response.
        throughput: Generated tokens per second.
        win_rate: From votes without knowing the energy.
        informed_win_rate: From the answers to the second question, knowing the energy.
        worth_it: How often a better answer was worth its higher energy.
        worth_it_asked: How often that was asked.
        failures: Number of answers that failed.
        simulated: Whether the energy is of simulated GPUs.
    """

    model: str
    source: str
    gpu: str = ""
    task: str = ""
    setting: str = ""
    responses: int | None = None
    energy_per_response: Estimate | None = None
    energy_per_token: Estimate | None = None
    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None
    throughput: float | None = None
    win_rate: WinRate | None = None
    informed_win_rate: WinRate | None = None
    worth_it: int = 0
    worth_it_asked: int = 0
    failures: int = 0
    simulated: bool = False

    @property
    def worth_it_share(self) -> float | None:
        """Share of "worth it"; `None` if it was never asked."""
        return self.worth_it / self.worth_it_asked if self.worth_it_asked else None

    def key(self) -> str:
        """Return a hash of all values: the same row is stored once."""
        text = json.dumps(to_dict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def to_dict(row: BoardRow) -> dict[str, Any]:
    """Return a row as a JSON object."""
    return asdict(row)


def from_dict(found: object) -> BoardRow:
    """Return the row of a stored JSON object; votes are not stored.

    Raises:
        ArenaError: If it is none.
    """
    if not isinstance(found, Mapping):
        raise ArenaError(f"a row must be an object, but got {type(found).__name__}")
    values: dict[str, Any] = {}
    for each in fields(BoardRow):
        value = found.get(each.name)
        if value is None or each.name in ("win_rate", "informed_win_rate"):
            continue
        values[each.name] = _checked(each.name, value)
    if "model" not in values or values.get("source") not in SOURCES:
        raise ArenaError("a row must have a model and a known source")
    return BoardRow(**values)


def _checked(name: str, value: object) -> object:
    if name in ("model", "source", "gpu", "task", "setting"):
        if not isinstance(value, str) or len(value) > _MAX_TEXT:
            raise ArenaError(
                f"`{name}` must be a text of at most {_MAX_TEXT} characters, but got {value!a:.80}"
            )
        return value
    if name == "simulated":
        return value is True
    if name in ("energy_per_response", "energy_per_token"):
        if not isinstance(value, Mapping):
            raise ArenaError(f"`{name}` must be an object, but got {value!a:.80}")
        ends = (value.get(end) for end in ("low", "high"))
        low, high = (None if end is None else _number(name, end) for end in ends)
        return Estimate(_number(name, value.get("value")), low, high)
    number = _number(name, value)
    whole = name in ("responses", "worth_it", "worth_it_asked", "failures")
    return int(number) if whole else number


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ArenaError(f"`{name}` must be a number of at least 0, but got {value!a:.80}")
    return float(value)
