"""The batch size optimizer in a training loop, with a store of its own, in virtual time."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import time

import pytest
from tests.optimizer.batch_size.clients import (
    EPOCHS,
    epoch,
    job,
    opened,
    run,
    step,
    train,
    trials,
    watch,
)
from tests.present import present

from zeus.errors import JobConflictError, RunError, ServerError, StorageError
from zeus.integrations.loop import epochs, steps
from zeus.optimizer import BatchSizeOptimizer
from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.api._commands import ListJobs, ShowLog, ShowProfiles
from zeus.testing import SimulatedNode


@pytest.fixture
def storage(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def node():
    with SimulatedNode("v100x2") as simulated:
        yield simulated


def make(node, storage, **options):
    spec = options.pop("spec", None) or job()
    return BatchSizeOptimizer(watch(node), job=spec, storage=storage, **options)


# --- a run ----------------------------------------------------------------------------------------


def test_the_first_run_has_the_default_and_reports_every_epoch(node, storage):
    began, before = node.clock.now(), sum(node.exact_energy(gpu) for gpu in range(2))
    optimizer = train(node, make(node, storage))
    spent = sum(node.exact_energy(gpu) for gpu in range(2)) - before
    assert optimizer.outcome is Outcome.CONVERGED
    assert optimizer.reached_target
    (trial,) = trials(storage)
    assert (trial.state, trial.batch_size, trial.epochs) == ("converged", 32, EPOCHS[32])
    assert (trial.recurrence, trial.attempt, trial.metric) == (1, 0, 0.95)
    assert (trial.gpu, trial.gpus) == ("Tesla V100-PCIE-32GB (simulated)", 2)
    assert trial.max_power == 500
    assert trial.energy == pytest.approx(spent, rel=0.01)
    assert trial.time == pytest.approx(node.clock.now() - began)
    assert trial.cost == pytest.approx(0.5 * trial.energy + 0.5 * 500 * trial.time)
    with opened(storage) as jobs:
        (decided, *_) = jobs.do(ShowLog(job="nightly"))
    assert decided["memory"] == 32 * 2**30


def test_time_between_training_and_evaluation_counts_and_what_follows_does_not(node, storage):
    optimizer = make(node, storage)
    node.sleep(100.0)  # data are loaded
    optimizer.on_train_begin()
    epoch(node, optimizer, steps=5)
    node.sleep(7.0)  # evaluation
    optimizer.on_evaluate(0.95)
    node.sleep(100.0)  # a checkpoint
    optimizer.close()
    (trial,) = trials(storage)
    assert 7.0 < trial.time < 20.0


def test_recurrences_learn_and_share_what_power_limits_trade(storage, monkeypatch, tmp_path):
    limits: dict[int, float] = {}
    seen = []
    for number in range(8):
        monkeypatch.setenv("ZEUS_STATE_DIR", str(tmp_path / f"machine-{number}"))
        done = run(storage)
        size, optimizer = done.get_batch_size(), done.power_limit
        # A batch size that was profiled once is never profiled again, on whatever machine.
        assert (optimizer.profiling_steps == 0) == (size in limits)
        chosen = optimizer.selection.point.knob
        assert limits.setdefault(size, chosen) == chosen < 250
        seen.append(size)
    assert set(seen) == {16, 32, 64}
    assert seen[-3:] == [32] * 3  # the cheapest
    with opened(storage) as jobs:
        kept = {profile.batch_size: profile for profile in jobs.do(ShowProfiles(job="nightly"))}
    assert {size: profile.power_limit for size, profile in kept.items()} == limits
    assert all(profile.frontier and 0 < present(profile.load) <= 1 for profile in kept.values())
    settled = done.history[-1].cost
    assert kept[32].epoch_cost == pytest.approx(settled, rel=0.02)


def test_the_limit_is_back_after_the_run(node, storage):
    limits = []
    optimizer = make(node, storage)
    train(node, optimizer, after_epoch=lambda _: limits.append(node.gpus[0].power_limit()))
    assert min(limits) < 250
    assert [gpu.power_limit() for gpu in node.gpus] == [250, 250]


def test_a_run_that_costs_too_much_is_stopped_before_it_does(storage):
    for _ in range(2):
        done = run(storage, needed={16: 99, 32: 3, 64: 99})
    assert done.outcome is Outcome.STOPPED
    first, second = trials(storage)
    assert second.state == "stopped"
    assert second.epochs < 8
    assert second.cost <= second.threshold <= 2 * first.cost * 1.01


def test_a_target_that_is_never_reached_ends_with_the_last_epoch(node, storage):
    done = train(node, make(node, storage), needed={32: 99}, steps=3)
    assert (done.outcome, len(done.history)) == (Outcome.EXHAUSTED, 8)
    (trial,) = trials(storage)
    assert (trial.state, trial.epochs) == ("failed", 8)


def test_metrics_may_be_missing_or_no_numbers(node, storage):
    optimizer = make(node, storage, spec=job(max_epochs=4, higher_is_better=False))
    optimizer.on_train_begin()
    for metric in (math.inf, math.nan, None):
        epoch(node, optimizer, steps=2)
        optimizer.on_evaluate(metric)
        assert not optimizer.training_finished
    epoch(node, optimizer, steps=2)
    optimizer.on_evaluate(0.5)
    assert optimizer.reached_target
    (trial,) = trials(storage)
    assert (trial.state, trial.metric) == ("converged", 0.5)


@pytest.mark.parametrize("policy", ["zeus", "paper"])
def test_a_search_for_hyperparameters_leaves_only_the_power_limit_to_choose(storage, policy):
    spec = job(batch_sizes=(32,), policy=policy, max_epochs=20)
    profiled = []
    for needed in (2, 9, 30):  # what a run takes depends on what is searched
        done = run(storage, spec, needed={32: needed})
        assert (done.get_batch_size(), done.decision.threshold) == (32, None)
        assert len(done.history) == min(needed, 20)
        assert done.power_limit.selection.point.knob < 250
        profiled.append(done.power_limit.profiling_steps > 0)
    assert profiled == [True, False, False]


def test_jobs_that_share_their_profiles_profile_once(storage):
    def search(name, **changes):
        return job(name, batch_sizes=(32,), **changes)

    done = {
        spec.name: run(storage, spec, needed={32: 3})
        for spec in (
            search("lr 0.1", profile_key="search"),
            search("lr 0.2", profile_key="search", eta_knob=1.0),
            search("another model", profile_key="other"),
            search("lr 0.3"),
        )
    }
    profiled = {name: each.power_limit.profiling_steps > 0 for name, each in done.items()}
    assert profiled == {
        "lr 0.1": True, "lr 0.2": False, "another model": True, "lr 0.3": True,
    }  # fmt: skip
    # Each weighs time and energy by its own objective.
    limits = [done[name].power_limit.selection.point.knob for name in ("lr 0.1", "lr 0.2")]
    assert limits[1] < limits[0]
    with opened(storage) as jobs:
        first, second = (jobs.do(ShowProfiles(job=name))[0] for name in ("lr 0.1", "lr 0.2"))
    assert second.frontier is not None
    assert [second.power_limit, first.power_limit] == [limits[1], limits[0]]


def test_the_learning_rate_follows_by_the_rule(node, storage):
    spec = job(batch_sizes=(128,), default_batch_size=128, learning_rate_rule="linear")
    assert make(node, storage, spec=spec).learning_rate_scale == 1.0
    train(node, make(node, storage, spec=job("b", learning_rate_rule="square_root")))
    other = make(node, storage, spec=job("b", learning_rate_rule="square_root"))
    assert other.get_batch_size() != 32
    assert other.learning_rate_scale == pytest.approx(math.sqrt(other.get_batch_size() / 32))


def test_what_follows_the_end_counts_no_more(node, storage, caplog):
    optimizer = train(node, make(node, storage))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            epoch(node, optimizer, steps=2)
            optimizer.on_evaluate(0.1)
    assert len(optimizer.history) == EPOCHS[32]
    assert sum("the run is over" in record.message for record in caplog.records) == 1


# --- the power limit --------------------------------------------------------------------------


def test_grid_search_holds_the_limit_that_it_tries(node, storage):
    spec = job(policy="grid", power_limits=(150, 250))
    seen = set()
    for _ in range(3):
        optimizer = make(node, storage, spec=spec)
        limit = optimizer.decision.power_limit

        def check(_, limit=limit):
            assert {gpu.power_limit() for gpu in node.gpus} == {limit}

        optimizer.on_train_begin()
        epoch(node, optimizer, steps=3)
        check(1)
        optimizer.on_evaluate(0.95)
        seen.add(limit)
        assert {gpu.power_limit() for gpu in node.gpus} == {250}
    assert len(seen) == 2


def test_a_limit_that_the_gpu_does_not_accept_is_not_set(node, storage, caplog):
    spec = job(policy="grid", power_limits=(9999,))
    optimizer = train(node, make(node, storage, spec=spec), steps=2)
    assert optimizer.reached_target
    assert "9999" in optimizer.power_limit.trouble
    assert sum("the power limit stays as it was" in r.message for r in caplog.records) == 1
    assert node.gpus[0].power_limit() == 250


def test_the_default_policy_leaves_the_gpu_alone(node, storage):
    optimizer = make(node, storage, spec=job(policy="default"))
    seen = set()
    train(node, optimizer, after_epoch=lambda _: seen.add(node.gpus[0].power_limit()))
    assert seen == {250}
    assert optimizer.power_limit.profiling_steps == 0


def test_loops_may_tell_of_steps_only_or_of_nothing(node, storage):
    optimizer = make(node, storage)
    optimizer.on_train_begin()
    for _ in range(3):
        for _ in range(40):
            optimizer.on_step_begin()
            step(32).run(node.gpus)
            optimizer.on_step_end()
        optimizer.on_evaluate(0.1)
    assert optimizer.power_limit.decided
    optimizer.on_evaluate(0.95)  # an epoch of which it is told nothing else
    assert [record.steps for record in optimizer.history] == [40, 40, 40, 0]


def test_it_is_a_callback_of_any_loop(node, storage):
    optimizer = make(node, storage)
    for number in epochs(range(8), optimizer):
        for _ in steps(range(40)):
            step(32).run(node.gpus)
        optimizer.on_evaluate(0.95 if number == 2 else 0.1)
        if optimizer.training_finished:
            break
    assert optimizer.reached_target
    assert optimizer.power_limit.decided
    assert [trial.state for trial in trials(storage)] == ["converged"]


def test_without_any_gpu_the_cost_is_one_of_time(storage, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with SimulatedNode("v100") as node:
        optimizer = make(node, storage)
        optimizer.on_train_begin()
        node.sleep(30.0)
        optimizer.on_evaluate(0.95)
        optimizer.close()
    (trial,) = trials(storage)
    assert (trial.state, trial.gpu, trial.energy) == ("converged", "no GPU", None)
    assert trial.cost == pytest.approx(30.0)


# --- leaving ----------------------------------------------------------------------------------


class OutOfMemoryError(RuntimeError):
    """As PyTorch's is called."""


