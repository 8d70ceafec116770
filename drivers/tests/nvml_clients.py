"""Clients of the simulated NVML driver, through the unmodified binding.

Every client runs in a process of its own, because the loader reads LD_LIBRARY_PATH only once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulated_drivers import GpuSpec, NvmlReturn, SimulatedNvml
from zeus.device._sensors import Sensor

# What every client starts with. `outcome` turns an error of the binding into its number.
PRELUDE = """
import json, os, sys, threading, time
import pynvml as N

def outcome(function, *arguments):
    try:
        return function(*arguments)
    except N.NVMLError as error:
        return f"error {error.value}"

def answer(value):
    print(json.dumps(value), flush=True)

def start():
    N.nvmlInit()
    return [N.nvmlDeviceGetHandleByIndex(i) for i in range(N.nvmlDeviceGetCount())]
"""

ENERGY_FIELD, AVERAGE_FIELD, INSTANT_FIELD = 83, 185, 186
LIMIT_FIELDS = {"min": 187, "max": 188, "default": 189, "current": 190, "requested": 192}


def error(code: NvmlReturn) -> str:
    return f"error {code.value}"


def frozen(spec: GpuSpec) -> GpuSpec:
    """The same GPU with an energy counter that ticked just now and not again for long."""
    period = 1e6
    counter = Sensor(period=period, phase=time.monotonic() / period % 1)
    return replace(spec, sensors=replace(spec.sensors, counter=counter))


class Clients:
    """Starts processes that use one simulated driver."""

    def __init__(self, sim: SimulatedNvml, library: Path) -> None:
        self.environment = os.environ | sim.environment(library)

    def start(self, code: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PRELUDE + code]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def finish(self, client: subprocess.Popen[str]) -> Any:
        """What the client answered last, or `None`."""
        out, err = client.communicate(timeout=300)
        assert client.returncode == 0, err
        return json.loads(out.splitlines()[-1]) if out else None

    def run(self, code: str) -> Any:
        return self.finish(self.start(code))

    def module(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


Simulate = Callable[..., tuple[SimulatedNvml, Clients]]


@pytest.fixture
def simulate(tmp_path: Path, nvml_library: Path) -> Iterator[Simulate]:
    created: list[SimulatedNvml] = []

    def create(*gpus: GpuSpec, **options: Any) -> tuple[SimulatedNvml, Clients]:
        sim = SimulatedNvml.create(tmp_path / f"nvml-{len(created)}", gpus, **options)
        created.append(sim)
        return sim, Clients(sim, nvml_library)

    yield create
    for sim in created:
        sim.close()


def wait_for_call(sim: SimulatedNvml, function: str) -> None:
    deadline = time.monotonic() + 120
    while sim.calls(function) == 0:
        assert time.monotonic() < deadline, f"{function} was never called"
        time.sleep(0.002)
