"""Specification of a recurring job: the choices, the target, and the weight of energy and time.

A specification never changes. Together with the log of its trials it is all that a policy sees.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any

from zeus import _extensions
from zeus._former import former_keywords
from zeus._rules import Number, Numbers, OneOf, Whole, enforce
from zeus.errors import JobSpecError
from zeus.frontier._cost import zeus_cost
from zeus.optimizer._stopping import reached
from zeus.optimizer.batch_size.job import _values as values

POLICIES = ("zeus", "paper", "paper-repaired", "grid", "default")
LEARNING_RATE_RULES = ("none", "square_root", "linear")


@dataclass(frozen=True)
class _PolicyName(OneOf):
    """One of our policies, or one that another distribution adds."""

    def check(self, name: str, value: Any, error: type[Exception]) -> str:
        if isinstance(value, str) and value not in self.words:
            others = _extensions.extension_names(_extensions.POLICIES)
            return OneOf((*self.words, *others)).check(name, value, error)
        return super().check(name, value, error)


@former_keywords("_job_spec")
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
        exploration_budget: Part of what the default batch size would have cost that exploring
            may cost in addition to what was saved; 0 leaves the batch size alone and optimizes
            only the power limit, `None` sets no bound. For the policy "zeus".
        pruning_rounds: Rounds of exploration before the paper's policy samples.
        policy: "zeus"; "paper", as its authors published it, or "paper-repaired"; "grid" search; or
            "default", which changes nothing; or a policy that another distribution adds
            (docs/extending.md).
        seed: Seed of the job's random numbers.
        power_limits: Power limits in watts that grid search tries; the other policies leave the
            power limit to the power-limit optimizer.
        learning_rate_rule: How the learning rate follows the batch size: "square_root" for
            adaptive optimizers such as Adam, "linear" for SGD, or "none".
        patience: Number of evaluations in a row in which the target must be met, for metrics that
            fluctuate.
        profile_key: Jobs with the same key share their power profiles. It is for jobs that differ
            only in what leaves the time and power of a step as they are, such as the trials of a
            hyperparameter search. `None` shares with no job.

    Raises:
        JobSpecError: If a value breaks its rule.
    """

    name: values.Name
    batch_sizes: Annotated[tuple[int, ...], Numbers(values.BATCH_SIZE, 1, 256)]
    default_batch_size: values.BatchSize
    target_metric: values.Metric
    higher_is_better: bool = True
    max_epochs: values.Epochs = 100
    eta_knob: Annotated[float, Number(0, 1)] = 0.5
    beta: Annotated[float, Number(1, 1e6, above=True)] | None = 2.0
    window: Annotated[int, Whole(0, 1_000)] = 0
    exploration_budget: Annotated[float, Number(0, 1e6)] | None = 0.05
    pruning_rounds: Annotated[int, Whole(0, 1_000)] = 2
    policy: Annotated[str, _PolicyName(POLICIES)] = "zeus"
    seed: Annotated[int, Whole(0, 2**63 - 1)] = 0
    power_limits: Annotated[tuple[float, ...], Numbers(values.WATTS, 0, 256)] = ()
    learning_rate_rule: Annotated[str, OneOf(LEARNING_RATE_RULES)] = "none"
    patience: values.Epochs = 1
    profile_key: values.Name | None = None

    def __post_init__(self) -> None:
        name: Any = self.name
        if not isinstance(name, str) or not name.strip():
            raise JobSpecError(f"`name` must be a text that is not empty, but got {name!r}")
        enforce(self, JobSpecError, but=("name",))  # whose length is bounded in requests only
        sizes, default = tuple(sorted(self.batch_sizes)), self.default_batch_size
        if len(set(sizes)) != len(sizes):
            raise JobSpecError(f"`batch_sizes` must differ from each other, but got {sizes}")
        if default not in sizes:
            raise JobSpecError(
                f"`default_batch_size` must be one of `batch_sizes` {sizes}, but got {default}"
            )
        if self.patience > self.max_epochs:
            raise JobSpecError(
                "`patience <= max_epochs` must hold, but got "
                f"(patience={self.patience}, max_epochs={self.max_epochs})"
            )
        if self.policy == "grid" and not self.power_limits:
            raise JobSpecError("grid search needs `power_limits` to try, but got none")
        if not isinstance(self.higher_is_better, bool):
            raise JobSpecError(
                f"`higher_is_better` must be true or false, but got {self.higher_is_better!r}"
            )
        object.__setattr__(self, "batch_sizes", sizes)
        object.__setattr__(self, "power_limits", tuple(sorted(self.power_limits)))

    @property
    def default_index(self) -> int:
        """Index of the default among the batch sizes."""
        return self.batch_sizes.index(self.default_batch_size)

    @property
    def optimizes_power(self) -> bool:
        """Whether the power limit is left to the power-limit optimizer."""
        return self.policy not in ("grid", "default")

    def reached(self, metric: float) -> bool:
        """Whether a validation metric meets the target."""
        return reached(metric, self.target_metric, higher_is_better=self.higher_is_better)

    def cost(self, energy: float, time: float, max_power: float) -> float:
        """Return the cost in joules (equation 2 of the paper).

        Args:
            energy: Joules of all GPUs.
            time: Seconds.
            max_power: Maximum power of all GPUs together in watts.
        """
        return zeus_cost(energy, time, max_power, self.eta_knob)

    def learning_rate_scale(self, batch_size: int) -> float:
        """Return the factor on the learning rate that was tuned for the default batch size.

        Args:
            batch_size: Batch size to train with.
        """
        ratio = batch_size / self.default_batch_size
        if self.learning_rate_rule == "linear":
            return ratio
        return math.sqrt(ratio) if self.learning_rate_rule == "square_root" else 1.0

    def differences(self, other: JobSpec) -> str:
        """Return the differences from another specification in words; empty if there are none.

        Args:
            other: Specification to compare with.
        """
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

        Args:
            values: As returned by `to_dict`.

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