@pytest.mark.parametrize(
    ("epochs_done", "error", "state", "note"),
    [
        (2, None, "failed", "left after 2 epochs"),
        (0, None, "cancelled", "left after 0 epochs"),
        (2, ZeroDivisionError("oops"), "cancelled", "by ZeroDivisionError: oops"),
        (0, KeyboardInterrupt(), "cancelled", "by KeyboardInterrupt"),
        (0, OutOfMemoryError("32 GB"), "failed", "by OutOfMemoryError: 32 GB"),
        (0, MemoryError(), "failed", "by MemoryError"),
        (1, MemoryError(), "cancelled", "by MemoryError"),
    ],
)
@pytest.mark.parametrize("block", [True, False], ids=["with", "finally"])
def test_a_run_that_is_left_says_why(  # noqa: PLR0917
    node, storage, epochs_done, error, state, note, block
):
    def leave():
        optimizer = make(node, storage)

        def work():
            optimizer.on_train_begin()
            for _ in range(epochs_done):
                epoch(node, optimizer, steps=2)
                optimizer.on_evaluate(0.1)
            epoch(node, optimizer, steps=1)
            if error is not None:
                raise error

        if block:
            with optimizer:
                work()
        else:
            try:
                work()
            finally:
                optimizer.close()

    if error is None:
        leave()
    else:
        with pytest.raises(type(error)):
            leave()
    (trial,) = trials(storage)
    assert (trial.state, trial.epochs) == (state, epochs_done)
    assert note in trial.note
    assert trial.time > 0  # with what followed the last epoch
    assert [gpu.power_limit() for gpu in node.gpus] == [250, 250]


