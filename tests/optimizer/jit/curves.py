"""Jobs as curves of time and energy over power limits, and a training loop that is only numbers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from zeus.device._simulated_models import MODELS
from zeus.frontier import Frontier, Objective, Point
from zeus.optimizer.jit._segment import Segment, SegmentResult
from zeus.optimizer.jit._segment_lengths import SegmentLengths
from zeus.optimizer.jit._setting_sweep import SettingSweep

MODEL_KEYS = tuple(MODELS)


@dataclass(frozen=True)
class Curve:
    """What a step really takes, and the watts of the GPU that draws most, at each setting."""

    points: tuple[Point, ...]
    max_power: float

    def frontier(self, points: Iterable[Point] | None = None) -> Frontier:
        return Frontier(self.points if points is None else points, max_power=self.max_power)

    @property
    def knobs(self) -> tuple[Any, ...]:
        return tuple(point.knob for point in self.points)


def physical(
    model_key: str,
    step_time: float,
    *,
    activity: float = 1.1,
    compute_bound: float = 0.8,
    host_share: float = 0.0,
    stride: float = 25,
) -> Curve:
    """The curve of a job on one of the simulated GPUs, from the highest limit down."""
    model = MODELS[model_key]
    points = []
    rungs = math.floor((model.maximum_limit - model.minimum_limit) / stride)
    for rung in range(rungs + 1):
        limit = model.maximum_limit - rung * stride
        clock = model.relative_clock(activity, limit, model.highest_clock)
        busy = step_time * (1 - host_share) * (compute_bound / clock + 1 - compute_bound)
        waiting = step_time * host_share
        energy = busy * model.busy_power(clock, activity) + waiting * model.static_power
        points.append(Point(limit, busy + waiting, energy))
    return Curve(tuple(points), model.maximum_limit)


@st.composite
def physical_curves(draw: Any, step_times: Sequence[float]) -> Curve:
    return physical(
        draw(st.sampled_from(MODEL_KEYS)),
        draw(st.sampled_from(step_times)),
        activity=draw(st.floats(0.3, 1.5)),
        compute_bound=draw(st.floats(0.0, 1.0)),
        host_share=draw(st.floats(0.0, 0.5)),
        stride=draw(st.sampled_from([15.0, 25.0, 50.0])),
    )


@st.composite
def convex_curves(draw: Any) -> Curve:
    """Any curve that a walk may have: time rises, power falls, energy has one valley."""
    rungs = draw(st.integers(1, 14))
    slower = draw(st.lists(st.floats(0.0, 0.4), min_size=rungs, max_size=rungs))
    limit, time, power = 500.0, draw(st.floats(0.001, 5)), draw(st.floats(100, 480))
    points = [Point(limit, time, power * time)]
    for share in sorted(slower):
        limit -= 25
        time *= 1 + share
        power *= 1 - draw(st.floats(0.0, 0.3))
        points.append(Point(limit, time, power * time))
    return Curve(tuple(points), 500.0)


@dataclass
class Training:
    """Feeds a program with what its segments take.

    Attributes:
        noise: Relative standard deviation of a step's time and energy.
        ends: Seconds of power by which the energy of a window may be off (19 of 20 cases).
        cold: Factors on the time of the very first steps.
        segments: What was asked for.
    """

    curve: Curve
    noise: float = 0.0
    ends: float = 0.0
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    cold: Sequence[float] = ()
    segments: list[Segment] = field(default_factory=list)
    steps: int = 0

    def run(self, program: Generator[Segment, SegmentResult | None, Any]) -> Any:
        """Run it to its end; returns what it returns."""
        result = None
        while True:
            try:
                segment = program.send(result)
            except StopIteration as end:
                return end.value
            assert segment.steps >= 1
            self.segments.append(segment)
            result = self.result(segment)
            self.steps += segment.steps
            if not segment.measured:
                result = None

    def result(self, segment: Segment) -> SegmentResult:
        point = self.curve.frontier().at(segment.setting)
        count = segment.steps
        off = max(-0.9, self.rng.gauss(0, self.noise / math.sqrt(count)))  # it takes some time
        more = self.rng.gauss(0, self.noise / 2 / math.sqrt(count))
        time = count * point.time * (1 + off)
        for step in range(self.steps, min(self.steps + count, len(self.cold))):
            time += point.time * (self.cold[step] - 1)
        at_ends = self.ends * point.average_power
        energy = count * point.energy * (1 + off + more) + self.rng.gauss(0, at_ends / 1.96)
        return SegmentResult(count, time, energy, at_ends, energy / time)

    @property
    def measured(self) -> list[Segment]:
        return [segment for segment in self.segments if segment.measured]


def sweep(
    curve: Curve,
    objective: Objective | Callable[[Sequence[Point]], bool],
    lengths: SegmentLengths | None = None,
    **options: Any,
) -> SettingSweep:
    """A walk down the curve's power limits."""

    def settled(points: Sequence[Point]) -> bool:
        if isinstance(objective, Objective):
            return objective.settled(curve.frontier(points))
        return objective(points)

    return SettingSweep(curve.knobs, settled, lengths or SegmentLengths(), curve.knobs, **options)


def visited(training: Training) -> list[Any]:
    """Settings in the order of the first measured step at each."""
    return list(dict.fromkeys(segment.setting for segment in training.measured))
