"""What a service did over time, in charts: its setting, latencies, energy, load and savings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from zeus.drawing._captions import Sample
from zeus.drawing._markup import Content, Markup, tag
from zeus.drawing._shapes import Path
from zeus.drawing._units import Unit, time_unit
from zeus.optimizer.serving._bounds import Bound
from zeus.optimizer.serving.api._messages import ServiceStart
from zeus.optimizer.serving.api._spans import Span, merged
from zeus.optimizer.serving.storage._summaries import forecast
from zeus.server.pages._layout import columns, section
from zeus.server.pages._line_chart import PLAIN
from zeus.server.pages._plotting import HALF, figure
from zeus.server.pages._service_words import joules_each, latency, unit_of
from zeus.server.pages._time_chart import CHANGE, LIMIT, Series, TimeChart
from zeus.server.pages._units import digits, moment, percent, seconds

#: Spans of time that can be shown, by the name in the URL: words and seconds.
RANGES = {
    "10min": ("10 minutes", 600.0),
    "hour": ("An hour", 3600.0),
    "day": ("A day", 86400.0),
    "all": ("All", math.inf),
}
USUAL = "hour"
_POINTS = 150  # in the range, about
_SHORTEST = 5.0  # seconds of a point
_GAP = 30.0  # seconds without a report that are shown as such
_PERCENT = Unit("%", 0.01)

_MAIN, _SECOND, _THIRD = (
    Path((), "line", 1.8),
    Path((), "chosen", 1.8),
    Path((), "other", 1.4),
)


@dataclass(frozen=True)
class ServiceCharts:
    """The charts of a service.

    Attributes:
        spans: What it did, in the order of time.
        start: What its latest run began with.
        began: When its runs began, in seconds since 1970.
        chosen: Name of the span of time to show.
        address: Returns the URL for another one.
    """

    spans: Sequence[Span]
    start: ServiceStart
    began: Sequence[float]
    chosen: str
    address: Callable[[str], str]

    def section(self) -> Markup:
        """Return the section of the page."""
        if not self.spans:
            inner: Content = tag("p", "No interval has been reported yet.", class_="about")
            return section("Over time", inner, name="course")
        points = self._points()
        # A change of the setting is a step; the longer the range, the more a point is a mean.
        found = [
            self._setting(points),
            *(self._latency(points, each.bound()) for each in self.start.bounds),
            self._energy(points),
            self._load(points),
            self._saving(points),
        ]
        drawn = [each for each in found if each is not None]
        about = f"Each point is a mean over {seconds(self._width())} or, of older times, longer."
        chart = columns(*drawn)
        return section("Over time", self._ranges(), chart, name="course", about=about)

    def _ranges(self) -> Markup:
        links = [
            tag(
                "a",
                words,
                href=self.address(name),
                aria_current="true" if name == self.chosen else None,
            )
            for name, (words, _) in RANGES.items()
        ]
        label = "Span of time"
        return tag("nav", *links, class_="pager small", id="ranges", aria_label=label)

    # --- points -------------------------------------------------------------------------------

    @property
    def _last(self) -> float:
        return max(each.end for each in self.spans)

    @property
    def _first(self) -> float:
        earliest = min(each.begin for each in self.spans)
        return max(earliest, self._last - RANGES[self.chosen][1])

    def _width(self) -> float:
        """Return the seconds of a point, a round number."""
        wanted = max((self._last - self._first) / _POINTS, _SHORTEST)
        steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200)
        return float(next((each for each in steps if each >= wanted), wanted))

    def _points(self) -> list[Span]:
        """Return the range in points of the same width, at instants that stay."""
        width, groups = self._width(), dict[int, list[Span]]()
        for each in sorted(self.spans, key=lambda span: span.begin):
            if each.end >= self._first:
                middle = (each.begin + each.end) / 2
                groups.setdefault(math.floor(middle / width), []).append(each)
        return [merged(each) for each in groups.values()]

    def _pieces(self, points: Sequence[Span]) -> Iterator[Sequence[Span]]:
        """Yield points between which there is no gap."""
        gap, piece = max(_GAP, 3 * self._width()), list[Span]()
        for each in points:
            if piece and each.begin - piece[-1].end > gap:
                yield piece
                piece = []
            piece.append(each)
        if piece:
            yield piece

    def _series(
        self,
        points: Sequence[Span],
        value: Callable[[Span], float | None],
        show: Callable[[float], str],
        style: Path,
        *,
        steps: bool = False,
    ) -> list[Series]:
        found = []
        for piece in self._pieces(points):
            line: list[tuple[float, float, str]] = []
            for each in piece:
                at = value(each)
                if at is None:
                    continue
                begin = max(each.begin, self._first)
                said = f"{moment(begin)}: {show(at)}"
                if steps:
                    line += [(begin, at, said), (each.end, at, "")]
                else:
                    line.append(((begin + each.end) / 2, at, said))
            if line:
                found.append(Series(line, style))
        return found

    def _chart(
        self,
        title: str,
        unit: Unit,
        lines: Sequence[tuple[Sequence[Series], str]],
        limit: tuple[float, str] | None = None,
        *,
        zero: bool = False,
    ) -> Markup | None:
        series = [each for found, _ in lines for each in found]
        if not series:
            return None
        changes = [each for each in self.began if self._first < each < self._last]
        span = max(self._last - self._first, 1.0)
        name = f"{title} over time"
        limits = [] if limit is None else [limit[0]]
        chart = TimeChart(name, title, series, unit, self._first, span, changes, limits, zero)
        legend: list[tuple[Sample, str]] = [
            (found[0].style, words) for found, words in lines if found and words
        ]
        if limit is not None:
            legend.append((LIMIT, limit[1]))
        if changes:
            legend.append((CHANGE, "another run begins"))
        return tag("div", tag("h3", title), figure(chart, HALF, legend))

    # --- charts -------------------------------------------------------------------------------

    def _setting(self, points: Sequence[Span]) -> Markup | None:
        unit = unit_of(self.start.knob)

        def show(value: float) -> str:
            return f"{digits(value)} {unit}"

        word = "that would be held" if self.start.observe else "held"
        decode = self._series(points, lambda each: each.decode, show, _MAIN, steps=True)
        lines = [(decode, word)]
        if any(each.prefill != each.decode for each in points):
            prefill = self._series(points, lambda each: each.prefill, show, _SECOND, steps=True)
            lines = [(prefill, "for prompts (prefill)"), (decode, "for tokens (decode)")]
        highest = self.start.highest
        limit = (highest, "highest, without control") if highest else None
        what = "Clock" if self.start.knob == "clock" else "Power limit"
        return self._chart(what, Unit(unit, 1.0), lines, limit)

    def _latency(self, points: Sequence[Span], bound: Bound) -> Markup | None:
        def show(value: float) -> str:
            return latency(value, bound.seconds)

        found = self._series(points, lambda each: each.percentile(bound), show, _MAIN)
        lines = [(found, f"{bound.percent:g} % of requests took at most this long")]
        limit = bound.seconds, f"bound, {latency(bound.seconds, bound.seconds)}"
        return self._chart(bound.name, time_unit(bound.seconds), lines, limit, zero=True)

    def _energy(self, points: Sequence[Span]) -> Markup | None:
        found = self._series(points, lambda each: each.joules_per_token, joules_each, _MAIN)
        lines = [(found, "of all GPUs, prompts and idle time included")]
        return self._chart("Energy per generated token", Unit("J", 1.0), lines, zero=True)

    def _load(self, points: Sequence[Span]) -> Markup | None:
        def show(value: float) -> str:
            return f"{digits(value, 3)} requests"

        lines = [
            (self._series(points, lambda each: each.running, show, _MAIN), "running"),
            (self._series(points, lambda each: each.waiting, show, _SECOND), "waiting"),
        ]
        return self._chart("Requests at once", PLAIN, lines, zero=True)

    def _saving(self, points: Sequence[Span]) -> Markup | None:
        def predicted(each: Span) -> float | None:
            return forecast(each).predicted_saving

        def measured(each: Span) -> float | None:
            return None if self.start.observe else forecast(each).measured_saving

        def show(value: float) -> str:
            return percent(value)

        word = "predicted: nothing is changed" if self.start.observe else "predicted"
        lines = [
            (self._series(points, predicted, show, _THIRD), word),
            (self._series(points, measured, show, _MAIN), "measured"),
        ]
        return self._chart("Energy saved", _PERCENT, lines)
