"""One setting of a knob, with the time and energy of a fixed amount of work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from zeus._rules import is_number
from zeus._student import COVERAGE, student_factor
from zeus.errors import FrontierError


class Settings(Mapping[Any, Any]):
    """Several settings by name, as one knob. Equal to the mapping it was made of; immutable.

    Args:
        items: Settings by name.
    """

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[Any, Any]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: Any) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


@dataclass(frozen=True)
class Point:
    """Time and energy of the work at one setting.

    Attributes:
        knob: The setting: watts, MHz, a batch size, a plan. Anything hashable, or lists and
            mappings of hashables; those are stored as tuples and `Settings`, so that a point is
            immutable and equal to itself after a JSON round trip.
        time: Seconds, more than 0.
        energy: Joules, over all devices that do the work.
        time_uncertainty: Seconds by which `time` may be off in about 19 of 20 cases; `None` if
            unknown. Comparisons treat a value of unknown uncertainty as exact.
        energy_uncertainty: Joules by which `energy` may be off, likewise.
        repeats: Number of measurements; 0 if it was interpolated.
        latencies: Seconds by percentile, for example `{"p99": 0.12}`.

    Raises:
        FrontierError: If a value breaks one of these rules.
    """

    knob: Any
    time: float
    energy: float
    time_uncertainty: float | None = None
    energy_uncertainty: float | None = None
    repeats: int = 1
    latencies: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        knob = freeze(self.knob)
        at = f" (knob={knob!r})"
        values: dict[str, Any] = {
            "knob": knob,
            "time": number("time", self.time, above=0, where=at),
            "energy": number("energy", self.energy, least=0, where=at),
        }
        for name in ("time_uncertainty", "energy_uncertainty"):
            value = getattr(self, name)
            values[name] = None if value is None else number(name, value, least=0, where=at)
        values["repeats"] = whole("repeats", self.repeats, least=0, where=at)
        if not isinstance(self.latencies, Mapping):
            raise FrontierError(
                f"`latencies` must map percentiles to seconds, but got {self.latencies!r}{at}"
            )
        for name in self.latencies:
            if not isinstance(name, str):
                raise FrontierError(
                    f"a percentile must be a string like 'p99', but got {name!r} in `latencies`{at}"
                )
        values["latencies"] = Settings(
            {
                name: number(f"latencies[{name!r}]", value, least=0, where=at)
                for name, value in self.latencies.items()
            }
        )
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def average_power(self) -> float:
        """Average watts over the work."""
        return self.energy / self.time

    def slowdown(self, reference: Point) -> float:
        """Return its time divided by the reference's: 1.1 is 10 % slower."""
        return self.time / reference.time

    def savings(self, reference: Point) -> float:
        """Return the saved share of the reference's energy: 0.2 is 20 % less; may be negative.

        Raises:
            FrontierError: If the reference took no energy.
        """
        if reference.energy == 0:
            raise FrontierError(
                "savings are relative to a reference with `energy > 0`, but got energy=0.0 "
                f"(knob={reference.knob!r})"
            )
        return 1 - self.energy / reference.energy

    def scaled(self, factor: float) -> Point:
        """Return the same setting for `factor` times the work; latencies stay the same."""
        factor = number("factor", factor, above=0)
        return replace(
            self,
            time=self.time * factor,
            energy=self.energy * factor,
            time_uncertainty=_times(self.time_uncertainty, factor),
            energy_uncertainty=_times(self.energy_uncertainty, factor),
        )


def combined_uncertainty(first: float | None, second: float | None) -> float:
    """Return the uncertainty of the difference of two values; an unknown one counts as 0."""
    return math.hypot(first or 0.0, second or 0.0)


# --- rules for values ---------------------------------------------------------------------------


def number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    where: str = "",
) -> float:
    """Return the value as a finite float within bounds.

    Raises:
        FrontierError: If it is not one; names the rule and the value.
    """
    got = f"but got {name}={value!r}{where}"
    if not is_number(value):
        raise FrontierError(f"`{name}` must be a real number, {got}")
    try:
        result = float(value)  # type: ignore[arg-type]
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise FrontierError(f"`{name}` must be finite, {got}")
    if above is not None and not result > above:
        raise FrontierError(f"`{name} > {above:g}` must hold, {got}")
    if least is not None and most is not None and not least <= result <= most:
        raise FrontierError(f"`{least:g} <= {name} <= {most:g}` must hold, {got}")
    if least is not None and not result >= least:
        raise FrontierError(f"`{name} >= {least:g}` must hold, {got}")
    return result


