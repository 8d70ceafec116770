"""Draws the rooms of the code and the flow of data: `docs/figures/rooms.svg`.

The floors are those of the contract that `make check` enforces (`pyproject.toml`): a room may
import from lower floors only.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from zeus.drawing import _shapes as shapes
from zeus.drawing._colors import VARIABLES, style_sheet
from zeus.drawing._svg import element, view_box
from zeus.drawing._text import FONT, safe

ROOT = Path(__file__).parents[2]
FIGURE = ROOT / "docs" / "figures" / "rooms.svg"

PURPOSES = {
    "_bridges": "names of zeus 0.16",
    "cli": "the command zeus",
    "arena": "people compare models",
    "server": "jobs over HTTP, pages",
    "proxy": "energy of each answer",
    "integrations": "frameworks and trackers",
    "replay": "policies on recorded runs",
    "telemetry": "metrics of nodes and jobs",
    "verify": "checks of real GPUs",
    "testing": "simulated nodes and servers",
    "optimizer": "turns knobs by objectives",
    "monitor": "windows of time and energy",
    "agent": "knobs for users without root",
    "device": "sensors and knobs",
    "drawing": "pictures as SVG, in pages",
    "frontier": "points, and which to choose",
    "transport": "commands over HTTP",
    "store": "SQLite or PostgreSQL",
    "state": "files that outlive a process",
    "clock": "real and virtual time",
    "errors": "one class per mistake",
}
FLOW = ("device", "monitor", "frontier", "optimizer")
"""Rooms that data goes through, in this order, and back to the first."""

_WIDTH, _TOP, _FLOOR, _ROOM = 900.0, 64.0, 58.0, 44.0
_LEFT, _RIGHT, _GAP = 160.0, 880.0, 12.0
_SPINE, _BESIDE = 400.0, 515.0  # rooms of the flow end at one, those beside them begin at the other


def floors() -> list[list[str]]:
    """Return the rooms of each floor, the highest first, without private modules."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = pyproject["tool"]["importlinter"]["contracts"][0]["layers"]
    rooms = ([name.strip() for name in layer.split("|")] for layer in layers)
    shown = ([room for room in floor if room in PURPOSES] for floor in rooms)
    return [floor for floor in shown if floor]


def picture() -> shapes.Picture:
    """Return the drawing."""
    drawn: list[shapes.Shape] = [
        shapes.Text(_LEFT, 26, "The rooms of the code", 15, "ink", bold=True),
        shapes.Text(
            _LEFT,
            46,
            "A room may import from the floors below it. Data goes along the arrows.",
            12,
            "muted",
        ),
    ]
    boxes = dict(_boxes())
    for room, box in boxes.items():
        drawn += _room(room, box)
    drawn += _arrows(boxes)
    height = _TOP + _FLOOR * len(floors()) + 8
    return shapes.Picture("Rooms of the code, and the flow of data", _WIDTH, height, tuple(drawn))


def _boxes() -> Iterator[tuple[str, shapes.Box]]:
    for number, floor in enumerate(floors()):
        top = _TOP + number * _FLOOR
        rooms, left = list(floor), _LEFT
        if rooms[0] in FLOW:
            yield rooms.pop(0), shapes.Box(_LEFT, top, _SPINE, top + _ROOM)
            left = _BESIDE
        each = (_RIGHT - left + _GAP) / max(len(rooms), 1)
        for place, room in enumerate(rooms):
            begin = left + place * each
            yield room, shapes.Box(begin, top, begin + each - _GAP, top + _ROOM)


def _room(room: str, box: shapes.Box) -> Iterator[shapes.Shape]:
    edge = "line" if room in FLOW else "axis"
    yield shapes.Bar(box.left, box.top, box.right, box.bottom, "panel", edge)
    yield shapes.Text(box.left + 12, box.top + 19, room, 13, "ink", bold=True)
    yield shapes.Text(box.left + 12, box.top + 35, PURPOSES[room], 11.5, "muted")


def _arrows(boxes: dict[str, shapes.Box]) -> Iterator[shapes.Shape]:
    device, monitor, frontier, optimizer = (boxes[room] for room in FLOW)
    x = _LEFT + 190
    yield shapes.Path(((x, device.top), (x, monitor.bottom + 1)), "line", 2)
    yield _head(x, monitor.bottom, 0, -1)
    yield shapes.Text(x - 8, device.top - 3, "joules", 11, "line", "end", bold=True)
    yield from _around(monitor, frontier, _LEFT - 24, "windows")
    yield from _around(frontier, optimizer, _LEFT - 100, "points")
    yield from _around(optimizer, device, _SPINE + 40, "settings")


def _around(start: shapes.Box, end: shapes.Box, x: float, word: str) -> Iterator[shapes.Shape]:
    """An arrow that leaves and enters rooms at their sides, past those between them."""
    right = x > _SPINE
    edge = _SPINE if right else _LEFT
    begin, finish = start.center + 9 * (1 if right else -1), end.center + (9 if right else -9)
    if start.top > end.top:  # upwards: the lower half of both sides is for it
        begin, finish = start.center + 9, end.center
    corners = ((edge, begin), (x, begin), (x, finish), (edge, finish))
    yield shapes.Path(corners, "line", 2)
    yield _head(edge, finish, -1 if right else 1, 0)
    middle = (begin + finish) / 2
    yield shapes.Text(
        x + (8 if right else -8), middle, word, 11, "line", "start" if right else "end", bold=True
    )


def _head(x: float, y: float, dx: int, dy: int) -> shapes.Path:
    """The head of an arrow that points in a direction."""
    back_x, back_y = x - 8 * dx, y - 8 * dy
    return shapes.Path(
        (
            (back_x - 4.5 * dy, back_y - 4.5 * dx),
            (x, y),
            (back_x + 4.5 * dy, back_y + 4.5 * dx),
        ),
        "line",
        2,
    )


def svg(drawn: shapes.Picture) -> str:
    """Return the drawing as a file in the colors of the reader's light or dark mode."""
    size = f'width="{drawn.width:g}" height="{drawn.height:g}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view_box(drawn)}" {size} role="img" '
        f'aria-label="{safe(drawn.name)}" font-family="{FONT}">',
        f"<style>\n{style_sheet()}</style>",
        f'<rect {size} fill="var(--paper)"/>',
        *(element(shape, VARIABLES) for shape in drawn.shapes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FIGURE.write_text(svg(picture()), encoding="utf-8")
    sys.stdout.write(f"{FIGURE}\n")
