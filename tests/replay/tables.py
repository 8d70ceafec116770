"""Small worlds whose outcomes are known, for tests of policies and of the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from zeus.replay._table import JobTable


def table(
    epochs: Mapping[int, Sequence[float]],
    *,
    default: int,
    step_cost: float = 1.0,
    sample_cost: float = 0.05,
    power_limits: tuple[float, ...] = (100.0, 200.0),
    max_epochs: int = 50,
    gpu: str = "toy",
) -> JobTable:
    """A job on a data set of 1,000 samples.

    Args:
        epochs: Of each run, by batch size.
        default: The default batch size.
        step_cost: Seconds of each step, whatever its size.
        sample_cost: Seconds of each sample.
        power_limits: Watts; a step takes longer at a lower one, and power is 90 % of it.
        max_epochs: Most epochs of a run.
        gpu: Name.
    """
    sizes = tuple(sorted(epochs))
    runs = max(len(values) for values in epochs.values())
    limits = np.array(power_limits)
    seconds = np.array([1000 / size * step_cost + 1000 * sample_cost for size in sizes])
    slowdown = (limits.max() / limits) ** 0.4
    return JobTable(
        gpu=gpu,
        workload="toy",
        batch_sizes=sizes,
        power_limits=power_limits,
        default=sizes.index(default),
        target_metric=0.9,
        higher_is_better=True,
        max_epochs=max_epochs,
        max_power=float(limits.max()),
        epochs=np.array([[*epochs[s], *[np.nan] * (runs - len(epochs[s]))] for s in sizes]),
        time=seconds[:, None] * slowdown,
        power=np.broadcast_to(0.9 * limits, (len(sizes), len(limits))).copy(),
    )


#: One valley, at 64; 512 never reaches the target.
VALLEY: dict[int, Sequence[float]] = {
    8: [9, 10],
    16: [9, 9],
    32: [9, 10],
    64: [10, 11],
    128: [19, 20],
    256: [38, 40],
    512: [np.inf],
}
