"""Shares of a batch: all of them together are exactly the batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.errors import RunError
from zeus.optimizer.batch_size.job._share import BatchShare, can_share, nearest_shared


@given(st.integers(1, 5000), st.integers(1, 64), st.none() | st.integers(1, 600))
def test_shares_are_equal_and_make_up_the_batch(share, replicas, most):
    batch_size = share * replicas
    found = BatchShare.of(batch_size, replicas, most)
    assert found.local_batch_size * found.accumulation_steps * found.replicas == batch_size
    assert most is None or found.local_batch_size <= most
    if most is None or most >= share:
        assert found.accumulation_steps == 1


@given(st.integers(1, 2000), st.integers(1, 600))
def test_no_more_is_accumulated_than_needed(batch_size, most):
    found = BatchShare.of(batch_size, 1, most)
    fewer = [
        steps
        for steps in range(1, found.accumulation_steps)
        if batch_size % steps == 0 and batch_size // steps <= most
    ]
    assert fewer == []


def test_eight_replicas_train_on_an_eighth_each():
    assert BatchShare.of(1024, 8) == BatchShare(1024, 8, 128, 1)
    assert BatchShare.of(1024, 8, 48) == BatchShare(1024, 8, 32, 4)


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ((12, 8), r"multiple of `replicas`, but got \(batch_size=12, replicas=8\)"),
        ((4, 8), r"multiple of `replicas`, but got \(batch_size=4, replicas=8\)"),
        ((12, 0), "`replicas >= 1` must hold, but got 0"),
        ((12, 4, 0), "`max_local_batch_size >= 1` must hold, but got 0"),
        ((12, 4, 1.5), "`max_local_batch_size` must be a whole number, but got 1.5"),
    ],
)
def test_a_batch_that_cannot_be_shared_is_refused_by_name(values, rule):
    with pytest.raises(RunError, match=rule):
        BatchShare.of(*values)


def test_the_nearest_batch_size_that_can_be_shared():
    sizes = (8, 12, 16, 24, 40)
    assert nearest_shared(16, sizes, 8) == 16
    assert nearest_shared(12, sizes, 8) == 16  # 4/3 of it is nearer than 2/3
    assert nearest_shared(12, sizes, 1) == 12
    with pytest.raises(RunError, match=r"batch_sizes=\(8, 12, 16, 24, 40\), replicas=7"):
        nearest_shared(16, sizes, 7)


def test_what_can_be_shared():
    assert can_share(12, 4)
    assert not can_share(12, 8)
