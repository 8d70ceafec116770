"""What a training process publishes: right numbers, while it lives, whatever others write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.present import present

from zeus.monitor import ZeusMonitor
from zeus.optimizer import GlobalFrequencyOptimizer, GlobalPowerLimitOptimizer
from zeus.telemetry import TrainingTelemetry
from zeus.telemetry._readings import NodeReading
from zeus.telemetry._training_files import (
    TrainingFile,
    TrainingSource,
    TrainingState,
    own_directory,
)
from zeus.testing import SimulatedNode, Workload

NOTHING = NodeReading(0.0, (), (), None, ())
STEP = Workload("step", gpu_time=0.2, host_time=0.02)


def published() -> dict[str, dict[tuple[str, ...], float]]:
    families = TrainingSource().families(NOTHING)
    return {family.metric.name: dict(family.samples) for family in families if family.samples}


def train(node: SimulatedNode, callbacks: list[Any], steps: int, step: Workload = STEP) -> None:
    for callback in callbacks:
        callback.on_epoch_begin()
    for _ in range(steps):
        for callback in callbacks:
            callback.on_step_begin()
        step.run(node.gpus)
        for callback in callbacks:
            callback.on_step_end()
    for callback in callbacks:
        callback.on_epoch_end()


def test_energy_per_step_and_sample_are_those_of_the_gpus():
    with SimulatedNode("v100x2") as node:
        telemetry = TrainingTelemetry(ZeusMonitor(), job="resnet", batch_size=64)
        assert published() == {}
        before = [node.exact_energy(gpu) for gpu in range(2)]
        train(node, [telemetry], 100)
        node.sleep(500.0)  # evaluation does not count
        train(node, [telemetry], 400)
        joules = STEP.average_power(node.gpus[0]) * STEP.step_time(node.gpus[0]) * 2
        found = published()
    labels = next(iter(found["zeus_training_steps_total"]))
    assert labels[:3] == ("resnet", "0", f"{os.getpid()}")
    value = {name.removeprefix("zeus_training_"): each[labels] for name, each in found.items()}
    assert value["step_energy_joules"] == pytest.approx(joules, rel=0.01)
    assert value["sample_energy_joules"] == value["step_energy_joules"] / 64
    assert value["step_seconds"] == pytest.approx(STEP.step_time(node.gpus[0]), rel=1e-3)
    assert value["energy_joules_total"] == pytest.approx(joules * value["steps_total"], rel=0.01)
    assert value["energy_joules_total"] < sum(node.exact_energy(gpu) for gpu in range(2)) - sum(
        before
    )
    assert value["batch_size"] == 64
    assert "power_limit_watts" not in value, "there is no optimizer"
    telemetry.close()
    assert published() == {}


@pytest.mark.parametrize(
    ("optimizer", "knob", "unit"),
    [
        (GlobalPowerLimitOptimizer, "power_limit_watts", 1),
        (GlobalFrequencyOptimizer, "graphics_clock_hertz", 1e6),
    ],
)
def test_setting_and_savings_are_those_of_the_optimizer(optimizer, knob, unit):
    step = Workload("long step", gpu_time=2.0)
    with SimulatedNode("v100") as node:
        monitor = ZeusMonitor()
        chosen = optimizer(monitor)
        telemetry = TrainingTelemetry(monitor, chosen, job="resnet")
        train(node, [chosen, telemetry], 6, step)
        assert f"zeus_training_{knob}" not in published(), "nothing is chosen yet"
        train(node, [chosen, telemetry], 500, step)
        report, found = chosen.report(), published()
        (setting,) = found[f"zeus_training_{knob}"].values()
        assert setting == present(report.chosen).knob * unit
        (ratio,) = found["zeus_training_saved_energy_ratio"].values()
        assert ratio == pytest.approx(-present(report.energy_change))
        assert ratio > 0.05
        (slower,) = found["zeus_training_slowdown_ratio"].values()
        assert slower == pytest.approx(present(report.time_change))
        (saved,) = found["zeus_training_saved_energy_joules"].values()
        (energy,) = found["zeus_training_energy_joules_total"].values()
        # Nearly all steps were at the chosen setting.
        assert saved / (energy + saved) == pytest.approx(ratio, rel=0.25)
        assert set(found["zeus_training_observing"].values()) == {0}
        chosen.close()
        telemetry.close()


def test_totals_never_decrease():
    with SimulatedNode("a100") as node:
        telemetry = TrainingTelemetry(ZeusMonitor(), period=1.0)
        totals = []
        for _ in range(30):
            train(node, [telemetry], 7)
            totals.append(present(telemetry.state.energy))
        assert totals == sorted(totals)
        assert totals[-1] > totals[5] > 0
        telemetry.close()


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"period": 0.0}, {"period": float("nan")}])
def test_invalid_arguments(wrong):
    with SimulatedNode("v100"), pytest.raises(ValueError, match=next(iter(wrong))):
        TrainingTelemetry(ZeusMonitor(), **wrong)


def test_nothing_stops_the_training(monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ZEUS_STATE_DIR", str(tmp_path / "file" / "below"))
    with SimulatedNode("v100") as node:
        telemetry = TrainingTelemetry(ZeusMonitor())
        train(node, [telemetry], 300)
        telemetry.close()
    (record,) = caplog.records
    assert "not published" in record.getMessage()


CHILD = textwrap.dedent("""
    import sys
    from zeus.telemetry._training_files import TrainingFile, TrainingState
    TrainingFile().write(TrainingState(job="other", steps=3))
    print("written", flush=True)
    sys.stdin.read()
