"""What the decisions and the training loop say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stretch:
    """Consecutive steps of training under one setting.

    Attributes:
        steps: How many, at least 1. They may lie in more than one epoch.
        setting: Of the knob; `None` for whatever was set before the run.
        measured: Whether to tell what they took.
        continues: Whether they are measured in one with the stretch right before them, which was
            at the same setting.
    """

    steps: int
    setting: Any
    measured: bool = True
    continues: bool = False


@dataclass(frozen=True)
class Rest:
    """Nothing to do until the next epoch begins.

    Attributes:
        setting: Of the knob meanwhile; `None` for whatever was set before the run.
    """

    setting: Any


@dataclass(frozen=True)
class Taken:
    """What a stretch took, over all GPUs of the job.

    Attributes:
        steps: Of training.
        time: Seconds, of the slowest process.
        energy: Joules of all GPUs.
        uncertainty: Joules by which the energy may be off in about 19 of 20 cases.
        highest_power: Watts on average of the GPU that drew most.
        late: Seconds of `time` by which single steps were late, of the slowest process.
        together: Joules by which the energy of this stretch and of those that it continues, added
            up, may be off: less than each alone, as what one has too much at an end the next has
            too little. `None` if not known.
    """

    steps: int
    time: float
    energy: float
    uncertainty: float = 0.0
    highest_power: float = 0.0
    late: float = 0.0
    together: float | None = None