def test_nothing_is_asked_before_the_batch_size_is(node, storage):
    make(node, storage).close()
    with opened(storage) as jobs:
        assert jobs.do(ListJobs()) == []


# --- rules ------------------------------------------------------------------------------------


def test_a_job_does_not_change_under_its_name(node, storage):
    make(node, storage).get_batch_size()
    other = make(node, storage, spec=job(beta=3.0))
    with pytest.raises(JobConflictError, match=r"beta is 2\.0, not 3\.0"):
        other.get_batch_size()


def test_rules_are_told_with_the_value(node, storage):
    monitor = watch(node)
    with pytest.raises(RunError, match="there is no job"):
        BatchSizeOptimizer(monitor, storage=storage)
    with pytest.raises(RunError, match="on a server or in a storage, but got both"):
        BatchSizeOptimizer(monitor, "http://127.0.0.1:1", job(), storage=storage)
    with pytest.raises(ServerError, match="'ftp://gpu1'"):
        BatchSizeOptimizer(monitor, "ftp://gpu1", job())
    with pytest.raises(StorageError, match="storage must be sqlite:///FILE"):
        BatchSizeOptimizer(monitor, job=job(), storage="jobs.db")
    with pytest.raises(RunError, match="`timeout > 0` must hold, but got 0"):
        BatchSizeOptimizer(monitor, job=job(), storage=storage, timeout=0)
    with pytest.raises(RunError, match="`rank` must be a whole number from 0, but got -1"):
        BatchSizeOptimizer(monitor, None, job(), -1, storage=storage)
    with pytest.raises(RunError, match="rank 1 must receive the batch size from rank 0"):
        BatchSizeOptimizer(monitor, None, job(), 1, storage=storage).get_batch_size()
    optimizer = make(node, storage)
    with pytest.raises(RunError, match="call on_train_begin"):
        optimizer.on_evaluate(0.5)
    optimizer.on_train_begin()
    with pytest.raises(RunError, match="a metric must be a number, but got 'good'"):
        optimizer.on_evaluate("good")
    with pytest.raises(RunError, match="a trial is trained once"):
        optimizer.on_train_begin()


