"""Runs that are killed and started again are one trial: real processes, real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from tests.cli.support import LONG_ENOUGH, environment, start
from tests.optimizer.batch_size.clients import opened, trials
from tests.present import present

from zeus.optimizer.batch_size.api._commands import ShowLog
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.store import Store

JOB = """
name = "nightly"
batch_sizes = [16, 32, 64]
default_batch_size = 32
target_metric = 0.9
max_epochs = 8
storage = "sqlite:///jobs.db"
"""

# Trains in virtual time, saves a checkpoint after each epoch, and reaches the target in epoch 5.
# END says in which epoch, of training or of this start, what happens: a signal, or waiting for one.
TRAIN = """
import os, signal, sys, time
from pathlib import Path
from zeus.monitor import ZeusMonitor
from zeus.optimizer import BatchSizeOptimizer, JobSpec
from zeus.testing import SimulatedNode, Workload

def trained(last=None):
    file = Path("checkpoint")
    if last is not None:
        file.write_text(str(last))
    return int(file.read_text()) if file.exists() else 0

def end():
    Path("waiting").touch()
    action = os.environ["END"]
    if action == "exit":
        sys.exit(0)
    if action == "suspend":
        optimizer.suspend()
        sys.exit(0)
    if action == "crash":
        raise RuntimeError("lost a node")
    if action == "wait":
        time.sleep(600)
    os.kill(os.getpid(), getattr(signal, action))

job = None
if "ZEUS_TRIAL" not in os.environ:
    job = JobSpec("nightly", (16, 32, 64), 32, 0.9, max_epochs=8)
with (
    SimulatedNode(os.environ.get("GPUS", "v100")) as node,
    BatchSizeOptimizer(ZeusMonitor(), job=job, storage=job and "sqlite:///jobs.db") as optimizer,
):
    size = optimizer.local_batch_size
    done = trained()
    print("trial", optimizer.decision.trial, "resumed", optimizer.resumed,
          "reported", optimizer.decision.epochs, "from", done, flush=True)
    optimizer.on_train_begin(done)
    while not optimizer.training_finished:
        optimizer.on_epoch_begin()
        for _ in range(4):
            optimizer.on_step_begin()
            Workload("step", 0.02 * size, 0.2).run(node.gpus)
            optimizer.on_step_end()
        done += 1
        if os.environ.get("CHECKPOINT") == "before":
            trained(done)
        if os.environ.get("AT") == f"unreported {done}":
            end()
        optimizer.on_evaluate(0.95 if done >= 5 else 0.1 * done)
        if os.environ.get("AT") == f"reported {done}":
            end()
        if os.environ.get("CHECKPOINT", "after") == "after":
            trained(done)
    print("ended", optimizer.outcome, flush=True)
