"""Rows from the published results of the ML.ENERGY leaderboard, versions 2 and 3.

Their files name the same quantities by different keys; `_KEYS` has all of them. A file is searched
for objects that have a model and an energy, however deep they are. What is not understood is
reported, not guessed.
"""

from __future__ import annotations

import json
import math
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from zeus.arena._rows import IMPORT, BoardRow, Estimate
from zeus.errors import ArenaError

_MAX_BYTES = 200 * 1024 * 1024  # bytes
_MAX_DEPTH = 12
_MAX_TEXT = 200  # characters

#: Quantity, its keys in lower case, and what a value is multiplied by to get SI units.
_KEYS: Mapping[str, tuple[tuple[str, float], ...]] = {
    "model": (("nickname", 1), ("model", 1), ("model_id", 1), ("model_name", 1)),
    "gpu": (("gpu_model", 1), ("gpu", 1)),
    "gpus": (("num_gpus", 1),),
    "task": (("task", 1), ("task_display_name", 1)),
    "energy_per_response": (
        ("energy/req (j)", 1),
        ("energy_per_request_joules", 1),
        ("energy per request (j)", 1),
    ),
    "energy_per_token": (("energy_per_token_joules", 1), ("energy per token (j)", 1)),
    "tokens": (("avg output tokens", 1), ("avg_output_len", 1)),
    "tpot": (
        ("avg tpot (s)", 1),
        ("median_itl_ms", 1e-3),
        ("mean_itl_ms", 1e-3),
        ("avg_tpot_ms", 1e-3),
        ("median_tpot_ms", 1e-3),
    ),
    "ttft": (("median_ttft_ms", 1e-3), ("avg ttft (s)", 1), ("mean_ttft_ms", 1e-3)),
    "e2e": (("median_e2el_ms", 1e-3), ("avg latency (s)", 1)),
    "throughput": (
        ("token tput (tok/s)", 1),
        ("output_throughput_tokens_per_sec", 1),
    ),
    "batch": (("max bs (reqs)", 1), ("max_num_seqs", 1)),
    "tensor": (("tp", 1), ("tensor_parallel", 1)),
    "pipeline": (("pp", 1), ("pipeline_parallel", 1)),
    "precision": (("weight_precision", 1),),
}
#: Keys that are known and add nothing to a row.
_KNOWN = frozenset(
    {
        "avg bs (reqs)", "avg_batch_size", "avg_power_watts", "total_params_billions", "params",
        "architecture", "activated_params_billions", "data_parallel", "expert_parallel",
        "max_num_batched_tokens", "p90_itl_ms", "p95_itl_ms", "p99_itl_ms", "notes",
        "output_length_distribution", "parallelization", "configurations",
    }
)  # fmt: skip


@dataclass
class Imported:
    """Rows of a file.

    Attributes:
        rows: The rows.
        unknown: Keys that were not understood, with how often they occurred.
        skipped: Objects with a model that have no energy of an answer, such as images.
    """

    rows: list[BoardRow] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    skipped: int = 0


def read_file(path: Path) -> Imported:
    """Read a file, an archive (.tar.xz and the like), or all `.json` files below a directory.

    Raises:
        ArenaError: If it is no such file, or has no row.
        OSError: If it cannot be read.
    """
    found = Imported()
    for name, text in _texts(path):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ArenaError(f"{name} is not JSON: {error}") from None
        # In version 2 the task is a directory: .../chat/GPU/organization/model/bs8+tp1+pp1.json
        task = next((part for part in ("chat", "code") if part in name.parts), "")
        for each in _objects(data, {"task": task} if task else {}):
            _add(each, found)
    if not found.rows:
        raise ArenaError(
            f"{path} has no results of language models: expected objects with a model and its "
            "energy per request or per token"
        )
    return found


