"""Frontiers as JSON: written in one version, read with every rule checked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, NoReturn

from zeus.errors import FrontierError
from zeus.frontier._point import Point

FORMAT, VERSION = "zeus.frontier", 1

HEADER = ("work", "knob_name", "knob_unit", "max_power", "max_power_per_gpu")
_FIELDS = tuple(field.name for field in fields(Point))
_REQUIRED = ("knob", "time", "energy")


def to_dict(points: Iterable[Point], header: Mapping[str, Any]) -> dict[str, Any]:
    """Return a frontier as a JSON object, of its points and its other attributes."""
    record: dict[str, Any] = {"format": FORMAT, "version": VERSION, **header}
    record["points"] = [
        {name: getattr(point, name) for name in _FIELDS}
        | {
            "knob": _plain(point.knob, f"points[{index}]"),
            "latencies": dict(point.latencies),
        }
        for index, point in enumerate(points)
    ]
    return record


def _plain(knob: Any, where: str) -> Any:
    if isinstance(knob, Mapping):
        for key in knob:
            if not isinstance(key, str):
                raise FrontierError(f"{where}: names in JSON must be strings, but got {key!r}")
        return {key: _plain(value, where) for key, value in knob.items()}
    if isinstance(knob, tuple):
        return [_plain(value, where) for value in knob]
    if knob is None or isinstance(knob, str | int | float):
        return knob
    raise FrontierError(
        f"{where}: a knob of type {type(knob).__name__} cannot be written as JSON: {knob!r}"
    )


def arguments(record: object) -> dict[str, Any]:
    """Return the arguments of `Frontier` from a record.

    Raises:
        FrontierError: If the record is not a frontier's; names the point at fault.
    """
    record = _mapping(record, "a frontier's record")
    if record.get("format") != FORMAT:
        raise FrontierError(f"`format` must be {FORMAT!r}, but got {record.get('format')!r}")
    version = record.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise FrontierError(f"`version` must be a whole number from 1 on, but got {version!r}")
    if version > VERSION:
        raise FrontierError(
            f"version {version} was written by a newer Zeus; this one reads up to {VERSION}"
        )
    _known(record, {"format", "version", "points", *HEADER}, "the record")
    points = record.get("points")
    if not isinstance(points, list):
        raise FrontierError(f"`points` must be a list, but got {points!r}")
    result = {name: record[name] for name in HEADER if name in record}
    result["points"] = [_point(item, f"points[{index}]") for index, item in enumerate(points)]
    return result


def _point(item: object, where: str) -> Point:
    item = _mapping(item, where)
    _known(item, set(_FIELDS), where)
    missing = [name for name in _REQUIRED if name not in item]
    if missing:
        raise FrontierError(f"{where} lacks {', '.join(f'`{name}`' for name in missing)}")
    try:
        return Point(**item)
    except FrontierError as error:
        raise FrontierError(f"{where}: {error}") from None


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise FrontierError(f"{where} must be a mapping, but got {value!r}")
    return dict(value)


def _known(record: Mapping[str, Any], names: set[str], where: str) -> None:
    for name in record:
        if name not in names:
            raise FrontierError(
                f"{where} has `{name}`, which is not one of {', '.join(sorted(names))}"
            )


def parse(text: str | bytes) -> object:
    """Parse JSON, in which all numbers must be finite.

    Raises:
        FrontierError: If it is not JSON.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except FrontierError:
        raise
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, too
        raise FrontierError(f"not JSON: {error}") from None


def _refuse(constant: str) -> NoReturn:
    raise FrontierError(f"not JSON: {constant} is not a JSON number")
