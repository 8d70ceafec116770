"""The drifting job: what it recorded can be recorded again, and followed."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cli.support import environment

from paper.drift.slices import recorded_slices
from zeus.testing import SimulatedNode

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def record():
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    return importlib.import_module("paper.drift.record")


def test_power_and_time_are_those_of_the_simulated_gpu(record):
    table = recorded_slices()[0]
    assert table.batch_sizes == record.BATCH_SIZES
    assert table.target_metric == record.TARGET
    assert table.max_epochs == record.MAX_EPOCHS
    for size, limit in ((8, 250.0), (512, 100.0)):
        at = table.batch_sizes.index(size), table.power_limits.index(limit)
        time, power = record.measure(size, limit)
        assert time == pytest.approx(table.time[at], rel=1e-3)
        # Both were measured, each with an uncertainty of 0.2 to 0.4 %.
        assert power == pytest.approx(exact_power(record, size, limit), rel=1e-3)
        assert table.power[at] == pytest.approx(exact_power(record, size, limit), rel=2e-3)


def exact_power(record, size, limit):
    """Watts that the simulated GPU really draws during an epoch."""
    with SimulatedNode("v100") as node, node.gpus[0].hold(power_limit=limit):
        before, begin = node.exact_energy(0), node.clock.now()
        record.step(size).run(node.gpus, record.TRAINING // size)
        joules = node.exact_energy(0) - before
        return joules / (node.clock.now() - begin)


def test_good_labels_are_learned_from_and_bad_ones_are_harder(record):
    data = record.slices(np.random.default_rng(0))
    ends = tuple(part[[0, 19]] for part in data)  # the first slice and one from the middle
    epochs = record.train(ends, 256)
    assert epochs.shape == (2, record.RUNS)
    assert np.isfinite(epochs[0]).all()
    assert epochs[0].mean() < epochs[1].mean()


def test_following_tells_what_each_policy_costs(tmp_path):
    picture = tmp_path / "drift.svg"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "paper.drift.follow", "--seeds", "4",
         "--plot", picture],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    regret = dict(re.findall(r"^(\w+) +window 10: regret +([\d.]+)", done.stdout, re.MULTILINE))
    assert float(regret["zeus"]) < float(regret["default"]) < float(regret["paper"])
    assert picture.read_text().startswith("<?xml")
