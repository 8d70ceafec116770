"""Objectives, which choose a point from a frontier.

Every objective here minimizes a cost over its feasible points, by the same rules:

- *Ties.* Of points with the same cost the faster is chosen, then the one of less energy, then the
  first given.
- *Noise.* Costs that differ by no more than the uncertainty of the difference, and by no more than
  0.1 %, are equal; so are times and energies within their uncertainty. So no insignificant gain
  costs time, and of settings without effect (power limits above the job's draw) the first given is
  chosen. Of costs that differ by more the minimum is the best guess, significant or not.
  `Selection.tie` and `Selection.note` report ties.
- *No feasible point.* The point that violates the constraint least is chosen, as each class
  documents, and the selection is marked `feasible=False`. A limit is compared with the measured
  value.

Every objective also decides when a sweep can stop, through `settled`. In a sweep, from each point
to the next, time must not decrease and average power must not increase, as with power limits or
clocks from high to low; and the cost must be unimodal. Then `settled` is true only once no later
point can win: because of a bound, or because the last two points both cost more than the best
before them, beyond the uncertainty. (One would do; two, since uncertainties hold in 19 of 20
cases.) A later point that only ties is not visited.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from zeus.errors import FrontierError
from zeus.frontier._frontier import Frontier
from zeus.frontier._point import Point, combined_uncertainty, is_real, number, whole
from zeus.frontier._selection import Selection

# Costs are sums of products; differences from rounding alone are ignored.
_ROUNDING = 1e-12
# Costs that differ by more than this share do not tie, however uncertain they are: the lower one is
# still the better guess, and always guessing the faster would add up.
_NEAR = 0.001
# A limit such as 1.15 times 100 s is 114.99999999999999 s; a point of 115 s satisfies it.
_SLACK = 1e-9
# Power may overshoot its limit, and the energy may include more than GPUs; beyond this factor, it
# is the energy of more GPUs than the maximum power covers.
_IMPLAUSIBLE = 1.5


@runtime_checkable
class Objective(Protocol):
    """Chooses a point. Subclass it, or write a class with the same methods.

    `as_objective` accepts less: a class with only `select`, or a function from `Frontier` to
    `Point`.
    """

    def select(self, frontier: Frontier) -> Selection:
        """Return the point to use."""
        ...

    def settled(self, walk: Frontier) -> bool:  # noqa: ARG002
        """Whether no later point of a sweep can win; the module documents sweeps.

        Args:
            walk: The points so far, in the order of the sweep.
        """
        return False


def as_objective(chooser: Any) -> Objective:
    """Return an objective for an object or a function that can choose.

    Args:
        chooser: An objective; something with only a `select` method; or a function that takes a
            `Frontier` and returns one of its points, or a `Selection`. The
            latter two settle a sweep only at its end.

    Raises:
        FrontierError: If it cannot choose.
    """
    if isinstance(chooser, type):
        raise FrontierError(
            f"an objective must be an object, but got the class {chooser.__name__}; "
            f"write {chooser.__name__}(...)"
        )
    if isinstance(chooser, Objective):
        return chooser
    choose = getattr(chooser, "select", chooser)
    if callable(choose):
        return _Chosen(choose)
    raise FrontierError(
        "an objective must have a `select` method or be a function of a frontier, "
        f"but got {chooser!r}"
    )


@dataclass(frozen=True)
class _Chosen(Objective):
    """The choice of a user's function."""

    choose: Callable[[Frontier], Any]

    def select(self, frontier: Frontier) -> Selection:
        choice = self.choose(frontier)
        selection = Selection(choice) if isinstance(choice, Point) else choice
        if not isinstance(selection, Selection) or selection.point not in frontier.points:
            name = getattr(self.choose, "__qualname__", repr(self.choose))
            raise FrontierError(
                f"{name} must return one of the frontier's points or a Selection of one, "
                f"but got {choice!r}"
            )
        return selection


# --- the four published objectives --------------------------------------------------------------


@dataclass(frozen=True)
class Energy(Objective):
    """The point of minimum energy. Cost: joules.

    A sweep is settled once energy rises.
    """

    def select(self, frontier: Frontier) -> Selection:
        """Return the point of minimum energy."""
        return _cheapest(_energies(frontier), "energy", "J")

    def settled(self, walk: Frontier) -> bool:
        """Whether energy rises."""
        return _past_the_valley(_energies(walk))


