"""Whatever goes wrong: training goes on, one message says why, and the limit comes back."""

from __future__ import annotations

import logging
import os
from dataclasses import replace

import pytest
from tests.optimizer.support import Loop, limits, monitor, work
from tests.present import present

from zeus.device._base import DeviceSet
from zeus.device._node import Node
from zeus.errors import CapabilityError, FrontierError, Reason
from zeus.frontier import Selection
from zeus.monitor import ZeusMonitor
from zeus.optimizer import GlobalFrequencyOptimizer, GlobalPowerLimitOptimizer
from zeus.optimizer.power_limit import Energy, LatencyBound, Time
from zeus.optimizer.training._fixed_limit import FixedPowerLimit
from zeus.testing import SimulatedNode

JOB = work(0.05, activity=1.0, compute_bound=0.4)
ODD = 187.5


@pytest.fixture
def node():
    node = SimulatedNode("v100x2")
    for gpu in node.gpus:
        gpu.driver.set_power_limit(ODD)
    return node


@pytest.fixture
def warnings(caplog):
    caplog.set_level(logging.WARNING)

    def said() -> list[str]:
        return [record.getMessage() for record in caplog.records]

    return said


def refuse(node, index=1):
    """This GPU does not let its knobs be turned."""

    def setter(*_):
        raise CapabilityError(Reason.NO_PERMISSION, "power limit control", "ask an administrator")

    driver = node.gpus[index].driver
    driver.set_power_limit = driver.lock_graphics_clock = setter


def lose(node, index=1):
    """This GPU falls off the bus."""

    def gone(*_):
        raise CapabilityError(Reason.LOST, "the GPU is gone")

    driver = node.gpus[index].driver
    for question in ("energy", "instant_power", "set_power_limit", "power_limit"):
        setattr(driver, question, gone)


def gave_up(optimizer, node, loop):
    """It says why, does nothing more, and the run is measured to its end."""
    assert optimizer.trouble
    before = optimizer.report().steps
    loop.epochs(3)
    report = optimizer.report()
    assert report.steps == before + 3 * loop.epoch_steps == loop.steps
    optimizer.close()
    optimizer.close()
    assert limits(node) == [ODD, ODD]
    return report


def test_a_slice_of_a_gpu_leaves_the_knobs_of_the_whole_alone(node, warnings):
    for gpu in node.gpus:
        gpu.identity = replace(gpu.identity, whole_module=True)
    optimizer = GlobalPowerLimitOptimizer(monitor(node))
    loop = Loop(node, optimizer, JOB).epochs(1)
    (said,) = warnings()
    assert "that of all its slices" in said
    assert limits(node) == [ODD, ODD]
    assert gave_up(optimizer, node, loop).as_run.energy > 0
    fixed = FixedPowerLimit(monitor(node), 150)
    Loop(node, fixed, JOB).epochs(1)
    assert "that of all its slices" in fixed.trouble
    assert limits(node) == [ODD, ODD]


# --- Refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [GlobalPowerLimitOptimizer, GlobalFrequencyOptimizer])
def test_refused_permission(kind, node, warnings):
    refuse(node)
    optimizer = kind(monitor(node))
    loop = Loop(node, optimizer, JOB, epoch=30).epochs(4)
    assert optimizer.observing
    assert "no permission: power limit control" in optimizer.trouble
    report = gave_up(optimizer, node, loop)
    (said,) = warnings()
    assert "may not be set, so it stays as it is: no permission" in said
    assert "ask an administrator" in said
    assert "only the run is measured" in said
    assert report.as_run.time == pytest.approx(node.clock.now())
    assert report.as_run.energy == pytest.approx(
        node.exact_energy(0) + node.exact_energy(1), rel=0.01
    )
    assert "nothing to compare with" in str(report)


def test_refused_permission_with_a_saved_profile(node, warnings, tmp_path):
    options = {"profile_path": tmp_path / "profiles.json", "job": "a"}
    optimizer = GlobalPowerLimitOptimizer(monitor(node), **options)
    Loop(node, optimizer, JOB).until_decided()
    optimizer.close()
    refused = SimulatedNode("v100x2")
    for gpu in refused.gpus:
        gpu.driver.set_power_limit(ODD)
    refuse(refused)
    observer = GlobalPowerLimitOptimizer(monitor(refused), **options)
    loop = Loop(refused, observer, JOB, epoch=100).epochs(5)
    assert limits(refused) == [ODD, ODD]
    (said,) = warnings()
    assert "the possible savings are reported from the saved profile" in said
    report = observer.report()
    assert report.observing
    assert present(report.chosen).knob == present(optimizer.selection).point.knob
    assert present(report.reference).knob == ODD
    elsewhere = SimulatedNode("v100x2")
    for gpu in elsewhere.gpus:
        gpu.driver.set_power_limit(present(report.chosen).knob)
    time = JOB.step_time(elsewhere.gpus[0]) * loop.steps
    assert present(report.at_chosen).time == pytest.approx(time, rel=0.005)
    assert report.profiling_steps == 0