""")


def test_a_process_is_shown_while_it_lives():
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdin is not None
    child.stdout.readline()
    ((labels, steps),) = published()["zeus_training_steps_total"].items()
    assert (labels[0], labels[2], steps) == ("other", f"{child.pid}", 3)
    child.kill()
    child.wait()
    child.stdin.close()
    child.stdout.close()
    assert published() == {}
    (left,) = own_directory().glob("*.json")
    TrainingFile()  # the next process removes what killed ones left
    assert not left.exists()


def test_two_files_of_one_process_are_one_series():
    files = [TrainingFile() for _ in range(2)]
    for steps, file in enumerate(files, 1):
        file.write(TrainingState(job="twice", steps=steps))
    assert len(published()["zeus_training_steps_total"]) == 1
    for file in files:
        file.remove()
        file.remove()


def written(**changes: Any) -> dict[str, Any]:
    file = TrainingFile()
    file.write(TrainingState(job="fine", steps=1))
    (path,) = own_directory().glob("*.json")
    record = json.loads(path.read_text())
    path.unlink()
    record["state"] |= changes
    return record


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"3",
        b"\xff",
        b"[" * 100_000,
        b'{"version": 1}',
        b"x" * 100_000,
        {"steps": "many"},
        {"steps": float("nan")},
        {"steps": 10**400},
        {"job": 3},
        {"steps": {"nested": 1}},
    ],
    ids=repr,
)
def test_a_file_that_makes_no_sense_is_ignored(content):
    record = written(**(content if isinstance(content, dict) else {}))
    path = own_directory() / "strange.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(record).encode())
    assert published() == {}


def test_pipes_and_links_are_not_followed():
    record = written()
    directory = own_directory()
    os.mkfifo(directory / "pipe.json")
    elsewhere = directory.parent / "elsewhere.json"
    elsewhere.write_text(json.dumps(record))
    (directory / "link.json").symlink_to(elsewhere)
    assert published() == {}


def test_long_names_are_cut():
    path = own_directory() / "long.json"
    path.write_text(json.dumps(written(job="x" * 5000)))
    (labels,) = published()["zeus_training_steps_total"]
    assert len(labels[0]) == 128


def test_without_a_state_directory_files_are_in_a_place_of_all_users(monkeypatch, tmp_path):
    monkeypatch.delenv("ZEUS_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o777)
    monkeypatch.setattr("zeus.device._record_places.SHARED_PLACES", (Path("/missing"), shared))
    file = TrainingFile()
    file.write(TrainingState(job="shared", steps=1))
    assert own_directory() == shared / f"zeus-training-{os.getuid()}"
    ((labels, _),) = published()["zeus_training_steps_total"].items()
    assert labels[0] == "shared"
    # A directory of that name which another user could have written says nothing about its user.
    forged = shared / "zeus-training-4242"
    forged.mkdir()
    (forged / "forged.json").write_text(next(own_directory().glob("*.json")).read_text())
    assert {user for _, _, _, user, *_ in published()["zeus_training_steps_total"]} == {labels[3]}
    file.remove()
