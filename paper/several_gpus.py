"""A workload on several GPUs, made of traces of one GPU and of the Pollux artifact.

Nobody published a trace of the paper's comparison with Pollux (section 6.6), so both sides of it
are models here. `spread` makes a table for replays of a workload on the GPUs of one node:

- A batch of b samples is divided evenly. Each GPU takes the time and the power that one GPU was
  recorded with at its share, interpolated between recorded shares (logarithms of share and time).
- Exchanging gradients adds the time by which one step of the same application is longer on as many
  T4 than on one, in proportion to a step without power limits. Power limits do not change it, and
  power meanwhile is that of the rest.
- Epochs until the target are those recorded with batches of b samples on one GPU.

`follow_goodput` trains on these GPUs without power limits, and chooses the batch size as in
`goodput`. How much a sample teaches at each stage of training comes from the gradients recorded by
Pollux, at the same fraction of the progress to the target, and is scaled so that a training with
one batch size takes the epochs of the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from paper.goodput import Gradient, best_batch_size
from paper.pollux import Application
from paper.product import Floats, JobTable

_STAGES = 200  # equal parts of the progress to the target; batch sizes change between them


def spread(
    table: JobTable, epochs: dict[int, list[float]], gpus: int, steps: Application | None
) -> JobTable:
    """Return the table of a workload on several GPUs of one node.

    Args:
        table: Table of the workload on one GPU.
        epochs: Epochs until the target of each run, by batch size.
        gpus: Number of GPUs.
        steps: Application of the artifact that shows how much longer steps take on several GPUs;
            `None` if exchanging gradients takes no time.
    """
    recorded = np.array(table.batch_sizes, float)
    sizes = [size for size in sorted(epochs) if recorded[0] <= size / gpus <= recorded[-1]]
    shares = np.array(sizes, float) / gpus

    def at_shares(values: Floats) -> Floats:
        columns = [np.interp(np.log(shares), np.log(recorded), column) for column in values.T]
        return np.stack(columns, axis=1)

    time = np.exp(at_shares(np.log(table.time))) / gpus
    if steps is not None:
        time += (exchange(steps, shares, gpus) * time[:, -1])[:, None]
    longest = max(len(epochs[size]) for size in sizes)
    below = [size for size in sizes if size <= table.batch_sizes[table.default]]
    return replace(
        table,
        gpu=f"{gpus} {table.gpu}",
        batch_sizes=tuple(sizes),
        default=sizes.index(max(below)),
        max_power=gpus * table.max_power,
        epochs=np.array(
            [[*epochs[size], *[np.nan] * (longest - len(epochs[size]))] for size in sizes]
        ),
        time=time,
        power=gpus * at_shares(table.power),
    )


def exchange(steps: Application, shares: Floats, gpus: int) -> Floats:
    """Return by which fraction a step is longer on several GPUs than on one, at each share.

    Outside of the recorded shares, it is that of the nearest.
    """
    one, several = steps.steps[1], steps.steps[gpus]
    alone = np.interp(several.share, one.share, one.step)
    found: Floats = np.interp(np.log(shares), np.log(several.share), several.step / alone - 1)
    return found


@dataclass(frozen=True)
class Outcome:
    """A training whose batch size changes.

    Attributes:
        time: Seconds until the target.
        energy: Joules until the target.
        sizes: Batch size in each stage; stages are equal parts of the progress to the target.
    """

    time: float
    energy: float
    sizes: list[int]


def follow_goodput(
    table: JobTable,
    application: Application,
    *,
    least: int | None = None,
    alike: bool = False,
    informed: bool = False,
    limit: int = -1,
) -> Outcome:
    """Train with the batch size of the highest goodput, changed as training goes on.

    Args:
        table: From `spread`; batch sizes that never reach the target are left out.
        application: Application of the artifact, for the statistics of gradients.
        least: Initial batch size, below which none is chosen; by default the smallest.
        alike: Whether a sample teaches as much at every stage, as the epochs of the table say.
        informed: Whether efficiency is known exactly, instead of predicted by the noise scale.
        limit: Index of the power limit, by default the highest.
    """
    arms = [
        arm
        for arm, size in enumerate(table.batch_sizes)
        if np.isfinite(table.expected_epochs[arm]) and size >= (least or 0)
    ]
    sizes = [table.batch_sizes[arm] for arm in arms]
    epochs, time = table.expected_epochs[arms], table.time[arms, limit]
    gradients = _gradients(application, sizes, table.target_metric, table.higher_is_better)
    # Samples that a stage takes, by batch size and stage, relative to the mean of all stages.
    needed = np.array([[1 / float(each.efficiency([size])[0]) for each in row]
                       for size, row in zip(sizes, gradients, strict=True)])  # fmt: skip
    needed /= needed.mean(axis=1, keepdims=True)
    if alike:
        needed[:] = 1
    seconds = needed * (epochs * time)[:, None] / _STAGES
    chosen: list[int] = []
    for stage in range(_STAGES):
        if informed:
            chosen.append(int(np.argmin(seconds[:, stage])))
            continue
        if not chosen:
            chosen.append(0)  # nothing was measured yet
            continue
        # What was measured in the stage before, with the batch size of then.
        seen = gradients[chosen[-1]][stage - 1]
        chosen.append(sizes.index(best_batch_size(sizes, np.array(1 / time), seen)))
    taken = seconds[chosen, range(_STAGES)]
    power = table.power[np.array(arms)[chosen], limit]
    return Outcome(float(taken.sum()), float(taken @ power), [sizes[each] for each in chosen])


def _gradients(
    application: Application, sizes: list[int], target: float, higher: bool
) -> list[list[Gradient]]:
    """Return the statistics of gradients by batch size and stage, of trainings to the target."""
    stages = (np.arange(_STAGES) + 0.5) / _STAGES
    squares, variances = [], []
    for each in application.trainings.values():
        there = each.metric >= target if higher else each.metric <= target
        epochs = int(np.argmax(there)) + 1 if there.any() else len(there)
        done = each.progress[:epochs] / each.progress[epochs - 1]
        squares.append(np.interp(stages, done, each.square[:epochs]))
        variances.append(np.interp(stages, done, each.variance[:epochs]))
    recorded = list(application.trainings)
    return [
        [
            Gradient(
                application.initial,
                float(np.interp(size, recorded, [values[stage] for values in squares])),
                float(np.interp(size, recorded, [values[stage] for values in variances])),
            )
            for stage in range(_STAGES)
        ]
        for size in sizes
    ]
