"""Read tables of batch limits: own measurements, ML.ENERGY's JSON, Splitwise's CSV.

Columns are recognized by name. What is not understood is named, not guessed.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from zeus.errors import TraceError
from zeus.optimizer.serving._advice import MAX_LIMIT, LimitRow

_LIMITS = ("max_num_seqs", "max bs (reqs)", "limit", "batch_limit", "max_batch_size", "batch_size")
_PER_TOKEN = ("joules_per_token", "j_per_token", "energy_per_token", "j/token", "energy/token (j)")
_PER_REQUEST = ("energy/req (j)", "energy_per_request")
_OUTPUT = ("avg output tokens", "output_tokens", "generated_tokens")
_LATENCY = re.compile(
    r"(?:avg |mean )?(ttft|tpot|itl|e2e)[ _]?(p\d+(?:\.\d+)?|avg|mean|median)?"
    r"[ _]?(?:\(?(s|ms|seconds|milliseconds)\)?)?"
)
_GROUPS = (
    "task", "model", "gpu", "hardware", "tp", "pp", "tensor_parallel", "prompt_size", "token_size",
    "phase", "clock_mhz",
)  # fmt: skip
_MAX_BYTES = 200_000_000
_SMALLEST = 1e-12


@dataclass(frozen=True)
class LimitTable:
    """Measured limits of one model on one server.

    Attributes:
        group: Values that its rows have in common, such as model and GPU.
        rows: Rows.
        relative: Whether energies are in an unknown unit, which does not matter for a choice.
    """

    group: Mapping[str, str]
    rows: tuple[LimitRow, ...]
    relative: bool = False

    @property
    def name(self) -> str:
        """Human-readable name."""
        return ", ".join(
            value if key in ("task", "model", "gpu", "hardware") else f"{key} {value}"
            for key, value in self.group.items()
        )


def read_limit_tables(path: str | Path) -> tuple[list[LimitTable], list[str]]:
    """Read all tables of a file, folder or tar archive.

    Args:
        path: A CSV; a JSON file with an object for each row or a list of these; or a folder or tar
            archive with such files.

    Returns:
        The tables, and remarks on rows that were left out.

    Raises:
        ValueError: If there is no row that can be used.
        OSError: If a file cannot be read.
    """
    path = Path(path)
    groups: dict[tuple[tuple[str, str], ...], list[tuple[LimitRow, bool]]] = defaultdict(list)
    left_out: dict[str, int] = defaultdict(int)
    for where, record in _records(path):
        values = {str(key).strip().lower(): value for key, value in record.items()}
        found = _row(values)
        if isinstance(found, str):
            left_out[found] += 1
            continue
        known = {key: str(values[key]) for key in _GROUPS if values.get(key) not in (None, "")}
        if "task" not in known and where:
            known = {"task": where, **known}
        groups[tuple(known.items())].append(found)
    remarks = [f"{count} rows left out: {why}" for why, count in left_out.items()]
    if not groups:
        reason = "; ".join(remarks) or "no row was found"
        raise TraceError(f"{path} must be a table of batch limits, but {reason}")
    tables = [
        LimitTable(dict(group), tuple(row for row, _ in rows), any(rel for _, rel in rows))
        for group, rows in sorted(groups.items())
    ]
    return tables, remarks


# --- files --------------------------------------------------------------------------------------


def _records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all rows with the task that the file's place names, if it does."""
    for name, content in _files(path):
        place = PurePosixPath(name)
        task = place.parts[-5] if len(place.parts) >= 5 else ""
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise TraceError(f"{name} must be text in UTF-8, but is not") from None
        if place.suffix.lower() == ".csv":
            for row in csv.DictReader(io.StringIO(text)):
                yield "", row
        else:
            yield from ((task, each) for each in _objects(name, text))


def _objects(name: str, text: str) -> Iterator[Mapping[str, Any]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise TraceError(f"{name} must be JSON, but cannot be parsed") from None
    for each in document if isinstance(document, list) else [document]:
        if isinstance(each, Mapping):
            yield each


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        for each in sorted(path.rglob("*")):
            if each.suffix.lower() in (".json", ".csv") and each.is_file():
                yield each.relative_to(path.parent).as_posix(), each.read_bytes()
    elif path.suffix.lower() in (".csv", ".json"):
        yield path.name, path.read_bytes()
    else:
        yield from _archived(path)


def _archived(path: Path) -> Iterator[tuple[str, bytes]]:
    total = 0
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if not member.isfile() or not member.name.lower().endswith((".json", ".csv")):
                    continue
                total += member.size
                if total > _MAX_BYTES:
                    raise TraceError(f"{path} must unpack to at most {_MAX_BYTES} bytes")
                file = archive.extractfile(member)
                assert file is not None
                yield member.name, file.read()
    except (tarfile.TarError, EOFError) as error:
        raise TraceError(f"{path} must be a CSV, JSON or tar archive, but {error}") from None


# --- rows ---------------------------------------------------------------------------------------


def _row(values: Mapping[str, Any]) -> tuple[LimitRow, bool] | str:
    """Return the row and whether its energy is relative, or why it is left out."""
    limit = _first(values, _LIMITS)
    if limit is None or not 1 <= limit <= MAX_LIMIT:
        return "no limit from 1 on, in a column such as max_num_seqs or batch_size"
    energy, relative = _energy(values, limit)
    if energy is None:
        return "no energy per token"
    latencies = dict(_latencies(values))
    if not latencies:
        return "no latency, such as tpot_p99"
    return LimitRow(limit, energy, latencies), relative


def _energy(values: Mapping[str, Any], batch: float) -> tuple[float | None, bool]:
    direct = _first(values, _PER_TOKEN)
    if direct is not None:
        return direct, False
    request, output = _first(values, _PER_REQUEST), _first(values, _OUTPUT)
    if request is not None and output is not None:
        return request / output, False
    watts, seconds, tokens = (
        _positive(values.get(each)) for each in ("watts", "seconds", "tokens")
    )
    if watts and seconds and tokens:
        return watts * seconds / tokens, False
    # Splitwise: power relative to the GPU's limit, milliseconds of a batch.
    power, time = (_positive(values.get(each)) for each in ("average_power", "e2e_time"))
    size = _positive(values.get("token_size"))
    if power and time and size:
        return power * time / 1e3 / (size * batch), True
    return None, False


def _latencies(values: Mapping[str, Any]) -> Iterable[tuple[str, float]]:
    for key, value in values.items():
        found = _LATENCY.fullmatch(key)
        number = _positive(value)
        if found and number is not None:
            milli = found[3] in ("ms", "milliseconds")
            statistic = "avg" if found[2] in (None, "mean") else found[2]
            yield f"{found[1]} {statistic}", number / 1e3 if milli else number
    for key, name in (("prompt_time", "ttft avg"), ("token_time", "tpot avg")):
        number = _positive(values.get(key))
        if number is not None:
            yield name, number / 1e3  # Splitwise has milliseconds
    seconds, tokens = _positive(values.get("seconds")), _positive(values.get("tokens"))
    batch = _first(values, _LIMITS)
    if seconds and tokens and batch and values.get("phase") in (None, "decode"):
        yield "tpot avg", seconds * batch / tokens


def _first(values: Mapping[str, Any], names: Iterable[str]) -> float | None:
    return next((n for name in names if (n := _positive(values.get(name))) is not None), None)


def _positive(value: Any) -> float | None:
    """Return a number of a plausible size, in whatever unit; `None` if it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if not isinstance(value, bool) and _SMALLEST <= number <= 1 / _SMALLEST else None
