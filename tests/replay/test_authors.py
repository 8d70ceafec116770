"""The paper's policy has the regret of the authors' own program, at their targets and at others."""

from __future__ import annotations

import numpy as np
import pytest

from replay_authors import AUTHORS, AUTHORS_SEEDS, authors_cells
from zeus.replay._jobs import replay
from zeus.replay._traces import load_traces


@pytest.fixture(scope="module")
def cells(traces):
    if not (traces / "nsdi23" / AUTHORS).exists():
        pytest.skip(f"the authors' figures, {AUTHORS}, are not beside the traces in {traces}")
    return authors_cells(load_traces(traces / "nsdi23"))


def figures(cells, policy):
    """Mean regret of each cell and its standard error."""
    jobs = [job for cell in cells for job in cell.jobs(policy)]
    regret = replay(jobs).regret.reshape(len(cells), len(AUTHORS_SEEDS))
    return regret.mean(axis=1), regret.std(axis=1, ddof=1) / np.sqrt(len(AUTHORS_SEEDS))


def test_the_regret_of_the_papers_policy_is_that_of_the_authors_program(cells):
    assert len(cells) == 24
    ours, ours_error = figures(cells, "paper")
    apart = {
        cell.name: (mine, cell.regret)
        for cell, mine, error in zip(cells, ours, ours_error, strict=True)
        if abs(mine - cell.regret)
        > max(0.1 * cell.regret, 2 * np.hypot(error, cell.standard_error))
    }
    assert apart == {}
    # No drift to one side that each cell alone would hide.
    theirs = np.array([cell.regret for cell in cells])
    assert np.exp(np.log(ours / theirs).mean()) == pytest.approx(1.0, abs=0.05)