def _texts(path: Path) -> Iterator[tuple[PurePath, bytes]]:
    """Yield name and content of all JSON files."""
    left = _MAX_BYTES
    if path.is_dir() or not tarfile.is_tarfile(path):
        for file in sorted(path.rglob("*.json")) if path.is_dir() else [path]:
            left -= file.stat().st_size
            _check_size(left, path)
            yield file, file.read_bytes()
        return
    with tarfile.open(path) as archive:
        for member in archive:
            if not member.isfile() or not member.name.endswith(".json"):
                continue
            left -= member.size
            _check_size(left, path)
            part = archive.extractfile(member)
            yield PurePath(member.name), b"" if part is None else part.read()


def _check_size(left: int, path: Path) -> None:
    if left < 0:
        raise ArenaError(f"{path} must have at most {_MAX_BYTES} bytes of JSON")


def _objects(data: object, outer: Mapping[str, Any], depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the innermost objects, each with the values of those around it."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(data, list):
        for each in data:
            yield from _objects(each, outer, depth + 1)
    if not isinstance(data, dict):
        return
    own = {str(key).lower(): value for key, value in data.items()}
    lists = [value for value in own.values() if isinstance(value, list) and _has_objects(value)]
    # A configuration may have parts, such as how it is parallelized.
    inner = own.get("parallelization")
    flat = inner if isinstance(inner, dict) else {}
    whole = {**outer, **flat, **own}
    if lists:
        plain = {key: value for key, value in whole.items() if not isinstance(value, list | dict)}
        for each in lists:
            yield from _objects(each, plain, depth + 1)
    elif _value(whole, "model") is not None or _value(whole, "energy_per_response") is not None:
        yield whole
    else:
        for value in data.values():
            yield from _objects(value, outer, depth + 1)


def _has_objects(values: list[Any]) -> bool:
    return any(isinstance(value, dict) for value in values)


def _add(found: Mapping[str, Any], to: Imported) -> None:
    model = _text(found, "model")
    response, token = _number(found, "energy_per_response"), _number(found, "energy_per_token")
    tokens = _number(found, "tokens")
    if token is None and response is not None and tokens:
        token = response / tokens
    if response is None and token is not None and tokens:
        response = token * tokens
    if not model or (response is None and token is None):
        to.skipped += bool(model)
        return
    known = {key for keys in _KEYS.values() for key, _ in keys} | _KNOWN
    to.unknown.update(key for key in found if key not in known)
    to.rows.append(
        BoardRow(
            model=model,
            source=IMPORT,
            gpu=_gpu(found),
            task=_text(found, "task"),
            setting=_setting(found),
            energy_per_response=None if response is None else Estimate(response),
            energy_per_token=None if token is None else Estimate(token),
            ttft=_number(found, "ttft"),
            tpot=_number(found, "tpot"),
            e2e=_number(found, "e2e"),
            throughput=_number(found, "throughput"),
        )
    )


def _gpu(found: Mapping[str, Any]) -> str:
    name = _text(found, "gpu").removeprefix("NVIDIA ")
    count = _number(found, "gpus")
    if count is None:
        count = (_number(found, "tensor") or 1) * (_number(found, "pipeline") or 1)
    return f"{int(count)} × {name}" if name and count > 1 else name


def _setting(found: Mapping[str, Any]) -> str:
    parts = []
    for quantity, label in (("batch", "batch ≤ "), ("tensor", "TP "), ("pipeline", "PP ")):
        value = _number(found, quantity)
        if value is not None and (quantity == "batch" or value > 1):
            parts.append(f"{label}{int(value)}")
    precision = _text(found, "precision")
    return ", ".join([*parts, precision] if precision else parts)


def _value(found: Mapping[str, Any], quantity: str) -> tuple[Any, float] | None:
    for key, factor in _KEYS[quantity]:
        if found.get(key) is not None:
            return found[key], factor
    return None


def _text(found: Mapping[str, Any], quantity: str) -> str:
    value = _value(found, quantity)
    if value is None or not isinstance(value[0], str):
        return ""
    kept = "".join(c for c in value[0] if c.isprintable())
    return kept.strip()[:_MAX_TEXT]


def _number(found: Mapping[str, Any], quantity: str) -> float | None:
    value = _value(found, quantity)
    if value is None or isinstance(value[0], bool) or not isinstance(value[0], int | float):
        return None
    number = float(value[0]) * value[1]
    return number if 0 <= number < math.inf else None
