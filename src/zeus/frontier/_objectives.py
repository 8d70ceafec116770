"""The objectives of Zeus, each a class that chooses a point from a frontier.

To add one, write a class here, with `registered` and in `__all__`, and hand it out in
`zeus.frontier`: commands and errors then have it, and a test asks for its line in
docs/optimizing.md. `_choosing.py` has the rules that all follow (ties, noise, sweeps); `_base.py`
documents what is registered.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from zeus._rules import TIME_FORM, is_number, read_seconds
from zeus.errors import FrontierError
from zeus.frontier._base import Objective, registered
from zeus.frontier._choosing import (
    ENERGY,
    POWER,
    TIME,
    Cost,
    Quantity,
    cheapest,
    cheapest_within,
    keeps,
    past_the_valley,
    surely_exceeds,
    surely_less,
)
from zeus.frontier._cost import zeus_cost
from zeus.frontier._frontier import Frontier
from zeus.frontier._point import Point, combined_uncertainty, number, whole
from zeus.frontier._selection import Selection

__all__ = [
    "All",
    "Deadline",
    "Energy",
    "EnergyBudget",
    "LatencyBound",
    "MaxSlowdownConstraint",
    "PowerCap",
    "Time",
    "ZeusCost",
]


@registered("lowest energy")
@dataclass(frozen=True)
class Energy(Objective):
    """The point of minimum energy. Cost: joules.

    A sweep is settled once energy rises.
    """

    def select(self, frontier: Frontier) -> Selection:
        """Return the point of minimum energy."""
        return cheapest(frontier, ENERGY)

    def settled(self, walk: Frontier) -> bool:
        """Whether energy rises."""
        return past_the_valley(walk, ENERGY)


@registered("fastest")
@dataclass(frozen=True)
class Time(Objective):
    """The fastest point; of equally fast ones that of minimum energy. Cost: seconds.

    A sweep is settled at its first point: later ones are not faster.
    """

    def select(self, frontier: Frontier) -> Selection:
        """Return the fastest point."""
        return cheapest(frontier, TIME)

    def settled(self, walk: Frontier) -> bool:  # noqa: ARG002
        """Always true."""
        return True


@registered(
    "lowest ZeusCost, with weight {} of energy",
    options=("--eta",),
    placeholder="ETA",
    remark=", 0 to 1",
    shown="{eta_knob:g}",
    default="0.5",
    needs="max_power",
)
@dataclass(frozen=True)
class ZeusCost(Objective):
    """Minimum `eta_knob * energy + (1 - eta_knob) * max_power * time`. Cost: joules.

    This is equation 2 of the Zeus paper (NSDI '23). The energy of a point is that of all GPUs, so
    the maximum power must be as well; with that of one GPU, time would weigh too little, and too
    low a power limit would win. The frontier states it in one of two ways:

    - `max_power`: of all GPUs together. It is used unchanged, whatever `world_size` is.
    - `max_power_per_gpu`: it is multiplied by `world_size`.

    A sweep is settled once the time term alone exceeds the minimum cost so far, or the cost rises.

    Attributes:
        eta_knob: The paper's eta: 0 weighs only time, 1 only energy.
        world_size: Number of GPUs whose energy is in each point.

    Raises:
        FrontierError: If a value is out of range; later, if the frontier states no maximum power,
            or a point's power exceeds it so much that it must be that of fewer GPUs.
    """

    eta_knob: float
    world_size: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "eta_knob", number("eta_knob", self.eta_knob, least=0, most=1))
        whole("world_size", self.world_size, least=1)

    def select(self, frontier: Frontier) -> Selection:
        """Return the point of minimum cost."""
        return cheapest(frontier, self._costs(frontier))

    def settled(self, walk: Frontier) -> bool:
        """Whether the time term alone exceeds the minimum cost, or the cost rises."""
        costs, last = self._costs(walk), walk.points[-1]
        of_time_alone = costs.of(replace(last, energy=0.0, energy_uncertainty=None))
        least = min(map(costs.of, walk), key=Cost.rank)
        return surely_less(least, of_time_alone) or past_the_valley(walk, costs)

    def cost(self, point: Point, frontier: Frontier) -> float:
        """Return the cost of a point in joules, with the frontier's maximum power."""
        return self._costs(frontier).of(point).value

    def max_power(self, frontier: Frontier) -> float:
        """Return the maximum power of all GPUs together, in watts.

        Raises:
            FrontierError: If the frontier does not state it, or it is that of fewer GPUs.
        """
        per_gpu = frontier.max_power_per_gpu
        watts = frontier.max_power if per_gpu is None else per_gpu * self.world_size
        if watts is None:
            raise FrontierError(
                "ZeusCost needs the frontier's `max_power` (watts of all GPUs together) or "
                "`max_power_per_gpu`, but got neither"
            )
        for point in frontier:
            if point.average_power > _IMPLAUSIBLE * watts:
                stated = f"max_power={watts:g}"
                if per_gpu is not None:
                    stated = f"max_power_per_gpu={per_gpu:g}, world_size={self.world_size}"
                raise FrontierError(
                    "the maximum power must be that of all GPUs whose energy is in the points, "
                    f"but got {stated} and {point.average_power:.4g} W on average at "
                    f"knob={point.knob!r}"
                )
        return watts

    def _costs(self, frontier: Frontier) -> Quantity:
        watts, eta = self.max_power(frontier), self.eta_knob

        def cost(point: Point) -> Cost:
            off = combined_uncertainty(
                zeus_cost(point.energy_uncertainty or 0.0, 0.0, watts, eta),
                zeus_cost(0.0, point.time_uncertainty or 0.0, watts, eta),
            )
            return Cost(point, zeus_cost(point.energy, point.time, watts, eta), off)

        return Quantity("cost", "J", cost)


# Power may overshoot its limit, and the energy may include more than GPUs; beyond this factor, it
# is the energy of more GPUs than the maximum power covers.
_IMPLAUSIBLE = 1.5


@registered(
    "lowest energy within {} times the fastest",
    options=("--max-slowdown",),
    placeholder="FACTOR",
    shown="{factor:g}",
    default="1.1",
)
@dataclass(frozen=True)
class MaxSlowdownConstraint(Objective):
    """Minimum energy among points that take at most `factor` times as long as the fastest.

    Cost: joules. Some point is always feasible. A sweep is settled once time exceeds the limit
    beyond its uncertainty, or energy rises.

    Attributes:
        factor: 1.1 allows a slowdown of 10 %; at least 1.

    Raises:
        FrontierError: If the factor is less than 1.
    """

    factor: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", number("factor", self.factor, least=1))

    def select(self, frontier: Frontier) -> Selection:
        """Return the point of minimum energy that is not too slow."""
        limit = self.factor * frontier.fastest.time
        return cheapest((point for point in frontier if keeps(point.time, limit)), ENERGY)

    def settled(self, walk: Frontier) -> bool:
        """Whether later points are too slow, or energy rises."""
        fastest, last = walk.fastest, walk.points[-1]
        off = combined_uncertainty(
            last.time_uncertainty, self.factor * (fastest.time_uncertainty or 0.0)
        )
        late = surely_exceeds(last.time, self.factor * fastest.time, off)
        return late or past_the_valley(walk, ENERGY)


@registered(
    "lowest energy within {}",
    options=("--deadline",),
    placeholder="S seconds",
    shown="{seconds:.6g} s",
    form=TIME_FORM,
    arguments=lambda text: (read_seconds(text),),
)
@dataclass(frozen=True)
class Deadline(Objective):
    """Minimum energy among points that take at most `seconds`; if none does, the fastest point.

    Cost: joules. A sweep is settled once time exceeds the deadline beyond its uncertainty, or
    energy rises.

    Raises:
        FrontierError: Unless `seconds` is more than 0.
    """

    seconds: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", number("seconds", self.seconds, above=0))

    def select(self, frontier: Frontier) -> Selection:
        """Return the point of minimum energy within the deadline."""
        missed = "no point takes LIMIT s or less; the fastest takes LEAST s"
        return cheapest_within(frontier, TIME, self.seconds, ENERGY, missed)

    def settled(self, walk: Frontier) -> bool:
        """Whether later points miss the deadline, or energy rises."""
        last = walk.points[-1]
        late = surely_exceeds(last.time, self.seconds, last.time_uncertainty or 0.0)
        return late or past_the_valley(walk, ENERGY)


@registered(
    "fastest within {}", options=("--energy-budget",), placeholder="J joules", shown="{joules:g} J"
)
@dataclass(frozen=True)
class EnergyBudget(Objective):
    """The fastest point that takes at most `joules`; if none does, the one of minimum energy.

    Cost: seconds. A sweep is settled once a point is within the budget beyond its uncertainty
    (later ones are not faster), or energy rises.

    Raises:
        FrontierError: Unless `joules` is more than 0.
    """

    joules: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "joules", number("joules", self.joules, above=0))

    def select(self, frontier: Frontier) -> Selection:
        """Return the fastest point within the budget."""
        missed = "no point takes LIMIT J or less; the least is LEAST J"
        return cheapest_within(frontier, ENERGY, self.joules, TIME, missed)

    def settled(self, walk: Frontier) -> bool:
        """Whether a point is within the budget, or energy rises."""
        return _surely_kept(walk, ENERGY, self.joules) or past_the_valley(walk, ENERGY)


