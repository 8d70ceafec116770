"""What zeus 0.16 documented of its names holds for the bridges, on a simulated node."""

from __future__ import annotations

import math
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.present import present

from zeus.device import get_gpus
from zeus.errors import FrontierError, JobSpecError
from zeus.frontier import Frontier, Point
from zeus.monitor import ZeusMonitor
from zeus.optimizer import (
    BatchSizeOptimizer,
    GlobalFrequencyOptimizer,
    GlobalPowerLimitOptimizer,
    JobSpec,
)
from zeus.testing import Workload

WORK = Workload("work", gpu_time=0.5)


def former(module, *names):
    """Names as users import them; each warns."""
    with pytest.warns(DeprecationWarning, match="zeus 0.16"):
        found = [getattr(import_module(module), name) for name in names]
    return found if len(found) > 1 else found[0]


# --- monitors -----------------------------------------------------------------------------------


def test_windows_of_the_monitor(node, tmp_path):
    monitor_of, measurement_of = former("zeus.monitor.energy", "ZeusMonitor", "Measurement")
    log = tmp_path / "new" / "log.csv"
    monitor = monitor_of(gpu_indices=[0], log_file=log, sync_execution_with="torch")
    assert monitor.gpu_indices == [0]

    monitor.begin_window("epoch")
    before = node.exact_energy(0)
    steps = []
    for _ in range(3):
        monitor.begin_window("step")
        WORK.run(node.gpus)
        steps.append(monitor.end_window("step"))
    truth = node.exact_energy(0) - before
    epoch = monitor.end_window("epoch")
    monitor.settle()

    assert isinstance(epoch, measurement_of)
    assert epoch.time == pytest.approx(1.5)
    assert epoch.total_energy == sum(epoch.gpu_energy.values()) == pytest.approx(truth, rel=0.02)
    assert list(epoch.gpu_energy) == [0]
    assert sum(step.total_energy for step in steps) == pytest.approx(truth, rel=0.02)

    monitor.begin_window("cell")
    with pytest.raises(ValueError, match="'cell' is open"):
        monitor.begin_window("cell")
    monitor.begin_window("cell", restart=True)
    monitor.end_window("cell", cancel=True)
    with pytest.raises(ValueError, match="'cell' is not open"):
        monitor.end_window("cell")
    monitor.close()
    rows = [line.split(",") for line in log.read_text().splitlines()]
    assert rows[0] == ["start_time", "window_name", "elapsed_time", "gpu0_energy"]
    assert [row[1] for row in rows[1:]] == ["step", "step", "step", "epoch"]


def test_power_and_temperature_over_time(node):
    power_of, domains = former("zeus.monitor.power", "PowerMonitor", "PowerDomain")
    temperature_of = former("zeus.monitor.temperature", "TemperatureMonitor")
    power = power_of(gpu_indices=[0, 1], update_period=0.1)
    temperature = temperature_of(gpu_indices=[1])
    start = node.clock.now()
    WORK.run(node.gpus)
    end = node.clock.now()

    assert set(power.get_power()) == {0, 1}
    assert set(power.get_energy(start, end)) == {0, 1}
    domain = domains("device_instant")
    assert domain is domains.DEVICE_INSTANT
    timeline = power.get_power_timeline(domain, gpu_index=0, start_time=start, end_time=end)
    assert set(timeline) == {0}
    assert all(start <= instant <= end and watts > 0 for instant, watts in timeline[0])
    assert domain in power.get_all_power_timelines()
    assert set(temperature.get_temperature()) == {1}
    assert temperature.get_temperature_timeline()[1]
    power.stop()
    temperature.stop()


# --- callbacks ----------------------------------------------------------------------------------


def test_a_set_of_callbacks_passes_on_every_event(node):
    callback, callback_set = former("zeus.callback", "Callback", "CallbackSet")
    heard = []

    class Recorder(callback):  # type: ignore[misc, valid-type]
        def __init__(self, name):
            self.name = name

        def on_step_begin(self):
            heard.append((self.name, "step"))

        def on_evaluate(self, metric):
            heard.append((self.name, metric))

        def on_instruction_end(self, name):
            heard.append((self.name, name))

        def on_train_end(self):
            heard.append((self.name, "end"))

    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor())  # today's, which has fewer events
    callbacks = callback_set([Recorder("a"), optimizer, Recorder("b")])
    callbacks.on_train_begin()
    callbacks.on_epoch_begin()
    callbacks.on_step_begin()
    callbacks.on_instruction_begin("forward")
    callbacks.on_instruction_end("forward")
    callbacks.on_step_end()
    callbacks.on_epoch_end()
    callbacks.on_evaluate(0.5)
    callbacks.on_train_end()
    events = ["step", "forward", 0.5, "end"]
    assert heard == [(name, event) for event in events for name in "ab"]
    assert optimizer.report().steps == 1
    callbacks.close()
    assert callbacks.values_to_log() == optimizer.values_to_log()


