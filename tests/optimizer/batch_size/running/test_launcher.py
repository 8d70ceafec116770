"""Programs as trials: what they are told, what their end means, and which is tried next."""

from __future__ import annotations

import os

import pytest
from tests.optimizer.batch_size.clients import job, trials, watch
from tests.present import present

from zeus.errors import RunError
from zeus.optimizer.batch_size.running._launch_context import LaunchContext, TrialUse
from zeus.optimizer.batch_size.running._launcher import Launcher
from zeus.optimizer.batch_size.running._location import Location
from zeus.optimizer.batch_size.running._trial_end import ProgramEnd
from zeus.testing import SimulatedNode, Workload

WORK = Workload("program", gpu_time=10.0)


@pytest.fixture
def storage(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


class Programs:
    """Stands for programs that a user would run: each works for a while and ends as it is told.

    Attributes:
        ends: Exit codes by batch size; 0 for others.
        seen: Command lines and environments of those that ran.
        joules: What the last one truly took.
        story: What the launcher has said, in order.
    """

    def __init__(self, storage, spec=None, **options):
        self.spec = spec or job()
        self.storage = storage
        self.options = {"attempts": 3, "trust_exit_code": True, **options}
        self.gpus = self.options.pop("gpus", "v100x2")
        self.words = self.options.pop("words", ["train", "--batch-size={batch_size}"])
        self.ends = {}
        self.seen = []
        self.story = []

    def recur(self):
        with SimulatedNode(self.gpus) as node:
            self.node = node
            launcher = Launcher(
                self.spec,
                Location.of(None, self.storage),
                watch(node),
                self.words,
                self._start,
                begun=lambda decision: self.story.append(("begun", decision.batch_size)),
                ended=lambda trial: self.story.append(("ended", trial.outcome)),
                **self.options,
            )
            return launcher.recur()

    def _start(self, words, environment):
        self.seen.append((words, environment))
        before = self._exact_energy()
        WORK.run(self.node.gpus)
        self.joules = self._exact_energy() - before
        end = self.ends.get(int(environment["ZEUS_BATCH_SIZE"]), 0)
        return end() if callable(end) else ProgramEnd(end)

    def _exact_energy(self):
        return sum(self.node.exact_energy(gpu) for gpu in range(len(self.node.gpus)))


# --- what programs are told -----------------------------------------------------------------------


def test_a_program_finds_its_trial_in_its_words_and_environment(storage):
    programs = Programs(storage)
    (trial,) = programs.recur()
    ((words, environment),) = programs.seen
    assert words == ["train", "--batch-size=32"]
    assert environment["ZEUS_TRIAL"] == trial.trial
    assert environment["ZEUS_JOB"] == "nightly"
    assert environment.items() >= os.environ.items()


# --- what their end means -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "options", "share"),
    [
        ("v100", {}, (32, 1, 1)),
        ("v100x4", {}, (8, 1, 4)),
        ("v100x4", {"replicas": 2}, (16, 1, 2)),  # two GPUs share one replica
        ("v100x4", {"max_local_batch_size": 3}, (2, 4, 4)),
    ],
)
def test_a_program_gets_its_share_of_the_global_batch(storage, gpus, options, share):
    words = ["train", "{batch_size}", "{local_batch_size}x{accumulation_steps}x{replicas}"]
    programs = Programs(storage, gpus=gpus, words=words, **options)
    programs.recur()
    ((words, environment),) = programs.seen
    local, steps, replicas = share
    assert words == ["train", "32", f"{local}x{steps}x{replicas}"]
    assert local * steps * replicas == 32 == int(environment["ZEUS_BATCH_SIZE"])
    assert environment["ZEUS_LOCAL_BATCH_SIZE"] == str(local)
    assert environment["ZEUS_ACCUMULATION_STEPS"] == str(steps)
    assert environment["ZEUS_REPLICAS"] == str(replicas)


def test_a_job_that_moves_to_more_gpus_goes_on_with_what_they_can_share(storage):
    spec = job(batch_sizes=(12, 20, 32), default_batch_size=12)
    assert Programs(storage, spec).recur()[-1].batch_size == 12
    there = Programs(storage, spec, gpus="v100x8")
    assert there.recur()[-1].batch_size == 32
    assert there.seen[0][1]["ZEUS_LOCAL_BATCH_SIZE"] == "4"


def test_gpus_that_can_share_nothing_are_one_replica_unless_shares_are_wanted(storage):
    spec = job(batch_sizes=(10, 20), default_batch_size=10)
    alone = Programs(storage, spec, gpus="v100x3")
    assert alone.recur()[-1].batch_size == 10
    assert alone.seen[0][1]["ZEUS_REPLICAS"] == "1"
    rule = r"must be a multiple of `replicas`, but got \(batch_sizes=\(10, 20\), replicas=3\)"
    for wrong in ({"words": ["train", "{local_batch_size}"]}, {"replicas": 3}):
        with pytest.raises(RunError, match=rule):
            Programs(storage, spec, gpus="v100x3", **wrong).recur()


def test_without_a_store_a_default_that_cannot_be_shared_has_a_stand_in(tmp_path):
    spec = job(batch_sizes=(10, 20), default_batch_size=10)
    storage = f"sqlite:///{tmp_path}/nowhere/jobs.db"
    (trial,) = Programs(storage, spec, gpus="v100x4").recur()
    assert (trial.recurrence, trial.batch_size) == (0, 20)


def test_an_unknown_placeholder_is_refused_before_anything_runs(storage):
    programs = Programs(storage, words=["train", "--batch-size={batchsize}"])
    with pytest.raises(RunError, match=r"but got \{batchsize\} \(perhaps \{batch_size\}\)"):
        programs.recur()
    assert programs.seen == []