@registered(
    "fastest with at most {} on average",
    options=("--power-cap",),
    placeholder="W watts",
    shown="{watts:g} W",
)
@dataclass(frozen=True)
class PowerCap(Objective):
    """The fastest point of at most `watts` on average; if none is, the one of minimum power.

    The power of a point is its time average, of all devices in its energy together; peaks may be
    higher. Cost: seconds. A sweep is settled once a point is under the cap beyond its uncertainty:
    later ones are not faster.

    Raises:
        FrontierError: Unless `watts` is more than 0.
    """

    watts: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "watts", number("watts", self.watts, above=0))

    def select(self, frontier: Frontier) -> Selection:
        """Return the fastest point under the cap."""
        missed = "no point takes LIMIT W or less on average; the least is LEAST W"
        return cheapest_within(frontier, POWER, self.watts, TIME, missed)

    def settled(self, walk: Frontier) -> bool:
        """Whether a point is under the cap."""
        return _surely_kept(walk, POWER, self.watts)


def _surely_kept(walk: Frontier, limited: Quantity, limit: float) -> bool:
    costs = map(limited.of, walk)
    return any(keeps(cost.value + cost.uncertainty, limit) for cost in costs)


def _percentile_and_seconds(text: str) -> tuple[str | float, float]:
    percentile, _, seconds = text.partition(":")
    return percentile if percentile[:1] == "p" else float(percentile), float(seconds)


