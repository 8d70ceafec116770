"""What a running job is planned for: which of its plans is to be followed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any

from zeus._rules import Number, enforce
from zeus.errors import PipelineError
from zeus.frontier import Frontier
from zeus.optimizer.pipeline_frequency._pipeline import Operation, Pipeline
from zeus.optimizer.pipeline_frequency._profile import Option
from zeus.optimizer.pipeline_frequency.job._messages import MAX_JOULES, MAX_SLOWDOWN, Seconds

_MAX_WATTS = 1e12  # of a whole job
_SLACK = 1e-9  # relative rounding error of a time
_BOUNDS = ("peak_power", "power_swing")  # of plans, whichever of them is followed


@dataclass(frozen=True)
class PipelineObjective:
    """The objective of a running job; with no value, as fast as possible.

    At most one of the first four is given. Times are those of an iteration, from the first to the
    last computation of a pipeline; energies and powers are those of all GPUs of all pipelines.

    Attributes:
        max_slowdown: Least energy within so many times the time of the highest clocks.
        deadline: Least energy within so many seconds.
        energy_budget: As fast as possible with so many joules per iteration.
        power_budget: As fast as possible with so many watts, averaged over an iteration.
        peak_power: Watts that all GPUs together may draw at any moment, whatever the timing. Only
            clocks at which no GPU draws more than its share are used.
        power_swing: Watts by which the highest power of an iteration may exceed the lowest, if
            computations take the times that were measured. Ranks delay computations for it.

    Raises:
        PipelineError: If more than one of the first four is given, or one is out of range.
    """

    max_slowdown: Annotated[float, Number(1, MAX_SLOWDOWN)] | None = None
    deadline: Seconds | None = None
    energy_budget: Annotated[float, Number(0, MAX_JOULES * 1e6, above=True)] | None = None
    power_budget: Annotated[float, Number(0, _MAX_WATTS, above=True)] | None = None
    peak_power: Annotated[float, Number(0, _MAX_WATTS, above=True)] | None = None
    power_swing: Annotated[float, Number(0, _MAX_WATTS, above=True)] | None = None

    def __post_init__(self) -> None:
        given = [
            each.name
            for each in fields(self)
            if each.name not in _BOUNDS and getattr(self, each.name) is not None
        ]
        if len(given) > 1:
            raise PipelineError(
                "at most one of max_slowdown, deadline, energy_budget and power_budget must be "
                f"given, but got {', '.join(given)}"
            )
        enforce(self, PipelineError)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, with the values that are given."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        if self.max_slowdown is not None:
            said = f"at most {self.max_slowdown:g} times the time of the highest clocks"
        elif self.deadline is not None:
            said = f"at most {self.deadline:g} s per iteration"
        elif self.energy_budget is not None:
            said = f"at most {self.energy_budget:g} J per iteration"
        elif self.power_budget is not None:
            said = f"at most {self.power_budget:g} W on average"
        else:
            said = "as fast as possible"
        said += "" if self.peak_power is None else f", never above {self.peak_power:g} W"
        if self.power_swing is not None:
            said += f", with a power that swings by at most {self.power_swing:g} W"
        return said

    @property
    def bounds(self) -> tuple[float | None, ...]:
        """Bounds on the power that plans are made for."""
        return tuple(getattr(self, name) for name in _BOUNDS)

    @property
    def bounds_power(self) -> bool:
        """Whether the power is bounded, so that no step may run at the highest clocks."""
        return any(bound is not None for bound in self.bounds)

    def time(self, frontier: Frontier, before: float) -> float:
        """Return the seconds of an iteration that the objective asks for.

        If no plan keeps a budget, those of the plan that comes closest.

        Args:
            frontier: Plans by rising time.
            before: Seconds of an iteration at the highest clocks.
        """
        fastest = frontier.fastest.time
        if self.max_slowdown is not None:
            return max(self.max_slowdown * before, fastest)
        if self.deadline is not None:
            return max(self.deadline, fastest)
        if self.energy_budget is not None:
            budget = self.energy_budget * (1 + _SLACK)
            kept = [point.time for point in frontier if point.energy <= budget]
            return min(kept, default=frontier.least_energy.time)
        if self.power_budget is not None:
            budget = self.power_budget * (1 + _SLACK)
            kept = [point.time for point in frontier if point.energy <= budget * point.time]
            slowest = max(frontier, key=lambda point: point.time).time
            return min(kept, default=slowest)
        return fastest

    def limited(self, pipeline: Pipeline) -> Pipeline:
        """Return the pipeline with the options whose power is within each GPU's share of the peak.

        Raises:
            PipelineError: If an operation has none, or waiting alone draws more.
        """
        if self.peak_power is None:
            return pipeline
        gpus = pipeline.gpus * pipeline.data_parallel
        share = self.peak_power / gpus

        def within(operation: Operation) -> list[Option]:
            options = operation.options
            kept = [each for each in options if operation.device is None or each.power <= share]
            if not kept or pipeline.blocking_power > share:
                least = max(min(each.power for each in options), pipeline.blocking_power)
                raise PipelineError(
                    f"`peak_power >= {least * gpus:.4g}` W must hold for {operation}, but got "
                    f"peak_power={self.peak_power:g}"
                )
            return kept

        return pipeline.with_options(within)
