"""A loop with Accelerate, in one process and in two."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from tests.integrations.support import ENOUGH_STEPS, STEP, Limits, Recorder, run_example
from tests.integrations.trackers import running

pytest.importorskip("accelerate")

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.tracking import GeneralTracker, on_main_process

from zeus.errors import RunError
from zeus.integrations.accelerate import ZeusCallback

pytestmark = pytest.mark.usefixtures("node")


class TrainingError(Exception):
    pass


class Job:
    """The parts of a training script."""

    def __init__(self, batches=4, **options):
        self.accelerator = Accelerator(cpu=True, **options)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
        self.model, self.optimizer, self.loader = self.accelerator.prepare(
            model,
            torch.optim.SGD(model.parameters(), lr=0.01),
            torch.utils.data.DataLoader(cast(Any, torch.ones(batches, 4)), batch_size=1),
        )
        self.optimizer_steps = 0

    def step(self, batch):
        with self.accelerator.accumulate(self.model):
            self.accelerator.backward(self.model(batch).square().mean())
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.optimizer_steps += self.accelerator.sync_gradients


class Tracker(GeneralTracker):
    name = "memory"
    requires_logging_directory = False

    def __init__(self):
        super().__init__()
        self.logged = []

    @property
    def tracker(self):
        return self.logged

    @on_main_process
    def store_init_configuration(self, values):
        pass

    @on_main_process
    def log(self, values, step=None, **_):
        self.logged.append((step, values))


@pytest.fixture(autouse=True)
def fresh_accelerator():
    yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def test_epochs_and_steps(recorder):
    job = Job()
    zeus = ZeusCallback(job.accelerator, recorder)
    for _ in zeus.epochs(range(2)):
        for batch in zeus.steps(job.loader):
            job.step(batch)
    assert recorder.story == "[()()()()pr][()()()()pr]x"
    assert recorder.threads == {threading.get_ident()}


def test_a_step_is_one_step_of_the_optimizer(recorder):
    job = Job(batches=5, gradient_accumulation_steps=2)
    zeus = ZeusCallback(job.accelerator, recorder)
    for _ in zeus.epochs(range(2)):
        for batch in zeus.steps(job.loader):
            job.step(batch)
    assert job.optimizer_steps == recorder.story.count("()")
    assert recorder.story == "[()()()pr][()()()pr]x"


def test_evaluation_and_checkpoints_among_steps_are_pauses(recorder, tmp_path):
    job = Job()
    zeus = ZeusCallback(job.accelerator, recorder)
    for _ in zeus.epochs(range(1)):
        for index, batch in enumerate(zeus.steps(job.loader)):
            job.step(batch)
            if index == 1:
                with zeus.paused():
                    assert recorder.story == "[()()p"
            if index == 2:
                job.accelerator.save_state(str(tmp_path / "checkpoint"))
    assert recorder.story == "[()()pr()pr()pr]x"
    job.accelerator.save_state(str(tmp_path / "last"))
    assert not job.accelerator._save_model_state_pre_hook


def test_early_stopping(recorder):
    job = Job()
    zeus = ZeusCallback(job.accelerator, recorder)
    for _ in zeus.epochs(range(9)):
        for batch in zeus.steps(job.loader):
            job.step(batch)
        break
    assert recorder.story == "[()()()()pr]x"


@pytest.mark.parametrize("error", [TrainingError, KeyboardInterrupt])
def test_an_exception_closes_at_once(recorder, error):
    job = Job(gradient_accumulation_steps=2)

    def train():
        zeus = ZeusCallback(job.accelerator, recorder)
        for _ in zeus.epochs(range(2)):
            for index, batch in enumerate(zeus.steps(job.loader)):
                job.step(batch)
                if index == 2:
                    raise error

    with pytest.raises(error):
        train()
    assert recorder.story == "[()()pr]x"
    assert not job.accelerator._save_model_state_pre_hook


def test_a_second_run(recorder):
    job = Job(batches=1)
    zeus = ZeusCallback(job.accelerator, recorder)
    for _ in range(2):
        for _ in zeus.epochs(range(1)):
            for batch in zeus.steps(job.loader):
                job.step(batch)
    assert recorder.story == "[()pr]x[()pr]x"


@pytest.mark.parametrize("numbered", [False, True])
def test_epochs_go_to_the_trackers(recorder, node, numbered):
    tracker = Tracker()
    job = Job(log_with=[tracker])
    job.accelerator.init_trackers("project")
    zeus = ZeusCallback(
        job.accelerator,
        recorder,
        tracker_step=(lambda: job.optimizer_steps) if numbered else None,
    )
    for _ in zeus.epochs(range(2)):
        for batch in zeus.steps(job.loader):
            job.step(batch)
            node.sleep(2.0)
        node.sleep(100.0)
    assert [step for step, _ in tracker.logged] == ([4, 8] if numbered else [0, 1])
    times = [values["zeus/epoch_time"] for _, values in tracker.logged]
    assert times == pytest.approx([8.0, 8.0])
    assert all(values["zeus/epoch_energy"] > 0 for _, values in tracker.logged)


@pytest.mark.parametrize(
    ("epochs", "steps"), [(range(5, 7), [5, 6]), ("ab", [0, 1])], ids=["continued", "named"]
)
def test_the_step_is_the_number_of_the_epoch(recorder, epochs, steps):
    tracker = Tracker()
    job = Job(batches=1, log_with=[tracker])
    job.accelerator.init_trackers("project")
    zeus = ZeusCallback(job.accelerator, recorder)
    for _ in zeus.epochs(epochs):
        for batch in zeus.steps(job.loader):
            job.step(batch)
    assert [step for step, _ in tracker.logged] == steps


def test_trackers_that_count_by_themselves_are_not_given_a_step(recorder):
    class Counting(Tracker):
        name = "wandb"  # which drops what has a lower step than its last

    tracker = Counting()
    job = Job(batches=1, log_with=[tracker])
    job.accelerator.init_trackers("project")
    zeus = ZeusCallback(job.accelerator, recorder)
    for _ in zeus.epochs(range(2)):
        for batch in zeus.steps(job.loader):
            job.step(batch)
    assert [step for step, _ in tracker.logged] == [None, None]


def test_a_tensorboard_file_has_every_epoch_at_a_step_of_its_own(recorder, node, tmp_path):
    pytest.importorskip("tensorboardX")
    job = Job(log_with="tensorboard", project_dir=tmp_path)
    job.accelerator.init_trackers("project")
    zeus = ZeusCallback(job.accelerator, recorder)
    for _ in zeus.epochs(range(3)):
        for batch in zeus.steps(job.loader):
            job.step(batch)
            node.sleep(2.0)
    job.accelerator.end_training()
    assert dict(scalars(tmp_path, "zeus/epoch_time")) == pytest.approx({0: 8.0, 1: 8.0, 2: 8.0})
    assert [step for step, _ in scalars(tmp_path, "zeus/epoch_energy")] == [0, 1, 2]


def scalars(directory, tag):
    """Steps and values of a tag in the event files under a directory."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for path in directory.rglob("events.out.tfevents.*"):
        content = path.read_bytes()
        while content:  # each record: its length, a checksum of it, the event, a checksum of it
            (length,) = struct.unpack_from("<Q", content)
            event = Event.FromString(content[12 : 12 + length])
            content = content[16 + length :]
            found += [(event.step, v.simple_value) for v in event.summary.value if v.tag == tag]
    return found


