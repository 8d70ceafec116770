"""A frontier as an interactive page: one HTML file without network and without any library.

A slider over the paper's eta moves the point that `ZeusCost` chooses. The plot is laid out twice,
for wide windows and for phones, by the same code as the other plots; the page shows one of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zeus.drawing._colours import VARIABLES
from zeus.drawing._looks import RING
from zeus.drawing._pages import document, resource
from zeus.drawing._shapes import Frame, Mark, Shape, Text
from zeus.drawing._svg import element, text_element, view_box
from zeus.drawing._text import safe
from zeus.drawing._units import energy_unit, time_unit
from zeus.drawing.frontier._layout import Plot, beaten_text, lay_out, reasons
from zeus.drawing.frontier._tables import (
    by_time,
    columns_of,
    compared,
    compared_in_words,
    count,
    knob_label,
)
from zeus.errors import FrontierError
from zeus.frontier import Frontier, Point, Selection, ZeusCost
from zeus.frontier._point import number

_WIDE = Frame(760, 430, 70, 12, 12, 58, (8, 6))
_NARROW = Frame(340, 400, 52, 8, 10, 56, (4, 6))
_MANY = 100  # a longer table is collapsed at first


def html(
    frontier: Frontier,
    choices: Mapping[str, Selection],
    title: str,
    reference: Point | None,
    eta_knob: float,
) -> str:
    """Return the page; `Frontier.to_html` documents the arguments."""
    return _Page(frontier, choices, title, reference, eta_knob).document()


class _Page:
    def __init__(
        self,
        frontier: Frontier,
        choices: Mapping[str, Selection],
        title: str,
        reference: Point | None,
        eta_knob: float,
    ) -> None:
        self.frontier = frontier
        self.choices = choices
        self.title = title or frontier.work or "Time and energy"
        self.reference = reference or frontier.fastest
        self.eta_knob = number("eta_knob", eta_knob, least=0, most=1)
        self.max_power, self.why_not = _max_power(frontier)
        self.other = "" if self.max_power is None else "other"  # than the slider's objective
        # By time, as in the table and for the arrow keys; with points that only a choice has.
        points = dict.fromkeys((*frontier, *(choice.point for choice in choices.values())))
        self.order = {point: index for index, point in enumerate(points)}
        self.points = sorted(points, key=lambda point: (point.time, point.energy))
        self.index = {point: index for index, point in enumerate(self.points)}

    def document(self) -> str:
        pictures = self.pictures()
        parts = {
            "title": safe(self.title),
            "summary": safe(
                f"{count(self.frontier)}. Changes are against {self.label(self.reference)}."
            ),
            "slider": self.slider(),
            "explanation": self.explanation(),
            "charts": "\n".join(self.chart(picture, name) for name, picture in pictures.items()),
            "legend": self.legend(pictures["wide"].outside),
            "objectives": self.objectives(),
            "points": self.table_of_points(),
            "data": self.data(),
            "script": _part("page.js"),
        }
        return document("zeus.drawing.frontier", parts, scripts=True)

    def label(self, point: Point, longest: int = 28) -> str:
        return knob_label(point.knob, self.frontier.knob_unit, longest)

    # --- the parts --------------------------------------------------------------------------

    def slider(self) -> str:
        if self.max_power is None:
            return f'<p class="note">There is no slider over η: {safe(self.why_not)}.</p>'
        return _part("slider.html").format(eta=f"{self.eta_knob:g}")

    def explanation(self) -> str:
        if self.max_power is None:
            return ""
        watts = f"{self.max_power:.6g} W"
        return (
            f'<p class="note">The slider chooses the minimum cost η · energy + (1 − η) · {watts} · '
            f"time, where {watts} is the maximum power of all GPUs. Costs that differ by no more "
            "than their uncertainty and 0.1 % tie; then the faster is chosen.</p>"
        )

    def pictures(self) -> dict[str, Plot]:
        choices = reasons(self.choices)

        def plot(frame: Frame) -> Plot:
            return lay_out(
                self.frontier,
                choices,
                self.title,
                reference=self.reference,
                frame=frame,
                interactive=True,
            )

        return {"wide": plot(_WIDE), "narrow": plot(_NARROW)}

    def chart(self, picture: Plot, name: str) -> str:
        return "\n".join(
            [
                f'<svg class="{name}" viewBox="{view_box(picture)}" role="group" '
                f'aria-label="{safe(picture.name)}; arrow keys go from point to point">',
                *map(self.shape, picture.shapes),
                "</svg>",
            ]
        )

    def shape(self, shape: Shape) -> str:
        if isinstance(shape, Mark) and isinstance(shape.about, Point):
            return self.mark(shape, shape.about)
        if isinstance(shape, Text) and isinstance(shape.about, Point):
            data = f' class="label" data-point="{self.index[shape.about]}"'
            return text_element(shape, VARIABLES, data)
        return element(shape, VARIABLES)

    def mark(self, mark: Mark, point: Point) -> str:
        place = f'cx="{mark.x:.1f}" cy="{mark.y:.1f}"'
        kind: str = "other" if mark.kind == "chosen" else mark.kind
        if any(choice.point == point for choice in self.choices.values()):
            kind += " picked"
        if mark.plain:
            kind += " plain"
        return (
            f'<g class="mark {kind}" data-point="{self.index[point]}" tabindex="-1" '
            f'role="img" aria-label="{safe(mark.tooltip)}">'
            f'<circle class="ring" {place} r="{max(mark.radius, 3.5) + RING:g}"/>'
            f'<circle class="dot" {place} r="{mark.radius:g}"/></g>'
        )

    def legend(self, outside: int) -> str:
        best = len(self.frontier.pareto())
        beaten = len(self.frontier) - best
        entries = [("best", f"on the frontier ({best})")]
        if beaten:
            entries.append(("other", beaten_text(beaten - outside, outside)))
        if self.max_power is not None:
            entries.append(("best chosen", "chosen by the slider"))
        if self.choices:
            entries.append(("best picked", f"chosen by an{self.other} objective"))
        return "\n".join(
            f'<li><svg viewBox="-10 -10 20 20" aria-hidden="true"><g class="mark {kind}">'
            f'<circle class="ring" r="8.5"/><circle class="dot" r="4.5"/></g></svg>{text}</li>'
            for kind, text in entries
        )

    def objectives(self) -> str:
        if not self.choices:
            return ""
        body = []
        for name, selection in self.choices.items():
            kept = "" if selection.feasible else " (not kept)"
            first = safe((name or "chosen") + kept)
            first = re.sub("(?<=[a-z])(?=[A-Z])", "<wbr>", first)  # for phones
            if selection.note:
                first += f'<p class="note">{safe(selection.note)}</p>'
            point = selection.point
            others = map(safe, (self.label(point), *compared(point, self.reference)))
            body.append((f'data-point="{self.index[point]}"', [first, *others]))
        columns = {"objective": "objective", "choice": "choice", "time-change": "time",
                   "energy-change": "energy"}  # fmt: skip
        title = f"Choices of {self.other} objectives".replace("  ", " ")
        return f"<h2>{title}</h2>\n{_table('objectives', columns.items(), body)}"

    def table_of_points(self) -> str:
        columns = [
            each for each in columns_of(self.frontier, self.reference) if each.name != "best"
        ]
        best = set(self.frontier.pareto())
        body = [
            (
                f'class="{"best" if point in best else "beaten"}" data-point="{self.index[point]}"',
                [_cell(each.cell(point)) for each in columns],
            )
            for point in by_time(self.frontier)
        ]
        table = _table("points", ((each.name, each.title) for each in columns), body)
        if len(body) <= _MANY:
            return f"<h2>All points</h2>\n{table}"
        return f"<details><summary>All {len(body)} points</summary>\n{table}</details>"

    def data(self) -> str:
        """Return the data of the script as JSON; texts are formatted already."""
        time = time_unit(max(point.time for point in self.points))
        energy = energy_unit(max(point.energy for point in self.points))
        in_frontier = set(self.frontier)
        points: list[dict[str, Any]] = []
        for point in self.points:
            changes = compared(point, self.reference)
            same = point == self.reference
            than = (
                "the reference"
                if same
                else (
                    f"{compared_in_words(point, self.reference)} than {self.label(self.reference)}"
                )
            )
            points.append(
                {
                    "time": point.time,
                    "energy": point.energy,
                    "timeUncertainty": point.time_uncertainty or 0.0,
                    "energyUncertainty": point.energy_uncertainty or 0.0,
                    "candidate": point in in_frontier,
                    "order": self.order[point],
                    "label": self.label(point, longest=200),
                    "compared": than,
                    "details": [
                        f"{time.text(point.time, point.time_uncertainty)} ({changes[0]})",
                        f"{energy.text(point.energy, point.energy_uncertainty)} ({changes[1]})",
                        f"{point.average_power:.4g} W on average",
                        *(
                            f"chosen by {name}" if name else "chosen"
                            for name, selection in self.choices.items()
                            if selection.point == point
                        ),
                    ],
                }
            )
        content = {
            "points": points,
            "maxPower": self.max_power,
            "energyUnit": {"name": energy.name, "size": energy.size},
        }
        # "<" would let a name close the element that contains the data.
        return json.dumps(content, allow_nan=False).replace("<", "\\u003c")


def _table(
    name: str, columns: Iterable[tuple[str, str]], body: Iterable[tuple[str, Sequence[str]]]
) -> str:
    """Return a table.

    Args:
        name: Its `id`.
        columns: Class and title of each column; the first has the row headers.
        body: Attributes and cells (HTML) of each row.
    """
    columns = list(columns)
    head = "".join(
        f'<th scope="col" class="{kind}">{safe(title).replace("Δ ", "Δ&nbsp;")}</th>'
        for kind, title in columns
    )
    lines = []
    for attributes, (first, *others) in body:
        cells = "".join(
            f'<td class="{kind}">{cell}</td>'
            for (kind, _), cell in zip(columns[1:], others, strict=True)
        )
        lines.append(f'<tr {attributes}><th scope="row">{first}</th>{cells}</tr>\n')
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table of {name}">\n'
        f'<table id="{name}"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{''.join(lines)}</tbody></table></div>"
    )


def _cell(text: str) -> str:
    """Return a value, with its uncertainty in an element that phones hide."""
    value, sign, uncertainty = safe(text).partition(" ± ")
    return f'{value}<span class="off">{sign}{uncertainty}</span>' if sign else value


def _max_power(frontier: Frontier) -> tuple[float | None, str]:
    """Return the watts of all GPUs, or why there is no cost."""
    try:
        return ZeusCost(0.5).max_power(frontier), ""
    except FrontierError as error:
        return None, str(error)


def _part(name: str) -> str:
    return resource("zeus.drawing.frontier", "page_parts", name)