def test_a_saved_profile_that_is_not_this_jobs_is_not_reported_from(node, warnings, tmp_path):
    options = {"profile_path": tmp_path / "profiles.json", "job": "a"}
    optimizer = GlobalPowerLimitOptimizer(monitor(node), Time(), **options)
    Loop(node, optimizer, JOB).until_decided()
    optimizer.close()
    refuse(node)
    observer = GlobalPowerLimitOptimizer(monitor(node), Time(), **options)
    Loop(node, observer, work(0.08), epoch=100).epochs(4)
    assert "the saved profile is not this job's: a step takes" in warnings()[-1]
    assert len(warnings()) == 2
    assert observer.report().chosen is None
    assert not observer.decided


def test_no_place_for_the_record_of_changed_knobs(tmp_path, monkeypatch, warnings):
    # Without it, nothing would bring the limit back after a crash: so it is not changed.
    (tmp_path / "file").touch()
    node = SimulatedNode("v100")
    node.gpus[0].driver.shared = True  # as on hardware, the record is on disk
    monkeypatch.setenv("ZEUS_STATE_DIR", str(tmp_path / "file"))
    optimizer = GlobalPowerLimitOptimizer(monitor(node))
    Loop(node, optimizer, JOB, epoch=30).epochs(2)
    (said,) = warnings()
    assert "may not be set" in said
    assert limits(node) == [250]


# --- Lost, or never there -----------------------------------------------------------------------


@pytest.mark.parametrize("after", [1, 40, 90, 120])
def test_a_gpu_that_is_lost_amid_profiling(node, warnings, after):
    optimizer = GlobalPowerLimitOptimizer(monitor(node), raise_limit=True)
    loop = Loop(node, optimizer, JOB, epoch=40)
    for step in range(400):
        if step == after:
            lose(node)
        loop.step()
    assert "gone" in optimizer.trouble
    about_optimizing = [said for said in warnings() if "is not optimized" in said]
    assert len(about_optimizing) == 1
    assert "training goes on" in about_optimizing[0]
    optimizer.close()
    assert node.gpus[0].power_limit() == ODD
    assert optimizer.report().as_run is None, "half of the energy is not the energy"


def test_no_gpu_at_all(warnings):
    with SimulatedNode("v100") as node:
        nowhere = Node(node.clock, [], DeviceSet([]))
        optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(node=nowhere))
        loop = Loop(node, optimizer, JOB, epoch=10).epochs(3)
        (said,) = warnings()
        assert "the monitor must have a GPU, but has none" in said
        assert (optimizer.report().steps, loop.steps) == (30, 30)
        assert optimizer.report().as_run is None
        optimizer.close()


def test_a_monitor_of_no_gpus(node, warnings):
    optimizer = GlobalPowerLimitOptimizer(monitor(node, []))
    Loop(node, optimizer, JOB, epoch=10).epochs(3)
    assert len(warnings()) == 1
    assert limits(node) == [ODD, ODD]


def test_energy_that_cannot_be_measured(node, warnings):
    def no(*_):
        raise CapabilityError(Reason.UNSUPPORTED, "no meter on this part")

    driver = node.gpus[1].driver
    driver.energy = driver.instant_power = driver.average_power = no
    optimizer = GlobalPowerLimitOptimizer(monitor(node))
    loop = Loop(node, optimizer, JOB, epoch=30).epochs(3)
    (said,) = [said for said in warnings() if "is not optimized" in said]
    assert "cannot be measured" in said
    assert "Tesla V100" in said
    report = gave_up(optimizer, node, loop)
    assert report.as_run is None
    assert "0 J" not in str(report)


# --- What users do ------------------------------------------------------------------------------


class Raises:
    def select(self, frontier):
        raise ZeroDivisionError("my own mistake")


class RaisesWhileWalking(Raises):
    def settled(self, walk):
        return dict[str, bool]()["never"]


@pytest.mark.parametrize(
    ("objective", "told"),
    [
        (Raises(), "ZeroDivisionError: my own mistake"),
        (RaisesWhileWalking(), "KeyError: 'never'"),
        (lambda frontier: None, "must return one of the frontier's points"),
        (lambda frontier: frontier.points[0].scaled(2), "must return one of the frontier's points"),
        (lambda frontier: Selection(frontier.points[0].scaled(2)), "must return one of"),
    ],
)
def test_an_objective_that_fails(objective, told, node, warnings, caplog):
    optimizer = GlobalPowerLimitOptimizer(
        monitor(node), objective, warmup_steps=1, profile_steps=4, pl_step=75
    )
    loop = Loop(node, optimizer, JOB, epoch=30).epochs(3)
    (said,) = warnings()
    assert told in said
    assert told in optimizer.trouble
    assert caplog.records[0].exc_info is not None, "the traceback is the user's to read"
    report = gave_up(optimizer, node, loop)
    assert report.as_run.time == pytest.approx(node.clock.now())
    assert len(warnings()) == 1


