"""Clients of the AMD back end, over the unmodified `amdsmi` binding and a simulated libamd_smi.so.

Each client is a process of its own, because the loader reads LD_LIBRARY_PATH only once. Clients
answer through a file, so that every test also sees that nothing reached their stdout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.device.clients import PYTHONPATH

from simulated_drivers import AmdGpuSpec, SimulatedAmdSmi

# What every client starts with: `outcome` turns an error into the list of what it says.
PRELUDE = """
import json, os, sys, time
from pathlib import Path
from zeus.device import _amd as amd
from zeus.device._base import ClockRange, GpuDriver
from zeus.device import Gpu
from zeus.device._guard import Guard
from zeus.device._vendors import GpuVendor
from zeus.errors import CapabilityError, KnobError
from simulated_drivers import SimulatedAmdSmi

def answer(value):
    Path(os.environ["ANSWER"]).write_text(json.dumps(value))

def outcome(question, *arguments):
    try:
        return question(*arguments)
    except CapabilityError as error:
        return [str(error.reason), error.detail, error.cure]
    except KnobError as error:
        return ["knob", str(error)]

def told(problems):
    return [[problem.what, problem.error.reason, problem.error.detail, problem.error.cure]
            for problem in problems]

def discover():
    return GpuVendor("AMD", lambda: amd.discover(Path(os.environ["NODE_ROOT"]))).gpus()
"""

# For clients of a simulation: all drivers, and the hand on the simulation itself.
WITH_GPUS = """
simulation = SimulatedAmdSmi.from_environment()
drivers, problems = discover()
driver = drivers[0] if drivers else None
"""

# How clocks are limited, and what the limits are.
CLOCKS = """
def bounds(clock):
    return clock and [clock.minimum, clock.maximum]

def clocks(driver):
    return [bounds(driver.locked_graphics_clock()), bounds(driver.locked_memory_clock())]
"""

Ask = Callable[..., Any]


@pytest.fixture
def node_root(tmp_path: Path) -> Path:
    """A file system without any AMD GPU."""
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture
def run(tmp_path: Path, node_root: Path) -> Ask:
    """Runs a client with more environment variables and returns its answer."""

    def run(script: str, **variables: str) -> Any:
        file = tmp_path / "answer.json"
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ROCM_")},
            "PYTHONPATH": PYTHONPATH,
            # The last place where the binding looks is /opt/rocm, unless told otherwise.
            "ROCM_PATH": str(tmp_path / "no-rocm"),
            "ZEUS_STATE_DIR": str(tmp_path / "zeus"),
            "NODE_ROOT": str(node_root),
            "ANSWER": str(file),
            **variables,
        }
        command = [sys.executable, "-c", PRELUDE + script]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
        return json.loads(file.read_text())

    return run


@pytest.fixture
def simulate(tmp_path: Path) -> Iterator[Callable[..., SimulatedAmdSmi]]:
    """Makes the simulated machine of the test."""
    made: list[SimulatedAmdSmi] = []

    def simulate(*gpus: AmdGpuSpec) -> SimulatedAmdSmi:
        made.append(SimulatedAmdSmi.create(tmp_path / "state", gpus))
        return made[-1]

    yield simulate
    for simulation in made:
        simulation.close()


@pytest.fixture
def ask(run: Ask, amdsmi_library: Path) -> Ask:
    """Runs a client of a simulation."""

    def ask(simulation: SimulatedAmdSmi, script: str) -> Any:
        return run(WITH_GPUS + script, **simulation.environment(amdsmi_library))

    return ask


def same(*watts: float) -> Any:
    return pytest.approx(list(watts))
