"""Commands that run in a process of their own, and the simulated NVIDIA driver for them."""

from __future__ import annotations

import pytest
from tests.cli.support import end_all
from tests.optimizer.pipeline_frequency.job.reports import registering, registration
from tests.server.child import serving

from simulated_drivers import SimulatedNvml
from zeus.optimizer.pipeline_frequency.api._remote import RemotePipelines


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


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A server that knows the first of eight ranks of a pipeline job, `gpt3`."""
    with serving(f"sqlite:///{tmp_path_factory.mktemp('pipelines')}/jobs.db") as server:
        api = RemotePipelines(server.url, server.token, timeout=60.0)
        api.do(registering("gpt3", registration(0, (4, 2, 1))))
        yield server


@pytest.fixture
def server(started):
    """The same, with its token where commands find it."""
    started.share_token()
    return started
