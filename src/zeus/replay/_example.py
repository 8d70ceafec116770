"""A made-up job, for replays where there are no recorded traces. Nothing of it was measured.

With `b` the batch size, `c` the clock relative to the highest, and samples and seconds as below:

- Epochs until a target: `E (1 + b / B)`, times the luck of a run. `E` and `B`, the batch size from
  which more samples per step hardly help, are of the target. Runs of very large batches fail.
- Seconds of a step: `host + (launch + b / throughput) (1 - k + k / c)`, where `k` is the share of
  the kernels' time that goes with the clock.
- Power and clock under a power limit: those of our simulated GPUs (`ZEUS_SIMULATE`), whose kernels
  are busy for `0.3 + 0.7 b / (b + 256)` of what a GPU can do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from zeus.device._simulated_models import MODELS
from zeus.errors import TraceError
from zeus.replay._traces import PowerRow, Traces, TrainingRow
from zeus.replay._workloads import MADE_UP

EXAMPLE_GPUS = ("v100", "a40")
_BATCH_SIZES = tuple(2**power for power in range(5, 14))
_LIMIT_STEP = 25  # W
_TARGETS = {0.6: (6.0, 500.0), 0.7: (10.0, 2000.0), 0.75: (18.0, 6000.0)}  # E and B
_LUCK = (0.9, 0.96, 1.0, 1.05, 1.12)
_FAILURES = {4096: 2, 8192: len(_LUCK)}  # runs that never reach a target, by batch size
_SAMPLES = 100_000  # of an epoch
_HOST, _LAUNCH = 0.004, 0.012  # s
_THROUGHPUT = 450.0  # samples per second and unit of a GPU's speed
_CLOCKED = 0.7


def example_traces(gpus: Sequence[str] | None = None) -> Traces:
    """Return the outcomes of the made-up job as traces.

    Args:
        gpus: GPU models; by default all it has.

    Raises:
        TraceError: If it has not run on a GPU model.
    """
    wanted = EXAMPLE_GPUS if gpus is None else gpus
    missing = [gpu for gpu in wanted if gpu not in EXAMPLE_GPUS]
    if missing:
        raise TraceError(
            f"the made-up job has not run on {', '.join(missing)}; "
            f"it has on {', '.join(EXAMPLE_GPUS)}"
        )
    return Traces(
        Path("the made-up job"),
        {MADE_UP.key: _training()},
        {gpu: {MADE_UP.key: _power(gpu)} for gpu in wanted},
    )


def _training() -> list[TrainingRow]:
    return [
        TrainingRow(size, 0.1, str(run), target, _epochs(size, run, *shape))
        for size in _BATCH_SIZES
        for run in range(len(_LUCK))
        for target, shape in _TARGETS.items()
    ]


def _epochs(batch_size: int, run: int, least: float, helps: float) -> float:
    if run < _FAILURES.get(batch_size, 0):
        return math.inf
    return math.ceil(least * (1 + batch_size / helps) * _LUCK[run])


def _power(gpu: str) -> list[PowerRow]:
    model = MODELS[gpu]
    rows = []
    for limit in range(int(model.minimum_limit), int(model.maximum_limit) + 1, _LIMIT_STEP):
        for size in _BATCH_SIZES:
            activity = 0.3 + 0.7 * size / (size + 256)
            clock = model.relative_clock(activity, limit, model.highest_clock)
            at_full = _LAUNCH + size / (_THROUGHPUT * model.speed)
            kernels = at_full * (1 - _CLOCKED + _CLOCKED / clock)
            busy = model.busy_power(clock, activity) * kernels
            step = _HOST + kernels
            watts = (busy + model.static_power * _HOST) / step
            rows.append(PowerRow(size, limit, step * _SAMPLES / size, watts))
    return rows