def test_latencies_of_steps_are_not_measured_so_none_can_be_asked_for(node):
    with pytest.raises(FrontierError, match="one of their time and energy, but got LatencyBound"):
        GlobalPowerLimitOptimizer(monitor(node), LatencyBound("p99", 0.1))


def test_windows_that_are_reset_amid_profiling(node, warnings):
    watching = monitor(node)
    optimizer = GlobalPowerLimitOptimizer(watching, raise_limit=True)
    loop = Loop(node, optimizer, JOB, epoch=40)
    optimizer.on_epoch_begin()
    for step in range(200):
        if step == 60:
            watching.reset_windows()
        loop.step()
    (said,) = warnings()
    assert "the monitor's windows were reset" in said
    optimizer.close()
    assert limits(node) == [ODD, ODD]


def test_a_setting_that_is_not_in_force_is_not_measured(node, warnings):
    optimizer = GlobalPowerLimitOptimizer(monitor(node), raise_limit=True)
    loop = Loop(node, optimizer, JOB, epoch=40)
    for _ in range(20):
        loop.step()
    with node.gpus[1].hold(power_limit=130):  # as another program would
        for _ in range(200):
            loop.step()
        (said,) = warnings()
        assert f"process {os.getpid()} has set the power limit" in said
        assert optimizer.frontier is None
        assert limits(node) == [ODD, 130]
    assert limits(node) == [ODD, ODD]


@pytest.mark.parametrize("how", ["reset_windows", "close"])
def test_a_monitor_that_is_closed_after_the_choice(node, warnings, how):
    """Training goes on. What the run took is then not known, rather than too little."""
    watching = monitor(node)
    optimizer = GlobalPowerLimitOptimizer(watching)
    loop = Loop(node, optimizer, JOB).until_decided()
    optimizer.on_epoch_begin()
    getattr(watching, how)()
    loop.step()
    optimizer.on_epoch_end()
    loop.epochs(2)
    assert optimizer.report().as_run is None
    optimizer.close()
    assert limits(node) == [ODD, ODD]


def test_an_exception_in_the_loop(node):
    def train():
        with GlobalPowerLimitOptimizer(monitor(node)) as optimizer:
            loop = Loop(node, optimizer, JOB)
            for _ in range(90):
                loop.step()
            assert limits(node) != [ODD, ODD]
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        train()
    assert limits(node) == [ODD, ODD]


def test_closing_early_twice_and_training_on(node):
    optimizer = GlobalPowerLimitOptimizer(monitor(node))
    loop = Loop(node, optimizer, JOB, epoch=30).epochs(2)
    optimizer.close()
    report = optimizer.report()
    for _ in range(2):
        loop.epochs(2)
        optimizer.pause()
        optimizer.resume()
        optimizer.close()
        assert limits(node) == [ODD, ODD]
    assert optimizer.report() == report, "the run was over"
    assert report.steps == 60


def test_a_run_that_was_left_without_closing_makes_way_for_the_next(node, warnings):
    """As in a notebook, whose cell was interrupted and is run again."""
    left = GlobalPowerLimitOptimizer(monitor(node), Energy())
    loop = Loop(node, left, JOB).until_decided()
    assert limits(node) != [ODD, ODD]
    again = GlobalPowerLimitOptimizer(monitor(node), Energy())
    Loop(node, again, JOB).until_decided()
    (said,) = warnings()
    assert "was not closed" in said
    assert present(again.report().reference).knob == ODD, "not what the run before had chosen"
    steps = left.report().steps
    loop.epoch()  # somebody still has it: it must not turn the knob any more
    assert left.report().steps == steps
    assert limits(node) == [present(again.selection).point.knob] * 2
    again.close()
    assert limits(node) == [ODD, ODD]


def test_runs_on_other_gpus_and_of_other_knobs_are_left_alone(node, warnings):
    callbacks = [
        GlobalPowerLimitOptimizer(monitor(node, [0]), Energy()),
        GlobalPowerLimitOptimizer(monitor(node, [1]), Energy()),
        GlobalFrequencyOptimizer(monitor(node, [1]), Energy()),
    ]
    for gpu, callback in zip((0, 1, 1), callbacks, strict=True):
        Loop(node, callback, JOB, gpus=[node.gpus[gpu]]).until_decided()
    assert warnings() == []
    assert present(callbacks[0].selection).point.knob == limits(node)[0] != ODD
    for callback in callbacks:
        callback.close()
    assert limits(node) == [ODD, ODD]


def test_closing_what_has_never_begun(node):
    optimizer = GlobalPowerLimitOptimizer(monitor(node))
    assert optimizer.report().steps == 0
    assert str(optimizer.report()).startswith("0 steps")
    optimizer.close()
    optimizer.on_epoch_end()
    assert limits(node) == [ODD, ODD]


def test_somebody_elses_hold_ends_later(node):
    with GlobalPowerLimitOptimizer(monitor(node), Time()) as optimizer:
        Loop(node, optimizer, JOB).until_decided()
        hold = node.gpus[0].hold(power_limit=120)
        hold.acquire()
    assert limits(node) == [120, ODD]
    hold.release()
    assert limits(node) == [ODD, ODD]