@registered(
    "lowest energy with a latency of at most {}",
    options=("--latency-bound",),
    placeholder="P:S",
    remark="; p99:0.2 is 99 % of requests within 0.2 seconds",
    shown="{percentile} {seconds:g} s",
    needs="latencies",
    form="a percentile and seconds such as p99:0.2",
    arguments=_percentile_and_seconds,
)
@dataclass(frozen=True, init=False)
class LatencyBound(Objective):
    """Minimum energy among points of at most `seconds` latency; if none, the lowest latency.

    Points that do not state this percentile are left out, with a note. Cost: joules. A sweep, in
    which latency is assumed not to decrease either, is settled once latency exceeds the bound twice
    in a row, or energy rises.

    Attributes:
        percentile: As in `Point.latencies`, "p99"; 99 and 99.9 are short for "p99" and "p99.9".
        seconds: The bound, more than 0.

    Raises:
        FrontierError: If a value is out of range; later, if no point states the percentile.
    """

    percentile: str
    seconds: float

    def __init__(self, percentile: str | float, seconds: float) -> None:
        if is_number(percentile):
            percentile = f"p{number('percentile', percentile, least=0, most=100):g}"
        if not isinstance(percentile, str):
            raise FrontierError(
                f"`percentile` must be a string like 'p99' or a number, but got {percentile!r}"
            )
        object.__setattr__(self, "percentile", percentile)
        object.__setattr__(self, "seconds", number("seconds", seconds, above=0))

    def select(self, frontier: Frontier) -> Selection:
        """Return the point of minimum energy within the bound."""
        stating = self._stating(frontier)
        notes = []
        if len(stating) < len(frontier):
            notes.append(
                f"{len(frontier) - len(stating)} of {len(frontier)} points state no "
                f"{self.percentile} and were left out"
            )
        latency = Quantity("latency", "s", lambda point: Cost(point, self._latency(point), 0.0))
        missed = f"no point has a {self.percentile} of LIMIT s or less; the lowest is LEAST s"
        return cheapest_within(stating, latency, self.seconds, ENERGY, missed, notes=notes)

    def settled(self, walk: Frontier) -> bool:
        """Whether later points exceed the bound, or energy rises."""
        stating = self._stating(walk)
        late = [not keeps(self._latency(point), self.seconds) for point in stating[-2:]]
        return (len(late) == 2 and all(late)) or past_the_valley(stating, ENERGY)

    def _latency(self, point: Point) -> float:
        return point.latencies[self.percentile]

    def _stating(self, frontier: Frontier) -> list[Point]:
        stating = [point for point in frontier if self.percentile in point.latencies]
        if not stating:
            known = dict.fromkeys(name for point in frontier for name in point.latencies)
            raise FrontierError(
                f"LatencyBound needs points that state {self.percentile!r}, but got "
                f"{', '.join(map(repr, known)) if known else 'no latencies at all'}"
            )
        return stating


