"""The board as CSV and JSON, with the filters and the order of the page."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from zeus.arena._api import check_scope
from zeus.arena._rows import BoardRow, to_dict
from zeus.arena.pages._selection import Selection
from zeus.server.pages._layout import HEADERS

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a spreadsheet recognizes formulas


def as_json(request: Request) -> Response:
    """Return the chosen rows as JSON."""
    text = json.dumps({"rows": [to_dict(row) for row in _rows(request)]}, indent=1) + "\n"
    return _file(text, "board.json", "application/json")


def as_csv(request: Request) -> Response:
    """Return the chosen rows as CSV; unknown values are empty."""
    return _file(to_csv(_rows(request)), "board.csv", "text/csv; charset=utf-8")


def to_csv(rows: list[BoardRow]) -> str:
    """Return rows as CSV."""
    flat = [_flat(row) for row in rows]
    names = list(_flat(BoardRow(model="", source="rounds")))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def _rows(request: Request) -> list[BoardRow]:
    check_scope(request)
    return Selection.of(request.query_params).apply(request.app.state.board.read().rows)


def _flat(row: BoardRow) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in to_dict(row).items():
        if name in ("energy_per_response", "energy_per_token", "win_rate", "informed_win_rate"):
            for part in ("value", "low", "high"):
                label = name if part == "value" else f"{name}_{part}"
                found[label] = None if value is None else value[part]
        elif isinstance(value, str) and value.startswith(_FORMULA):
            found[name] = f"'{value}"  # as text, not as a formula of whoever named the model
        else:
            found[name] = value
    return found


def _file(text: str, name: str, kind: str) -> Response:
    disposition = f'attachment; filename="{name}"'
    return Response(text, headers={**HEADERS, "Content-Disposition": disposition}, media_type=kind)
