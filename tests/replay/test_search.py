"""Hyperparameter searches: which trials profile, and what that costs."""

from __future__ import annotations

import numpy as np
import pytest

from zeus.replay._search import replay_search
from zeus.replay._table import JobTable


def table(**changes):
    """Two batch sizes; the lower of two power limits is better, and halves the energy."""
    values = {
        "gpu": "x1",
        "workload": "w",
        "batch_sizes": (8, 16),
        "power_limits": (100.0, 200.0),
        "default": 0,
        "target_metric": 0.9,
        "higher_is_better": True,
        "max_epochs": 10,
        "max_power": 200.0,
        "epochs": np.array([[4.0, 4.0], [6.0, np.inf]]),
        "time": np.array([[11.0, 10.0], [22.0, 20.0]]),
        "power": np.array([[100.0, 200.0], [100.0, 200.0]]),
        "eta_knob": 0.5,
    }
    return JobTable(**{**values, **changes})


def test_only_the_first_trial_with_a_batch_size_profiles():
    arms = np.array([0, 1, 0, 0])
    shared = replay_search(table(), arms)
    own = replay_search(table(), arms, profiles="own")
    # A profiled epoch is half at 100 W (1100 J), half at 200 W (2000 J).
    assert shared.energy[[0, 2, 3]].tolist() == [3 * 1100 + 1550, 4 * 1100, 4 * 1100]
    assert own.energy[[0, 2, 3]].tolist() == [3 * 1100 + 1550] * 3
    assert shared.time[[0, 2]].tolist() == [3 * 11 + 10.5, 44]
    assert shared.energy[1] == own.energy[1]  # the first of the other batch size
    assert (shared.cost <= own.cost).all()


def test_without_profiles_the_power_limit_is_left_alone():
    alone = replay_search(table(), np.array([0, 0]), profiles="none")
    assert alone.energy.tolist() == [8000.0, 8000.0]
    assert alone.cost == pytest.approx(0.5 * 8000 + 0.5 * 200 * 40)


def test_a_trial_that_misses_the_target_runs_to_its_last_epoch_once():
    arms = np.full(200, 1)
    found = replay_search(table(), arms, profiles="none")
    assert set(found.time.tolist()) == {6 * 20.0, 10 * 20.0}
    short = replay_search(table(), arms, profiles="none", max_epochs=2)
    assert set(short.time.tolist()) == {40.0}
    assert set(replay_search(table(), arms, max_epochs=99).time[1:].tolist()) == {132.0, 220.0}


def test_the_same_runs_are_drawn_whosever_profile_is_used():
    arms = np.full(50, 1)
    times = [
        replay_search(table(), arms, profiles=way, seed=7).time > 150
        for way in ("none", "own", "shared")
    ]
    assert (times[0] == times[1]).all()
    assert (times[0] == times[2]).all()
    assert (times[0] != (replay_search(table(), arms, profiles="none", seed=8).time > 150)).any()
