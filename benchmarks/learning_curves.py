"""Would learning curves help to choose batch sizes? What the recorded runs say, as JSON.

The training trace has the epoch at which each run reached several levels of its metric. Two
questions for each workload, at its own target:

- *prediction*: how well the epochs of one batch size follow from those of another if both have
  reached a level that took the other about a third of its epochs. The deviation of the logarithm
  that is left, beside what it is without the level. If they are alike, learning curves say nothing.
- *race*: what the first night costs beyond the oracle's run if the default runs for three epochs
  and then, as long as that costs less to reach the same level, half of it and so on, before the
  best of them runs to the end. There is a race only if the levels so far suggest that it takes
  three times as many epochs more. Beside it, the night with the default alone.

    python benchmarks/learning_curves.py [--traces DIR]
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from replay_cells import recorded
from replay_policies import TRACES
from zeus.errors import TraceError
from zeus.replay._table import JobTable, job_table
from zeus.replay._traces import Traces, load_traces
from zeus.replay._workloads import WORKLOADS, Workload, workload_named

_EPOCHS, _LONGER, _SEEDS = 3, 3.0, 200
_NEAR = 0.3  # doublings within which a batch size counts as half of another
_PART = (0.25, 0.5)  # of the epochs of the other batch size, at the level

# Epochs until each level, the last of which is the target, by run.
Curves = dict[int, np.ndarray]


def curves(traces: Traces, gpu: str, workload: Workload) -> Curves:
    """Return the learning curves of every batch size."""
    levels = sorted({row.target_metric for row in traces.training[workload.key]})
    usual = workload.target_metric
    easier = [level for level in levels if (level <= usual) == workload.higher_is_better]
    easier = [level for level in easier if level != usual]
    columns = []
    for level in (*(easier if workload.higher_is_better else easier[::-1]), usual):
        table = job_table(traces, gpu, workload, target_metric=level)
        columns.append(dict(zip(table.batch_sizes, table.epochs, strict=True)))
    sizes = columns[-1].keys()
    return {
        size: np.array([column[size][~np.isnan(column[size])] for column in columns]).T
        for size in sizes
    }


def prediction(found: Curves, max_epochs: int) -> dict[str, float | None]:
    """Return the deviation of log Epochs between batch sizes, with and without a level."""
    with_level, without = [], []
    for size, runs in found.items():
        for other, others in found.items():
            if size == other:
                continue
            for mine in runs[runs[:, -1] <= max_epochs]:
                for theirs in others[others[:, -1] <= max_epochs]:
                    part = theirs / theirs[-1]
                    (at,) = np.nonzero((part >= _PART[0]) & (part <= _PART[1]))
                    if len(at):
                        ratio = math.log(mine[-1] / theirs[-1])
                        without.append(ratio)
                        with_level.append(ratio - math.log(mine[at[0]] / theirs[at[0]]))
    return {
        "pairs_of_runs": len(without),
        "deviation": float(np.std(without)) if without else None,
        "deviation_with_level": float(np.std(with_level)) if with_level else None,
    }


def race(table: JobTable, found: Curves) -> dict[str, float]:
    """Return what the first night costs beyond the oracle's run, with and without a race."""
    random = np.random.default_rng(0)
    place = np.log2(table.batch_sizes)
    prices = np.nanmin(table.epoch_cost, axis=1) / table.optimum.cost

    def run(arm: int) -> np.ndarray:
        runs = found[table.batch_sizes[arm]]
        drawn: np.ndarray = np.minimum(runs[random.integers(len(runs))], table.max_epochs)
        return drawn

    plain, raced, races = 0.0, 0.0, 0
    for _ in range(_SEEDS):
        best, first = table.default, run(table.default)
        plain += first[-1] * prices[best]
        reached = int((first <= _EPOCHS).sum())
        left = len(first) - reached
        if not reached or left < _LONGER * reached:
            raced += first[-1] * prices[best]
            continue
        races += 1
        raced += _EPOCHS * prices[best]
        least = first[reached - 1] * prices[best]
        while len(half := np.flatnonzero(np.abs(place - place[best] + 1) < _NEAR)):
            price, needed = prices[half[0]], run(int(half[0]))[reached - 1]
            raced += min(needed, max(math.ceil(least / price), 1)) * price
            if needed * price >= least:
                break
            best, least = int(half[0]), needed * price
        raced += run(best)[-1] * prices[best]
    return {
        "default": plain / _SEEDS - 1,
        "race": raced / _SEEDS - 1,
        "nights_with_a_race": races / _SEEDS,
    }


def rows(traces: Traces) -> Iterator[dict[str, Any]]:
    """Yield a row for each workload, and one for each pair of workload and GPU."""
    gpu = next(iter(traces.power))
    for workload in WORKLOADS:
        found = curves(traces, gpu, workload)
        yield {"workload": workload.name, **prediction(found, workload.max_epochs)}
    for table in recorded(traces):
        found = curves(traces, table.gpu, workload_named(table.workload))
        yield {"workload": table.workload, "gpu": table.gpu, **race(table, found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=Path, default=TRACES / "nsdi23", metavar="DIR")
    try:
        found = list(rows(load_traces(parser.parse_args().traces)))
    except TraceError as error:
        parser.error(str(error))
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
