"""Charts on the page of one job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from zeus.drawing._axes import Axis, Steps, axes
from zeus.drawing._shapes import Anchor, Frame, Kind, Mark, Path, Picture, Shape, Spot, Text
from zeus.drawing._units import Unit, energy_unit, time_unit
from zeus.optimizer._stopping import Outcome, word_of
from zeus.optimizer.batch_size.policies._base import ArmStatus
from zeus.optimizer.batch_size.policies._job_state import Expected
from zeus.optimizer.batch_size.storage._account import Comparison, CoursePoint, Currency
from zeus.optimizer.batch_size.storage._history import Span
from zeus.optimizer.batch_size.storage._overview import Overview
from zeus.server.pages._outcomes import kind_of
from zeus.server.pages._units import joules, seconds

_PLAIN = Unit("", 1.0)
_ROW = 22.0  # pixels per batch size
_REACH = 3.0  # times the lowest expected cost: higher values are clipped to the upper edge
CROWD = 32  # more batch sizes than this are drawn as curves
_LARGEST, _SMALLEST = 5.5, 2.4  # radius of a mark

#: Styles of lines, in charts and legends.
EXPECTED = Path((), "other", 1.4)
SPENT = Path((), "line", 2.4)
SPENT_BY_DEFAULT = Path((), "chosen", 2.4, dashed=True)


def _recurrences(frame: Frame, last: int) -> Axis:
    return Axis(_PLAIN, 0.0, max(last, 4) + 0.7, frame.plot.left, frame.plot.right, whole=True)


# --- the batch size of each recurrence ------------------------------------------------------------


def choices(overview: Overview, frame: Frame) -> Picture:
    """Draw the chosen batch sizes and their outcomes, as in figure 4 of the paper."""
    sizes = overview.spec.batch_sizes
    room = frame.height - frame.top - frame.bottom
    frame = replace(frame, height=frame.height + min(max(0.0, len(sizes) * _ROW - room), 260.0))
    plot = frame.plot
    most = int((plot.bottom - plot.top) / 16)
    frame = replace(frame, ticks=(frame.ticks[0], most))
    x = _recurrences(frame, overview.info.recurrences)
    y = Steps([str(size) for size in sizes], plot.bottom, plot.top)
    name = (
        f"Batch sizes of {overview.info.recurrences} recurrences, from {sizes[0]} to {sizes[-1]}; "
        "the table of trials has the same data"
    )
    shapes = (
        *axes(frame, x, y, "recurrence", "batch size"),
        *_default_row(frame, y, overview),
        *_choice_marks(overview, x, y),
    )
    return Picture(name, frame.width, frame.height, shapes)


def _default_row(frame: Frame, y: Steps, overview: Overview) -> Iterator[Shape]:
    plot, place = frame.plot, y.place(overview.spec.default_index)
    yield Path(((plot.left, place), (plot.right, place)), "axis", 1.2, dashed=True)
    yield Text(plot.right - 2, place - 6, "default", 11.0, "muted", "end")


def _choice_marks(overview: Overview, x: Axis, y: Steps) -> Iterator[Shape]:
    rows = {size: y.place(i) for i, size in enumerate(overview.spec.batch_sizes)}
    width = overview.width
    whole: dict[int, int] = {}
    for span in overview.spans:
        whole[span.first] = whole.get(span.first, 0) + span.trials
    middle = (width - 1) / 2
    if width == 1:
        path = [
            (x.place(span.first), rows[span.batch_size])
            for span in overview.spans
            if span.state == Outcome.CONVERGED
        ]
        if len(path) > 1:
            yield Path(tuple(path), "axis", 1.0)
    gap = (x.end - x.start) / max(len(whole), 1)
    largest = min(_LARGEST, max(_SMALLEST, 0.42 * gap))
    for span in sorted(overview.spans, key=lambda span: span.state != Outcome.CONVERGED):
        share = span.trials / whole[span.first] if width > 1 else 1.0
        # Failures are rare and important, so their marks stay large.
        least = 2.0 if span.state == Outcome.CONVERGED else 3.4
        radius = max(least, largest * math.sqrt(share))
        at = x.place(span.first + middle), rows[span.batch_size]
        yield Mark(*at, radius, kind_of(span.state), _said(span, width))


def _said(span: Span, width: int) -> str:
    word = word_of(span.state)
    if width == 1 and span.trials == 1:
        where = f"recurrence {span.first}: batch size {span.batch_size}, {word}"
        return f"{where}, cost {joules(span.cost)}, {span.gpu}"
    last = span.first + width - 1
    where = f"recurrence {span.first}" if width == 1 else f"recurrences {span.first} to {last}"
    mean = joules(span.cost / span.trials)
    return f"{where}: batch size {span.batch_size}, {span.trials} {word}, {mean} each, {span.gpu}"


# --- what each batch size costs -------------------------------------------------------------------


def beliefs(overview: Overview, frame: Frame) -> Picture:
    """Draw measured and expected costs at each batch size."""
    known = [each for each in overview.beliefs if each.cost is not None]
    seen = [cost for _, cost in overview.costs]
    least = min([each.cost for each in known if each.cost] + seen, default=1.0)
    highs = [each.high or each.cost or 0.0 for each in known if each.standing == ArmStatus.PROVEN]
    means = [each.cost or 0.0 for each in known]
    top = min(max([*highs, *means, *seen], default=1.0), _REACH * least) * 1.06 or 1.0
    unit = energy_unit(top)
    plot = frame.plot
    x = Steps([str(size) for size in overview.spec.batch_sizes], plot.left, plot.right)
    y = Axis(unit, 0.0, top / unit.size, plot.bottom, plot.top)
    frame = replace(frame, ticks=(int((plot.right - plot.left) / 44), frame.ticks[1]))
    name = (
        "Measured and expected cost of reaching the target at each batch size; "
        "the table below has the same data"
    )
    shapes: list[Shape] = [*axes(frame, x, y, "batch size", f"cost of a run ({unit.name})")]
    crowded = len(overview.beliefs) > CROWD
    if crowded:
        shapes += _curves(overview, x, y)
    shapes += _runs(overview, x, y)
    for index, each in enumerate(overview.beliefs):
        if not crowded or _belief_kind(overview, each) not in ("other", "unknown"):
            shapes += _belief(overview, each, x.place(index), y)
    return Picture(name, frame.width, frame.height, tuple(shapes))


def _curves(overview: Overview, x: Steps, y: Axis) -> Iterator[Shape]:
    """Draw expected costs and their intervals as lines, for many batch sizes."""
    for pick in ("cost", "low", "high"):
        corners = [
            (x.place(index), y.place(value))
            for index, each in enumerate(overview.beliefs)
            if (value := getattr(each, pick)) is not None
        ]
        if pick == "cost":
            for each, corner in zip(
                (each for each in overview.beliefs if each.cost is not None), corners, strict=True
            ):
                yield Spot(*corner, f"batch size {each.batch_size}: {standing_words(each)}")
        if len(corners) > 1:
            yield replace(EXPECTED, corners=tuple(corners), dashed=pick != "cost")


def _runs(overview: Overview, x: Steps, y: Axis) -> Iterator[Shape]:
    """Draw each run as a dot, offset sideways so that dots do not overlap."""
    index = {size: i for i, size in enumerate(overview.spec.batch_sizes)}
    room = min(0.3 * abs(x.place(1) - x.place(0)), 16.0)
    numbers: dict[int, int] = {}
    for size, cost in overview.costs:
        number = numbers[size] = numbers.get(size, -1) + 1
        # The golden ratio spreads any number of them evenly.
        aside = room * (2 * ((number * 0.618034 + 0.25) % 1.0) - 1)
        said = f"batch size {size}: a run that cost {joules(cost)}"
        yield Mark(x.place(index[size]) + aside, y.place(cost), 1.7, "other", said, plain=True)


def belief_kinds(overview: Overview) -> set[Kind | Literal["unknown"]]:
    """Return the kinds of marks in the chart, for its legend."""
    return {_belief_kind(overview, each) for each in overview.beliefs}


def _belief_kind(overview: Overview, each: Expected) -> Kind | Literal["unknown"]:
    if each.standing in (ArmStatus.PRUNED, ArmStatus.MISSED, ArmStatus.UNFIT):
        return "failed"
    if each.cost is None:
        return "unknown"
    if overview.next is not None and overview.next.batch_size == each.batch_size:
        return "chosen"
    return "best" if each.standing == ArmStatus.PROVEN else "other"


def _belief(overview: Overview, each: Expected, x: float, y: Axis) -> Iterator[Shape]:
    said = f"batch size {each.batch_size}: {standing_words(each)}"
    kind = _belief_kind(overview, each)
    if kind == "unknown":
        yield Text(x, y.start - 8, "?", 13.0, "muted", "middle")
        return
    if kind == "failed" or each.cost is None:
        yield Mark(x, y.start - 12, 5.0, "failed", said)
        return
    color = {"chosen": "chosen", "best": "line"}.get(kind, "other")
    if each.low is not None and each.high is not None:
        ends = (x, y.place(each.low)), (x, y.place(each.high))
        yield Path(ends, color, 2.2, dashed=each.standing != ArmStatus.PROVEN)
        for value, (_, end) in zip((each.low, each.high), ends, strict=True):
            if value / y.unit.size <= y.high:  # else it extends beyond the edge
                yield Path(((x - 5, end), (x + 5, end)), color, 1.6)
    yield Mark(x, y.place(each.cost), 4.5, kind, said)
    if each.cost / y.unit.size > y.high:
        yield Text(x, y.end + 20, "↑", 13.0, "muted", "middle")


_STANDINGS = {
    ArmStatus.UNKNOWN: "not tried yet",
    ArmStatus.EXPECTED: "not tried yet",
    ArmStatus.PROVEN: "converges",
    ArmStatus.MISSED: "not converged",
    ArmStatus.PRUNED: "pruned",
    ArmStatus.UNFIT: "fails to run",
}


def standing_words(each: Expected) -> str:
    """Describe the state of a batch size, with its expected cost."""
    words = _STANDINGS[each.standing]
    if each.cost is None:
        return words
    words += f", {joules(each.cost)} expected"
    if each.low is not None and each.high is not None:
        words += f" ({joules(each.low, 3)} to {joules(each.high, 3)})"
    return words


def standing_label(standing: ArmStatus) -> str:
    """Describe the state of a batch size, without numbers."""
    return _STANDINGS[standing]


# --- what was spent -------------------------------------------------------------------------------


def spending(
    points: Sequence[CoursePoint],
    currency: Currency,
    last: int,
    *,
    width: int,
    even: int | None,
    frame: Frame,
) -> Picture:
    """Draw what was spent so far, compared with always running the default.

    Args:
        points: From `account.course`.
        currency: What is drawn.
        last: The last recurrence.
        width: Recurrences per segment.
        even: The break-even recurrence, if there is one.
        frame: Size of the chart.
    """
    plot = frame.plot
    x = _recurrences(frame, last)
    found: list[Comparison] = [getattr(point, currency) for point in points]
    most = max([value for each in found for value in (each.spent, each.default or 0.0)], default=0)
    unit = time_unit(most or 1.0) if currency == "time" else energy_unit(most or 1.0)
    y = Axis(unit, 0.0, (most or 1.0) / unit.size * 1.06, plot.bottom, plot.top)
    shapes: list[Shape] = [*axes(frame, x, y, "recurrence", f"{currency} so far ({unit.name})")]
    if even is not None and even > 1:
        at = x.place(even)
        shapes.append(Path(((at, plot.top), (at, plot.bottom)), "axis", 1.2, dashed=True))
        side: Anchor = "end" if at > plot.middle else "start"
        shift = -5 if side == "end" else 5
        shapes.append(Text(at + shift, plot.bottom - 8, "break-even", 11.0, "muted", side))
    start = x.place(0), y.place(0)
    ends = [x.place(min(point.first + width - 1, last)) for point in points]
    defaults = [
        (end, y.place(each.default))
        for end, each in zip(ends, found, strict=True)
        if each.default is not None
    ]
    spent = [(end, y.place(each.spent)) for end, each in zip(ends, found, strict=True)]
    if defaults:
        shapes.append(replace(SPENT_BY_DEFAULT, corners=(start, *defaults)))
    if spent:
        shapes.append(replace(SPENT, corners=(start, *spent)))
    for point, end, (_, at), each in zip(points, ends, spent, found, strict=True):
        where = f"recurrence {min(point.first + width - 1, last)}"
        said = f"{where}: {_quantity(each.spent, currency)} so far"
        if each.default is not None:
            said += f", {_quantity(each.default, currency)} with the default"
        shapes.append(Spot(end, at, said))
    name = f"{currency.title()} so far, compared with the default; the table has the same data"
    return Picture(name, frame.width, frame.height, tuple(shapes))


def _quantity(value: float, currency: Currency) -> str:
    return seconds(value) if currency == "time" else joules(value)
