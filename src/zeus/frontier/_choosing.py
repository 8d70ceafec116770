"""The rules by which every objective of `_objectives.py` chooses.

- *Ties.* Of points with the same cost the faster is chosen, then the one of less energy, then the
  first given.
- *Noise.* Costs that differ by no more than the uncertainty of the difference, and by no more than
  0.1 %, are equal; so are times and energies within their uncertainty. So no insignificant gain
  costs time, and of settings without effect (power limits above the job's draw) the first given is
  chosen. Of costs that differ by more the minimum is the best guess, significant or not.
  `Selection.tie` and `Selection.note` report ties.
- *No feasible point.* The point that violates the limit least is chosen, and the selection is
  marked `feasible=False`. A limit is compared with the measured value.
- *Sweeps.* From each point to the next, time must not decrease and average power must not increase,
  as with power limits or clocks from high to low; and the cost must be unimodal. Then `settled` is
  true only once no later point can win: because of a bound, or because the last two points both
  cost more than the best before them, beyond the uncertainty. (One would do; two, since
  uncertainties hold in 19 of 20 cases.) A later point that only ties is not visited.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from zeus.frontier._point import Point, combined_uncertainty
from zeus.frontier._selection import Selection

# Costs are sums of products; differences from rounding alone are ignored.
_ROUNDING = 1e-12
# Costs that differ by more than this share do not tie, however uncertain they are: the lower one is
# still the better guess, and always guessing the faster would add up.
_NEAR = 0.001
# A limit such as 1.15 times 100 s is 114.99999999999999 s; a point of 115 s satisfies it.
_SLACK = 1e-9


@dataclass(frozen=True)
class Cost:
    """A quantity of a point, and its uncertainty."""

    point: Point
    value: float
    uncertainty: float

    def rank(self) -> tuple[float, float, float]:
        """Return the key to sort by: of equal values the faster, then the one of less energy."""
        return self.value, self.point.time, self.point.energy


@dataclass(frozen=True)
class Quantity:
    """Something that an objective minimizes or limits.

    Attributes:
        name: Its name in notes.
        unit: Its unit there.
        of: Returns it for a point.
    """

    name: str
    unit: str
    of: Callable[[Point], Cost]


def _power(point: Point) -> Cost:
    watts = point.average_power
    off = combined_uncertainty(
        (point.energy_uncertainty or 0.0) / point.time,
        watts * (point.time_uncertainty or 0.0) / point.time,
    )
    return Cost(point, watts, off)


ENERGY = Quantity("energy", "J", lambda p: Cost(p, p.energy, p.energy_uncertainty or 0.0))
TIME = Quantity("time", "s", lambda p: Cost(p, p.time, p.time_uncertainty or 0.0))
POWER = Quantity("power", "W", _power)


# --- choices ------------------------------------------------------------------------------------


def cheapest(points: Iterable[Point], minimized: Quantity, notes: Iterable[str] = ()) -> Selection:
    """Select the minimum of a quantity; of those that tie with it, the fastest."""
    costs = [minimized.of(point) for point in points]
    ranked = sorted(costs, key=Cost.rank)
    tied = [cost for cost in costs if _ties(cost, ranked[0])]
    chosen = _least(_least(tied, TIME), ENERGY)[0]
    others = [cost for cost in ranked if cost is not chosen]
    said = list(notes)
    if len(tied) > 1:
        nearest = min((cost for cost in tied if cost is not chosen), key=Cost.rank)
        said.append(_tie_note(chosen, nearest, minimized))
    return Selection(
        chosen.point,
        cost=chosen.value,
        note="; ".join(said),
        runner_up=others[0].point if others else None,
        tie=len(tied) > 1,
    )


def cheapest_within(
    points: Iterable[Point],
    limited: Quantity,
    limit: float,
    minimized: Quantity,
    otherwise: str,
    *,
    notes: Iterable[str] = (),
) -> Selection:
    """Select the minimum of a quantity among points that keep a limit of another.

    Args:
        points: Points to choose from.
        limited: The quantity with a limit.
        limit: Its limit.
        minimized: The quantity to minimize.
        otherwise: Note if no point keeps the limit, with LIMIT and the LEAST value there is.
        notes: Further notes.
    """
    points = list(points)
    within = [point for point in points if keeps(limited.of(point).value, limit)]
    if within:
        return cheapest(within, minimized, notes)
    best, *others = sorted(map(limited.of, points), key=Cost.rank)
    note = otherwise.replace("LIMIT", f"{limit:g}").replace("LEAST", _enough(best.value))
    return Selection(
        best.point,
        feasible=False,
        cost=minimized.of(best.point).value,
        note="; ".join([*notes, note]),
        runner_up=others[0].point if others else None,
    )


def _ties(cost: Cost, best: Cost) -> bool:
    near = cost.value - best.value <= _NEAR * abs(best.value)
    return near and not surely_less(best, cost)


def _least(costs: Sequence[Cost], measured: Quantity) -> list[Cost]:
    """Return those for which no other is surely less, in the order given."""
    least = min((measured.of(cost.point) for cost in costs), key=lambda cost: cost.value)
    return [cost for cost in costs if not surely_less(least, measured.of(cost.point))]


def _tie_note(chosen: Cost, other: Cost, minimized: Quantity) -> str:
    pair = f"knob={chosen.point.knob!r} and knob={other.point.knob!r}"
    why = "they are equal, and the first was chosen"
    if surely_less(TIME.of(chosen.point), TIME.of(other.point)):
        why = "the faster was chosen"
    elif surely_less(ENERGY.of(chosen.point), ENERGY.of(other.point)):
        why = "they are equally fast, and the one of less energy was chosen"
    doubt = math.hypot(chosen.uncertainty, other.uncertainty)
    if doubt == 0:
        return f"the {minimized.name} of {pair} is the same; {why}"
    difference = abs(chosen.value - other.value)
    return (
        f"the {minimized.name} of {pair} differs by {difference:.3g} {minimized.unit}, "
        f"which is within its uncertainty of {doubt:.3g} {minimized.unit}; {why}"
    )


# --- comparisons --------------------------------------------------------------------------------


def _enough(value: float) -> str:
    """Return a value as a limit that it keeps: six digits, rounded up."""
    text = f"{value:.6g}"
    if keeps(value, float(text)):
        return text
    return f"{float(text) + 10.0 ** (math.floor(math.log10(value)) - 5):.6g}"


def keeps(value: float, limit: float) -> bool:
    """Whether a value is within a limit, despite rounding."""
    return value <= limit * (1 + _SLACK)


def surely_exceeds(value: float, limit: float, uncertainty: float) -> bool:
    """Whether a value is above a limit, beyond the uncertainty of the difference."""
    return value - limit > uncertainty and not keeps(value, limit)


def surely_less(first: Cost, second: Cost) -> bool:
    """Whether the first costs less, beyond the uncertainty of the difference."""
    doubt = math.hypot(first.uncertainty, second.uncertainty)
    return second.value - first.value > max(doubt, _ROUNDING * abs(second.value))


def past_the_valley(sweep: Iterable[Point], minimized: Quantity) -> bool:
    """Whether the last two of a sweep both surely cost more than the best before them."""
    costs = [minimized.of(point) for point in sweep]
    if len(costs) < 3:
        return False
    best = min(costs[:-2], key=Cost.rank)
    return all(surely_less(best, later) for later in costs[-2:])