# --- selectors ----------------------------------------------------------------------------------


def selectors():
    return former("zeus.optimizer.power_limit", "OptimumSelector", "PowerLimitMeasurement")


def train(optimizer, node, steps=400):
    optimizer.on_epoch_begin()
    for _ in range(steps):
        optimizer.on_step_begin()
        WORK.scaled(0.2).run(node.gpus)
        optimizer.on_step_end()
    optimizer.on_epoch_end()


def test_a_selector_chooses_from_measurements_of_all_limits(node):
    selector, measurement = selectors()
    given: list[Any] = []

    class SecondLowestEnergy(selector):  # type: ignore[misc, valid-type]
        def select(self, measurements):
            given[:] = measurements
            return sorted(measurements, key=lambda one: one.energy)[1].power_limit

    with GlobalPowerLimitOptimizer(
        ZeusMonitor(), SecondLowestEnergy(), warmup_steps=2, profile_steps=4, pl_step=50
    ) as optimizer:
        train(optimizer, node)
        assert optimizer.trouble == ""
        assert [one.power_limit for one in given] == [250, 200, 150, 100]
        energies = sorted(present(optimizer.frontier), key=lambda point: point.energy)
        assert present(optimizer.selection).point == energies[1]
        assert get_gpus()[0].power_limit() == energies[1].knob
    assert get_gpus()[0].power_limit() == 250
    assert all(isinstance(one, measurement) and one.time > 0 for one in given)


def test_a_selector_is_called_directly_and_by_its_subclass():
    selector, measurement = selectors()

    class Lowest(selector):  # type: ignore[misc, valid-type]
        def select(self, measurements):
            return min(one.power_limit for one in measurements)

    class AtLeast200(Lowest):
        def select(self, measurements):
            return super().select([one for one in measurements if one.power_limit >= 200])

    measurements = [measurement(power_limit=watts, energy=1.0, time=1.0) for watts in (250, 200, 9)]
    assert AtLeast200().select(measurements) == 200
    frontier = Frontier([Point(watts, 1.0, 1.0) for watts in (250, 200.0, 9)], knob_unit="W")
    assert AtLeast200().select(frontier).point is frontier.points[1]


def test_a_selector_without_select_is_refused():
    selector, _ = selectors()
    with pytest.raises(TypeError, match="abstract"):
        selector()


def test_a_choice_that_was_not_measured_is_refused_and_named(node):
    selector, _ = selectors()

    class Guessing(selector):  # type: ignore[misc, valid-type]
        def select(self, measurements):
            return 123

    frontier = Frontier([Point(250, 1.0, 1.0)], knob_unit="W")
    with pytest.raises(FrontierError, match=r"Guessing\.select .* 250 W, but got 123"):
        Guessing().select(frontier)
    with pytest.raises(FrontierError, match="one power limit for all GPUs"):
        Guessing().select(Frontier([Point(1380, 1.0, 1.0)], knob_name="clock", knob_unit="MHz"))
    optimizer = GlobalFrequencyOptimizer(ZeusMonitor(), Guessing(), warmup_steps=1, profile_steps=1)
    with optimizer:
        train(optimizer, node, 100)
        assert "write a zeus.frontier.Objective" in optimizer.trouble


# --- recurring jobs -----------------------------------------------------------------------------

OLD: dict[str, Any] = {
    "job_id": "mnist-7",
    "job_id_prefix": "mnist",
    "batch_sizes": [64, 32],
    "default_batch_size": 32,
    "eta_knob": 0.3,
    "beta_knob": 3.0,
    "target_metric": 0.8,
    "higher_is_better_metric": False,
    "max_epochs": 7,
    "num_pruning_rounds": 3,
    "window_size": 5,
    "mab_seed": 9,
}


def test_keywords_of_a_job():
    with pytest.warns(DeprecationWarning, match=r"JobSpec\(beta_knob=, .*window_size=\)"):
        job = JobSpec(**OLD)
    assert job == JobSpec(
        "mnist-7", (32, 64), 32, 0.8, False, 7, eta_knob=0.3, beta=3.0, window=5,
        pruning_rounds=3, seed=9,
    )  # fmt: skip


