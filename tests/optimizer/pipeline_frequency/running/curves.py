"""Instructions whose time and power at each clock are known exactly."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from zeus.device._simulated_models import MODELS
from zeus.optimizer.pipeline_frequency.job._messages import InstructionKind

FORWARD, BACKWARD = InstructionKind("forward", 0), InstructionKind("backward", 0)
HIGHEST = 1410
LADDER = tuple(range(HIGHEST, 590, -30))
VISITED = (1410, 1350, 1260, 1170, 1080, 990)
"""Clocks that an exploration visits; lower ones are not asked for."""
ASKED = tuple(clock for clock in LADDER if clock >= VISITED[-1])
MODEL = MODELS["a100"]
WAITING = MODEL.busy_power(1.0, 0.0)

Curve = Callable[[float], float]  # of the share of the highest clock


def computing(share: float) -> float:
    """Seconds of an instruction of which 80 % goes with the clock."""
    return 0.05 * (0.8 / share + 0.2)


def limited(share: float) -> float:
    """The same on a GPU whose power limit keeps it at 90 % of the highest clock."""
    return computing(min(share, 0.9))


def bent(share: float) -> float:
    """One that becomes slower faster below 75 %."""
    return 0.05 * (0.9 / share + 0.1 + 0.7 * max(1 / share - 1 / 0.75, 0.0))


def watts(activity: float) -> Curve:
    """Power of an instruction, by the model of the simulated A100."""
    return lambda share: MODEL.busy_power(share, activity)


@dataclass
class Errors:
    """Relative errors of estimates, beside the standard deviations stated with them."""

    errors: list[float] = field(default_factory=list)
    stated: list[float] = field(default_factory=list)

    def add(self, found: float | None, truth: float, uncertainty: float) -> None:
        assert found is not None
        self.errors.append(abs(found / truth - 1))
        self.stated.append(uncertainty)

    @property
    def median(self) -> float:
        return statistics.median(self.errors)

    @property
    def most(self) -> float:
        """Of 95 % of them."""
        return sorted(self.errors)[math.ceil(0.95 * len(self.errors)) - 1]

    @property
    def coverage(self) -> float:
        """Share within two standard deviations; 0.954 if those were exact."""
        pairs = zip(self.errors, self.stated, strict=True)
        return sum(error <= 2 * one for error, one in pairs) / len(self.errors)

    @property
    def scale(self) -> float:
        """Root mean square of errors in standard deviations; 1 if those were exact."""
        pairs = zip(self.errors, self.stated, strict=True)
        return math.sqrt(statistics.fmean((error / one) ** 2 for error, one in pairs))
