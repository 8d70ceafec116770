"""When runs stop: the rules, the words, and that many trials at once are as one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.optimizer._stopping import (
    TRIAL_OUTCOMES,
    Outcome,
    Stop,
    allowed_epochs,
    exceeds,
    must_stop,
    reached,
)


def stop(**changes):
    asked = {"converged": False, "epochs": 3, "max_epochs": 10, "spent": 30.0, "epoch_cost": 10.0}
    return must_stop(**(asked | changes))


def test_stored_words_stay_what_they_are():
    assert {outcome.name: outcome.value for outcome in Outcome} == {
        "RUNNING": "running",
        "CONVERGED": "converged",
        "STOPPED": "stopped",
        "EXHAUSTED": "exhausted",
        "LEFT": "left",
        "FAILED": "failed",
        "EXPIRED": "expired",
        "CANCELLED": "cancelled",
    }
    assert TRIAL_OUTCOMES == ("converged", "stopped", "failed", "expired", "cancelled")


def test_a_trial_without_an_epoch_left_has_failed():
    assert Outcome.EXHAUSTED.of_trial is Outcome.FAILED
    for outcome in TRIAL_OUTCOMES:
        assert outcome.of_trial is outcome


def test_the_target_counts_before_the_epochs_and_these_before_the_cost():
    assert stop() is None
    everything = {"epochs": 10, "threshold": 1.0}
    assert stop(converged=True, **everything).outcome is Outcome.CONVERGED
    assert stop(**everything).outcome is Outcome.EXHAUSTED
    assert stop(threshold=1.0).outcome is Outcome.STOPPED


def test_a_run_stops_before_the_epoch_that_costs_too_much():
    assert stop(threshold=40.0) is None
    # By rounding, the sum is a little more than 0.7.
    assert stop(spent=0.1 + 0.1 + 0.1, epoch_cost=0.1 + 0.3, threshold=0.7) is None
    assert stop(threshold=39.9) == Stop(
        Outcome.STOPPED, "epoch 4 would take the cost to 40 J, above 39.9 J"
    )


@pytest.mark.parametrize("unknown", ["spent", "epoch_cost", "threshold"])
def test_an_unknown_cost_stops_nothing(unknown):
    assert stop(**({"threshold": 1.0} | {unknown: None})) is None


def test_the_first_epoch_of_an_untried_batch_size_shows_whether_it_can_win():
    asked = {"epochs": 1, "spent": 10.0, "expected_epochs": 6.0, "restart_cost": 49.0}
    found = stop(known=False, **asked)
    assert found.outcome is Outcome.STOPPED
    assert "expected to cost 50 J, more than the 49 J" in found.reason
    assert stop(known=True, **asked) is None
    assert stop(known=False, **asked | {"epochs": 2}) is None
    assert stop(known=False, **asked | {"restart_cost": 50.0}) is None
    assert stop(known=False, **asked | {"expected_epochs": None}) is None


def test_a_metric_may_rise_or_fall():
    assert reached(0.5, 0.5, higher_is_better=True)
    assert reached(0.5, 0.5, higher_is_better=False)
    assert reached(0.6, 0.5, higher_is_better=True)
    assert not reached(0.6, 0.5, higher_is_better=False)
    assert not reached(float("nan"), 0.5, higher_is_better=True)


def by_epochs(run):
    """Epochs of a run that never converges, asked after each of them."""
    first, each, most, threshold, known, expected, restart = run
    if known and exceeds(first, threshold):
        return 0
    epochs = 1
    while must_stop(
        converged=False, epochs=epochs, max_epochs=most, spent=first + (epochs - 1) * each,
        epoch_cost=each, threshold=threshold, known=known, expected_epochs=expected,
        restart_cost=restart,
    ) is None:  # fmt: skip
        epochs += 1
    return epochs


costs = st.integers(1, 50).map(float)


@given(
    st.lists(
        st.tuples(
            costs,
            costs,
            st.integers(1, 20),
            st.none() | st.integers(1, 400).map(float),
            st.booleans(),
            st.none() | st.integers(0, 30).map(float),
            st.none() | costs.map(lambda cost: 5 * cost),
        ),
        min_size=1,
    )
)
def test_many_runs_at_once_stop_as_one_after_the_other(runs):
    first, each, most, threshold, known, expected, restart = zip(*runs, strict=True)

    def floats(values, unknown):
        return np.array([unknown if value is None else value for value in values])

    together = allowed_epochs(
        np.array(first), np.array(each), np.array(most, dtype=np.float64),
        threshold=floats(threshold, np.inf), known=np.array(known),
        expected_epochs=floats(expected, np.nan), restart_cost=floats(restart, np.inf),
    )  # fmt: skip
    assert together.tolist() == [by_epochs(run) for run in runs]
