"""Times of messages on the links between neighboring stages, in both directions.

Link `s` connects stages `s` and `s + 1`. Links differ: those within a machine are fast, those
between machines are not. With several stages per rank, some links lead from the last rank back to
the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zeus.errors import PipelineError
from zeus.optimizer.pipeline_frequency._pipeline import bounded
from zeus.optimizer.pipeline_frequency._profile import COMMUNICATION, MAX_SECONDS, Profile

LinkTimes = float | Sequence[float | tuple[float, float]]
"""Seconds of a message: one value for all links, or one for each, in the order of stages. A value
of a list may be a pair: activations, which go to the next stage, and gradients, which come back."""


@dataclass(frozen=True)
class Links:
    """Message times of all links.

    Attributes:
        activations: Seconds from the end of a forward until the next stage has its result, by link.
        gradients: Seconds from the end of a backward until the previous stage has its result.
    """

    activations: tuple[float, ...]
    gradients: tuple[float, ...]

    @classmethod
    def of(cls, given: LinkTimes, stages: int) -> Links:
        """Return the times of every link from what the user gave.

        Args:
            given: One time for all links, or one for each.
            stages: Number of stages.

        Raises:
            PipelineError: If the number of times is not that of links, or one is out of range.
        """
        times = list(given) if isinstance(given, Sequence) else [given]
        pairs = [_pair(each) for each in times]
        links = stages - 1
        if len(pairs) not in {1, links}:
            shown = ", ".join(f"{a:g}" if a == b else f"{a:g}/{b:g}" for a, b in pairs)
            raise PipelineError(
                "`communication` must have one time for all links, or `stages - 1` times, one for "
                f"each link between neighboring stages, but got {len(pairs)} for {stages} stages "
                f"({links} link{'' if links == 1 else 's'}): {shown or 'none'}"
            )
        if len(pairs) == 1:
            pairs *= links
        return cls(tuple(there for there, _ in pairs), tuple(back for _, back in pairs))

    @classmethod
    def measured(cls, profile: Profile) -> Links:
        """Return the times of the profile's rows of `communication`; links without one take none.

        Raises:
            PipelineError: If the last stage has such a row.
        """
        last = profile.stages - 1
        if (last, COMMUNICATION) in profile:
            raise PipelineError(
                f"{profile.name}: `{COMMUNICATION}` of stage s is the time between stages s and "
                f"s + 1, so that s must be less than {last}, but got one of stage {last}"
            )
        times = tuple(
            profile[stage, COMMUNICATION][0].time if (stage, COMMUNICATION) in profile else 0.0
            for stage in range(last)
        )
        return cls(times, times)


def _pair(given: object) -> tuple[float, float]:
    pair = given if isinstance(given, tuple) else (given, given)
    if len(pair) != 2:
        raise PipelineError(
            "a link must have one time, or one for activations and one for gradients, but got "
            f"{pair!r}"
        )
    there, back = (bounded("communication", each, MAX_SECONDS) for each in pair)
    return there, back
