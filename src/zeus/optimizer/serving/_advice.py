"""Advice on the batch limit of a server (`max_num_seqs`): the least energy under latency bounds.

From a table of measured limits. Energy per token falls with the batch, because weights are read
once for all: it is interpolated linearly in 1 / limit. Latencies rise, in proportion to it or to a
power of it: the mean of both is taken. Between measured limits an uncertainty is stated, which
follows from how well the table predicts its own rows, and a limit that was not measured must keep
its bounds by that much. Nothing is said of limits outside of the table.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from zeus._rules import Number
from zeus.errors import FrontierError

MAX_LIMIT = 1_000_000
_PROVEN = 0.02  # share of energy for which a measured limit is preferred
_LEAST_SPREAD, _MOST_SPREAD, _FEW_ROWS_SPREAD = 0.03, 0.1, 0.05
_OWN_ERROR = 0.7  # of a table's errors at its own rows, whose neighbors are twice as far away
_MAX_CANDIDATES = 2048


@dataclass(frozen=True)
class LimitRow:
    """A measured limit.

    Attributes:
        limit: Maximum number of requests that are processed at once.
        energy: Joules per generated token, or in any unit that is the same for all rows.
        latencies: Seconds by name, such as "tpot p99" or "ttft avg".

    Raises:
        ValueError: If the limit is not from 1 to a million, or another value not above 0.
    """

    limit: float
    energy: float
    latencies: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Number(1, MAX_LIMIT).check("limit", self.limit, FrontierError)
        Number(0, above=True).check("energy", self.energy, FrontierError)
        for name, value in self.latencies.items():
            Number(0, above=True).check(name, value, FrontierError)


@dataclass(frozen=True, kw_only=True)
class LimitAdvice:
    """The advised limit and what to expect of it.

    Attributes:
        limit: Maximum number of requests to process at once.
        measured: Whether the table has this limit; otherwise it is interpolated.
        feasible: Whether all bounds are kept, at an unmeasured limit by the uncertainty as well.
        energy: Per token, in the table's unit.
        energy_spread: Relative standard error of that; 0 where it was measured.
        latencies: Seconds by name.
        latency_spread: Relative standard errors of these by name; 0 where they were measured.
        saved: Share of energy per token saved against the lowest limit of the table.
        notes: What the advice does not cover, for people.
    """

    limit: int
    measured: bool
    feasible: bool
    energy: float
    energy_spread: float
    latencies: Mapping[str, float]
    latency_spread: Mapping[str, float]
    saved: float
    notes: tuple[str, ...] = ()


def advise_limit(
    rows: Iterable[LimitRow],
    bounds: Mapping[str, float],
    *,
    limits: Sequence[int] | None = None,
) -> LimitAdvice:
    """Choose the limit of least energy that keeps all bounds.

    A measured limit is preferred to an interpolated one that would save less than 2 % more.

    Args:
        rows: Measured limits of one model on one server; those of the same limit are averaged.
        bounds: Seconds by the name of the latency.
        limits: Limits to choose from; by default all from the lowest to the highest measured one.

    Raises:
        ValueError: If there is no row, a bound is not above 0, or its latency is not in all rows.
    """
    table = _averaged(rows, bounds)
    measured = [row.limit for row in table]
    chosen = [each for each in _candidates(measured, limits) if measured[0] <= each <= measured[-1]]
    if not chosen:
        raise FrontierError(
            f"limits must be within {measured[0]:g} to {measured[-1]:g}, but got {limits}"
        )
    energies = _Curve(measured, [row.energy for row in table], _by_inverse)
    curves = {
        name: _Curve(measured, [row.latencies[name] for row in table], _rising) for name in bounds
    }
    kept = [
        limit
        for limit in chosen
        if all(curves[name].upper(limit) <= bound for name, bound in bounds.items())
    ]
    if not kept:
        return _least_latency(table, energies, curves, bounds, chosen)
    best = min(kept, key=energies.at)
    proven = [limit for limit in kept if limit in measured]
    if proven:
        nearest = min(proven, key=energies.at)
        if energies.at(nearest) <= (1 + _PROVEN) * energies.at(best):
            best = nearest
    notes = []
    if best == measured[-1]:
        notes.append(f"limits above {measured[-1]:g} were not measured and may save more")
    return _advice(best, table, energies, curves, feasible=True, notes=notes)


def _averaged(rows: Iterable[LimitRow], bounds: Mapping[str, float]) -> list[LimitRow]:
    """Return one row per limit, in order, with the latencies that are bounded."""
    groups: dict[float, list[LimitRow]] = defaultdict(list)
    for row in rows:
        missing = [name for name in bounds if name not in row.latencies]
        if missing:
            known = ", ".join(sorted(row.latencies)) or "none"
            raise FrontierError(
                f"a bound needs its latency in every row, but limit {row.limit:g} has no "
                f"{missing[0]!r} (it has: {known})"
            )
        groups[row.limit].append(row)
    for name, bound in bounds.items():
        Number(0, above=True).check(name, bound, FrontierError)
    if not groups:
        raise FrontierError("a table of batch limits must have rows, but has none")
    return [
        LimitRow(
            limit,
            math.fsum(row.energy for row in found) / len(found),
            {n: math.fsum(row.latencies[n] for row in found) / len(found) for n in bounds},
        )
        for limit, found in sorted(groups.items())
    ]


def _candidates(measured: Sequence[float], limits: Sequence[int] | None) -> list[float]:
    if limits is not None:
        return sorted({float(each) for each in limits})
    low, high = math.ceil(measured[0]), math.floor(measured[-1])
    step = max(1, math.ceil((high - low) / _MAX_CANDIDATES))
    return sorted({*map(float, range(low, high + 1, step)), *measured})


#: Interpolates, from limit and value of two rows, to a limit.
_Form = Callable[[tuple[float, float, float, float], float], float]


class _Curve:
    """A column of the table, interpolated between the measured limits.

    Args:
        limits: Measured limits, increasing.
        values: Their values.
        form: Interpolates between two rows.
    """

    def __init__(self, limits: Sequence[float], values: Sequence[float], form: _Form) -> None:
        self._limits = limits
        self._values = values
        self._form = form
        errors = [
            math.log(form((limits[i - 1], values[i - 1], limits[i + 1], values[i + 1]), limits[i]))
            - math.log(values[i])
            for i in range(1, len(limits) - 1)
        ]
        self._spread = _FEW_ROWS_SPREAD
        if errors:
            own = math.sqrt(math.fsum(each * each for each in errors) / len(errors))
            self._spread = min(_MOST_SPREAD, max(_LEAST_SPREAD, _OWN_ERROR * own))

    def at(self, limit: float) -> float:
        """Return the value at a limit within the table."""
        if len(self._limits) == 1:
            return self._values[0]
        right = min(bisect_right(self._limits, limit), len(self._limits) - 1)
        left = right - 1
        ends = (self._limits[left], self._values[left], self._limits[right], self._values[right])
        return self._form(ends, limit)

    def spread(self, limit: float) -> float:
        """Return the relative standard error: 0 at a measured limit, most between two."""
        if limit in self._limits:
            return 0.0
        right = bisect_right(self._limits, limit)
        low, high = self._limits[right - 1], self._limits[right]
        place = math.log(limit / low) / math.log(high / low)
        return self._spread * math.sqrt(2 * min(place, 1 - place))

    def upper(self, limit: float) -> float:
        """Return the value with its uncertainty on top."""
        return self.at(limit) * (1 + self.spread(limit))


def _by_inverse(ends: tuple[float, float, float, float], limit: float) -> float:
    low, first, high, second = ends
    return first + (second - first) * (1 / low - 1 / limit) / (1 / low - 1 / high)


def _rising(ends: tuple[float, float, float, float], limit: float) -> float:
    low, first, high, second = ends
    linear = first + (second - first) * (limit - low) / (high - low)
    power = first * (second / first) ** (math.log(limit / low) / math.log(high / low))
    return float(linear + power) / 2


def _least_latency(
    table: Sequence[LimitRow],
    energies: _Curve,
    curves: Mapping[str, _Curve],
    bounds: Mapping[str, float],
    chosen: Sequence[float],
) -> LimitAdvice:
    """Return the limit that misses the bounds by the least factor."""

    def missed(limit: float) -> float:
        return max(curves[name].upper(limit) / bound for name, bound in bounds.items())

    best = min(chosen, key=missed)
    low = table[0].limit
    notes = [f"no limit of the table keeps all bounds; this one misses by a factor of "
             f"{missed(best):.2f}", f"limits below {low:g} were not measured"]  # fmt: skip
    return _advice(best, table, energies, curves, feasible=False, notes=notes)


def _advice(
    limit: float,
    table: Sequence[LimitRow],
    energies: _Curve,
    curves: Mapping[str, _Curve],
    *,
    feasible: bool,
    notes: Sequence[str],
) -> LimitAdvice:
    measured = any(row.limit == limit for row in table)
    more = list(notes)
    if not measured:
        more.append("this limit was not measured: measure it before you rely on it")
    return LimitAdvice(
        limit=int(limit),
        measured=measured,
        feasible=feasible,
        energy=energies.at(limit),
        energy_spread=energies.spread(limit),
        latencies={name: curve.at(limit) for name, curve in curves.items()},
        latency_spread={name: curve.spread(limit) for name, curve in curves.items()},
        saved=1 - energies.at(limit) / table[0].energy,
        notes=tuple(more),
    )
