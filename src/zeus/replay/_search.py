"""Replays a hyperparameter search: trials whose batch sizes are not Zeus's to choose.

Trials of a search differ in hyperparameters that change how many epochs they take, but not what an
epoch takes. So a power profile of one holds for all others with its batch size on the same GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import OPTIMIZED, UNTOUCHED, Choices, Floats, Ints
from zeus.replay._table import JobTable
from zeus.replay._world import World

#: Whose power profile a trial uses: that of the first trial of the search with its batch size, its
#: own, or none, which leaves the power limit alone.
Profiles = Literal["shared", "own", "none"]


@dataclass(frozen=True)
class SearchResult:
    """What the trials of a search took.

    Attributes:
        energy: Joules, by trial; `time` in seconds and `cost` in joules likewise.
    """

    energy: Floats
    time: Floats
    cost: Floats


def replay_search(
    table: JobTable,
    arms: Ints,
    *,
    profiles: Profiles = "shared",
    max_epochs: int | None = None,
    seed: int = 0,
) -> SearchResult:
    """Replay the trials of a search, one after another.

    A trial runs until it reaches the target, or to the last epoch allowed, and is never retried:
    what it found out is a result of the search. Trials of one seed draw the same recorded runs,
    whosever profile they use.

    Args:
        table: Table of the workload and GPU.
        arms: Index of the batch size of each trial.
        profiles: Whose power profile a trial uses.
        max_epochs: Epochs after which the search stops a trial, if fewer than the table's.
        seed: Seed for drawing recorded runs.
    """
    arms = np.asarray(arms, dtype=np.int64)
    count = len(arms)
    first = np.unique(arms, return_index=True)[1]
    known = np.full(count, profiles == "shared")
    known[first] = False
    nothing = np.zeros(count, dtype=np.int64)
    choices = Choices(
        arm=arms,
        role=nothing,
        power=np.full(count, UNTOUCHED if profiles == "none" else OPTIMIZED, dtype=np.int64),
        threshold=np.full(count, np.inf),
        expected_epochs=np.full(count, np.nan),
        restart_cost=np.full(count, np.inf),
    )
    world = World.of([table])
    if max_epochs is not None:
        world.max_epochs = np.minimum(world.max_epochs, max_epochs)
    ran = world.run(
        nothing, choices, known, seed=nothing + seed, recurrence=np.arange(count), attempt=nothing
    )
    return SearchResult(ran.energy, ran.time, ran.cost)