"""


class Here:
    """A directory with a job, and a script that is started again and again."""

    def __init__(self, path):
        self.path = path
        self.storage = f"sqlite:///{path}/jobs.db"
        (path / "train.py").write_text(TRAIN)
        (path / "JOB.toml").write_text(JOB)

    def python(self, **variables):
        """Start the script once, by itself, and wait for its end."""
        return subprocess.run(
            [sys.executable, "train.py"],
            cwd=self.path,
            env=environment(**{"ZEUS_RUN_ID": "night 17", **variables}),
            capture_output=True,
            text=True,
            timeout=LONG_ENOUGH,
            check=False,
        )

    def epochs(self):
        """Numbers of the reported epochs, and their metrics."""
        with opened(self.storage) as jobs:
            log = jobs.do(ShowLog(job="nightly", most=1000))
        return [(event["epoch"], event["metric"]) for event in log if event["kind"] == "epoch"]

    def expire(self):
        """Let as much time pass as every lease lasts."""
        jobs = Jobs(Store(self.storage), lambda: time.time() + 100_000)
        assert jobs.sweep() == 1
        jobs.close()


@pytest.fixture
def here(tmp_path):
    return Here(tmp_path)


ALL = [(1, 0.1), (2, 0.2), (3, 0.1 * 3), (4, 0.4), (5, 0.95)]


@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM", "suspend"])
@pytest.mark.parametrize("expires", [False, True])
@pytest.mark.thorough(keep=3)
def test_a_run_that_is_killed_and_started_again_is_one_trial(here, end, expires):
    killed = here.python(AT="unreported 3", END=end)
    assert killed.returncode == {"SIGKILL": -9, "SIGTERM": -15, "suspend": 0}[end], killed.stderr
    assert [trial.state for trial in trials(here.storage)] == ["running"]
    if expires:
        here.expire()
        assert [trial.state for trial in trials(here.storage)] == ["expired"]
    done = here.python()
    assert done.returncode == 0, done.stderr
    (trial,) = trials(here.storage)
    assert f"trial {trial.trial} resumed True reported 2 from 2" in done.stdout
    assert (trial.state, trial.epochs, trial.metric) == ("converged", 5, 0.95)
    assert here.epochs() == ALL
    # The next one under the same name is another recurrence.
    (here.path / "checkpoint").unlink()
    here.python()
    assert [trial.recurrence for trial in trials(here.storage)] == [1, 2]


def test_epochs_that_are_trained_again_count_once(here):
    # Killed after the report of epoch 3, before its checkpoint.
    here.python(AT="reported 3", END="SIGKILL")
    done = here.python()
    assert "reported 3 from 2" in done.stdout
    assert here.epochs() == ALL
    (trial,) = trials(here.storage)
    assert (trial.state, trial.epochs) == ("converged", 5)


def test_a_run_without_checkpoints_starts_over_and_counts_once(here):
    here.python(CHECKPOINT="never", AT="reported 3", END="SIGKILL")
    done = here.python(CHECKPOINT="never")
    assert "reported 3 from 0" in done.stdout
    assert here.epochs() == ALL
    assert [trial.state for trial in trials(here.storage)] == ["converged"]


def test_an_epoch_that_was_trained_but_not_reported_is_taken_to_cost_what_the_next_did(here):
    # Killed after the checkpoint of epoch 3, before its report.
    here.python(CHECKPOINT="before", AT="unreported 3", END="SIGKILL")
    done = here.python(CHECKPOINT="before")
    assert "reported 2 from 3" in done.stdout
    assert here.epochs() == [(1, 0.1), (2, 0.2), (3, None), (4, 0.4), (5, 0.95)]
    with opened(here.storage) as jobs:
        third, fourth = (
            event
            for event in jobs.do(ShowLog(job="nightly"))
            if event["kind"] == "epoch" and event["epoch"] in (3, 4)
        )
    assert (third["time"], third["energy"]) == (fourth["time"], fourth["energy"])


def test_a_run_that_reaches_the_target_earlier_when_it_starts_over_has_converged(here):
    text = (here.path / "train.py").read_text()
    here.python(CHECKPOINT="never", AT="reported 4", END="SIGKILL")
    (here.path / "train.py").write_text(text.replace("done >= 5", "done >= 2"))
    done = here.python(CHECKPOINT="never")
    assert "ended converged" in done.stdout
    (trial,) = trials(here.storage)
    assert (trial.state, trial.epochs) == ("converged", 5)


def test_reports_that_a_killed_run_could_not_deliver_come_first(here):
    away = here.path / "jobs.db"
    assert here.python(AT="unreported 1", END="SIGKILL").returncode == -9
    away.rename(here.path / "kept.db")
    away.mkdir()  # so that the store cannot be opened
    lost = here.python(AT="reported 2", END="SIGKILL")
    assert "trial  resumed False" in lost.stdout
    away.rmdir()
    (here.path / "kept.db").rename(away)
    done = here.python()
    assert "resumed True reported 2 from 1" in done.stdout, done.stderr
    assert here.epochs() == ALL
    assert [trial.state for trial in trials(here.storage)] == ["converged"]


def test_on_other_gpus_it_is_another_trial(here):
    here.python(AT="reported 3", END="SIGKILL")
    (here.path / "checkpoint").unlink()  # that of another trial
    done = here.python(GPUS="a40")
    assert "resumed False reported 0" in done.stdout
    first, second = trials(here.storage)
    assert (first.state, first.epochs) == ("cancelled", 3)
    assert "started again on 1 x NVIDIA A40" in first.note
    assert (second.recurrence, second.attempt, second.state) == (1, 1, "converged")


@pytest.mark.parametrize(
    ("variables", "states"),
    [
        ({"ZEUS_RUN_ID": ""}, ["cancelled", "converged"]),
        ({}, ["cancelled", "converged"]),
        ({"TORCHELASTIC_MAX_RESTARTS": "1"}, ["converged"]),
    ],
)
def test_a_crash_is_the_end_unless_a_launcher_starts_it_again(here, variables, states):
    assert here.python(AT="unreported 3", END="crash", **variables).returncode == 1
    assert here.python(TORCHELASTIC_RESTART_COUNT="1", **variables).returncode == 0
    assert [trial.state for trial in trials(here.storage)] == states


def test_a_slurm_job_that_is_requeued_goes_on_and_one_that_is_not_begins(here):
    slurm = {"ZEUS_RUN_ID": "", "SLURM_JOB_ID": "77"}
    here.python(AT="unreported 3", END="SIGKILL", **slurm)
    done = here.python(AT="unreported 4", END="SIGKILL", SLURM_RESTART_COUNT="1", **slurm)
    assert "resumed True reported 2" in done.stdout
    done = here.python(**slurm)
    assert "resumed False" in done.stdout
    assert [trial.state for trial in trials(here.storage)] == ["running", "converged"]


# --- under `zeus run` -----------------------------------------------------------------------------


def zeus_run(here, *options, **variables):
    return start(
        *("run", "--job-file", "JOB.toml", "--run-id", "night 17", *options),
        *("--", sys.executable, "train.py", "{batch_size}"),
        cwd=here.path,
        start_new_session=True,
        variables={"ZEUS_SIMULATE": "v100", **variables},
    )


def waited_for(path):
    deadline = time.monotonic() + LONG_ENOUGH
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_zeus_run_that_is_preempted_goes_on_with_its_trial(here, number):
    process = zeus_run(here, AT="unreported 3", END="wait")
    waited_for(here.path / "waiting")
    if number == signal.SIGTERM:
        process.send_signal(number)
    else:
        os.killpg(process.pid, number)  # and with it the program
    _, said = process.communicate(timeout=LONG_ENOUGH)
    if number == signal.SIGTERM:
        assert process.returncode == 143
        assert "interrupted by SIGTERM; the trial goes on if run 'night 17' is started" in said
    assert [trial.state for trial in trials(here.storage)] == ["running"]
    again = zeus_run(here)
    out, said = again.communicate(timeout=LONG_ENOUGH)
    assert again.returncode == 0, said
    assert "resumed True reported 2 from 2" in out
    assert "converged (the target was reached in epoch 5): 5 epochs" in said
    assert here.epochs() == ALL
    (trial,) = trials(here.storage)
    assert (trial.state, trial.epochs, trial.recurrence) == ("converged", 5, 1)


def test_without_a_run_id_whoever_interrupts_it_ends_it(here):
    process = start(
        *("run", "--job-file", "JOB.toml", "--", sys.executable, "train.py", "{batch_size}"),
        cwd=here.path,
        variables={"ZEUS_SIMULATE": "v100", "AT": "unreported 3", "END": "wait"},
    )
    waited_for(here.path / "waiting")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LONG_ENOUGH)
    assert [trial.state for trial in trials(here.storage)] == ["cancelled"]


def test_a_program_that_its_launcher_starts_again_is_one_trial(here):
    process = start(
        *("run", "--job-file", "JOB.toml", "--", "sh", "-c"),
        f"AT='reported 3' END=SIGKILL {sys.executable} train.py {{batch_size}}; "
        f"{sys.executable} train.py",
        cwd=here.path,
        variables={"ZEUS_SIMULATE": "v100"},
    )
    out, said = process.communicate(timeout=LONG_ENOUGH)
    assert process.returncode == 0, said
    assert "resumed True reported 3 from 2" in present(out)
    assert here.epochs() == ALL
    assert [trial.state for trial in trials(here.storage)] == ["converged"]
