"""Clients of the NVIDIA back end, over the unmodified binding and a simulated driver library.

Each client is a process of its own, because the loader reads LD_LIBRARY_PATH only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from tests.device.clients import Clients

from simulated_drivers import GpuSpec, SimulatedNvml

AVERAGE_FIELD, INSTANT_FIELD = 185, 186
NO_FIELDS = (AVERAGE_FIELD, INSTANT_FIELD)
OLD, NEW = (8, 0), (8, 6)  # GA100, whose power reading is of now, and GA10x, whose is a mean

# What clients of a simulation add to the common beginning.
WITH_SIMULATION = """
from simulated_drivers import SimulatedNvml
from zeus.device import _guard as guard
simulation = SimulatedNvml.from_environment()

def told(problems):
    return [[problem.what, str(problem.error.reason), problem.error.cure] for problem in problems]

def ask_all(gpu, *questions):
    return [outcome(getattr(gpu, question)) for question in questions]
"""

UNSUPPORTED, REFUSED, LOST = "unsupported", "no permission", "device lost"
HANGS, IMPLAUSIBLE, ABSENT = "driver call hangs", "implausible value", "driver absent"


class Rig:
    """A simulated driver and the clients that use it."""

    def __init__(self, simulation: SimulatedNvml, prelude: str, **environment: str) -> None:
        self.simulation = simulation
        self.prelude = prelude
        self.clients = Clients(CUDA_DEVICE_ORDER="PCI_BUS_ID", **environment)

    def ask(self, script: str, **variables: str) -> Any:
        return self.clients.ask(self.prelude + script, **variables)

    def start(self, script: str, **variables: str) -> Any:
        return self.clients.start(self.prelude + script, **variables)

    def limits(self) -> list[float]:
        return [self.simulation.power_limit(gpu) for gpu in range(len(self.simulation))]


MakeRig = Callable[..., Rig]


@contextmanager
def rigs(
    folder: Path, library: Path, prelude: str = WITH_SIMULATION, **environment: str
) -> Iterator[MakeRig]:
    """Makes rigs of GPUs, and takes them down.

    Args:
        folder: For their state.
        library: Of the simulated driver.
        prelude: What scripts of clients begin with.
        environment: More variables for clients.
    """
    with ExitStack() as made:

        def make(*gpus: GpuSpec) -> Rig:
            anyone = [replace(gpu, needs_root=False) for gpu in gpus]  # whoever runs the tests
            simulation = SimulatedNvml.create(Path(mkdtemp(dir=folder)) / "nvml", anyone)
            made.callback(simulation.close)
            rig = Rig(simulation, prelude, **simulation.environment(library), **environment)
            made.callback(rig.clients.stop)
            return rig

        yield make


@pytest.fixture
def rig(tmp_path: Path, nvml_library: Path) -> Iterator[MakeRig]:
    """Makes a machine of the given GPUs."""
    with rigs(tmp_path, nvml_library) as make:
        yield make


def reasons(answers: list[Any]) -> list[Any]:
    """Values as they are, refusals by their reason."""
    return [answer[0] if isinstance(answer, list) else answer for answer in answers]
