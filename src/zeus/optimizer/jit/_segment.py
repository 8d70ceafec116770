"""Messages between the decision generators and the training loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Segment:
    """Consecutive steps of training under one setting.

    Attributes:
        steps: Number of steps, at least 1. They may span several epochs.
        setting: Setting of the knob; `None` for the one before the run.
        measured: Whether to report their time and energy.
        continues: Whether they are measured in one window with the previous segment, which was at
            the same setting.
    """

    steps: int
    setting: Any
    measured: bool = True
    continues: bool = False


@dataclass(frozen=True)
class Idle:
    """Nothing to do until the next epoch begins.

    Attributes:
        setting: Setting of the knob meanwhile; `None` for the one before the run.
    """

    setting: Any


@dataclass(frozen=True)
class SegmentResult:
    """Time and energy of a segment, over all GPUs of the job.

    Attributes:
        steps: Number of training steps.
        time: Seconds, of the slowest process.
        energy: Joules of all GPUs.
        uncertainty: Uncertainty of the energy in joules, for about 19 of 20 cases.
        highest_power: Highest average power of any GPU, in watts.
        late: Seconds of `time` by which single steps were late, of the slowest process.
        together: Uncertainty in joules of the total energy of this segment and those it continues:
            less than the sum of each, as errors at common ends cancel. `None` if unknown.
    """

    steps: int
    time: float
    energy: float
    uncertainty: float = 0.0
    highest_power: float = 0.0
    late: float = 0.0
    together: float | None = None
