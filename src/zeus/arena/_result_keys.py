"""What the keys of published results mean: which quantity, in which unit.

Boards name the same quantities by different keys, and rename them. A key is read as words: those of
the quantity, of the unit, and of the statistic. What is not certain is not understood.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

_WORD = re.compile(r"[a-z]+[0-9]*[a-z]*|[0-9]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z][a-z])")

_JOULES = {
    "j": 1.0, "joule": 1.0, "joules": 1.0, "mj": 1e-3, "millijoules": 1e-3, "kj": 1e3, "wh": 3.6e3,
    "mwh": 3.6, "kwh": 3.6e6,
}  # fmt: skip
_SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3}
_RANKS = {"median": 0, "p50": 0, "mean": 1, "avg": 1, "average": 1}
_TAILS = re.compile(r"p[0-9]+|min|max|std|var|stdev|total|sum|peak")
_TOKEN = {"token", "tokens", "tok", "toks"}
_RESPONSE = {"request", "requests", "req", "response", "responses", "answer", "query", "turn"}
_INPUT = {"input", "prompt", "prefill", "cached"}
#: Whole keys, as words, in the order in which they count.
_EXACT: Mapping[str, tuple[str, ...]] = {
    "model": ("nickname", "model", "model id", "model name", "llm", "name"),
    "gpu": (
        "gpu model", "gpu", "gpu name", "gpu type", "hardware", "accelerator", "device",
        "device name",
    ),
    "gpus": ("num gpus", "n gpus", "gpus", "gpu count", "number of gpus"),
    "task": ("task", "task display name", "workload", "dataset"),
    "tokens": (
        "avg output tokens", "avg output len", "mean output tokens", "output tokens", "output len",
        "avg output length", "mean output length", "output length", "completion tokens",
    ),
    "batch": ("max bs reqs", "max num seqs", "max batch size", "batch size", "concurrency"),
    "tensor": ("tp", "tensor parallel", "tensor parallel size"),
    "pipeline": ("pp", "pipeline parallel", "pipeline parallel size"),
    "precision": ("weight precision", "precision", "dtype", "quantization"),
}  # fmt: skip


class Meaning(NamedTuple):
    """What a key means.

    Attributes:
        quantity: Its name.
        factor: What a value is multiplied by to get SI units.
        rank: The lowest counts, where several keys have the same quantity.
        inverse: Whether it is the inverse of the quantity.
    """

    quantity: str
    factor: float = 1.0
    rank: int = 0
    inverse: bool = False


_PLACES = {
    words: Meaning(quantity, rank=rank)
    for quantity, keys in _EXACT.items()
    for rank, words in enumerate(keys)
}


@lru_cache(maxsize=4096)
def meaning(key: str) -> Meaning | None:
    """Return what a key means; `None` if that is not certain."""
    words = _WORD.findall(_CAMEL.sub(" ", key).lower().replace("/", " per "))
    place = _PLACES.get(" ".join(words))
    if place is not None:
        return place
    if any(_TAILS.fullmatch(word) and word != "p50" for word in words):
        return None
    rank = min((_RANKS[word] for word in words if word in _RANKS), default=2)
    found = set(words)
    return _energy(words, rank) or _throughput(words, rank) or _latency(found, rank)


def _energy(words: list[str], rank: int) -> Meaning | None:
    units = [word for word in words if word in _JOULES]
    if len(units) > 1 or "per" not in words or not (units or "energy" in words):
        return None
    at = len(words) - 1 - words[::-1].index("per")
    of, per = words[:at], [word for word in words[at + 1 :] if word not in units]
    factor = _JOULES[units[0]] if units else 1.0
    if units and units[0] not in of and of and of[-1] in _TOKEN and "energy" not in of:
        return Meaning("energy_per_token", factor, rank, inverse=True)  # tokens per joule
    if per and per[-1] in _TOKEN and not _INPUT & set(words):
        return Meaning("energy_per_token", factor, rank)
    if per and per[-1] in _RESPONSE and not _TOKEN & set(per):
        return Meaning("energy_per_response", factor, rank)
    return None


def _throughput(words: list[str], rank: int) -> Meaning | None:
    found = set(words)
    named = found & {"throughput", "tput", "tps"} or "per s" in " ".join(words)
    of_tokens = found & _TOKEN or "tps" in found
    return Meaning("throughput", 1.0, rank) if named and of_tokens and not found & _INPUT else None


def _latency(words: set[str], rank: int) -> Meaning | None:
    units = [word for word in words if word in _SECONDS]
    if len(units) != 1:
        return None
    if "ttft" in words or {"time", "first", "token"} <= words:
        quantity = "ttft"
    elif words & {"tpot", "itl"} or ({"time", "per"} <= words and words & _TOKEN):
        quantity = "tpot"
    elif words & {"e2e", "e2el", "latency"} and not words & _TOKEN:
        quantity = "e2e"
    else:
        return None
    return Meaning(quantity, _SECONDS[units[0]], rank)