def whole(name: str, value: object, *, least: int, where: str = "") -> int:
    """Return the value as an int that is not too small.

    Raises:
        FrontierError: If it is not one; names the rule and the value.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise FrontierError(f"`{name}` must be a whole number, but got {name}={value!r}{where}")
    if value < least:
        raise FrontierError(f"`{name} >= {least}` must hold, but got {name}={value!r}{where}")
    return value


def freeze(knob: Any) -> Any:
    """Return the same setting in an immutable form.

    Raises:
        FrontierError: If it is not hashable, nor made of lists and mappings of hashables.
    """
    frozen = _freeze(knob)
    try:
        hash(frozen)
    except TypeError:
        raise FrontierError(
            "a knob must be hashable, or lists and mappings of hashables, but got "
            f"knob={knob!r} of type {type(knob).__name__}"
        ) from None
    return frozen


def _freeze(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Settings({_freeze(key): _freeze(item) for key, item in value.items()})
    if isinstance(value, list) or type(value) is tuple:  # a named tuple is kept as it is
        return tuple(_freeze(item) for item in value)
    if isinstance(value, float) and not math.isfinite(value):
        raise FrontierError(f"a knob must be finite, but got knob={value!r}")
    return value


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


# --- several measurements of the same setting ---------------------------------------------------


@dataclass(frozen=True)
class _Reading:
    value: float
    uncertainty: float | None
    repeats: int


def merge(points: Sequence[Point]) -> Point:
    """Return one point from several of the same knob; `Frontier.combine` documents the rules."""
    points = [point for point in points if point.repeats] or list(points)
    if len(points) == 1:
        return points[0]
    times = [_Reading(p.time, p.time_uncertainty, p.repeats or 1) for p in points]
    energies = [_Reading(p.energy, p.energy_uncertainty, p.repeats or 1) for p in points]
    time, time_uncertainty = _mean(times)
    energy, energy_uncertainty = _mean(energies)
    percentiles = dict.fromkeys(name for point in points for name in point.latencies)
    return Point(
        points[0].knob,
        time,
        energy,
        time_uncertainty,
        energy_uncertainty,
        sum(point.repeats for point in points),
        {
            name: _mean(
                [
                    _Reading(point.latencies[name], None, point.repeats or 1)
                    for point in points
                    if name in point.latencies
                ]
            )[0]
            for name in percentiles
        },
    )


def _mean(readings: Sequence[_Reading]) -> tuple[float, float | None]:
    """Return the mean and its uncertainty."""
    exact = [reading for reading in readings if reading.uncertainty == 0]
    if exact:
        mean, spread = _plain_mean(exact)
        return mean, spread or 0.0
    known = [reading.uncertainty for reading in readings if reading.uncertainty is not None]
    if len(known) < len(readings):
        return _plain_mean(readings)
    sharpest = min(known)
    weights = [(sharpest / uncertainty) ** 2 for uncertainty in known]
    mean = _weighted([reading.value for reading in readings], weights)
    # Readings that lie further apart than they claim are less certain than they claim.
    surprise = 1.0
    if len(readings) > 1:
        distances = [(r.value - mean) / u for r, u in zip(readings, known, strict=True)]
        surprise = COVERAGE * math.hypot(*distances) / math.sqrt(len(readings) - 1)
    return mean, sharpest / math.sqrt(math.fsum(weights)) * max(1.0, surprise)


def _plain_mean(readings: Sequence[_Reading]) -> tuple[float, float | None]:
    """Return the mean over all repeats, with the uncertainty from the spread of the readings."""
    weights = [float(reading.repeats) for reading in readings]
    mean = _weighted([reading.value for reading in readings], weights)
    freedom = len(readings) - 1
    offs = [math.sqrt(r.repeats) * (r.value - mean) for r in readings]
    if freedom == 0 or not any(offs):
        return mean, None  # equal readings do not reveal their noise
    return mean, student_factor(freedom) * math.hypot(*offs) / math.sqrt(
        freedom * math.fsum(weights)
    )


def _weighted(values: Sequence[float], weights: Sequence[float]) -> float:
    total = math.fsum(weights)
    mean = math.fsum(v * (w / total) for v, w in zip(values, weights, strict=True))
    return min(max(mean, min(values)), max(values))  # rounding must not leave the range