def _bounds(text: str) -> tuple[LatencyBound, ...]:
    parts = (part.strip().rpartition(":") for part in text.split(","))
    return tuple(
        LatencyBound(name.replace(":", " ") or _refuse(text), float(seconds))
        for name, _, seconds in parts
    )


def _refuse(text: str) -> str:
    raise ValueError(text)


@registered(
    "lowest energy with latencies of at most {}",
    options=("--latency-bounds",),
    placeholder="NAME:S,NAME:S",
    remark="; such as ttft:p99:1.5,tpot:p99:0.06",
    shown="{label}",
    needs="latencies",
    form="names and seconds such as ttft:p99:1.5,tpot:p99:0.06",
    arguments=_bounds,
)
@dataclass(frozen=True, init=False)
class All(Objective):
    """Minimum energy among points that keep all of several bounds on latencies.

    If no point does, the one whose largest ratio of a latency to its bound is least. Points that
    do not state all of the percentiles are left out, with a note. Cost: joules. A sweep, in which
    latencies are assumed not to decrease either, is settled once one of the bounds is exceeded
    twice in a row, or energy rises.

    Attributes:
        bounds: The bounds, each a `LatencyBound` of another percentile, at least one.

    Raises:
        FrontierError: If there is no bound, two of the same percentile, or something else than a
            `LatencyBound`; later, if no point states all percentiles.
    """

    bounds: tuple[LatencyBound, ...]
    label: str = field(compare=False, repr=False)

    def __init__(self, *bounds: LatencyBound) -> None:
        for each in bounds:
            if not isinstance(each, LatencyBound):
                raise FrontierError(f"`bounds` must be LatencyBound objects, but got {each!r}")
        names = [bound.percentile for bound in bounds]
        if not names or len(set(names)) < len(names):
            raise FrontierError(
                "`bounds` must be at least one LatencyBound, each of another percentile, "
                f"but got {', '.join(names) or 'none'}"
            )
        object.__setattr__(self, "bounds", bounds)
        shown = " and ".join(f"{bound.percentile} {bound.seconds:g} s" for bound in bounds)
        object.__setattr__(self, "label", shown)

    def violation(self, point: Point) -> float:
        """Return the largest ratio of a latency to its bound; 1 or less keeps all bounds.

        Args:
            point: A point that states all percentiles.
        """
        return max(point.latencies[bound.percentile] / bound.seconds for bound in self.bounds)

    def select(self, frontier: Frontier) -> Selection:
        """Return the point of minimum energy within all bounds."""
        stating = self._stating(frontier)
        notes = []
        if len(stating) < len(frontier):
            notes.append(
                f"{len(frontier) - len(stating)} of {len(frontier)} points state not all of "
                f"{self._names} and were left out"
            )
        ratio = Quantity("latency", "", lambda point: Cost(point, self.violation(point), 0.0))
        missed = f"no point keeps {self.label}; the best exceeds a bound by a factor of LEAST"
        return cheapest_within(stating, ratio, 1.0, ENERGY, missed, notes=notes)

    def settled(self, walk: Frontier) -> bool:
        """Whether later points exceed one of the bounds, or energy rises."""
        stating = self._stating(walk)
        last = stating[-2:]
        late = len(last) == 2 and any(
            all(not keeps(point.latencies[bound.percentile], bound.seconds) for point in last)
            for bound in self.bounds
        )
        return late or past_the_valley(stating, ENERGY)

    @property
    def _names(self) -> str:
        return ", ".join(repr(bound.percentile) for bound in self.bounds)

    def _stating(self, frontier: Frontier) -> list[Point]:
        wanted = {bound.percentile for bound in self.bounds}
        stating = [point for point in frontier if wanted <= set(point.latencies)]
        if not stating:
            known = dict.fromkeys(name for point in frontier for name in point.latencies)
            raise FrontierError(
                f"All needs points that state {self._names}, but got "
                f"{', '.join(map(repr, known)) if known else 'no latencies at all'}"
            )
        return stating
