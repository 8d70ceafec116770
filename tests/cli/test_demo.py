"""`zeus demo`: the main job, wherever it runs."""

from __future__ import annotations

import io
import json
import re

import pytest
from tests.cli.support import zeus
from tests.present import present

from simulated_drivers import GpuSpec
from zeus.cli._terminal import Console
from zeus.cli.demo import Optimized
from zeus.frontier import Frontier, MaxSlowdownConstraint
from zeus.monitor import ZeusMonitor
from zeus.optimizer import GlobalPowerLimitOptimizer
from zeus.testing import SimulatedNode, Workload


def test_without_a_gpu_it_says_so_and_simulates():
    done = zeus("demo", ZEUS_SIMULATE=None)
    assert (done.returncode, done.stderr) == (0, "")
    first = done.stdout.splitlines()[0]
    assert first.startswith("No GPU can be measured here")
    for word in ("epoch", "average power", "kWh", "GPU 3", "25%", "true", "chosen"):
        assert word in done.stdout
    assert "from zeus.monitor import ZeusMonitor" in done.stdout
    assert re.search(r"change +\+[\d.]+% +-[\d.]+%", done.stdout)
    assert re.search(r"Finding it took \d+ steps of training", done.stdout)


@pytest.mark.parametrize("hidden", [None, "", "-1", "7"])
def test_its_numbers_are_right(hidden):
    done = zeus("demo", "--json", ZEUS_SIMULATE=None, CUDA_VISIBLE_DEVICES=hidden)
    result = json.loads(done.stdout)
    assert result["node"] == "virtual"
    assert len(result["epochs"]) == 3
    training = result["training"]
    assert training["complete"]
    assert training["time"] == pytest.approx(sum(epoch["time"] for epoch in result["epochs"]))
    assert training["total_energy"] == pytest.approx(result["exact_energy"], rel=1e-4)
    assert abs(training["total_energy"] - result["exact_energy"]) <= 2 * training["uncertainty"]
    for step, exact in zip(result["steps"], result["exact_step_energies"], strict=True):
        assert step["total_energy"] == pytest.approx(exact, rel=0.01)
    lower = result["power_limit"]
    assert lower["limit"] < lower["default"]
    assert lower["time_change"] > 0 > lower["energy_change"]
    frontier = Frontier.from_dict(lower["frontier"])
    assert MaxSlowdownConstraint(1.1).select(frontier).point.knob == lower["limit"]
    # What the profile says of a step is what the epoch took.
    at_best, before = frontier.at(lower["limit"]), frontier.at(lower["default"])
    assert lower["time_change"] == pytest.approx(at_best.slowdown(before) - 1, abs=0.003)
    assert lower["energy_change"] == pytest.approx(-at_best.savings(before), abs=0.005)
    assert lower["profiling"]["steps"] > 0


@pytest.mark.real_time
def test_on_a_simulated_node_it_runs_in_real_time():
    done = zeus("demo", "--json", ZEUS_SIMULATE="v100,a40")
    result = json.loads(done.stdout)
    assert result["node"] == "simulated"
    assert set(result["training"]["gpu_energy"]) == {"0", "1"}
    # A busy host makes short steps noisy, so any limit may win; but lower ones use less power.
    frontier = Frontier.from_dict(result["power_limit"]["frontier"])
    assert frontier.at(result["power_limit"]["limit"]) in list(frontier)
    powers = [point.average_power for point in frontier]
    assert powers[-1] < 0.95 * powers[0]
    assert len(result["power_limit"]["default"]) == 2, "models that differ have limits of their own"


def test_models_that_differ_have_limits_of_their_own():
    with SimulatedNode("v100,a40") as node:
        monitor = ZeusMonitor()
        step = Workload("a step", gpu_time=0.2)
        with GlobalPowerLimitOptimizer(monitor, MaxSlowdownConstraint(1.1)) as optimizer:
            while not optimizer.decided:
                optimizer.on_step_begin()
                step.run(node.gpus)
                optimizer.on_step_end()
            with monitor.window("steps") as window:
                step.run(node.gpus)
            taken, frontier = present(window.measurement), present(optimizer.frontier)
            found = Optimized(optimizer.report(), frontier, "A step:", taken, taken)
    lines = found.lines(Console(io.StringIO()))
    assert any(
        line.startswith("  300, 250 W            +0.0%              +0.0%") for line in lines
    )
    assert sum(line.endswith("chosen") for line in lines) == 1
    assert "300 W (NVIDIA A40 (simulated)), 250 W" in str(optimizer.report())
    assert "at the chosen setting throughout" in str(optimizer.report())
    assert re.match(r"<pre>\d+ W \(NVIDIA A40 \(sim", optimizer.report()._repr_html_())


@pytest.mark.real_time
def test_with_a_gpu_but_no_framework_it_measures_idling_and_says_so(nvml, tmp_path):
    # A PyTorch that cannot use the GPUs, and is quicker to import than a real one.
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "class cuda:\n    is_available = staticmethod(lambda: False)\n"
        "    is_initialized = staticmethod(lambda: False)\n"
    )
    sim, variables = nvml(GpuSpec(watts=70.0))
    done = zeus("demo", env=variables, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "Found 1 GPU: NVIDIA A100" in done.stdout
    assert "Idle GPUs: PyTorch cannot use them" in done.stdout
    assert "70 W" in done.stdout
    assert sim.calls("nvmlDeviceSetPowerManagementLimit") == 0


@pytest.mark.real_time
def test_with_a_framework_it_trains(nvml, tmp_path):
    # Enough of PyTorch to count the steps.
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "import time\n"
        "class Anything:\n"
        "    def __call__(self, *a, **k): return self\n"
        "    def __getattr__(self, name): return self\n"
        "nn = optim = randn = Anything()\n"
        "class cuda:\n"
        "    is_available = is_initialized = staticmethod(lambda: True)\n"
        "    synchronize = staticmethod(lambda index: time.sleep(0.01))\n"
    )
    sim, variables = nvml(GpuSpec(watts=300.0))
    done = zeus("demo", env=variables, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "A small training loop on GPU 0, with PyTorch" in done.stdout
    (shown,) = re.findall(r"^ +all .* (\d+) W$", done.stdout, re.MULTILINE)
    assert float(shown) == pytest.approx(300, rel=0.03), "of 1.5 s; known to about 1 %"
    assert sim.calls("nvmlDeviceSetPowerManagementLimit") == 0

    done = zeus("demo", "--optimize", "--json", env=variables, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)["power_limit"]
    assert sim.calls("nvmlDeviceSetPowerManagementLimit") >= len(result["frontier"]["points"])
    assert sim.power_limit(0) == result["default"] == 400


def test_a_lost_gpu_is_told_instead_of_an_energy(nvml, tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('broken')\n")
    _, variables = nvml(GpuSpec(lost_at_init=True))
    done = zeus("demo", env=variables, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0
    assert "PyTorch cannot use them (broken)" in done.stdout
    assert "device lost" in done.stdout
    assert "0 J" not in done.stdout
