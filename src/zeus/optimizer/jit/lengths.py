"""How long to look at each setting: until it is known well enough, or as the user says."""

from __future__ import annotations

import math
from dataclasses import dataclass

from zeus.optimizer.jit.estimate import Noise, Slice

#: A step's time and energy known to this share are known well enough to choose by.
PRECISION = 0.002
#: Seconds at one setting after which it has to do.
LONGEST = 5.0
#: Seconds of one stay at a setting, where stays are to be compared: several short ones tell more
#: than a long one on a host that drifts.
STAY = 1.0
#: Seconds of training in which a setting should be found.
BUDGET = 27.0
#: Seconds that a window should last at least: several ticks of an energy counter.
PART = 0.25
#: Seconds for a GPU to get used to a new setting.
SETTLE = 0.2
#: Seconds of training before anything is believed: caches, autotuning, a cold GPU.
WARM_UP = 1.0


@dataclass(frozen=True)
class Lengths:
    """Numbers of steps.

    Attributes:
        wait: Steps to pass by at the very beginning.
        warmup: Steps to pass by at each setting; `None` to decide by time.
        profile: Steps to measure at each setting; `None` to go on until they are well known.
    """

    wait: int = 1
    warmup: int | None = None
    profile: int | None = None

    def settling(self, step_time: float | None) -> int:
        """Steps to pass by after a change of the setting.

        Args:
            step_time: Seconds of a step, roughly; `None` if not known yet.
        """
        if self.warmup is not None:
            return self.warmup
        if step_time is None:
            return 1
        if step_time > 100 * SETTLE:
            return 0  # what the change takes does not show in so long a step
        return max(1, math.ceil(SETTLE / step_time))

    def next_part(
        self,
        piece: Slice,
        step_time: float | None,
        noise: Noise,
        *,
        first: bool,
        precision: float = PRECISION,
        longest: float = LONGEST,
    ) -> int:
        """Steps to measure next at a setting; 0 if it is known well enough.

        Args:
            piece: What has been measured there.
            step_time: Seconds of a step there, roughly; `None` if not known yet.
            noise: What all settings tell about it.
            first: Whether this is the setting that tells the noise to the others.
            precision: The share to which time and energy should be known.
            longest: Seconds after which it has to do.
        """
        if self.profile is not None:
            left = self.profile - piece.steps
            return math.ceil(left / 2) if not piece.parts else left  # two tell about the noise
        if step_time is None:
            return 1
        part = max(1, math.ceil(PART / step_time))
        patience = 2 * longest if first else longest
        wanted = 4 if first else 2
        if piece.torn and part > 1:
            return part  # one of them met a late step: a third one tells which
        if len(piece.parts) < wanted and (
            piece.time + part * step_time <= patience
            or part > 1
            or len(piece.parts) < wanted // 2
            or noise.doubt(piece) > precision
        ):
            return part
        left = math.floor((patience - piece.time) / step_time)
        if noise.doubt(piece) <= precision or left < 1:
            return 0
        return min(left, max(part, noise.steps_for(precision, piece) - piece.steps))
