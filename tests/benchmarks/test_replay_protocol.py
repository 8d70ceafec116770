"""The protocol by which policies are compared: its cells, and that each row has an answer."""

from __future__ import annotations

import math

import pytest

from replay_cells import every_default, moves
from replay_policies import ROWS, Protocol
from tools import OURS
from zeus.replay._traces import load_traces


@pytest.fixture(scope="module")
def protocol(traces):
    return Protocol(load_traces(traces / "nsdi23"), seeds=2, policy="paper")


@pytest.mark.parametrize("name", ["table_1", "converged", "behind", "overlap", "speed"])
def test_a_row_has_an_answer(protocol, name):
    rows = list(ROWS[name](protocol))
    assert rows
    assert all(math.isfinite(row["values"][OURS]) for row in rows)


def test_a_policy_is_as_good_as_itself(protocol):
    row, worst = protocol._against("regret", "eta 1", "paper", 1.0, 1.0)
    assert row["values"][OURS] == worst["values"][OURS] == 1.0
    assert row["of"] == 12


def test_a_longer_job_begins_as_a_shorter_one(protocol):
    # So one replay shows both the regret and what becomes of a job after 100 nights.
    short = next(run for run in protocol.runs("Table 1") if run.cell.recurrences < 100)
    assert short.cost.shape[1] == 200
    assert short.regret == pytest.approx((short.cost[:, : short.cell.recurrences] - 1).sum() / 2)


def test_every_trained_batch_size_is_a_default_once(protocol):
    converge, never = every_default(protocol.traces)
    assert len(converge) + len(never) == 101
    assert len({cell.name for cell in (*converge, *never)}) == 101


def test_a_move_is_compared_with_the_same_job_that_starts_there(protocol):
    for moved, fresh in moves(protocol.traces):
        assert moved.since + moved.recurrences == moved.scenario.recurrences
        assert fresh.recurrences == moved.recurrences
        assert fresh.table.gpu == moved.scenario.last.gpu
        assert fresh.table.batch_sizes == moved.scenario.last.batch_sizes