def test_one_line_optimizes_the_power_limit(node):
    limits = Limits(node)
    job = Job(batches=ENOUGH_STEPS)
    zeus = ZeusCallback(job.accelerator)
    for _ in zeus.epochs(range(1)):
        for batch in zeus.steps(job.loader):
            limits.work()
            job.step(batch)
    limits.assert_lowered_and_restored()


def test_the_example_in_the_document():
    run_example("Accelerate")
    assert AcceleratorState().initialized


def test_steps_in_trackio_are_the_optimizers(tmp_path, monkeypatch, node):
    job = Job(batches=5, gradient_accumulation_steps=2)
    with running("trackio", tmp_path, monkeypatch) as tool:
        exact = node.exact_energy()
        zeus = ZeusCallback(job.accelerator, Recorder(), tracker=tool.make(every=1, first_step=100))
        for _ in zeus.epochs(range(2)):
            for batch in zeus.steps(job.loader):
                STEP.run(node.gpus)
                job.step(batch)
        exact = node.exact_energy() - exact
        tool.end()
        logged = tool.read()
    assert job.optimizer_steps == 6
    assert [step for step, _ in logged["zeus/step_energy"]] == [101, 102, 103, 104, 105, 106]
    assert logged["zeus/run_energy"][-1] == (106, pytest.approx(exact, rel=0.01))
    samples = [
        energy / by_sample
        for (_, energy), (_, by_sample) in zip(
            logged["zeus/step_energy"], logged["zeus/energy_per_sample"], strict=True
        )
    ]
    assert samples == pytest.approx([2, 2, 1, 2, 2, 1])


# --- two processes --------------------------------------------------------------------------

SCRIPT = """
import sys, time
from accelerate import Accelerator
from tests.integrations.test_accelerate import Job, Tracker
from zeus.integrations.accelerate import ZeusCallback
from zeus.monitor import ZeusMonitor
from zeus.optimizer import Callback
import json

tracker = Tracker()
job = Job(log_with=[tracker])
job.accelerator.init_trackers("project")
rank = job.accelerator.process_index
monitor = ZeusMonitor()
zeus = ZeusCallback(job.accelerator, Callback(), monitor=monitor)
with monitor.window("all") as window:
    for epoch in zeus.epochs(range(2)):
        for batch in zeus.steps(job.loader):
            job.step(batch)
            time.sleep(0.2 if rank else 0.05)
told = {"logged": tracker.logged, "gpus": monitor.gpu_indices, "mine": window.measurement.energy}
with open(f"{sys.argv[1]}/{rank}.json", "w") as file:
    json.dump(told, file)
job.accelerator.end_training()
"""


@pytest.mark.real_time
def test_two_processes_log_once_and_add_up(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    environment = {
        **os.environ,
        "ZEUS_SIMULATE": "v100x2",
        "ZEUS_SIMULATE_LOAD": "0.5",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "OMP_NUM_THREADS": "1",
    }
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [sys.executable, *launcher, script, tmp_path],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert (first["gpus"], second["gpus"]) == ([0], [1])
    assert (len(first["logged"]), len(second["logged"])) == (2, 0)
    logged = [values for _, values in first["logged"]]
    # Two batches each and epoch, and the slower process takes 0.2 s for one.
    assert all(values["zeus/epoch_time"] > 0.4 for values in logged)
    energy = sum(values["zeus/epoch_energy"] for values in logged)
    assert max(first["mine"], second["mine"]) < energy < 1.1 * (first["mine"] + second["mine"])


@pytest.mark.parametrize(("accumulated", "right"), [(4, True), (2, False)])
def test_a_recurring_job_trains_with_the_share_that_it_decided(shared_batch, accumulated, right):
    job = Job(batches=8, gradient_accumulation_steps=accumulated)  # batches of 1
    zeus = ZeusCallback(job.accelerator, shared_batch)
    if right:
        for batch in zeus.steps(job.loader):
            job.step(batch)
        return
    with pytest.raises(RunError, match=r"2 \* 2` for each process, but .* trains with 2 samples"):
        zeus.steps(job.loader)