@dataclass(frozen=True)
class Time(Objective):
    """The fastest point; of equally fast ones that of minimum energy. Cost: seconds.

    A sweep is settled at its first point: later ones are not faster.
    """

    def select(self, frontier: Frontier) -> Selection:
        """Return the fastest point."""
        return _cheapest(_times(frontier), "time", "s")

    def settled(self, walk: Frontier) -> bool:  # noqa: ARG002
        """Always true."""
        return True


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
        return _cheapest(self._costs(frontier), "cost", "J")

    def settled(self, walk: Frontier) -> bool:
        """Whether the time term alone exceeds the minimum cost, or the cost rises."""
        costs = self._costs(walk)
        weight = (1 - self.eta_knob) * self.max_power(walk)
        last = walk.points[-1]
        least_later = _Cost(last, weight * last.time, weight * (last.time_uncertainty or 0.0))
        return _surely_less(min(costs, key=_Cost.rank), least_later) or _past_the_valley(costs)

    def cost(self, point: Point, frontier: Frontier) -> float:
        """Return the cost of a point in joules, with the frontier's maximum power."""
        return self._cost(point, self.max_power(frontier)).value

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

    def _costs(self, frontier: Frontier) -> list[_Cost]:
        watts = self.max_power(frontier)
        return [self._cost(point, watts) for point in frontier]

    def _cost(self, point: Point, watts: float) -> _Cost:
        of_energy, of_time = self.eta_knob, (1 - self.eta_knob) * watts
        return _Cost(
            point,
            of_energy * point.energy + of_time * point.time,
            combined_uncertainty(
                of_energy * (point.energy_uncertainty or 0.0),
                of_time * (point.time_uncertainty or 0.0),
            ),
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
        quick = [point for point in frontier if _keeps(point.time, limit)]
        return _cheapest(_energies(quick), "energy", "J")

    def settled(self, walk: Frontier) -> bool:
        """Whether later points are too slow, or energy rises."""
        fastest, last = walk.fastest, walk.points[-1]
        off = combined_uncertainty(
            last.time_uncertainty, self.factor * (fastest.time_uncertainty or 0.0)
        )
        return _exceeds(last.time, self.factor * fastest.time, off) or _past_the_valley(
            _energies(walk)
        )


# --- further objectives -------------------------------------------------------------------------


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
        in_time = [point for point in frontier if _keeps(point.time, self.seconds)]
        if in_time:
            return _cheapest(_energies(in_time), "energy", "J")
        fastest = frontier.fastest
        note = f"no point takes {self.seconds:g} s or less; the fastest takes {fastest.time:.6g} s"
        return _least_bad(_times(frontier), fastest.energy, note)

    def settled(self, walk: Frontier) -> bool:
        """Whether later points miss the deadline, or energy rises."""
        last = walk.points[-1]
        late = _exceeds(last.time, self.seconds, last.time_uncertainty or 0.0)
        return late or _past_the_valley(_energies(walk))


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
        affordable = [point for point in frontier if _keeps(point.energy, self.joules)]
        if affordable:
            return _cheapest(_times(affordable), "time", "s")
        least = frontier.least_energy
        note = f"no point takes {self.joules:g} J or less; the least is {least.energy:.6g} J"
        return _least_bad(_energies(frontier), least.time, note)

    def settled(self, walk: Frontier) -> bool:
        """Whether a point is within the budget, or energy rises."""
        kept = any(
            _keeps(point.energy + (point.energy_uncertainty or 0.0), self.joules) for point in walk
        )
        return kept or _past_the_valley(_energies(walk))


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
        under = [point for point in frontier if _keeps(point.average_power, self.watts)]
        if under:
            return _cheapest(_times(under), "time", "s")
        powers = [_power(point) for point in frontier]
        least = min(powers, key=_Cost.rank)
        note = (
            f"no point takes {self.watts:g} W or less on average; the least is {least.value:.6g} W"
        )
        return _least_bad(powers, least.point.time, note)

    def settled(self, walk: Frontier) -> bool:
        """Whether a point is under the cap."""
        powers = [_power(point) for point in walk]
        return any(_keeps(power.value + power.uncertainty, self.watts) for power in powers)


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
        if is_real(percentile):
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
        within = [point for point in stating if _keeps(self._latency(point), self.seconds)]
        if within:
            return _cheapest(_energies(within), "energy", "J", notes)
        latencies = [_Cost(point, self._latency(point), 0.0) for point in stating]
        lowest = min(latencies, key=_Cost.rank)
        notes.append(
            f"no point has a {self.percentile} of {self.seconds:g} s or less; "
            f"the lowest is {lowest.value:.6g} s"
        )
        return _least_bad(latencies, lowest.point.energy, "; ".join(notes))

    def settled(self, walk: Frontier) -> bool:
        """Whether later points exceed the bound, or energy rises."""
        stating = self._stating(walk)
        late = [not _keeps(self._latency(point), self.seconds) for point in stating[-2:]]
        return (len(late) == 2 and all(late)) or _past_the_valley(_energies(stating))

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


# --- common functions ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cost:
    """Cost of a point, and its uncertainty."""

    point: Point
    value: float
    uncertainty: float

    def rank(self) -> tuple[float, float, float]:
        return self.value, self.point.time, self.point.energy


def _energy(point: Point) -> _Cost:
    return _Cost(point, point.energy, point.energy_uncertainty or 0.0)


def _time(point: Point) -> _Cost:
    return _Cost(point, point.time, point.time_uncertainty or 0.0)


def _energies(points: Iterable[Point]) -> list[_Cost]:
    return [_energy(point) for point in points]


def _times(points: Iterable[Point]) -> list[_Cost]:
    return [_time(point) for point in points]


def _power(point: Point) -> _Cost:
    watts = point.average_power
    off = combined_uncertainty(
        (point.energy_uncertainty or 0.0) / point.time,
        watts * (point.time_uncertainty or 0.0) / point.time,
    )
    return _Cost(point, watts, off)


def _keeps(value: float, limit: float) -> bool:
    return value <= limit * (1 + _SLACK)


def _exceeds(value: float, limit: float, uncertainty: float) -> bool:
    return value - limit > uncertainty and not _keeps(value, limit)


def _surely_less(first: _Cost, second: _Cost) -> bool:
    """Whether the first costs less, beyond the uncertainty of the difference."""
    doubt = math.hypot(first.uncertainty, second.uncertainty)
    return second.value - first.value > max(doubt, _ROUNDING * abs(second.value))


def _past_the_valley(costs: Sequence[_Cost]) -> bool:
    """Whether the last two of a sweep both surely cost more than the best before them."""
    if len(costs) < 3:
        return False
    best = min(costs[:-2], key=_Cost.rank)
    return all(_surely_less(best, later) for later in costs[-2:])


def _cheapest(costs: Sequence[_Cost], what: str, unit: str, notes: Iterable[str] = ()) -> Selection:
    """Select the minimum cost; of those that tie with it, the fastest."""
    ranked = sorted(costs, key=_Cost.rank)
    best = ranked[0]
    tied = [cost for cost in costs if _ties(cost, best)]
    chosen = _least(_least(tied, _time), _energy)[0]
    runner_up = next((cost for cost in ranked if cost is not chosen), None)
    said = list(notes)
    if len(tied) > 1:
        nearest = sorted(tied, key=_Cost.rank)
        other = next(cost for cost in nearest if cost is not chosen)
        said.append(_told_tie(chosen, other, what, unit))
    return Selection(
        chosen.point,
        cost=chosen.value,
        note="; ".join(said),
        runner_up=None if runner_up is None else runner_up.point,
        tie=len(tied) > 1,
    )


def _ties(cost: _Cost, best: _Cost) -> bool:
    near = cost.value - best.value <= _NEAR * abs(best.value)
    return near and not _surely_less(best, cost)


def _least(costs: Sequence[_Cost], measure: Callable[[Point], _Cost]) -> list[_Cost]:
    """Return those for which no other is surely less, in the order given."""
    least = min((measure(cost.point) for cost in costs), key=lambda cost: cost.value)
    return [cost for cost in costs if not _surely_less(least, measure(cost.point))]


def _told_tie(chosen: _Cost, other: _Cost, what: str, unit: str) -> str:
    pair = f"knob={chosen.point.knob!r} and knob={other.point.knob!r}"
    why = "they are equal, and the first was chosen"
    if _surely_less(_time(chosen.point), _time(other.point)):
        why = "the faster was chosen"
    elif _surely_less(_energy(chosen.point), _energy(other.point)):
        why = "they are equally fast, and the one of less energy was chosen"
    doubt = math.hypot(chosen.uncertainty, other.uncertainty)
    if doubt == 0:
        return f"the {what} of {pair} is the same; {why}"
    return (
        f"the {what} of {pair} differs by {abs(chosen.value - other.value):.3g} {unit}, "
        f"which is within its uncertainty of {doubt:.3g} {unit}; {why}"
    )


def _least_bad(penalties: Sequence[_Cost], cost: float, note: str) -> Selection:
    """Select the point of minimum penalty, as measured, where none is feasible."""
    ranked = sorted(penalties, key=_Cost.rank)
    return Selection(
        ranked[0].point,
        feasible=False,
        cost=cost,
        note=note,
        runner_up=ranked[1].point if len(ranked) > 1 else None,
    )
