"""On the unmodified NVIDIA binding and a driver library of our own, in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.device.nvml_rig import MakeRig, Rig, rigs

from simulated_drivers import GpuSpec, Operation

ODD = 333.0
# Stretches are of 80 ms, which sensors that are refreshed every 100 ms cannot tell apart.
GPU = GpuSpec(needs_root=False, sensors="live-power")

TRAINING = """
import logging
from simulated_drivers import SimulatedNvml
from zeus.monitor import ZeusMonitor
from zeus.optimizer import GlobalFrequencyOptimizer, GlobalPowerLimitOptimizer
from zeus.optimizer.power_limit import Energy

simulation = SimulatedNvml.from_environment()
records = []

class Keep(logging.Handler):
    def emit(self, record):
        records.append(record.getMessage())

logging.getLogger("zeus").addHandler(Keep(logging.WARNING))

def made(kind=GlobalPowerLimitOptimizer, **options):
    records.clear()
    monitor = ZeusMonitor(cpu_indices=[], sync_execution_with=None)
    lengths = {"wait_steps": 0, "warmup_steps": 1, "profile_steps": 8}
    return kind(monitor, Energy(), **{**lengths, **options})

def train(optimizer, steps, epoch=10):
    "A step of 10 ms at full speed."
    for step in range(steps):
        if step % epoch == 0:
            optimizer.on_epoch_begin()
        optimizer.on_step_begin()
        time.sleep(0.01 / min(simulation.speed(gpu) for gpu in range(len(simulation))))
        optimizer.on_step_end()
        if step % epoch == epoch - 1:
            optimizer.on_epoch_end()

def told(optimizer):
    report = optimizer.report()
    knob = None if report.chosen is None else report.chosen.knob
    return {
        "trouble": optimizer.trouble, "observing": optimizer.observing, "chosen": knob,
        "reference": None if report.reference is None else report.reference.knob,
        "steps": report.steps, "profiling": report.profiling_steps, "text": str(report),
        "records": list(records),
        "limits": [simulation.power_limit(gpu) for gpu in range(len(simulation))],
    }
"""


def load(limit: float, clock: float) -> Operation:
    """Draws what it may, and hardly gets slower: the lowest limit takes a third of the energy."""
    watts = min(limit, 400.0 * clock / 1410)
    return Operation(watts, 0.8 + 0.2 * watts / 400)


@pytest.fixture
def rig(tmp_path: Path, nvml_library: Path) -> Iterator[MakeRig]:
    """Makes a machine of GPUs under load, at an odd limit."""
    with rigs(tmp_path, nvml_library, TRAINING, ZEUS_HELPER="0") as make:

        def loaded(*gpus: GpuSpec) -> Rig:
            machine = make(*(replace(gpu, load=load) for gpu in gpus))
            for gpu in range(len(gpus)):
                machine.simulation.set_power_limit(gpu, ODD)
            return machine

        yield loaded


@pytest.mark.real_time
def test_profiled_chosen_and_put_back(rig, tmp_path):
    machine = rig(GPU, GPU)
    first, second = machine.ask(
        f"""
both = []
for _ in range(2):
    optimizer = made(
        pl_step=100, profile_path={str(tmp_path / "profiles.json")!r}, job="a", batch_size=8
    )
    train(optimizer, 60)
    both.append(told(optimizer))
    optimizer.close()
say(both)
"""
    )
    assert first["trouble"] == ""
    assert first["chosen"] == 100.0
    assert first["limits"] == [100.0, 100.0]
    # The ladder's four limits, and the limit from before unless it is no different from them.
    assert first["profiling"] in {4 * (1 + 8), 5 * (1 + 8)}
    assert first["reference"] == ODD
    assert (second["profiling"], second["chosen"]) == (0, 100.0)
    assert machine.limits() == [ODD, ODD]


@pytest.mark.real_time
def test_refused_permission(rig, tmp_path):
    machine = rig(GPU, GPU)
    path = str(tmp_path / "profiles.json")
    machine.ask(
        f"""
optimizer = made(pl_step=100, profile_path={path!r}, job="a")
train(optimizer, 50)
optimizer.close()
say(None)
"""
    )
    machine.simulation.deny_control(gpu=1)
    alone, again, saved, clock = machine.ask(
        f"""
from zeus.device._base import Capability
answers = []
for options in ({{}}, {{}}, {{"profile_path": {path!r}, "job": "a"}}):
    optimizer = made(pl_step=100, **options)
    train(optimizer, 30)
    answers.append(told(optimizer))
    optimizer.close()
optimizer = made(GlobalFrequencyOptimizer)
train(optimizer, 10)
answers.append(told(optimizer))
optimizer.close()
say(answers)
"""
    )
    for answer in (alone, again, saved, clock):
        assert "no permission" in answer["trouble"]
        assert answer["observing"]
        assert len(answer["records"]) == 1, answer["records"]
        assert "may not be set, so it stays as it is: no permission" in answer["records"][0]
        assert answer["limits"] == [ODD, ODD]
        assert answer["profiling"] == 0
    assert alone["steps"] == 30
    assert alone["chosen"] is None
    assert "30 steps in" in alone["text"]
    assert (saved["chosen"], saved["reference"]) == (100.0, ODD)
    assert "would be best, against 333 W" in saved["text"]
    assert machine.limits() == [ODD, ODD]
    assert all(machine.simulation.clocks(gpu).locked_graphics is None for gpu in range(2)), (
        "also the GPU that did not refuse"
    )


def test_a_gpu_that_is_lost_amid_profiling(rig):
    machine = rig(GPU, GPU)
    answer = machine.ask(
        """
optimizer = made(pl_step=25)
train(optimizer, 20)
simulation.lose(1)
train(optimizer, 30)
answer = told(optimizer)
optimizer.close()
say(answer)
"""
    )
    assert "lost" in answer["trouble"]
    assert answer["steps"] == 50
    said = [record for record in answer["records"] if "is not optimized" in record]
    assert len(said) == 1
    assert machine.limits()[0] == ODD


@pytest.mark.real_time
def test_a_clock_is_locked_and_unlocked(rig):
    machine = rig(GPU)
    answer = machine.ask(
        """
optimizer = made(GlobalFrequencyOptimizer, freq_step=400)
train(optimizer, 50)
answer = [optimizer.selection.point.knob, simulation.clocks(0).locked_graphics]
optimizer.close()
say([*answer, simulation.clocks(0).locked_graphics])
"""
    )
    assert answer == [600, [210, 600], None]
    assert machine.limits() == [ODD]
