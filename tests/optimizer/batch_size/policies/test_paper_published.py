"""The paper's policy decides as the authors' program does, whatever the outcomes of runs are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.optimizer.batch_size.policies.published import Published
from tests.optimizer.batch_size.trials import Lane

from zeus.optimizer.batch_size.policies._randomness import normal

SIZES = (8, 16, 32, 64, 128)
SEED = 7
outcomes = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from([True, True, True, False])), max_size=80
)


@given(outcomes, st.sampled_from([0, 3]), st.sampled_from(SIZES))
def test_every_decision_is_the_authors(outcomes, window, default):
    job = Lane("paper", SIZES, default, window=window, seed=SEED)
    theirs = Published(
        len(SIZES),
        SIZES.index(default),
        beta=2.0,
        window=window,
        draws=lambda decision, arm: normal(SEED, decision, arm)[0],
    )
    for epochs, converged in outcomes:
        choices = job.begin()
        arm = int(choices.arm[0])
        assert arm == theirs.choose()
        assert choices.threshold[0] == theirs.threshold
        reached = converged and epochs > 0
        # The smaller the batch size, the more does an epoch cost.
        epoch_cost = 10.0 + len(SIZES) - arm
        job.end(choices, epochs, converged=reached, epoch_cost=epoch_cost)
        theirs.ended(arm, epochs, epochs * epoch_cost, reached)
    assert np.isfinite(job.state.mean).all()
