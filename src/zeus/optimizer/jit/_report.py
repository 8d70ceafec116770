"""Time and energy of a run, compared with those at other settings."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from zeus.errors import FrontierError
from zeus.frontier import Frontier, Point, Selection
from zeus.frontier._point import freeze
from zeus.monitor._measurement import show_joules, show_seconds

# An uncertainty below this share of its value is not shown.
_NEGLIGIBLE = 1e-5
# A job that draws less than this share of a power limit is not affected by it.
_AFFECTED = 0.9


@dataclass(frozen=True)
class Amount:
    """Time and energy.

    Attributes:
        time: Seconds.
        energy: Joules.
        time_uncertainty: Uncertainty of the time in seconds, for about 19 of 20 cases.
        energy_uncertainty: Uncertainty of the energy in joules, likewise.
    """

    time: float
    energy: float
    time_uncertainty: float = 0.0
    energy_uncertainty: float = 0.0

    def __str__(self) -> str:
        time, energy = show_seconds(self.time), show_joules(self.energy)
        if self.time_uncertainty > _NEGLIGIBLE * self.time:
            time += f" ± {show_seconds(_rounded(self.time_uncertainty))}"
        if self.energy_uncertainty > _NEGLIGIBLE * self.energy:
            energy += f" ± {show_joules(_rounded(self.energy_uncertainty))}"
        return f"{time}, {energy}"


@dataclass(frozen=True)
class Spent:
    """Steps, time and energy so far.

    Attributes:
        steps: Steps at each setting; `None` for the one before the run.
        profiling: Of these, the steps spent on profiling.
        time: Measured seconds of training, excluding work between epochs.
        energy: Joules of training on this process's GPUs; `None` if not all could be measured.
    """

    steps: Mapping[Any, int]
    profiling: Mapping[Any, int]
    time: float
    energy: float | None


@dataclass(frozen=True)
class Report:
    """A run so far, compared with the same run at the previous setting and at the chosen one.

    Energies are of this process's GPUs. The run's own values are measured; the other two follow
    from them and the ratios of the profile's points, whose uncertainty is stated.

    Attributes:
        steps: Training steps so far.
        profiling_steps: Of these, how many were spent on profiling.
        observing: Whether the chosen setting was only found, not used.
        unit: Unit of settings.
        reference: A step at the setting before the run (of all GPUs of the job), or at the highest
            one if GPUs of one model had different settings; `None` where nothing was profiled.
        chosen: A step at the chosen setting, likewise.
        note: The objective's note about its choice.
        as_run: Time and energy of the run.
        at_reference: Time and energy of the run at the previous setting.
        at_chosen: Time and energy of the run at the chosen setting from the beginning.
        profiling: Extra time and energy of the profiling steps over the reference. May be
            negative: lower settings save energy while they are tried.
        untried: Message about the possible gain from settings above the previous one, which were
            not tried; empty if there are none.
    """

    steps: int
    profiling_steps: int
    observing: bool
    unit: str
    as_run: Amount | None
    reference: Point | None = None
    chosen: Point | None = None
    note: str = ""
    at_reference: Amount | None = None
    at_chosen: Amount | None = None
    profiling: Amount | None = None
    untried: str = ""

    @classmethod
    def of(
        cls,
        spent: Spent,
        frontier: Frontier | None,
        selection: Selection | None,
        present: Any,
        *,
        observing: bool,
        unit: str,
        untried: Any = None,
        gpus: int = 1,
        limits_power: bool = False,
    ) -> Report:
        """Build a report.

        Args:
            spent: Steps, time and energy so far.
            frontier: A step at each setting; `None` before it is known.
            selection: The choice from this frontier.
            present: The setting before the run.
            observing: Whether the choice is not applied.
            unit: Unit of settings.
            untried: The highest setting that the GPUs accept, if it was above the ceiling.
            gpus: Number of GPUs of the job.
            limits_power: Whether settings are limits of a GPU's power, in watts.
        """
        steps = sum(spent.steps.values())
        as_run = None if spent.energy is None else Amount(spent.time, spent.energy)
        profiling_steps = sum(spent.profiling.values())
        bare = cls(steps, profiling_steps, observing, unit, as_run)
        if frontier is None or selection is None or not steps:
            return bare
        reference = reference_point(frontier, present)
        chosen = selection.point
        model = _Model(spent, frontier, reference)
        return replace(
            bare,
            reference=reference,
            chosen=chosen,
            note=selection.note,
            at_reference=model.at(reference),
            at_chosen=model.at(chosen),
            profiling=model.profiling(),
            untried=_untried_message(reference, untried, unit, gpus if limits_power else None),
        )

    @property
    def energy_change(self) -> float | None:
        """Relative energy of the chosen setting: -0.15 is 15 % less; `None` if unknown."""
        if self.chosen is None or self.reference is None or not self.reference.energy:
            return None
        return -self.chosen.savings(self.reference)

    @property
    def time_change(self) -> float | None:
        """Relative time of the chosen setting: 0.02 is 2 % longer; `None` if unknown."""
        if self.chosen is None or self.reference is None:
            return None
        return self.chosen.slowdown(self.reference) - 1

    def headline(self) -> str:
        """Return the choice in one line; an empty string before it is made."""
        if self.chosen is None or self.reference is None:
            return ""
        chosen, before = (_setting(point, self.unit) for point in (self.chosen, self.reference))
        verb = "would be best" if self.observing else "is chosen"
        energy, time = self.energy_change or 0.0, self.time_change or 0.0
        return (
            f"{chosen} {verb}, against {before}: energy {energy:+.1%} "
            f"± {_ratio_uncertainty(self.chosen, self.reference, 'energy'):.1%}, time {time:+.1%} "
            f"± {_ratio_uncertainty(self.chosen, self.reference, 'time'):.1%} per step"
        )

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        done = f"{self.steps} steps" + (f" in {self.as_run}" if self.as_run else "")
        if self.chosen is None or self.reference is None:
            return [f"{done}; no profile, so nothing to compare with"]
        assert self.profiling is not None
        chosen, before = (_setting(point, self.unit) for point in (self.chosen, self.reference))
        if isinstance(self.chosen.knob, Mapping):  # long, and the headline has it already
            chosen, before = "the chosen setting", "the reference setting"
        lines = [
            self.headline(),
            done,
            f"at {before} throughout: {self.at_reference}",
            f"at {chosen} throughout: {self.at_chosen}",
        ]
        if self.profiling_steps:
            extra, joules = self.profiling.time, self.profiling.energy
            lines.append(
                f"profiling: {self.profiling_steps} steps, {_signed(extra, show_seconds)} and "
                f"{_signed(joules, show_joules)} against {before}"
            )
        if self.note:
            lines.append(f"note: {self.note}")
        if self.untried:
            lines.append(self.untried)
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        """Return the report for notebooks."""
        from html import escape  # noqa: PLC0415

        return f"<pre>{escape(str(self))}</pre>"


def reference_point(frontier: Frontier, present: Any) -> Point:
    """Return a step at the previous setting; at the highest one, if that is unknown."""
    return point_at(frontier, present) or frontier.points[0]


def point_at(frontier: Frontier, knob: Any) -> Point | None:
    """Return a step at a setting, measured or interpolated; `None` if unknown."""
    for known in (frontier.at, frontier.between):
        with contextlib.suppress(FrontierError):
            return known(knob)
    return None


def savings(
    chosen: Point, reference: Point, run: Report | None, *, observing: bool
) -> dict[str, float]:
    """Return what a choice saves, for an experiment tracker.

    `energy_saving` and `time_change` are shares of a step's energy and time at the previous
    setting, from the profile; `possible_...` if the choice is not applied. `run_energy_saving` is
    the estimated share that the run has saved so far.

    Args:
        chosen: A step at the chosen setting.
        reference: A step at the previous setting.
        run: Report of the run so far, if its savings are wanted.
        observing: Whether the choice is not applied.
    """
    possible = "possible_" if observing else ""
    values = {f"{possible}time_change": chosen.slowdown(reference) - 1}
    if reference.energy:
        values[f"{possible}energy_saving"] = chosen.savings(reference)
    if run is not None and run.as_run and run.at_reference and run.at_reference.energy:
        values["run_energy_saving"] = 1 - run.as_run.energy / run.at_reference.energy
    return values


class _Model:
    """The run as predicted by the profile, scaled to the run as measured."""

    def __init__(self, spent: Spent, frontier: Frontier, reference: Point) -> None:
        self._points = {
            knob: reference if knob is None else point_at(frontier, knob) or reference
            for knob in {*spent.steps, *spent.profiling}
        }
        self._steps: Counter[Point] = Counter()
        for knob, count in spent.steps.items():
            self._steps[self._points[knob]] += count
        self._count = sum(spent.steps.values())
        self._profiling = spent.profiling
        self._reference = reference
        # The profile is of all GPUs of the job and undisturbed steps; the run is this process's.
        self._in_time = (spent.time or self._time()) / self._time()
        energy = self._energy()
        self._in_energy = spent.energy / energy if spent.energy and energy else 1.0

    def at(self, point: Point) -> Amount:
        """Return the time and energy of all steps at this point."""
        time = self._count * self._in_time * point.time
        energy = self._count * self._in_energy * point.energy
        return Amount(
            time,
            energy,
            time * self._ratio_uncertainty(point, "time"),
            energy * self._ratio_uncertainty(point, "energy"),
        )

    def profiling(self) -> Amount:
        """Return the extra time and energy of profiling over the reference."""
        counts, reference = self._profiling, self._reference
        return Amount(
            self._in_time
            * sum(n * (self._points[k].time - reference.time) for k, n in counts.items()),
            self._in_energy
            * sum(n * (self._points[k].energy - reference.energy) for k, n in counts.items()),
        )

    def _time(self) -> float:
        return sum(count * point.time for point, count in self._steps.items())

    def _energy(self) -> float:
        return sum(count * point.energy for point, count in self._steps.items())

    def _ratio_uncertainty(self, wanted: Point, what: str) -> float:
        """Return the relative uncertainty of the run's value times a ratio of points.

        Steps at the wanted point are in both the numerator and the denominator.
        """
        weights = {point: count * getattr(point, what) for point, count in self._steps.items()}
        total = sum(weights.values())
        if not total:
            return 0.0
        weights[wanted] = weights.get(wanted, 0.0) - total
        return math.hypot(
            *(weight / total * _share(point, what) for point, weight in weights.items())
        )


def _ratio_uncertainty(chosen: Point, reference: Point, what: str) -> float:
    """Return the relative uncertainty of the ratio of two points; 0 if they are equal."""
    if chosen == reference:
        return 0.0
    return math.hypot(_share(chosen, what), _share(reference, what))


def _share(point: Point, what: str) -> float:
    """Return the uncertainty as a share of the value."""
    value: float = getattr(point, what)
    return (getattr(point, f"{what}_uncertainty") or 0.0) / value if value else 0.0


def _untried_message(reference: Point, untried: Any, unit: str, gpus: int | None) -> str:
    """Describe what the ceiling may cost: a step's speed gains at most the share of power."""
    if untried is None:
        return ""
    ceiling, highest = freeze(reference.knob), freeze(untried)
    if isinstance(highest, Mapping) or isinstance(ceiling, Mapping):
        return "settings above the previous ones were not tried (raise_limit=True tries them)"
    message = (
        f"settings above the previous {ceiling:g} {unit} were not tried (raise_limit=True tries "
        f"up to {highest:g} {unit})"
    )
    power = reference.energy / reference.time / gpus if gpus else math.inf
    if power < _AFFECTED * ceiling:
        return f"{message}: the job draws {power:.0f} W per GPU and would hardly feel them"
    return f"{message}: a step may take up to {1 - ceiling / highest:.0%} less time there"


def _setting(point: Point, unit: str) -> str:
    knob = freeze(point.knob)
    if isinstance(knob, Mapping):
        return ", ".join(f"{value:g} {unit} ({model})" for model, value in knob.items())
    return f"{knob:g} {unit}"


def _rounded(uncertainty: float) -> float:
    """Round to two digits, which is enough for an uncertainty."""
    return float(f"{uncertainty:.2g}")


def _signed(value: float, show: Callable[[float], str]) -> str:
    return ("+" if value >= 0 else "-") + show(abs(value))
