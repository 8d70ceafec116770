"""Detection of late steps: missing data, a checkpoint, a garbage collection.

They are rare and long, so that the mean over a short window says more about them than about the
setting that it should characterize.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

# A late step takes at least this many times as long as the median one.
_LATE = 2.0
# A larger share of late steps is no accident but normal for the job.
_RARE = 0.05
# With fewer steps the median is not reliable.
_FEWEST = 10
# A host that queues work ahead of the GPU makes short and long steps that mean nothing by
# themselves: then the long ones make up most of the time.
_MAX_SHARE = 0.25


def late_time(steps: Sequence[float]) -> float:
    """Return the seconds by which single steps of a window were late; 0 where undetermined.

    Args:
        steps: Seconds of each step, measured on the host. The last one is never late: it may have
            waited for the GPU to finish queued work.
    """
    if len(steps) < _FEWEST:
        return 0.0
    median = statistics.median(steps)
    late = [time - median for time in steps[:-1] if time > _LATE * median]
    if len(late) > max(1, _RARE * len(steps)) or sum(late) > _MAX_SHARE * sum(steps):
        return 0.0
    return sum(late)
