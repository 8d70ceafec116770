"""Several processes are one trial: what is decided, measured and reported, is so once."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from tests.cli.support import zeus
from tests.optimizer.batch_size.clients import opened, trials
from tests.server.child import serving

from zeus.optimizer.batch_size.api._commands import ShowLog, ShowProfiles

pytest.importorskip("torch")

TREE = Path(__file__).parents[4]
WORKER = Path(__file__).with_name("client_rank_worker.py")

JOB = """
name = "together"
batch_sizes = [16, 32, 64]
default_batch_size = 32
target_metric = 0.9
max_epochs = 8
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each rank found, and the store."""
    directory = tmp_path_factory.mktemp("ranks")
    (directory / "JOB.toml").write_text(JOB)
    storage = f"sqlite:///{directory}/jobs.db"
    with serving(storage) as server:
        done = zeus(
            *("run", "--job-file", "JOB.toml", "--server", server.url, "--timeout", "30"),
            *("--", sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node=2", str(WORKER), str(directory)),
            cwd=directory,
            ZEUS_SIMULATE="v100x2",
            ZEUS_STATE_DIR=str(directory / "state"),
            ZEUS_TOKEN=server.token,
            PYTHONPATH=os.pathsep.join([str(TREE / "src"), str(TREE)]),
            OMP_NUM_THREADS="1",
            TORCH_CPP_LOG_LEVEL="ERROR",
        )
    assert done.returncode == 0, done.stderr
    return [json.loads((directory / f"{rank}.json").read_text()) for rank in (0, 1)], storage


@pytest.mark.parametrize(("kind", "name"), [("handed", "together"), ("own", "together-own")])
def test_all_ranks_are_one_trial(found, kind, name):
    (first, second), storage = found[0], found[1]
    first, second = first[kind], second[kind]
    assert first["batch_size"] == second["batch_size"] == 32
    # Each trains on its half, one of the two runs with accumulated gradients.
    share = {"handed": [8, 2, 2], "own": [16, 1, 2]}[kind]
    assert first["share"] == second["share"] == share
    assert first["trial"] == second["trial"]
    # The second had a better metric from the first epoch on; the first one's counts.
    assert (first["outcome"], first["epochs"]) == ("converged", 3)
    assert (second["outcome"], second["epochs"]) == ("converged", 3)
    (trial,) = trials(storage, name)
    assert (trial.trial, trial.state, trial.epochs) == (first["trial"], "converged", 3)
    assert (trial.gpus, trial.max_power) == (2, 500)
    assert trial.energy == pytest.approx(first["own"] + second["own"], rel=0.01)
    assert trial.energy == pytest.approx(first["energy"])
    # The slower one sets the pace.
    assert trial.time == pytest.approx(first["time"]) == pytest.approx(second["time"])
    assert first["limit"] == second["limit"] < 250
    assert (first["after"], second["after"]) == (250, 250)


def test_one_profile_is_kept(found):
    with opened(found[1]) as jobs:
        for name in ("together", "together-own"):
            (profile,) = jobs.do(ShowProfiles(job=name))
            assert (profile.gpus, profile.batch_size) == (2, 32)
            assert profile.frontier is not None


def test_all_ranks_measure_batch_sizes_together(found):
    (first, second), storage = found[0], found[1]
    for kind in ("handed sizes", "own sizes"):
        assert first[kind] == second[kind]  # as many steps, too
    # Started by `zeus run`, local batches are bounded: all batch sizes have the same.
    handed = first["handed sizes"]
    assert set(handed["calls"]) == {"8"}
    (cost,) = set(handed["costs"].values())
    # Both GPUs count: the second has steps of twice the work, and sets the pace.
    spent = 960 / 16 * (0.2 + 0.02 * 16) * 0.5 * 500
    assert spent < cost < 2 * spent
    # One that does not fit in one process does not fit.
    own = first["own sizes"]
    assert {size: each is None for size, each in own["costs"].items()} == {
        "32": True, "16": False, "64": True,
    }  # fmt: skip
    assert own["calls"]["16"] == 1
    assert "32" not in own["calls"]
    with opened(storage) as jobs:
        logs = {
            name: [e for e in jobs.do(ShowLog(job=name)) if e["kind"] == "measured"]
            for name in ("together", "together-measured")
        }
    assert [(e["batch_size"], e["epoch_cost"]) for e in logs["together"]] == [
        (32, cost), (16, cost), (64, cost),
    ]  # fmt: skip
    assert [(e["batch_size"], e["gpus"], e["replicas"]) for e in logs["together-measured"]] == [
        (32, 2, 2), (16, 2, 2),
    ]  # fmt: skip


def test_a_mistake_is_told_to_all(found):
    for rank in found[0]:
        assert "beta is 2.0, not 5.0" in rank["conflict"]
