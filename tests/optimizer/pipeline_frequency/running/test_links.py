"""Links that differ, and that nobody described: learned from the first steps of the training."""

from __future__ import annotations

import pytest
from tests.optimizer.pipeline_frequency.running.exchanges import BlockingTraining
from tests.optimizer.pipeline_frequency.running.rig import Training, settle, under_plan
from tests.present import present

from zeus.optimizer.pipeline_frequency.api._commands import ShowProfile
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines
from zeus.store import Store

# Forwards of 25 ms, backwards of 50 ms; the middle link is between two machines.
LOADS = (0.25, 0.26, 0.24, 0.275)
LINKS = (0.005, 0.05, 0.005)
QUICK = {"clock_stride": 120}


@pytest.fixture
def api(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/jobs.db")
    yield Pipelines(store)
    store.close()


def links(api):
    rows = api.do(ShowProfile(job="test"))
    return {row["stage"]: row["time"] for row in rows if row["instruction"] == "communication"}


def planned(api):
    return [event.message for event in api.events("test") if event.kind == "plan"][-1]


@pytest.mark.parametrize("engine", [Training, BlockingTraining])
@pytest.mark.parametrize("loads", [LOADS, LOADS[::-1]])
@pytest.mark.thorough(keep=1)
def test_one_slow_link_makes_no_iteration_slower(api, engine, loads):
    training = engine(loads, microbatches=8, message=LINKS)
    before = training.iterate(2)[-1]
    training.connect(api, **QUICK)
    settle(training)
    after = under_plan(training)
    assert after.time <= 1.005 * before.time
    assert after.energy < 0.92 * before.energy
    assert present(training.optimizers[0].standing).time == pytest.approx(after.time, rel=1e-3)
    assert links(api) == pytest.approx(dict(enumerate(LINKS)), rel=1e-6)
    said = "messages take up to 50 ms (between stages 1 and 2)"
    said += ", and block both ranks" if engine is BlockingTraining else ""
    assert planned(api).endswith(said)
    training.close()


def test_the_link_from_the_last_rank_to_the_first(api):
    around = (0.005, 0.005, 0.05, 0.005, 0.005)  # stage 2 is on the last rank, stage 3 on the first
    loads = (0.25, 0.26, 0.24, 0.25, 0.25, 0.275)
    training = Training(loads, chunks=2, microbatches=6, message=around, tell_microbatch=True)
    before = training.iterate(2)[-1]
    training.connect(api, **QUICK)
    settle(training)
    after = under_plan(training)
    assert after.time <= 1.005 * before.time
    assert after.energy < before.energy
    assert links(api) == pytest.approx(dict(enumerate(around)), rel=1e-6)
    training.close()
