"""Specification of a recurring job: the choices, the target, and the weight of energy and time.

A specification never changes. Together with the log of its trials it is all that a policy sees.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from typing import Any

from zeus.errors import JobSpecError
from zeus.frontier._cost import zeus_cost
from zeus.optimizer.batch_size.job._values import shown

POLICIES = ("zeus", "paper", "grid", "default")
LEARNING_RATE_RULES = ("none", "square_root", "linear")

_MAX_BATCH_SIZES = 256
_MAX_SEED = 2**63


@dataclass(frozen=True)
class JobSpec:
    """A recurring training job.

    Attributes:
        name: Name of the job.
        batch_sizes: Allowed batch sizes; kept sorted. With a single one, only the power limit is
            left to choose, as in a hyperparameter search, and no run is stopped early.
        default_batch_size: The batch size in use today; exploration starts here.
        target_metric: A run has converged when its validation metric is at least this (at most,
            if lower is better).
        higher_is_better: Whether higher values of the metric are better.
        max_epochs: A run that has not converged by then has failed.
        eta_knob: The paper's eta: 0 weighs only time, 1 only energy.
        beta: A run is stopped before it costs more than `beta` times the cost of the best;
            `None` never stops a run.
        window: Number of latest observations that count, for data that drift; 0 counts all.
        pruning_rounds: Rounds of exploration before the paper's policy samples.
        policy: One of "zeus", "paper", "grid" and "default".
        seed: Seed of the job's random numbers.
        power_limits: Power limits in watts that grid search tries; the other policies leave the
            power limit to the power-limit optimizer.
        learning_rate_rule: How the learning rate follows the batch size: "square_root" for
            adaptive optimizers such as Adam, "linear" for SGD, or "none".

    Raises:
        JobSpecError: If a value breaks its rule.
    """

    name: str
    batch_sizes: tuple[int, ...]
    default_batch_size: int
    target_metric: float
    higher_is_better: bool = True
    max_epochs: int = 100
    eta_knob: float = 0.5
    beta: float | None = 2.0
    window: int = 0
    pruning_rounds: int = 2
    policy: str = "zeus"
    seed: int = 0
    power_limits: tuple[float, ...] = ()
    learning_rate_rule: str = "none"

    def __post_init__(self) -> None:
        name: Any = self.name
        if not isinstance(name, str) or not name.strip():
            raise JobSpecError(f"`name` must be a text that is not empty, but got {name!r}")
        sizes = tuple(sorted(_whole("batch_sizes", b, 1) for b in _several(self, "batch_sizes")))
        if not 1 <= len(sizes) <= _MAX_BATCH_SIZES:
            raise JobSpecError(
                f"`batch_sizes` must be 1 to {_MAX_BATCH_SIZES} numbers, but got {len(sizes)}"
            )
        if len(set(sizes)) != len(sizes):
            raise JobSpecError(f"`batch_sizes` must differ from each other, but got {sizes}")
        default = _whole("default_batch_size", self.default_batch_size, 1)
        if default not in sizes:
            raise JobSpecError(
                f"`default_batch_size` must be one of `batch_sizes` {sizes}, but got {default}"
            )
        limits = tuple(
            sorted(_number("power_limits", p, above=0) for p in _several(self, "power_limits"))
        )
        _one_of("policy", self.policy, POLICIES)
        _one_of("learning_rate_rule", self.learning_rate_rule, LEARNING_RATE_RULES)
        if self.policy == "grid" and not limits:
            raise JobSpecError("grid search needs `power_limits` to try, but got none")
        if not isinstance(self.higher_is_better, bool):
            raise JobSpecError(
                f"`higher_is_better` must be true or false, but got {self.higher_is_better!r}"
            )
        values = {
            "batch_sizes": sizes,
            "default_batch_size": default,
            "power_limits": limits,
            "target_metric": _number("target_metric", self.target_metric),
            "max_epochs": _whole("max_epochs", self.max_epochs, 1),
            "eta_knob": _number("eta_knob", self.eta_knob, least=0, most=1),
            "beta": None if self.beta is None else _number("beta", self.beta, above=1),
            "window": _whole("window", self.window, 0),
            "pruning_rounds": _whole("pruning_rounds", self.pruning_rounds, 0),
            "seed": _whole("seed", self.seed, 0, _MAX_SEED - 1),
        }
        for field, value in values.items():
            object.__setattr__(self, field, value)

    @property
    def default_index(self) -> int:
        """Index of the default among the batch sizes."""
        return self.batch_sizes.index(self.default_batch_size)

    @property
    def optimizes_power(self) -> bool:
        """Whether the power limit is left to the power-limit optimizer."""
        return self.policy in ("zeus", "paper")

    def reached(self, metric: float) -> bool:
        """Whether a validation metric meets the target."""
        if self.higher_is_better:
            return metric >= self.target_metric
        return metric <= self.target_metric

    def cost(self, energy: float, time: float, max_power: float) -> float:
        """Return the cost in joules (equation 2 of the paper).

        Args:
            energy: Joules of all GPUs.
            time: Seconds.
            max_power: Maximum power of all GPUs together in watts.
        """
        return zeus_cost(energy, time, max_power, self.eta_knob)

    def learning_rate_scale(self, batch_size: int) -> float:
        """Return the factor on the learning rate that was tuned for the default batch size."""
        ratio = batch_size / self.default_batch_size
        if self.learning_rate_rule == "linear":
            return ratio
        return math.sqrt(ratio) if self.learning_rate_rule == "square_root" else 1.0

    def differences(self, other: JobSpec) -> str:
        """Return the differences from another specification in words; empty if there are none."""
        here, there = self.to_dict(), other.to_dict()
        return "; ".join(
            f"{name} is {value}, not {there[name]}"
            for name, value in here.items()
            if value != there[name]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        values = asdict(self)
        values["batch_sizes"] = list(self.batch_sizes)
        values["power_limits"] = list(self.power_limits)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> JobSpec:
        """Inverse of `to_dict`.

        Raises:
            JobSpecError: If a key is unknown or missing, or a value breaks its rule.
        """
        if not isinstance(values, Mapping):
            raise JobSpecError(f"a job must be a mapping of names to values, but got {values!r}")
        known = {field.name for field in fields(cls)}
        unknown = sorted(str(name) for name in values if name not in known)
        if unknown:
            raise JobSpecError(f"a job has no {', '.join(unknown)}; it has {sorted(known)}")
        missing = [
            name
            for name in ("name", "batch_sizes", "default_batch_size", "target_metric")
            if name not in values
        ]
        if missing:
            raise JobSpecError(f"a job needs {', '.join(missing)}")
        return cls(**values)


# --- rules for values ---------------------------------------------------------------------------


def _several(spec: JobSpec, name: str) -> Iterable[Any]:
    values = getattr(spec, name)
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise JobSpecError(f"`{name}` must be a list of numbers, but got {values!r}")
    return values


def _whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise JobSpecError(f"`{name}` must be a whole number, but got {value!r}")
    number = int(value)
    if number < least or (most is not None and number > most):
        rule = f"{least} <= {name}" + ("" if most is None else f" <= {most}")
        raise JobSpecError(f"`{rule}` must hold, but got {shown(number)}")
    return number


def _number(
    name: str,
    value: Any,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
) -> float:
    try:
        good = isinstance(value, Real) and not isinstance(value, bool)
        number = float(value) if good else math.nan
    except OverflowError:  # an integer that is too large for a float
        number = math.inf
    if not math.isfinite(number):
        raise JobSpecError(f"`{name}` must be a finite number, but got {shown(value)}")
    if number <= above:
        raise JobSpecError(f"`{name} > {above:g}` must hold, but got {number:g}")
    if not least <= number <= most:
        raise JobSpecError(f"`{least:g} <= {name} <= {most:g}` must hold, but got {number:g}")
    return number


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise JobSpecError(f"`{name}` must be one of {', '.join(known)}, but got {value!r}")
