"""A frontier as an interactive page: one HTML file without network and without any library.

A slider over the paper's eta moves the point that `ZeusCost` chooses. The plot is laid out twice,
for wide windows and for phones, by the same code as the other plots; the page shows one of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zeus.drawing._colors import VARIABLES
from zeus.drawing._looks import RING
from zeus.drawing._markup import Content, Markup, escaped, join, tag, trusted
from zeus.drawing._pages import document, note, resource
from zeus.drawing._shapes import Frame, Mark, Shape, Text
from zeus.drawing._svg import element, text_element, view_box
from zeus.drawing._table import Column, table
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


@dataclass
class Page:
    """The page of a frontier; `Frontier.to_html` documents the attributes."""

    frontier: Frontier
    choices: Mapping[str, Selection]
    title: str
    reference: Point
    eta_knob: float

    def __post_init__(self) -> None:
        frontier, choices = self.frontier, self.choices
        self.title = self.title or frontier.work or "Time and energy"
        self.eta_knob = number("eta_knob", self.eta_knob, least=0, most=1)
        self.max_power, self.why_not = _max_power(frontier)
        self.other = "" if self.max_power is None else "other"  # than the slider's objective
        # By time, as in the table and for the arrow keys; with points that only a choice has.
        points = dict.fromkeys((*frontier, *(choice.point for choice in choices.values())))
        self.order = {point: index for index, point in enumerate(points)}
        self.points = by_time(points)
        self.index = {point: index for index, point in enumerate(self.points)}

    def html(self) -> str:
        """Return the page as one HTML file."""
        wide, narrow = self.picture(_WIDE), self.picture(_NARROW)
        summary = f"{count(self.frontier)}. Changes are against {self.label(self.reference)}."
        parts = {
            "title": escaped(self.title),
            "summary": escaped(summary),
            "slider": self.slider(),
            "explanation": self.explanation(),
            "charts": join(self.chart(wide, "wide"), self.chart(narrow, "narrow"), between="\n"),
            "legend": self.legend(wide.outside),
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
            return note(f"There is no slider over η: {self.why_not}.")
        return _part("slider.html").format(eta=f"{self.eta_knob:g}")

    def explanation(self) -> str:
        if self.max_power is None:
            return ""
        watts = f"{self.max_power:.6g} W"
        return note(
            f"The slider chooses the minimum cost η · energy + (1 − η) · {watts} · time, where "
            f"{watts} is the maximum power of all GPUs. Costs that differ by no more than their "
            "uncertainty and 0.1 % tie; then the faster is chosen."
        )

    def picture(self, frame: Frame) -> Plot:
        return lay_out(
            self.frontier,
            reasons(self.choices),
            self.title,
            reference=self.reference,
            frame=frame,
            interactive=True,
        )

    def chart(self, picture: Plot, name: str) -> Markup:
        return tag(
            "svg",
            join("", *map(self.shape, picture.shapes), "", between="\n"),
            class_=name,
            viewBox=view_box(picture),
            role="group",
            aria_label=f"{picture.name}; arrow keys go from point to point",
        )

    def shape(self, shape: Shape) -> Markup:
        if isinstance(shape, Mark) and isinstance(shape.about, Point):
            return self.mark(shape, shape.about)
        if isinstance(shape, Text) and isinstance(shape.about, Point):
            data = f' class="label" data-point="{self.index[shape.about]}"'
            return trusted(text_element(shape, VARIABLES, data))
        return trusted(element(shape, VARIABLES))

    def mark(self, mark: Mark, point: Point) -> Markup:
        kinds: list[str] = ["other" if mark.kind == "chosen" else mark.kind]
        kinds += ["picked"] * any(choice.point == point for choice in self.choices.values())
        kinds += ["plain"] * mark.plain
        place = {"cx": f"{mark.x:.1f}", "cy": f"{mark.y:.1f}"}
        return tag(
            "g",
            tag("circle", class_="ring", **place, r=f"{max(mark.radius, 3.5) + RING:g}"),
            tag("circle", class_="dot", **place, r=f"{mark.radius:g}"),
            class_=" ".join(["mark", *kinds]),
            data_point=self.index[point],
            tabindex=-1,
            role="img",
            aria_label=mark.tooltip,
        )

    def legend(self, outside: int) -> Markup:
        best = len(self.frontier.pareto())
        beaten = len(self.frontier) - best
        entries = [("best", f"on the frontier ({best})")]
        if beaten:
            entries.append(("other", beaten_text(beaten - outside, outside)))
        if self.max_power is not None:
            entries.append(("best chosen", "chosen by the slider"))
        if self.choices:
            entries.append(("best picked", f"chosen by an{self.other} objective"))

        def sample(kind: str) -> Markup:
            circles = tag("circle", class_="ring", r=8.5), tag("circle", class_="dot", r=4.5)
            mark = tag("g", *circles, class_=f"mark {kind}")
            return tag("svg", mark, viewBox="-10 -10 20 20", aria_hidden="true")

        return join(*(tag("li", sample(kind), text) for kind, text in entries), between="\n")

    def objectives(self) -> Markup:
        if not self.choices:
            return join()

        def objective(named: tuple[str, Selection]) -> Markup:
            name, selection = named
            words = (name or "chosen") + ("" if selection.feasible else " (not kept)")
            parts = re.split("(?<=[a-z])(?=[A-Z])", words)  # phones may break them
            why = note(selection.note) if selection.note else None
            return join(join(*parts, between=tag("wbr")), why)

        def change(which: int) -> Callable[[tuple[str, Selection]], str]:
            return lambda named: compared(named[1].point, self.reference)[which]

        columns: Sequence[Column[tuple[str, Selection]]] = (
            Column("objective", objective),
            Column("choice", lambda named: self.label(named[1].point), "choice", number=True),
            Column("time", change(0), number=True),
            Column("energy", change(1), number=True),
        )
        title = f"Choices of {self.other} objectives".replace("  ", " ")
        listed = table(
            "Table of objectives",
            columns,
            self.choices.items(),
            attributes=lambda named: {"data_point": self.index[named[1].point]},
        )
        return join(tag("h2", title), tag("div", listed, id="objectives"), between="\n")

    def table_of_points(self) -> Markup:
        best = set(self.frontier.pareto())
        listed = table(
            "Table of points",
            [
                replace(each, title=each.title.replace("Δ ", "Δ\u00a0"), cell=_with_off(each.cell))
                for each in columns_of(self.frontier, self.reference)
                if each.name != "best"
            ],
            by_time(self.frontier),
            kind=lambda point: "best" if point in best else "beaten",
            attributes=lambda point: {"data_point": self.index[point]},
        )
        inner, number = tag("div", listed, id="points"), len(self.frontier)
        if number <= _MANY:
            return join(tag("h2", "All points"), inner, between="\n")
        return tag("details", tag("summary", f"All {number} points"), inner)

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


def _with_off(cell: Callable[[Point], Content]) -> Callable[[Point], Content]:
    """Return the same for a cell with its uncertainty in an element that phones hide."""

    def split(point: Point) -> Content:
        value, sign, uncertainty = str(cell(point)).partition(" ± ")
        return join(value, tag("span", sign, uncertainty, class_="off") if sign else None)

    return split


def _max_power(frontier: Frontier) -> tuple[float | None, str]:
    """Return the watts of all GPUs, or why there is no cost."""
    try:
        return ZeusCost(0.5).max_power(frontier), ""
    except FrontierError as error:
        return None, str(error)


def _part(name: str) -> str:
    return resource("zeus.drawing.frontier", "page_parts", name)
