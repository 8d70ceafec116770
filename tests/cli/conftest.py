"""Commands that run in a process of their own, and the simulated NVIDIA driver for them."""

from __future__ import annotations

import pytest
from tests.cli.support import end_all

from simulated_drivers import SimulatedNvml


@pytest.fixture(autouse=True)
def no_process_outlives_its_test():
    """Also if the test fails half way."""
    yield
    end_all()


@pytest.fixture
def nvml(tmp_path, nvml_library):
    """Make a simulated driver: call with `GpuSpec`s, get it and the variables that load it."""
    made: list[SimulatedNvml] = []

    def make(*gpus):
        sim = SimulatedNvml.create(tmp_path / f"nvml-{len(made)}", gpus)
        made.append(sim)
        return sim, sim.environment(nvml_library)

    yield make
    for sim in made:
        sim.close()
