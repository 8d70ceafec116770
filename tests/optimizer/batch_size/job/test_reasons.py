"""Why a trial has its batch size: the words for every purpose."""

from __future__ import annotations

from typing import Any

import pytest
from tests.optimizer.batch_size.histories import spec

from zeus.optimizer.batch_size.job._choice import Choice
from zeus.optimizer.batch_size.job._job_batch import Role
from zeus.optimizer.batch_size.job._reasons import reason

EXPLORATION: dict[str, Any] = {
    "batch_size": 128,
    "role": Role.EXPLORE,
    "against": 64,
    "saving": 0.18,
    "saving_low": -0.1,
    "saving_high": 0.4,
    "worth": 3.06,
    "horizon": 22.4,
    "risk": 0.42,
}
BEST: dict[str, Any] = {
    "batch_size": 128,
    "role": Role.EXPLOIT,
    "against": 64,
    "saving": 0.231,
    "saving_low": 0.149,
    "saving_high": 0.312,
}


def said(replicas: int = 1, **values: Any) -> str:
    return reason(spec(), Choice(**values), replicas)


def test_an_exploration_says_what_it_is_worth():
    assert said(**EXPLORATION) == (
        "explore 128: expected 18 % cheaper than 64 (95 %: -10 to +40 %), "
        "worth 3.1 runs over the next 22 nights, risk 0.4 run"
    )
    worse = {"saving": -0.05, "saving_low": -0.3, "saving_high": 0.15, "worth": 0.01, "risk": 1.5}
    assert said(**{**EXPLORATION, **worse}) == (
        "explore 128: expected 5 % more expensive than 64 (95 %: -15 to +30 %), "
        "worth less than 0.1 run over the next 22 nights, risk 1.5 runs"
    )
    wide = said(**{**EXPLORATION, "saving_low": -1e20})
    assert "(95 %: below -1000 to +40 %)" in wide


@pytest.mark.parametrize("worth", [None, 0.0, -0.2])
def test_another_run_of_a_batch_size_that_may_have_been_unlucky(worth):
    assert said(**{**EXPLORATION, "worth": worth, "saving": 0.02}) == (
        "another run of 128, which may have been unlucky: "
        "expected 2 % cheaper than 64 (95 %: -10 to +40 %)"
    )


def test_the_best_known_is_compared_with_the_default():
    assert said(**BEST) == (
        "128 is the cheapest known: 23 % cheaper than the default 64 (95 %: 15 to 31 %)"
    )
    assert said(**{**BEST, "role": Role.RETRY}) == (
        "a retry; 128 is the cheapest known: 23 % cheaper than the default 64 (95 %: 15 to 31 %)"
    )
    default = Choice(batch_size=64, role=Role.EXPLOIT, against=64)
    assert reason(spec(), default) == "the default 64 is the cheapest known"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"batch_size": 64, "role": Role.DEFAULT}, "the default batch size"),
        (
            {"batch_size": 32, "role": Role.DEFAULT},
            "in place of the default, which did not reach the target, or does not fit in memory",
        ),
        (
            {"batch_size": 32, "role": Role.DEFAULT, "replicas": 5},
            "in place of the default, which 5 replicas cannot share equally",
        ),
        ({"batch_size": 32, "role": Role.EXPLORE}, "to learn what this batch size costs"),
        ({"batch_size": 32, "role": Role.EXPLOIT}, "the best batch size so far"),
        ({"batch_size": 32, "role": Role.SAMPLE}, "chosen by Thompson sampling"),
        (
            {"batch_size": 32, "role": Role.RETRY},
            "a retry, after a trial that did not reach the target",
        ),
    ],
)
def test_without_numbers_the_purpose_is_said(values, words):
    assert said(**values) == words