def test_exit_code_0_of_a_silent_program_is_not_the_target(storage):
    programs = Programs(storage, trust_exit_code=False)
    (trial,) = programs.recur()
    assert (trial.outcome, trial.exit_code, trial.final) == ("cancelled", 0, True)
    assert "reported no epoch and no metric" in trial.note
    assert "--trust-exit-code" in trial.note
    (kept,) = trials(storage)
    assert (kept.state, kept.note) == ("cancelled", trial.note)


def test_an_exit_code_cannot_say_that_a_target_held(storage):
    with pytest.raises(RunError, match="`patience == 1` must hold, but got patience=2"):
        Programs(storage, job(patience=2)).recur()


def test_a_program_that_is_never_told_its_batch_size_is_warned_of(storage):
    (trial,) = Programs(storage, words=["train"]).recur()
    assert trial.warning.startswith("the batch size may be ignored: there is no {batch_size}")
    (trial,) = Programs(storage).recur()
    assert trial.warning == ""


def test_exit_code_0_of_a_trusted_program_is_the_target(storage):
    programs = Programs(storage)
    (trial,) = programs.recur()
    assert (trial.outcome, trial.epochs, trial.exit_code) == ("converged", 1, 0)
    assert not trial.reported
    assert trial.time == pytest.approx(10.0)
    assert trial.energy == pytest.approx(programs.joules, rel=0.02)
    assert trial.cost == pytest.approx(0.5 * trial.energy + 0.5 * 500.0 * 10.0)
    (kept,) = trials(storage)
    assert (kept.trial, kept.state, kept.metric) == (trial.trial, "converged", 0.9)
    assert (kept.time, kept.energy) == pytest.approx((trial.time, trial.energy))
    assert programs.story == [("begun", 32), ("ended", "converged")]


def test_a_crash_at_the_default_is_nothing_that_a_batch_size_is_to_blame_for(storage):
    programs = Programs(storage)
    programs.ends = {32: 7}
    (trial,) = programs.recur()
    assert (trial.outcome, trial.exit_code, trial.final) == ("cancelled", 7, True)
    assert trial.note == "crashed before the end of its first epoch (exit code 7)"
    assert [kept.state for kept in trials(storage)] == ["cancelled"]


def test_another_batch_size_that_crashes_failed_and_is_tried_again_with_the_default(storage):
    programs = Programs(storage)
    programs.recur()
    programs.ends = {16: 1, 64: 1}
    first, *_, last = programs.recur()
    assert (first.outcome, first.recurrence, first.attempt) == ("failed", 2, 0)
    assert (last.outcome, last.batch_size, last.recurrence) == ("converged", 32, 2)
    assert last.attempt >= 1
    # From then on it counts as one that works.
    assert [kept.state for kept in trials(storage)][:2] == ["converged", "failed"]


def test_a_recurrence_has_so_many_attempts(storage):
    programs = Programs(storage, attempts=1)
    programs.recur()
    programs.ends = {16: 1, 64: 1}
    (trial,) = programs.recur()
    assert (trial.outcome, trial.final) == ("failed", False)


class OutOfMemory(Programs):
    """Programs of which none fits in memory."""

    def _start(self, words, environment):
        context = present(LaunchContext.found(environment))
        TrialUse(replicas=1, batch_size_read=True, out_of_memory=True).write(context.use)
        return ProgramEnd(1)


def test_a_target_out_of_reach_is_tried_once_a_night(storage):
    programs = OutOfMemory(storage)
    nights = [programs.recur() for _ in range(4)]
    assert [len(night) for night in nights] == [3, 3, 1, 1]
    assert [night[-1].final for night in nights] == [False, False, True, True]
    last = nights[-1][-1]
    assert (last.outcome, last.exit_code) == ("failed", 1)
    assert last.note.startswith("out of memory before the end of its first epoch (exit code 1); ")
    assert "no further attempt in this recurrence: the latest 8 runs failed before" in last.note
    assert (
        trials(storage)[0].note == "out of memory before the end of its first epoch (exit code 1)"
    )


def test_whoever_interrupts_a_program_wants_no_other(storage):
    programs = Programs(storage)
    programs.ends = {32: lambda: ProgramEnd(143, "SIGTERM", interrupted=True)}
    (trial,) = programs.recur()
    assert (trial.outcome, trial.final) == ("cancelled", True)
    assert "killed by SIGTERM" in trial.note
    assert (trial.exit_code, trial.signal) == (143, "SIGTERM")
    assert len(programs.seen) == 1


def test_a_program_that_cannot_be_started_leaves_no_trial_open(storage):
    def refuse():
        raise FileNotFoundError("no such program")

    programs = Programs(storage)
    programs.ends = {32: refuse}
    with pytest.raises(FileNotFoundError):
        programs.recur()
    (kept,) = trials(storage)
    assert kept.state == "cancelled"
    assert "no such program" in kept.note
    assert programs.story == [("begun", 32)]


def test_without_a_store_only_the_default_is_run_and_once(tmp_path):
    programs = Programs(f"sqlite:///{tmp_path}/nowhere/jobs.db")
    programs.ends = {32: 1}
    (trial,) = programs.recur()
    assert (trial.trial, trial.recurrence, trial.batch_size) == ("", 0, 32)
    assert len(programs.seen) == 1


def test_results_are_plain_values(storage):
    (trial,) = Programs(storage).recur()
    record = trial.to_dict()
    assert record["outcome"] == "converged"
    assert "final" not in record
    assert all(isinstance(value, str | float | int | None) for value in record.values())


def test_ends_in_words():
    assert str(ProgramEnd(3)) == "exit code 3"
    assert str(ProgramEnd(137, "SIGKILL")) == "killed by SIGKILL"
