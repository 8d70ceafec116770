"""The binding runs on macOS only: a package with its interface stands in, in a new process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from zeus.device import _apple as apple

PROBE = """
import json
from zeus.device import _apple as apple
from zeus.errors import CapabilityError

soc, problems = apple.discover(system="Darwin", machine="arm64")
answer = {"found": soc is not None, "problems": [
    [problem.error.reason, problem.error.detail, problem.error.cure] for problem in problems
]}
if soc is not None:
    answer["powers"] = soc.powers()
    try:
        answer["energies"] = soc.energies()
    except CapabilityError as error:
        answer["error"] = [error.reason, error.detail]
print(json.dumps(answer))
"""

# Shaped as the published one: every field exists, unavailable ones are None, errors of the C++
# side arrive as RuntimeError and ValueError.
BINDING = """
FIELDS = (
    "cpu_total_mj", "efficiency_cores_mj", "performance_cores_mj", "efficiency_cluster_mj",
    "performance_cluster_mj", "efficiency_core_manager_mj", "performance_core_manager_mj",
    "dram_mj", "gpu_mj", "gpu_sram_mj", "ane_mj",
)

class AppleEnergyMetrics:
    def __init__(self, **known):
        for field in FIELDS:
            setattr(self, field, known.get(field))

class AppleEnergyMonitor:
    calls = 0

    def __init__(self):
        {on_creation}

    def get_cumulative_energy(self):
        self.calls += 1
        {on_reading}
"""

EVERYTHING = """return AppleEnergyMetrics(
            cpu_total_mj=1500, efficiency_cores_mj=[100, 200], performance_cores_mj=[300],
            efficiency_cluster_mj=[350], performance_cluster_mj=[400],
            efficiency_core_manager_mj=10, performance_core_manager_mj=20,
            dram_mj=250, gpu_mj=4000, gpu_sram_mj=5, ane_mj=0)"""


def binding(on_creation: str = "pass", on_reading: str = EVERYTHING) -> str:
    return BINDING.replace("{on_creation}", on_creation).replace("{on_reading}", on_reading)


def probe(directory: Path, source: str | None) -> dict:
    """What a process finds in which the binding is this source, or missing."""
    # An empty directory without `__init__` would be importable, too.
    if source is not None:
        package = directory / "zeus_apple_silicon"
        package.mkdir()
        (package / "__init__.py").write_text(source)
    paths = [str(directory), str(Path(apple.__file__).parents[2])]
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_parts_are_in_joules_and_none_is_contained_in_another(tmp_path):
    answer = probe(tmp_path, binding())
    assert answer["problems"] == []
    assert answer["energies"] == {
        "cpu": 1.5,
        "gpu": 4.0,
        "gpu_sram": 0.005,
        "dram": 0.25,
        "ane": 0.0,
    }
    assert answer["powers"] is None


def test_parts_that_the_chip_does_not_count_are_absent(tmp_path):
    answer = probe(tmp_path, binding(on_reading="return AppleEnergyMetrics(cpu_total_mj=7)"))
    assert answer["energies"] == {"cpu": 0.007}


def test_a_binding_without_some_fields_costs_those(tmp_path):
    answer = probe(
        tmp_path,
        binding(on_reading="return type('Old', (), {'cpu_total_mj': 7, 'gpu_mj': 8})()"),
    )
    assert answer["energies"] == {"cpu": 0.007, "gpu": 0.008}


def test_a_chip_that_tells_nothing_is_a_problem(tmp_path):
    answer = probe(tmp_path, binding(on_reading="return AppleEnergyMetrics()"))
    assert not answer["found"]
    [[reason, _, _]] = answer["problems"]
    assert reason == "unsupported"


def test_a_missing_binding_says_how_to_install_it(tmp_path):
    answer = probe(tmp_path, None)
    assert not answer["found"]
    [[reason, detail, cure]] = answer["problems"]
    assert reason == "driver absent"
    assert "zeus_apple_silicon" in detail
    assert cure.endswith("pip install 'zeus-energy[apple]'")


@pytest.mark.parametrize(
    "source", ["from .zeus_ext import AppleEnergyMonitor", "raise ImportError('wrong arch')", ""]
)
def test_a_broken_binding_says_how_to_replace_it(tmp_path, source):
    answer = probe(tmp_path, source)
    assert not answer["found"]
    [[reason, _, cure]] = answer["problems"]
    assert reason == "driver absent"
    # Of the binding alone: no index may have Zeus itself.
    assert cure.endswith("pip install --force-reinstall --no-deps zeus-apple-silicon")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (binding(on_creation="raise RuntimeError('no subscription')"), "unsupported"),
        (binding(on_reading="raise ValueError('unknown unit')"), "device lost"),
    ],
)
def test_a_binding_that_refuses_is_a_problem(tmp_path, source, expected):
    answer = probe(tmp_path, source)
    assert not answer["found"]
    [[reason, detail, _]] = answer["problems"]
    assert reason == expected
    assert "no subscription" in detail or "unknown unit" in detail


def test_a_failure_later_is_a_lost_device(tmp_path):
    later = "if self.calls > 1: raise RuntimeError('gone')\n        " + EVERYTHING
    answer = probe(tmp_path, binding(on_reading=later))
    assert answer["found"]
    assert answer["error"][0] == "device lost"


@pytest.mark.parametrize(
    ("system", "machine"), [("Linux", "aarch64"), ("Linux", "arm64"), ("Darwin", "x86_64")]
)
def test_other_platforms_have_no_problem(system, machine):
    assert apple.discover(system=system, machine=machine) == (None, [])


@pytest.mark.skipif(sys.platform == "darwin", reason="may have a chip to find")
def test_this_machine_can_be_asked():
    assert apple.discover() == (None, [])
