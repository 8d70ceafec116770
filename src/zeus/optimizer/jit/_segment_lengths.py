"""How long to measure each setting: until it is known well enough, or as the user specifies."""

from __future__ import annotations

import math
from dataclasses import dataclass

from zeus.optimizer.jit._estimate import Noise, SettingSamples

#: A step's time and energy known to this share are known well enough to choose by.
PRECISION = 0.002
#: Maximum seconds to measure at one setting.
LONGEST = 5.0
#: Seconds of one stay at a setting, where stays are compared: on a host that drifts, several short
#: ones are more informative than a long one.
STAY = 1.0
#: Seconds of training in which a setting should be found.
BUDGET = 27.0
#: Minimum seconds of a window: several ticks of an energy counter.
PART = 0.25
#: Seconds for a GPU to settle at a new setting.
SETTLE = 0.2
#: Seconds of training before measurements count: caches, autotuning, a cold GPU.
WARM_UP = 1.0


@dataclass(frozen=True)
class SegmentLengths:
    """Numbers of steps.

    Attributes:
        wait: Steps to skip at the very beginning.
        warmup: Steps to skip at each setting; `None` to decide by time.
        profile: Steps to measure at each setting; `None` to measure until it is well known.
    """

    wait: int = 1
    warmup: int | None = None
    profile: int | None = None

    def settling(self, step_time: float | None) -> int:
        """Return the steps to skip after a change of the setting.

        Args:
            step_time: Approximate seconds of a step; `None` if unknown.
        """
        if self.warmup is not None:
            return self.warmup
        if step_time is None:
            return 1
        if step_time > 100 * SETTLE:
            return 0  # the change is negligible in so long a step
        return max(1, math.ceil(SETTLE / step_time))

    def next_part(
        self,
        samples: SettingSamples,
        step_time: float | None,
        noise: Noise,
        *,
        first: bool,
        precision: float = PRECISION,
        longest: float = LONGEST,
    ) -> int:
        """Return the steps to measure next at a setting; 0 if it is known well enough.

        Args:
            samples: The measurements there so far.
            step_time: Approximate seconds of a step there; `None` if unknown.
            noise: Noise of steps, estimated from all settings.
            first: Whether this is the first setting, from which the noise is learned.
            precision: The share to which time and energy should be known.
            longest: Maximum seconds to measure.
        """
        if self.profile is not None:
            left = self.profile - samples.steps
            return math.ceil(left / 2) if not samples.parts else left  # two parts show the noise
        if step_time is None:
            return 1
        part = max(1, math.ceil(PART / step_time))
        patience = 2 * longest if first else longest
        wanted = 4 if first else 2
        if samples.torn and part > 1:
            return part  # one of them has a late step: a third part shows which
        if len(samples.parts) < wanted and (
            samples.time + part * step_time <= patience
            or part > 1
            or len(samples.parts) < wanted // 2
            or noise.uncertainty(samples) > precision
        ):
            return part
        left = math.floor((patience - samples.time) / step_time)
        if noise.uncertainty(samples) <= precision or left < 1:
            return 0
        return min(left, max(part, noise.steps_for(precision, samples) - samples.steps))
