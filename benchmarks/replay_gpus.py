"""Synthetic GPUs: recorded power traces, distorted in the ways in which GPUs differ.

A policy that was overfitted to the GPUs it was developed on does worse there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from zeus.replay._table import JobTable


def bent(table: JobTable, number: int) -> JobTable:
    """Return a table of the same workload on a synthetic GPU.

    Four things change: how speed depends on the batch size (a slope, and a fixed cost of each
    step), how much a low power limit slows it down, how much power a light load draws, and the
    range of the power limits.

    Args:
        table: Table of a recorded GPU.
        number: Number of the synthetic GPU; the same GPU for every workload.
    """
    generator = np.random.default_rng([number, sum(map(ord, table.gpu))])
    slope = generator.uniform(-0.2, 0.2)
    overhead = np.exp(generator.uniform(np.log(0.02), np.log(0.5)))
    stiffness = generator.uniform(0.5, 1.5)
    scale = np.exp(generator.uniform(np.log(0.6), np.log(1.6)))
    idle = generator.uniform(0.0, 0.15)
    relative = np.array(table.batch_sizes)[:, None] / table.batch_sizes[table.default]
    time = table.time * relative**slope * (1 + overhead / relative) / (1 + overhead)
    fastest = np.nanmin(time, axis=1, keepdims=True)
    time = fastest * (time / fastest) ** stiffness
    power = scale * ((1 - idle) * table.power + idle * table.max_power)
    return replace(
        table,
        gpu=f"{table.gpu}~{number}",
        power_limits=tuple(float(scale * limit) for limit in table.power_limits),
        max_power=float(scale * table.max_power),
        time=time,
        power=power,
    )
