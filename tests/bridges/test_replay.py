"""A log of zeus 0.16 in place of a monitor: for a program, and for an optimizer."""

from __future__ import annotations

import csv
from importlib import import_module

import pytest
from tests.present import present

from zeus.frontier import Energy, MaxSlowdownConstraint, ZeusCost
from zeus.optimizer import GlobalPowerLimitOptimizer

HEADER = "start_time,window_name,elapsed_time,gpu0_energy,gpu2_energy\n"


@pytest.fixture
def replay():
    with pytest.warns(DeprecationWarning, match="ProfileNode"):
        return import_module("zeus.utils.testing").ReplayZeusMonitor


@pytest.fixture
def log(tmp_path):
    """Windows of 40 steps: slower, but not for less energy, below 200 W."""
    path = tmp_path / "log.csv"
    rows = {300: (8, 1000), 250: (8.5, 900), 200: (9, 800), 150: (13, 700), 100: (20, 800)}
    lines = [
        f"{number},__GlobalPowerLimitOptimizer_{watts},{seconds},{joules},{joules + 10}\n"
        for number, (watts, (seconds, joules)) in enumerate(rows.items())
    ]
    path.write_text(HEADER + "".join(lines))
    return path


def table(path):
    """Seconds, joules of all GPUs, and number of GPUs, by watts."""
    found = {}
    for row in csv.DictReader(path.read_text().splitlines()):
        energies = [float(row[name]) for name in row if name.endswith("_energy")]
        watts = float(row["window_name"].rpartition("_")[2])
        found[watts] = (float(row["elapsed_time"]), sum(energies), len(energies))
    return found


def train(optimizer, epochs=3, steps=300):
    for _ in range(epochs):
        optimizer.on_epoch_begin()
        for _ in range(steps):
            optimizer.on_step_begin()
            optimizer.on_step_end()
        optimizer.on_epoch_end()


def test_a_program_gets_the_windows_of_the_log(replay, log):
    monitor = replay(gpu_indices=[0, 2], log_file=log, ignore_sync_execution=True)
    assert monitor.gpu_indices == [0, 2]
    name = "__GlobalPowerLimitOptimizer_{}".format
    monitor.begin_window(name(300))
    with pytest.raises(RuntimeError, match="is open already"):
        monitor.begin_window(name(300))
    monitor.begin_window(name(300), restart=True)
    first = monitor.end_window(name(300))
    assert (first.time, first.gpu_energy, first.total_energy) == (8, {0: 1000, 2: 1010}, 2010)
    monitor.begin_window("warmup")
    monitor.end_window("warmup", cancel=True)
    monitor.begin_window("other")
    with pytest.raises(RuntimeError, match="the next window"):
        monitor.end_window("other")
    with pytest.raises(RuntimeError, match="is not open"):
        monitor.end_window("nothing")
    with monitor.window(name(250)) as window:
        pass
    assert window.measurement.time == 8.5
    assert monitor.remaining == 3


@pytest.mark.parametrize("lengths", [{"warmup_steps": 10, "profile_steps": 40}, {}], ids=str)
@pytest.mark.parametrize(
    ("objective", "expected"),
    [(ZeusCost(0.9), 200), (Energy(), 150), (MaxSlowdownConstraint(1.2), 200)],
    ids=["cost", "energy", "slowdown"],
)
def test_an_optimizer_chooses_what_is_best_in_the_log(replay, log, lengths, objective, expected):
    monitor = replay(log_file=log, match_window_name=False)
    with GlobalPowerLimitOptimizer(monitor, objective, pl_step=50, **lengths) as optimizer:
        train(optimizer)
        assert optimizer.trouble == ""
        assert present(optimizer.selection).point.knob == expected
        assert monitor.gpus[0].power_limit() == expected
        recorded = table(log)
        for point in present(optimizer.frontier):
            seconds, joules, _ = recorded[point.knob]
            assert point.time * 40 == pytest.approx(seconds)
            assert point.energy * 40 == pytest.approx(joules)
    assert monitor.gpus[0].power_limit() == 300
    assert monitor.remaining == 5  # the program's own windows are still to come


@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("gpus", ["0", "0,1,2,3"])
def test_an_optimizer_on_recorded_logs(replay, traces, gpus, eta):
    """The documented loop on the logs with which zeus 0.16 was tested."""
    path = traces / "profiles" / f"A40+resnet18+gpu{gpus}.csv"
    recorded = table(path)
    maximum = max(recorded) * recorded[max(recorded)][2]
    cost = {
        watts: eta * joules + (1 - eta) * maximum * seconds
        for watts, (seconds, joules, _) in recorded.items()
    }
    monitor = replay(log_file=path, ignore_sync_execution=True, match_window_name=False)
    selector = ZeusCost(eta, world_size=len(monitor.gpu_indices))
    with GlobalPowerLimitOptimizer(
        monitor, selector, wait_steps=1, warmup_steps=10, profile_steps=40, pl_step=25
    ) as optimizer:
        train(optimizer)
        assert cost[present(optimizer.selection).point.knob] == min(cost.values())


def test_a_log_of_other_windows_drives_no_optimizer(replay, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(HEADER + "1,epoch,2,3,4\n" + "1,limit_100,2,3,\n")
    with pytest.raises(ValueError, match="names end in watts"):
        GlobalPowerLimitOptimizer(replay(log_file=path))


def test_arguments(replay, log, tmp_path):
    with pytest.raises(ValueError, match="`log_file` must be given"):
        replay()
    with pytest.raises(ValueError, match=r"must be those of the log, \[0, 2\], but got \[0\]"):
        replay(gpu_indices=[0], log_file=log)
    with pytest.raises(ValueError, match="there is no log"):
        replay(log_file=tmp_path / "none.csv")
