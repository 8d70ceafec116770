"""Energy in an experiment tracker: the base class of trackers, and the values that they get.

`zeus.integrations.mlflow`, `wandb`, `tensorboard` and `trackio` each have a subclass of `Tracker`.
Every integration takes one as its argument `tracker`. docs/trackers.md lists the values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from zeus._rules import Whole, enforce
from zeus.errors import RunError


@dataclass(kw_only=True)
class Tracker(ABC):
    """Gets the values of a training run, each under the number of steps done so far.

    Every process of a job has its own tracker, and only that of the first process is called. If a
    method raises an exception, it is logged as one warning, training continues, and the tracker is
    not called again.

    Attributes:
        every: Steps between values of steps; `None` for values of epochs only.
        samples: Samples that this process trains on in one step. By default the integration finds
            out; where it cannot, values per sample are left out.
        first_step: Number of steps before this run. Only for custom loops, Accelerate included:
            the other frameworks know it, also of a run that is resumed.

    Raises:
        ValueError: If a value breaks its rule.
    """

    every: Annotated[int, Whole(1)] | None = 50
    samples: Annotated[int, Whole(1)] | None = None
    first_step: Annotated[int, Whole(0)] = 0

    def __post_init__(self) -> None:
        """Check the options."""
        enforce(self, RunError)

    @abstractmethod
    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log values by name.

        Args:
            values: The values; names begin with `zeus/`.
            step: Number of optimizer steps done, as the framework counts them.
        """

    def close(self) -> None:  # noqa: B027  (need not be overridden)
        """Write out what is buffered. Called at the end of a run; another one may follow."""
