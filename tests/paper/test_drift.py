"""Data that really drift: the recorded slices, and how policies follow them."""

from __future__ import annotations

import numpy as np
import pytest

from paper.drift.slices import follow, recorded_slices
from zeus.errors import TraceError

SEEDS = range(12)


@pytest.fixture(scope="module")
def slices():
    return recorded_slices()


def test_the_best_batch_size_moves_and_comes_back(slices):
    assert len(slices) == 38
    best = [table.batch_sizes[table.optimum.arm] for table in slices]
    assert (min(best), max(best)) == (16, 128)
    ends, middle = np.median(best[:6] + best[-6:]), np.median(best[16:24])
    assert middle >= 2 * ends
    # What is best at first does not even reach the target in the middle.
    first = slices[0].batch_sizes.index(best[0])
    assert np.isinf([table.expected_epochs[first] for table in slices[14:24]]).all()


def test_forgetting_lets_the_papers_policy_reach_more_targets(slices):
    remembers, forgets = (follow(slices, "paper-repaired", SEEDS, window) for window in (0, 10))
    assert forgets.reached.mean() > remembers.reached.mean() + 0.1


def test_our_policy_reaches_every_target_and_costs_less(slices):
    ours, paper = (follow(slices, policy, SEEDS) for policy in ("zeus", "paper"))
    assert ours.reached.all()
    assert ours.regret.sum(axis=1).mean() < 0.4 * paper.regret.sum(axis=1).mean()
    assert ours.batch_size.shape == (12, 38)
    assert set(np.unique(ours.batch_size)) <= set(slices[0].batch_sizes)


def test_costs_are_those_of_the_slices(slices):
    found = follow(slices, "default", range(1), 0)
    table = slices[0]
    epochs = table.epochs[table.default]
    energies = epochs[np.isfinite(epochs)] * table.energy[table.default, -1]
    assert found.energy[0, 0] == pytest.approx(
        energies[np.abs(energies - found.energy[0, 0]).argmin()]
    )
    assert found.cost[0, 5] == pytest.approx((found.regret[0, 5] + 1) * slices[5].optimum.cost)


def test_other_traces_are_refused(traces):
    with pytest.raises(TraceError, match="must have slices named digits-00"):
        recorded_slices(traces / "nsdi23")
