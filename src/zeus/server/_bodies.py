"""Request bodies of recurring jobs, as documented by OpenAPI.

Only types and ranges are checked here; `zeus.optimizer.batch_size` checks the rules between values.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from zeus.optimizer.batch_size.job import _values as values
from zeus.optimizer.batch_size.storage._batch import MAX_REQUEST

Name = Annotated[str, Field(min_length=1, max_length=values.MAX_NAME)]


def _whole(value: Any) -> Any:
    """Convert floats such as 1.0 to int: JSON does not distinguish them, pydantic does."""
    return int(value) if type(value) is float and value.is_integer() else value


Whole = BeforeValidator(_whole)
Gpus = Annotated[int, Field(ge=1, le=values.MAX_GPUS), Whole]
BatchSize = Annotated[int, Field(ge=1, le=values.MAX_BATCH_SIZE), Whole]
Watts = Annotated[float, Field(gt=0, le=values.MAX_WATTS)]
Joules = Annotated[float, Field(ge=0, le=values.MAX_JOULES)]
Metric = Annotated[float, Field(ge=-values.MAX_METRIC, le=values.MAX_METRIC)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class JobBody(_Body):
    """The specification of a job; see `JobSpec`."""

    name: Name
    batch_sizes: Annotated[list[BatchSize], Field(min_length=1, max_length=256)]
    default_batch_size: BatchSize
    target_metric: Metric
    higher_is_better: bool = True
    max_epochs: Annotated[int, Field(ge=1, le=values.MAX_EPOCHS), Whole] = 100
    eta_knob: Annotated[float, Field(ge=0, le=1)] = 0.5
    beta: Annotated[float, Field(gt=1, le=1e6)] | None = 2.0
    window: Annotated[int, Field(ge=0, le=values.MAX_WINDOW), Whole] = 0
    pruning_rounds: Annotated[int, Field(ge=0, le=values.MAX_ROUNDS), Whole] = 2
    policy: Literal["zeus", "paper", "grid", "default"] = "zeus"
    seed: Annotated[int, Field(ge=0, lt=2**63), Whole] = 0
    power_limits: Annotated[list[Watts], Field(max_length=values.MAX_POWER_LIMITS)] = []
    learning_rate_rule: Literal["none", "square_root", "linear"] = "none"


class DecideBody(_Body):
    """A request for a trial: the GPUs (maximum power in W) and the lease (s)."""

    gpu: Name
    max_power: Watts
    gpus: Gpus = 1
    request: Annotated[str, Field(min_length=1, max_length=MAX_REQUEST)]
    retry_of: Annotated[str, Field(max_length=40)] | None = None
    lease: Annotated[float, Field(ge=values.MIN_LEASE, le=values.MAX_LEASE)] = values.DEFAULT_LEASE
    default: bool = False


class EpochBody(_Body):
    """An epoch that has ended: time in s, energy in J, power limit in W."""

    epoch: Annotated[int, Field(ge=1, le=values.MAX_EPOCHS), Whole]
    time: Annotated[float, Field(gt=0, le=values.MAX_SECONDS)]
    energy: Joules | None = None
    metric: Metric | None = None
    power_limit: Watts | None = None


class EndBody(_Body):
    """The end of a trial: outcome, and time (s) and energy (J) since its last epoch."""

    outcome: Literal["failed", "cancelled"]
    time: Annotated[float, Field(ge=0, le=values.MAX_SECONDS)] = 0.0
    energy: Joules | None = 0.0
    note: Annotated[str, Field(max_length=100_000)] = ""


class ProfileBody(_Body):
    """Measurements at a batch size: frontier, cost of an epoch and power limit (W)."""

    gpu: Name
    gpus: Gpus = 1
    batch_size: BatchSize
    frontier: dict[str, Any] | None = None
    epoch_cost: Annotated[float, Field(ge=0, le=1e18)] | None = None
    load: Annotated[float, Field(ge=0, le=1e3)] | None = None
    power_limit: Watts | None = None