def test_the_store_is_found_in_the_environment(node, storage, monkeypatch):
    monkeypatch.setenv("ZEUS_STORAGE", storage)
    train(node, BatchSizeOptimizer(watch(node), job=job()))
    assert [trial.state for trial in trials(storage)] == ["converged"]


def test_a_relative_file_stays_where_it_was(node, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    optimizer = make(node, "sqlite:///mine.db")
    monkeypatch.chdir("/")
    optimizer.get_batch_size()
    assert (tmp_path / "mine.db").exists()


@pytest.mark.parametrize(
    ("ending", "state", "note"),
    [
        ("del optimizer; gc.collect(); input()", "cancelled", "left after 1 epochs"),
        ("", "cancelled", "left after 1 epochs"),
        ("1 / 0", "cancelled", "by ZeroDivisionError"),
        ("if os.fork() == 0: sys.exit()\nos.wait(); input()", "running", ""),
    ],
    ids=["forgotten", "end of program", "exception", "forked child"],
)
def test_a_run_that_nobody_closes_does_not_stay_open(storage, ending, state, note):
    script = f"""
import gc, os, sys
from zeus.monitor import ZeusMonitor
from zeus.optimizer import BatchSizeOptimizer, JobSpec
spec = JobSpec("nightly", (16, 32), 32, 0.9)
optimizer = BatchSizeOptimizer(ZeusMonitor([], []), job=spec, storage={storage!r})
optimizer.on_train_begin()
optimizer.on_evaluate(0.1)
print("ready", flush=True)
{ending}
"""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        present(process.stdout).readline()
        if "input" in ending:
            deadline = time.monotonic() + 120
            while trials(storage)[0].state != state and time.monotonic() < deadline:
                time.sleep(0.05)
        else:
            process.wait(120)
        (trial,) = trials(storage)
        assert trial.state == state
        assert note in trial.note
    finally:
        process.kill()
        process.communicate()
