"""Rows from the published results of the ML.ENERGY leaderboard, versions 2 and 3.

A file is searched for objects that have a model and an energy, however deep they are. What is not
understood is reported, not guessed.
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

from zeus.arena._result_keys import Meaning, meaning
from zeus.arena._rows import IMPORT, BoardRow, Estimate
from zeus.errors import ArenaError

_MAX_BYTES = 200 * 1024 * 1024  # bytes
_MAX_DEPTH = 12
_MAX_TEXT = 200  # characters

#: Keys that are known and add nothing to a row.
_KNOWN = frozenset(
    {
        "avg bs (reqs)", "avg_batch_size", "avg_power_watts", "total_params_billions", "params",
        "architecture", "activated_params_billions", "data_parallel", "expert_parallel",
        "max_num_batched_tokens", "p90_itl_ms", "p95_itl_ms", "p99_itl_ms", "notes",
        "output_length_distribution", "parallelization", "configurations",
        "energy_per_generation_joules", "energy_per_image_joules", "energy_per_video_joules",
        "batch_latency_s", "image_height", "image_width", "video_height", "video_width", "fps",
        "inference_steps", "url",
    }
)  # fmt: skip


@dataclass
class Imported:
    """Rows of a file.

    Attributes:
        rows: The rows.
        unknown: Keys that were not understood, with how often they occurred; also those of objects
            that were left out.
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
    own = {str(key): value for key, value in data.items()}
    lists = [value for value in own.values() if isinstance(value, list) and _has_objects(value)]
    parts = [value for value in own.values() if isinstance(value, dict)]
    whole = {**outer, **own}
    if sum(map(_has_energy, parts)) <= 1 and (_has_model(own) or _has_energy(own)):
        # A configuration may have parts, such as how it is parallelized, or its metrics.
        whole = {**outer, **{key: part[key] for part in parts for key in part}, **own}
    plain = {key: value for key, value in whole.items() if not isinstance(value, list | dict)}
    if lists:
        for each in lists:
            yield from _objects(each, plain, depth + 1)
    elif _has_energy(whole) or (_has_model(own) and not parts):
        yield whole
    else:
        for name, value in own.items():
            named = isinstance(value, dict) and str(name).lower() in ("models", "llms")
            for key, each in value.items() if named else ((None, value),):
                model = {} if key is None else {"model": key}
                yield from _objects(each, {**plain, **model}, depth + 1)


def _has_energy(data: Mapping[str, Any]) -> bool:
    return any(_value(data, name) for name in ("energy_per_response", "energy_per_token"))


def _has_model(data: Mapping[str, Any]) -> bool:
    return _value(data, "model") is not None


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
    energies = response is not None or token is not None
    if model or energies:
        to.unknown.update(key for key in found if not meaning(key) and key.lower() not in _KNOWN)
    if not model or not energies:
        to.skipped += bool(model or energies)
        return
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


def _value(found: Mapping[str, Any], quantity: str) -> tuple[Any, Meaning] | None:
    best: tuple[Any, Meaning] | None = None
    for key, value in found.items():
        meant = meaning(key)
        if meant is None or meant.quantity != quantity or isinstance(value, list | dict | None):
            continue
        if best is None or meant.rank < best[1].rank:
            best = value, meant
    return best


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
    number = float(value[0]) * value[1].factor
    if value[1].inverse:
        number = value[1].factor / value[0] if value[0] > 0 else -1.0
    return number if 0 <= number < math.inf else None
