"""The specification of a job: its rules, and its way through JSON."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.errors import JobSpecError, ZeusError
from zeus.optimizer.batch_size import JobSpec

sizes = st.lists(st.integers(1, 10**6), min_size=1, max_size=20, unique=True)


def job(**changes):
    values = {
        "name": "nightly",
        "batch_sizes": (32, 8, 16),
        "default_batch_size": 16,
        "target_metric": 0.9,
    }
    return JobSpec(**{**values, **changes})


def test_the_paper_s_figures_are_the_defaults():
    spec = job()
    assert (spec.eta_knob, spec.beta, spec.pruning_rounds, spec.window) == (0.5, 2.0, 2, 0)
    assert spec.policy == "zeus"
    assert spec.batch_sizes == (8, 16, 32)
    assert spec.default_index == 1


@given(sizes, st.data())
def test_it_survives_json(batch_sizes, data):
    spec = job(
        batch_sizes=batch_sizes,
        default_batch_size=data.draw(st.sampled_from(batch_sizes)),
        beta=data.draw(st.sampled_from([None, 1.5, 2])),
        seed=data.draw(st.integers(0, 2**63 - 1)),
        power_limits=(300, 100.5),
        policy="grid",
    )
    assert JobSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": " "}, "`name` must be a text that is not empty, but got ' '"),
        ({"name": 3}, "but got 3"),
        ({"batch_sizes": ()}, "1 to 256 numbers, but got 0"),
        ({"batch_sizes": (8, 16, 16)}, r"must differ from each other, but got \(8, 16, 16\)"),
        ({"batch_sizes": (16, 8.5)}, "`batch_sizes` must be a whole number, but got 8.5"),
        ({"batch_sizes": (16, 0)}, "`1 <= batch_sizes <= 2147483647` must hold, but got 0"),
        ({"batch_sizes": "16"}, "must be a list of numbers, but got '16'"),
        ({"default_batch_size": 64}, r"one of `batch_sizes` \(8, 16, 32\), but got 64"),
        ({"target_metric": math.nan}, r"target_metric <= 1e\+150` must hold, but got nan"),
        ({"target_metric": True}, "but got True"),
        ({"patience": 0}, "`1 <= patience <= 1000000` must hold, but got 0"),
        (
            {"patience": 4, "max_epochs": 3},
            r"`patience <= max_epochs` must hold, but got \(patience=4, max_epochs=3\)",
        ),
        ({"max_epochs": 0}, "`1 <= max_epochs <= 1000000` must hold, but got 0"),
        ({"eta_knob": 1.1}, "`0 <= eta_knob <= 1` must hold, but got 1.1"),
        ({"beta": 1}, r"`1 < beta <= 1e\+06` must hold, but got 1"),
        ({"window": -1}, "`0 <= window <= 1000` must hold, but got -1"),
        ({"pruning_rounds": 1.0}, "whole number, but got 1.0"),
        ({"policy": "best"}, "`policy` must be one of zeus, paper, .*, but got 'best'"),
        ({"policy": "grid"}, "grid search needs `power_limits`"),
        ({"power_limits": (0,)}, r"`0 < power_limits <= 1e\+09` must hold, but got 0"),
        ({"seed": 2**63}, "`0 <= seed <= 9223372036854775807` must hold"),
        ({"higher_is_better": 1}, "must be true or false, but got 1"),
        ({"profile_key": ""}, "`profile_key` must"),
        ({"learning_rate_rule": "cubic"}, "must be one of none, square_root, linear"),
    ],
)
def test_every_rule_is_stated_with_the_value(changes, message):
    with pytest.raises(JobSpecError, match=message) as caught:
        job(**changes)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, ZeusError)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "mapping of names to values"),
        ({"name": "x"}, "needs batch_sizes, default_batch_size, target_metric"),
        ({"colour": 1}, "has no colour"),
    ],
)
def test_what_is_no_job_is_refused(values, message):
    with pytest.raises(JobSpecError, match=message):
        JobSpec.from_dict(values)


def test_the_target_is_reached_from_the_right_side():
    assert job().reached(0.9)
    assert not job().reached(0.89)
    assert not job().reached(math.nan)
    falling = job(target_metric=40.0, higher_is_better=False)
    assert falling.reached(39.0)
    assert not falling.reached(41.0)


def test_cost_is_the_paper_s():
    assert job().cost(energy=100.0, time=2.0, max_power=250.0) == 0.5 * 100 + 0.5 * 250 * 2
    assert job(eta_knob=1).cost(100.0, 2.0, 250.0) == 100.0


def test_learning_rates_follow_the_rule():
    assert job(learning_rate_rule="square_root").learning_rate_scale(64) == 2.0
    assert job(learning_rate_rule="linear").learning_rate_scale(8) == 0.5
    assert job().learning_rate_scale(64) == 1.0
