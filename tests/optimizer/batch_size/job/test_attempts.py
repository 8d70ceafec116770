"""How many trials a recurrence may take, while the target is reached and while it is not."""

from __future__ import annotations

from typing import Any

from tests.optimizer.batch_size.histories import spec

from zeus.optimizer.batch_size.job._attempts import may_retry, usual_attempts


def test_every_batch_size_has_its_turn():
    assert usual_attempts(spec()) == 5
    assert usual_attempts(spec(batch_sizes=(32, 64))) == 3
    assert usual_attempts(spec(batch_sizes=(64,))) == 1  # again the same would help nobody


def allowed(missed: int, **changes: Any) -> int:
    """The number of trials of a recurrence that may take 100."""
    return next(
        n for n in range(1, 101) if n == 100 or not may_retry(spec(**changes), n - 1, missed)
    )


def test_attempts_are_halved_while_nothing_reaches_the_target():
    assert [allowed(missed) for missed in range(7)] == [100, 100, 2, 1, 1, 1, 1]
    assert allowed(10**6) == 1
    many = tuple(range(1, 33))
    assert [allowed(missed, batch_sizes=many, default_batch_size=8) for missed in range(1, 8)] == [
        100, 16, 8, 4, 2, 1, 1,
    ]  # fmt: skip
    assert allowed(3, batch_sizes=(64,)) == 1
