"""The same training in every tool: values, step numbers, and what else the program logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integrations.support import STEP, run_example
from tests.integrations.trackers import TOOLS, prepare, running

from zeus.integrations.loop import epochs, steps
from zeus.optimizer.callback import Callback

# MLflow asks SQLAlchemy in a way that is going out of use.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")


@pytest.fixture(params=TOOLS)
def tool(request, tmp_path, monkeypatch):
    with running(request.param, tmp_path, monkeypatch) as tool:
        yield tool


class Setting(Callback):
    def values_to_log(self):
        return {"power_limit": 200.0}


def test_every_value_is_read_back_under_its_step(tool, node):
    exact = []
    tracker = tool.make(every=2, samples=4, first_step=10)
    for _ in epochs(range(2), Setting(), tracker=tracker):
        begin = node.exact_energy()
        for _ in steps(range(3)):
            STEP.run(node.gpus)
        exact.append(node.exact_energy() - begin)
        node.sleep(100.0)  # evaluation
    tool.end()
    logged = tool.read()
    of_step = exact[0] / 3
    expected = {
        "zeus/step_time": [(12, 1.1), (14, 1.1), (16, 1.1)],
        "zeus/step_energy": [(12, of_step), (14, of_step), (16, of_step)],
        "zeus/power": [(step, of_step / 1.1) for step in (12, 14, 16)],
        "zeus/energy_per_sample": [(step, of_step / 4) for step in (12, 14, 16)],
        "zeus/epoch_time": [(13, 3.3), (16, 3.3)],
        "zeus/epoch_energy": [(13, exact[0]), (16, exact[1])],
        "zeus/epoch_power": [(13, exact[0] / 3.3), (16, exact[1] / 3.3)],
        "zeus/epoch_energy_per_sample": [(13, exact[0] / 12), (16, exact[1] / 12)],
        "zeus/run_energy": [(13, exact[0]), (16, sum(exact))],
        "zeus/run_energy_kwh": [(13, exact[0] / 3.6e6), (16, sum(exact) / 3.6e6)],
    }
    for name, rows in expected.items():
        assert [step for step, _ in logged[name]] == [step for step, _ in rows], name
        wanted = [value for _, value in rows]
        assert [value for _, value in logged[name]] == pytest.approx(wanted, rel=0.02), name
    limits = set(logged.pop("zeus/power_limit"))
    assert limits == {(12, 200.0), (13, 200.0), (14, 200.0), (16, 200.0)}
    logged.pop("zeus/step", None)  # of W&B, for its charts
    assert set(logged) == set(expected)


@pytest.mark.parametrize(
    ("name", "heading"),
    [
        ("mlflow", "MLflow"),
        ("tensorboard", "TensorBoard"),
        ("trackio", "trackio"),
        ("wandb", "Weights & Biases"),
    ],
)
def test_the_examples_in_the_document(name, heading, node, tmp_path, monkeypatch):
    tool = prepare(name, tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    run_example(heading, "trackers.md")
    if name == "mlflow":
        tool.mlflow = pytest.importorskip("mlflow")
        tool.run_id = tool.mlflow.last_active_run().info.run_id
    elif name == "tensorboard":
        tool.events = tmp_path / "runs" / "1"
    elif name == "trackio":
        tool.project, tool.name = "digits", "first"
    logged = tool.read()
    assert [step for step, _ in logged["zeus/step_energy"]] == list(range(50, 301, 50))
    assert [step for step, _ in logged["zeus/epoch_energy"]] == [100, 200, 300]


# --- W&B, which has one step number for all ------------------------------------------------------


@pytest.fixture
def wandb(tmp_path, monkeypatch):
    with running("wandb", tmp_path, monkeypatch) as tool:
        yield tool


def test_rows_of_the_program_and_of_zeus_do_not_push_each_other_out(wandb):
    tracker = wandb.make()
    for step in range(1, 4):
        wandb.run.log({"loss": step}, step=step)  # under the steps of the optimizer
        tracker.log({"zeus/step_time": step}, step)
    for step in range(4, 7):
        for part in range(5):
            wandb.run.log({"part": 10 * step + part})  # under the next number
        tracker.log({"zeus/step_time": step}, step)
    for step in range(7, 10):
        tracker.log({"zeus/step_time": step}, step)
    wandb.end()
    logged = wandb.read()
    assert logged["loss"] == [(1, 1), (2, 2), (3, 3)]
    assert [value for _, value in logged["part"]] == [
        10 * step + part for step in range(4, 7) for part in range(5)
    ]
    assert logged["zeus/step_time"] == [(step, step) for step in range(1, 10)]


# --- processes ------------------------------------------------------------------------------------

RANK_SCRIPT = """
import json, sys
from contextlib import ExitStack
from pathlib import Path
import pytest
import torch
import torch.distributed as dist
from tests.integrations.support import STEP
from tests.integrations.trackers import running
from zeus.integrations.loop import epochs, steps
from zeus.optimizer import Callback
from zeus.testing import SimulatedNode

dist.init_process_group("gloo")
rank, folder = dist.get_rank(), Path(sys.argv[2]) / str(dist.get_rank())
folder.mkdir()
with SimulatedNode("v100x2") as node, pytest.MonkeyPatch.context() as patch:
    with running(sys.argv[1], folder, patch) as tool:
        before = node.exact_energy(rank)
        tracker = tool.make(every=1)  # also in the second process
        for _ in epochs(range(2), Callback(), tracker=tracker):
            for _ in steps([torch.ones(2 + rank, 4)] * 2):
                STEP.run(node.gpus)
        exact = node.exact_energy(rank) - before
    (folder / "told.json").write_text(json.dumps([tool.read(), exact]))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.thorough(keep=2)
def test_of_two_processes_the_first_one_logs(name, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip(name)
    script = tmp_path / "train.py"
    script.write_text(RANK_SCRIPT)
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
            script, name, tmp_path,
        ],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = [json.loads((tmp_path / str(rank) / "told.json").read_text()) for rank in range(2)]
    (logged, mine), (nothing, other) = told
    assert nothing == {}
    assert [step for step, _ in logged["zeus/step_energy"]] == [1, 2, 3, 4]
    assert sum(value for _, value in logged["zeus/step_energy"]) == pytest.approx(mine, rel=0.01)
    assert logged["zeus/run_energy"][-1] == [4, pytest.approx(mine + other, rel=0.01)]
    by_sample = (mine + other) / 2 / (2 * (2 + 3))
    expected = [[2, pytest.approx(by_sample, rel=0.02)], [4, pytest.approx(by_sample, rel=0.02)]]
    assert logged["zeus/epoch_energy_per_sample"] == expected
