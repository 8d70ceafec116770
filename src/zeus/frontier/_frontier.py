"""Points of one fixed amount of work, and operations on them."""

from __future__ import annotations

import json
import os
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import islice
from typing import Any, NoReturn

from zeus.errors import FrontierError
from zeus.frontier import _record as record
from zeus.frontier._interpolation import along, real_knob
from zeus.frontier._point import Point, combined_uncertainty, freeze, merge, number
from zeus.frontier._selection import Chosen


@dataclass(frozen=True, init=False)
class Frontier:
    """Time and energy of a fixed amount of work at each setting of a knob. Immutable.

    The points stay in the order given; that order breaks ties, and for `Objective.settled` it is
    the order of the sweep. The same knob may occur more than once until `combine` is called.

    Attributes:
        points: At least one point.
        work: Work of each point, for example "one epoch of imagenet/resnet50, batch 256".
        knob_name: Name of the knob in tables and plots.
        knob_unit: Its unit there, for example "W".
        max_power: Highest power limit in watts, of all GPUs whose energy is in the points
            together; `None` if not stated this way.
        max_power_per_gpu: Highest power limit of each of the GPUs, in watts. Give this or
            `max_power`, not both; `ZeusCost` says how they are used.
    """

    points: tuple[Point, ...]
    work: str
    knob_name: str
    knob_unit: str
    max_power: float | None
    max_power_per_gpu: float | None

    def __init__(
        self,
        points: Iterable[Point],
        work: str = "",
        *,
        knob_name: str = "knob",
        knob_unit: str = "",
        max_power: float | None = None,
        max_power_per_gpu: float | None = None,
    ) -> None:
        """Make a frontier of the given points.

        Raises:
            FrontierError: If there is no point, or a value breaks a rule.
        """
        given = tuple(points)
        for index, point in enumerate(given):
            if not isinstance(point, Point):
                raise FrontierError(f"points[{index}] must be a Point, but got {point!r}")
        if not given:
            raise FrontierError("a frontier has at least one point, but got none")
        texts = {"work": work, "knob_name": knob_name, "knob_unit": knob_unit}
        for name, text in texts.items():
            if not isinstance(text, str):
                raise FrontierError(f"`{name}` must be a string, but got {name}={text!r}")
        if max_power is not None and max_power_per_gpu is not None:
            raise FrontierError(
                "`max_power` (of all GPUs together) and `max_power_per_gpu` exclude each other, "
                f"but got max_power={max_power!r} and max_power_per_gpu={max_power_per_gpu!r}"
            )
        powers = {"max_power": max_power, "max_power_per_gpu": max_power_per_gpu}
        for name, watts in powers.items():
            if watts is not None:
                powers[name] = number(name, watts, above=0)
        for name, value in {"points": given, **texts, **powers}.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[Point]:
        return iter(self.points)

    def with_points(self, points: Iterable[Point]) -> Frontier:
        """Return a frontier of other points of the same work."""
        return replace(self, points=tuple(points))

    def scaled(self, factor: float, work: str = "") -> Frontier:
        """Return the frontier of `factor` times the work, such as a training from one epoch.

        Args:
            factor: More than 0.
            work: Description of the new work; by default the old one with the factor.
        """
        return replace(
            self,
            points=tuple(point.scaled(factor) for point in self.points),
            work=work or f"{factor:g} x {self.work or 'the work'}",
        )

    # --- selections of points ---------------------------------------------------------------

    @property
    def fastest(self) -> Point:
        """The point of minimum time; of those the one of minimum energy, then the first given."""
        return min(self.points, key=_by_time)

    @property
    def least_energy(self) -> Point:
        """The point of minimum energy; of those the fastest, then the first given."""
        return min(self.points, key=_by_energy)

    def pareto(self, *, noise_aware: bool = False) -> Frontier:
        """Return the points that no other point dominates, by rising time.

        A point is dominated by another that takes neither more time nor more energy, and less of
        at least one. Of points with exactly the same time and energy the first given stays.

        Args:
            noise_aware: Drop a dominated point only if that is significant: the other is better in
                time, or in energy, by more than the uncertainty of the difference (root of the
                sum of squares of both uncertainties; an unknown one counts as 0). Then all points
                of the plain frontier stay, and so do points that may belong to it, so energy need
                not fall from one point to the next.
        """
        distinct = {(point.time, point.energy): point for point in reversed(self.points)}
        ordered = sorted(distinct.values(), key=_by_time)
        kept: list[Point] = []
        if noise_aware:
            # Only points of less energy can dominate, and that of minimum energy does most often.
            faster: list[Point] = []
            for point in ordered:
                rivals = islice(faster, bisect_right(faster, point.energy, key=_energy_of))
                if not any(_surely_beats(other, point) for other in rivals):
                    kept.append(point)
                insort(faster, point, key=_energy_of)
        else:
            for point in ordered:
                if not kept or point.energy < kept[-1].energy:
                    kept.append(point)
        return self.with_points(kept)

    def hull(self) -> Frontier:
        """Return the corners of the lower convex hull, from `fastest` to `least_energy`.

        Alternating between two settings gives any point between their corners, and `ZeusCost`
        always picks a corner, whatever its `eta_knob` is.
        """
        corners: list[Point] = []
        for point in self.pareto():
            while len(corners) > 1 and not _turns_up(corners[-2], corners[-1], point):
                corners.pop()
            corners.append(point)
        return self.with_points(corners)

    # --- lookup -----------------------------------------------------------------------------

    def at(self, knob: Any) -> Point:
        """Return the first point with this knob.

        Raises:
            FrontierError: If there is none.
        """
        wanted = freeze(knob)
        for point in self.points:
            if point.knob == wanted:
                return point
        known = ", ".join(repr(point.knob) for point in self.points)
        raise FrontierError(f"no point has knob={knob!r}; there are {known}")

    def at_time(self, time: float) -> Point:
        """Return the point of minimum energy that takes at most `time` seconds.

        Raises:
            FrontierError: If every point takes longer.
        """
        time = number("time", time)
        in_time = [point for point in self.points if point.time <= time]
        return min(in_time, key=_by_energy) if in_time else _refuse(f"{time:g} s", self.fastest)

    def at_energy(self, energy: float) -> Point:
        """Return the fastest point that takes at most `energy` joules.

        Raises:
            FrontierError: If every point takes more.
        """
        energy = number("energy", energy)
        within = [point for point in self.points if point.energy <= energy]
        return min(within, key=_by_time) if within else _refuse(f"{energy:g} J", self.least_energy)

    def interpolate(self, *, time: float | None = None, energy: float | None = None) -> Point:
        """Return the point on the line through the Pareto points at this time, or at this energy.

        Between two points everything, the knob included, is interpolated linearly; an exact match
        is returned itself. An interpolated point has `repeats=0`, and its uncertainty is that of
        its neighbors, without the error of the linear interpolation.

        Raises:
            FrontierError: Outside the frontier's range; if a neighbor's knob is not a real
                number; or unless exactly one of `time` and `energy` is given.
        """
        if (time is None) == (energy is None):
            raise FrontierError(
                "exactly one of `time` and `energy` must be given, "
                f"but got time={time!r}, energy={energy!r}"
            )
        points = self.pareto().points
        if time is not None:
            return along(points, "time", number("time", time))
        return along(points, "energy", number("energy", energy))

    def between(self, knob: float) -> Point:
        """Return the point at a setting between measured ones, by linear interpolation.

        Points with the same knob are combined first; otherwise as `interpolate`.

        Raises:
            FrontierError: If a knob is not a real number, or this one is outside their range.
        """
        wanted = number("knob", knob)
        return along(sorted(self.combine(), key=real_knob), "knob", wanted)

    def slowdown(self, point: Point, reference: Point | None = None) -> float:
        """Return a point's time divided by the reference's (by default the fastest's)."""
        return point.slowdown(reference or self.fastest)

    def savings(self, point: Point, reference: Point | None = None) -> float:
        """Return a point's share of energy saved from the reference (by default the fastest)."""
        return point.savings(reference or self.fastest)

    # --- combining --------------------------------------------------------------------------

    def combine(self, points: Iterable[Point] = ()) -> Frontier:
        """Return each knob once: these points and the given ones, averaged per knob.

        Time and energy, separately:

        - All uncertainties known: mean weighted by the inverse squares of the uncertainties. Its
          uncertainty follows from theirs, and is widened if the values lie further apart than
          they allow. One of uncertainty 0 outweighs all that have more.
        - Else: plain mean over all repeats, with the uncertainty from the spread of the values
          (95 % of Student's t); unknown for equal values.

        Repeats add up, percentiles are averaged over the points that state them, and interpolated
        points (`repeats=0`) give way to measured ones. Knobs stay in order of first appearance.
        """
        groups: dict[Any, list[Point]] = {}
        for point in (*self.points, *points):
            groups.setdefault(point.knob, []).append(point)
        return self.with_points(merge(group) for group in groups.values())

    def merged(self, other: Frontier) -> Frontier:
        """Return both frontiers as one, with the points of the same knob combined.

        Attributes that one does not state (`work`, `max_power`, ...) are taken from the other.

        Raises:
            FrontierError: If they contradict each other, for example are of different work.
        """
        powers = (self.max_power, self.max_power_per_gpu)
        others = (other.max_power, other.max_power_per_gpu)
        if any(powers) and any(others) and powers != others:
            raise FrontierError(
                "frontiers to be merged must have the same maximum power, but got "
                f"(max_power, max_power_per_gpu)={powers!r} and {others!r}"
            )
        together, per_gpu = powers if any(powers) else others
        return Frontier(
            (*self.points, *other.points),
            _agreed("work", self.work, other.work),
            knob_name=_agreed("knob_name", self.knob_name, other.knob_name, "knob"),
            knob_unit=_agreed("knob_unit", self.knob_unit, other.knob_unit),
            max_power=together,
            max_power_per_gpu=per_gpu,
        ).combine()

    # --- JSON -------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the frontier as a JSON object.

        Raises:
            FrontierError: If a knob cannot be represented in JSON; names the point.
        """
        header = {name: getattr(self, name) for name in record.HEADER}
        return record.to_dict(self.points, header)

    def to_json(self, indent: int | None = None) -> str:
        """Return the frontier as JSON text.

        Args:
            indent: Spaces of indentation; `None` for one line.
        """
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Frontier:
        """The inverse of `to_dict`.

        Args:
            content: As returned by `to_dict`.

        Raises:
            FrontierError: If it is not a frontier's record; names the point at fault.
        """
        return cls(**record.arguments(content))

    @classmethod
    def from_json(cls, text: str | bytes) -> Frontier:
        """The inverse of `to_json`.

        Args:
            text: As returned by `to_json`.

        Raises:
            FrontierError: If it is not JSON, or not a frontier's; names the point at fault.
        """
        return cls(**record.arguments(record.parse(text)))

    # --- showing ----------------------------------------------------------------------------

    def to_svg(
        self, *, chosen: Chosen = None, title: str = "", reference: Point | None = None
    ) -> str:
        """Return a plot of energy over time as a complete SVG document.

        Args:
            chosen: Highlighted as the choice: a point, a selection, or several of them by name
                of the objective.
            title: Replaces the name of the work.
            reference: Point to compare a single choice with; by default the fastest.
        """
        content: bytes = _drawing().rendered(
            self, ".svg", chosen=chosen, title=title, reference=reference
        )
        return content.decode()

    def to_html(
        self,
        *,
        chosen: Chosen = None,
        title: str = "",
        reference: Point | None = None,
        eta_knob: float = 0.5,
    ) -> str:
        """Return the plot as one HTML page, with a slider over the `eta_knob` of `ZeusCost`.

        It needs no network and no library. Without a stated maximum power that cost is undefined,
        so there is no slider.

        Args:
            chosen: Shown beside the slider's choice, as in `to_svg`.
            title: Replaces the name of the work.
            reference: Point to compare with; by default the fastest.
            eta_knob: Initial value of the slider.

        Raises:
            FrontierError: If `eta_knob` is out of range.
        """
        content: bytes = _drawing().rendered(
            self, ".html", chosen=chosen, title=title, reference=reference, eta_knob=eta_knob
        )
        return content.decode()

    def plot(
        self,
        path: str | os.PathLike[str],
        *,
        chosen: Chosen = None,
        title: str = "",
        reference: Point | None = None,
    ) -> None:
        """Write a plot to a file, of the type that its name ends in.

        ".svg" (as `to_svg`) and ".html" (as `to_html`) need nothing but Zeus; ".png" needs the
        extra `plot`.

        Args:
            path: File to write.
            chosen: As in `to_svg`.
            title: As in `to_svg`.
            reference: As in `to_svg`.

        Raises:
            PictureError: If the file's name ends in anything else.
            MissingExtraError: If matplotlib is needed and not installed.
        """
        _drawing().save(self, path, chosen=chosen, title=title, reference=reference)

    def _repr_svg_(self) -> str:
        """Return the plot as SVG, for notebooks."""
        return self.to_svg()

    def __str__(self) -> str:
        table: str = _drawing().text_table(self)
        return table

    def __rich__(self) -> Any:
        """Return a table for `rich`; only called by it."""
        return _drawing().rich_table(self)


def _drawing() -> Any:
    """Return the package that draws frontiers.

    By name, and when it is needed: it lies above this package and imports it. Here are the only
    methods that know of it, for the convenience of users.
    """
    return import_module("zeus.drawing.frontier")


def _by_time(point: Point) -> tuple[float, float]:
    return point.time, point.energy


def _energy_of(point: Point) -> float:
    return point.energy


def _by_energy(point: Point) -> tuple[float, float]:
    return point.energy, point.time


def _surely_beats(other: Point, point: Point) -> bool:
    """Whether another, not slower point takes no more energy and is better beyond the noise."""
    if other.energy > point.energy:
        return False
    sooner = point.time - other.time
    less = point.energy - other.energy
    return sooner > combined_uncertainty(
        point.time_uncertainty, other.time_uncertainty
    ) or less > combined_uncertainty(point.energy_uncertainty, other.energy_uncertainty)


def _turns_up(first: Point, second: Point, third: Point) -> bool:
    """Whether the second lies below the line from the first to the third."""
    return (second.time - first.time) * (third.energy - first.energy) > (
        second.energy - first.energy
    ) * (third.time - first.time)


def _refuse(limit: str, best: Point) -> NoReturn:
    raise FrontierError(
        f"no point takes {limit} or less; the best, knob={best.knob!r}, takes {best.time:g} s and "
        f"{best.energy:g} J"
    )


def _agreed(name: str, mine: str, other: str, unsaid: str = "") -> str:
    stated = [text for text in dict.fromkeys((mine, other)) if text not in ("", unsaid)]
    if len(stated) > 1:
        raise FrontierError(
            f"frontiers to be merged must have the same `{name}`, but got {mine!r} and {other!r}"
        )
    return stated[0] if stated else mine