def test_a_job_without_an_id_is_named_by_its_prefix_and_has_the_documented_target():
    with pytest.warns(DeprecationWarning, match="without effect: mab_prior_mean"):
        job = JobSpec(  # type: ignore[call-arg]
            job_id=os.environ.get("ZEUS_JOB_ID"),
            job_id_prefix="mnist",
            default_batch_size=32,
            batch_sizes=[32, 64],  # type: ignore[arg-type]
            mab_prior_mean=0.0,
            mab_seed=None,
            beta_knob=None,
        )
    assert (job.name, job.target_metric, job.seed, job.beta) == ("mnist", 0.5, 0, None)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"job_id": "cifar"}, JobSpecError, "must begin with `job_id_prefix` 'mnist'"),
        ({"beta": 2.0}, JobSpecError, "beta must be given once"),
        ({"name": "mnist"}, JobSpecError, "name must be given once"),
        ({"beta_knob": 0.5}, JobSpecError, "beta"),
        ({"bacth_size": 32}, TypeError, "bacth_size"),
    ],
)
def test_keywords_that_cannot_be_translated(changes, error, message):
    with (
        pytest.warns(DeprecationWarning, match="JobSpec"),
        pytest.raises(error, match=message),
    ):
        JobSpec(**{**OLD, **changes})


def test_unknown_keywords_alone_are_errors_without_a_warning():
    with pytest.raises(TypeError, match="bacth_size"):
        JobSpec("a", (1,), 1, 0.9, bacth_size=32)  # type: ignore[call-arg]


def test_the_documented_loop_of_a_recurring_job(node, tmp_path):
    optimizer_of = former("zeus.optimizer.batch_size.client", "BatchSizeOptimizer")
    job_of = former("zeus.optimizer.batch_size.common", "JobSpec")
    assert (optimizer_of, job_of) == (BatchSizeOptimizer, JobSpec)
    with pytest.warns(DeprecationWarning, match="zeus 0.16"):
        job = job_of(
            job_id_prefix="mnist", default_batch_size=64, batch_sizes=[32, 64], max_epochs=10
        )
    bso = optimizer_of(monitor=ZeusMonitor(), job=job, storage=f"sqlite:///{tmp_path}/jobs.db")
    assert bso.get_batch_size() == 64
    bso.on_train_begin()
    for epoch in range(10):
        WORK.run(node.gpus)
        bso.on_evaluate(0.2 * epoch)
        if bso.training_finished:
            break
    assert (epoch, bso.reached_target) == (3, True)
    bso.close()


# --- utilities ----------------------------------------------------------------------------------


def test_environment_variables(monkeypatch):
    get_env = former("zeus.utils.env", "get_env")
    monkeypatch.setenv("ZEUS_TEST_NUMBER", "3")
    monkeypatch.setenv("ZEUS_TEST_FLAG", "False")
    monkeypatch.setenv("ZEUS_TEST_EMPTY", "")
    assert get_env("ZEUS_TEST_NUMBER", int) == 3
    assert get_env("ZEUS_TEST_FLAG", bool) is False
    monkeypatch.setenv("ZEUS_TEST_FLAG", "true")
    assert get_env("ZEUS_TEST_FLAG", bool, default=False) is True
    assert get_env("ZEUS_TEST_EMPTY", str, default="other") == ""
    assert get_env("ZEUS_TEST_UNSET", float, default=0.5) == 0.5
    with pytest.raises(ValueError, match="ZEUS_TEST_UNSET must be set"):
        get_env("ZEUS_TEST_UNSET", str)
    with pytest.raises(ValueError, match="must be true or false, but got '3'"):
        get_env("ZEUS_TEST_NUMBER", bool)


def test_learning_rates_and_costs():
    linear, root = former("zeus.utils.lr_scaler", "LinearScaler", "SquareRootScaler")
    assert linear(bs=256, lr=0.1).compute_lr(512) == pytest.approx(0.2)
    assert root(bs=256, lr=0.1).compute_lr(512) == pytest.approx(0.1 * math.sqrt(2))
    cost = former("zeus.utils.metric", "zeus_cost")
    assert cost(energy=100.0, time=2.0, eta_knob=0.25, max_power=300) == pytest.approx(475.0)


def test_waiting_for_the_gpu(node):
    wait = former("zeus.utils.framework", "sync_execution")
    wait([0, 1])
    wait([0], sync_with="cupy")
    with pytest.raises(ValueError, match="must be among"):
        wait([7])
    with pytest.raises(ValueError, match="must be one of torch"):
        wait([0], sync_with="tensorflow")


def test_the_package_that_this_process_runs_on():
    index_of = former("zeus.device.cpu", "get_current_cpu_index")
    if not Path("/sys/devices/system/cpu/cpu0/topology").exists():
        pytest.skip("this machine does not show the packages of its processors")
    assert index_of() >= -1  # -1 on machines that have none
    assert index_of(os.getpid()) >= -1
    with pytest.raises(OSError, match="No such"):
        index_of(2**22 + 1)


def test_the_base_of_all_errors():
    base = former("zeus.exception", "ZeusBaseError")
    with pytest.raises(base, match="is not open"):
        ZeusMonitor(gpu_indices=[], cpu_indices=[]).end_window("nothing")
